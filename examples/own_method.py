"""A method of your own: replay with a smaller weight on the replayed images. Run it: python examples/own_method.py"""

import tempfile
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

import acr
from acr.config import MethodOptions
from acr.methods.bases import ReplayMethod, ReplayOptions
from acr.methods.method import Batch, register


class GentleReplayOptions(ReplayOptions):
    """Each option becomes a flag and a config field; the docstring below it is its help text."""

    replay_weight: float = 0.5
    """Weight of the loss on replayed images."""


@register
class GentleReplay(ReplayMethod):
    """Cross-entropy on the current batch, plus a weighted cross-entropy on a replayed one."""

    name = "gentle-replay"
    label = "Gentle Replay"
    summary = "Replay with a smaller weight than the current batch"
    Options: ClassVar[type[MethodOptions]] = GentleReplayOptions
    options: GentleReplayOptions

    def observe(self, batch: Batch) -> Tensor:
        """One step. The memory, its policy, resuming and reports come with ReplayMethod."""
        loss = F.cross_entropy(self.network(batch.augmented), batch.labels)
        if len(self.buffer):
            images, labels = self.retrieve()
            loss = loss + self.options.replay_weight * F.cross_entropy(self.network(images), labels)
        self.step(loss)
        self.remember(batch)
        return loss.detach()


if __name__ == "__main__":
    from acr.testing import check_method

    print(check_method(GentleReplay))
    with tempfile.TemporaryDirectory() as out:
        run = acr.run("gentle-replay", out=out, epochs=5, ood_every="never", replay_weight=0.3)
        accuracy = run.summary()["acc"]
    print(f"accuracy on ten digits learned two at a time, with 50 images remembered: {accuracy:.0%}")
    print("Without a memory it is about 20 %: only the last two digits are known.")
