"""How long the mathematics of the compared methods takes, next to the straightforward way of computing the same.

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
from torch.func import functional_call

from acr.methods.maths.gradient_similarity import gradient_similarity
from acr.methods.maths.influence import influences
from acr.methods.maths.ntk import ntk
from acr.methods.maths.selection import KernelMachine, delete_rows, fit, row_weights


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


def pictures(count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Smooth images around one picture a class, so that kernels have something to see."""
    labels = torch.randint(classes, (count,))
    centres = F.interpolate(torch.randn(classes, 3, 4, 4), size=32, mode="bilinear")
    return centres[labels] + F.interpolate(torch.randn(count, 3, 8, 8), size=32, mode="bilinear"), labels


def kernel(width: int, stored: int) -> None:
    network, (images, labels) = resnet18(width), batch(64)
    images_a, images_b = pictures(32, 100)[0], pictures(stored + 32, 100)[0]
    compare(
        f"SOIF: the 32 new rows of a kernel of {stored + 32} samples, of which {stored} are stored",
        {
            f"one training step of 64 images, width {width}": lambda: plain_step(network, images, labels),
            "new rows of the kernel": lambda: ntk(images_a, images_b),
        },
    )


def selection(width: int, stored: int) -> None:
    network, (images, labels) = resnet18(width), batch(64)
    rows = stored + 32
    features, targets = pictures(rows, 100)
    features = F.normalize(features.flatten(1)) * 2
    gram = features @ features.T + 0.7 * torch.eye(rows)  # about the spectrum of the true kernel
    weights = row_weights(stored, 32, 5000).to(gram)
    alpha = fit(gram, targets, weights, 100, torch.Generator().manual_seed(0))
    machine = KernelMachine(gram, targets, alpha, 1e-3)
    solution = machine.solve(machine.gradient(weights), weights)
    compare(
        f"SOIF: choose {stored} of {rows} samples, 100 classes",
        {
            f"one training step of 64 images, width {width}": lambda: plain_step(network, images, labels),
            "kernel machine (L-BFGS)": lambda: fit(gram, targets, weights, 100, torch.Generator().manual_seed(0)),
            "conjugate gradients": lambda: machine.solve(machine.gradient(weights), weights),
            "deleting 32 rows": lambda: delete_rows(machine, weights, solution, 32, 0.5, 0.01),
        },
    )


def double_backward(network: nn.Module, train: tuple[Tensor, Tensor], validations: list[tuple[Tensor, Tensor]]) -> None:
    """The influences by differentiating through the virtual step; one step shared by all validation sets."""
    parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())

    def logits(values: dict[str, Tensor], images: Tensor) -> Tensor:
        return functional_call(network, {**values, **{n: b.clone() for n, b in buffers.items()}}, (images,))

    weights = torch.full((len(train[0]),), 1 / len(train[0]), requires_grad=True)
    losses = F.cross_entropy(logits(parameters, train[0]), train[1], reduction="none")
    step = torch.autograd.grad(losses @ weights, list(parameters.values()), create_graph=True)
    virtual = {n: p - 0.1 * g for (n, p), g in zip(parameters.items(), step, strict=True)}
    for images, labels in validations:
        torch.autograd.grad(F.cross_entropy(logits(virtual, images), labels), weights, retain_graph=True)


def metasp(width: int, **_: int) -> None:
    network, train, first, second = resnet18(width).train(), batch(64), batch(50), batch(50)
    compare(
        f"MetaSP: influences of 64 samples on twice 50, ResNet-18 of width {width}",
        {
            "one training step of 64 images": lambda: plain_step(network, *train),
            "forward mode (influences)": lambda: influences(network, *train, first, second, 0.1),
            "double backward, shared virtual step": lambda: double_backward(network, train, [first, second]),
            "double backward, a virtual step for each set": lambda: [
                double_backward(network, train, [validation]) for validation in (first, second)
            ],
        },
    )


PARTS: dict[str, Callable[..., None]] = {"gss": gss, "ntk": kernel, "selection": selection, "metasp": metasp}


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
