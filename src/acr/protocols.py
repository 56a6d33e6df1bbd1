"""Protocols: the sound evaluation, the published one, and the quirks that make the difference.

The released program of the paper does a number of things that its text does not say or that distort a comparison.
Each is a *quirk* with a name here. ``sound``, the default protocol, has none of them; ``published`` has them all;
``--quirk NAME`` and ``--no-quirk NAME`` switch one, so that each can be measured alone. Methods and the evaluator ask
a :class:`Protocol` at one point each whether a quirk is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from acr.errors import unknown

QUIRKS: dict[str, str] = {
    "wrapped-ood": "corrupt wrapped bytes of the normalised test image and do not normalise afterwards",
    "clean-in-ood": "count the clean image as a twelfth shifted image",
    "fresh-ood-noise": "draw the corruptions anew at every evaluation",
    "wrapped-views": "make ACR's second view from wrapped bytes and leave it un-normalised",
    "frozen-replay": "ER and MetaSP store the augmented view and replay it as it is",
    "shuffled-metasp": "MetaSP stores random samples in place of the chosen ones",
    "misplaced-soif-weight": "SOIF's weight for new samples lands on the last stored ones",
    "small-replay-padding": "replayed images are padded by 1 on Mini- and Tiny-ImageNet, with mean grey everywhere",
    "unseen-outputs": "the prediction is the best of all outputs, those of classes not yet seen included",
    "gdumb-as-released": "GDumb fills a reservoir and is fitted after the last task only",
    "hash-ordered-quotas": "remainders of the quotas are handed out in the order of a Python set of the labels",
}
"""Every quirk and what it brings back."""

PROTOCOLS: dict[str, frozenset[str]] = {"sound": frozenset(), "published": frozenset(QUIRKS)}


@dataclass(frozen=True)
class Protocol:
    """A protocol's name and the quirks in force."""

    name: str = "sound"
    quirks: frozenset[str] = frozenset()

    @classmethod
    def make(cls, name: str = "sound", on: Iterable[str] = (), off: Iterable[str] = ()) -> Protocol:
        """A protocol with single quirks switched on and off."""
        if name not in PROTOCOLS:
            raise unknown("protocol", name, PROTOCOLS)
        for quirk in (*on, *off):
            if quirk not in QUIRKS:
                raise unknown("quirk", quirk, QUIRKS)
        return cls(name, (PROTOCOLS[name] | frozenset(on)) - frozenset(off))

    def __contains__(self, quirk: str) -> bool:
        if quirk not in QUIRKS:
            raise unknown("quirk", quirk, QUIRKS)
        return quirk in self.quirks

    @property
    def headline(self) -> Literal["seen", "all"]:
        """Over which outputs the reported accuracy is taken: the classes ``seen`` so far, or ``all``."""
        return "all" if "unseen-outputs" in self else "seen"

    @property
    def label_order(self) -> Callable[[list[int]], list[int]]:
        """The order in which a task's classes get the remainder of its quota."""
        return hash_set_order if "hash-ordered-quotas" in self else sorted

    def replay_border(self, dataset: str, padding: int, mean: Sequence[float]) -> tuple[int, tuple[float, ...] | None]:
        """Padding of a replayed image before its random crop, and the border's colour (None: black)."""
        if "small-replay-padding" not in self:
            return padding, None
        small = dataset in ("split-mini-imagenet", "split-tiny-imagenet")
        return (1 if small else padding), tuple(mean)


def hash_set_order(labels: list[int]) -> list[int]:
    """The order a Python set of small integers is walked in: by their place in a hash table.

    >>> hash_set_order([30, 31, 32, 33, 34, 35, 36, 37, 38, 39])
    [32, 33, 34, 35, 36, 37, 38, 39, 30, 31]
    """
    return list(set(labels))
