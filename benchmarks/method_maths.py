"""How long the mathematics under the compared methods takes, always beside the plain way to do the same.

    python benchmarks/method_maths.py [gss] [ntk] [selection] [metasp] [--width 16] [--stored 500] [--threads 1]

Ratios come from one run that alternates the two sides and takes the best of several repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acr.methods.gradient_similarity import gradient_similarity


class Block(nn.Module):
    """A basic residual block."""

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(entering, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or entering != width:
            self.shortcut = nn.Sequential(nn.Conv2d(entering, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return F.relu(self.main(x) + self.shortcut(x))


def resnet18(width: int, classes: int = 100) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    entering = width
    for group in range(4):
        for block in range(2):
            leaving = width * 2**group
            layers.append(Block(entering, leaving, 2 if group and not block else 1))
            entering = leaving
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(entering, classes))


def compare(title: str, sides: dict[str, Callable[[], object]], repeats: int = 3) -> None:
    """Time the sides in turn and print each one's best time and its ratio to the first."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            best[name] = min(best[name], time.perf_counter() - start)
    first = next(iter(best.values()))
    print(title)
    for name, seconds in best.items():
        print(f"  {name:<46} {1000 * seconds:10.1f} ms   {seconds / first:6.2f}")


def batch(count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, 32, 32), torch.randint(100, (count,))


def plain_step(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    network.train()
    network.zero_grad()
    F.cross_entropy(network(images), labels).backward()


def gradient_loop(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    network.eval()
    parameters = list(network.parameters())
    rows = []
    for image, label in zip(images, labels, strict=True):
        gradients = torch.autograd.grad(F.cross_entropy(network(image[None]), label[None]), parameters)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    rows = F.normalize(torch.stack(rows))
    return rows[:32] @ rows[32:].T


def gss(width: int, **_: int) -> None:
    network, (images, labels) = resnet18(width), batch(64)
    compare(
        f"GSS: similarities of 32 and 32 samples, ResNet-18 of width {width}",
        {
            "one training step of 64 images": lambda: plain_step(network, images, labels),
            "a loop over samples": lambda: gradient_loop(network, images, labels),
            "gradient_similarity": lambda: gradient_similarity(
                network, images[:32], labels[:32], images[32:], labels[32:]
            ),
        },
    )


PARTS: dict[str, Callable[..., None]] = {"gss": gss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help=f"any of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--stored", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    for name in arguments.parts or PARTS:
        PARTS[name](width=arguments.width, stored=arguments.stored)


if __name__ == "__main__":
    main()
