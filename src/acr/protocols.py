"""Protocols: the sound evaluation, the published one, and the quirks that make the difference.

The released program of the paper does a number of things that its text does not mention or that distort a comparison.
Each of them is a *quirk* with a name here. ``sound``, the default protocol, has none of them; ``published`` has them
all; ``--quirk NAME`` and ``--no-quirk NAME`` switch a single one, so that each can be measured alone. For each quirk,
the method or the evaluator asks the :class:`Protocol` in one place whether it applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from acr.errors import InputError, unknown

QUIRKS: dict[str, str] = {
    "wrapped-ood": "corrupt wrapped bytes of the normalised test image and do not normalise afterwards",
    "clean-in-ood": "count the clean image as a twelfth shifted image",
    "fresh-ood-noise": "draw new corruptions at every evaluation",
    "wrapped-views": "make ACR's second view from wrapped bytes and do not normalise it",
    "frozen-replay": "ER and MetaSP store the augmented view and replay it unchanged",
    "shuffled-metasp": "MetaSP stores random samples in place of the chosen ones",
    "small-replay-padding": "replayed images are padded by 1 on Mini- and Tiny-ImageNet, with mean grey everywhere",
    "unseen-outputs": "the prediction is the largest of all outputs, including those of classes not yet seen",
    "gdumb-as-released": "GDumb fills a reservoir and fits after the last task only",
    "separate-passes": "ACR sends current and memory images through the network separately, not as one batch",
    "hash-ordered-quotas": "remainders of the quotas are distributed in the order of a Python set of the labels",
}
"""Every quirk, and what it restores."""

FORMER_QUIRKS: dict[str, str] = {
    "misplaced-soif-weight": "It is now SOIF's default: --weighting released.",
}
"""Quirks of earlier versions, and what to do instead."""

PROTOCOLS: dict[str, frozenset[str]] = {"sound": frozenset(), "published": frozenset(QUIRKS)}


@dataclass(frozen=True)
class Protocol:
    """The name of a protocol and the quirks that apply."""

    name: str = "sound"
    quirks: frozenset[str] = frozenset()

    @classmethod
    def make(cls, name: str = "sound", on: Iterable[str] = (), off: Iterable[str] = ()) -> Protocol:
        """The protocol ``name`` with the quirks in ``on`` added and those in ``off`` removed."""
        if name not in PROTOCOLS:
            raise unknown("protocol", name, PROTOCOLS)
        for quirk in (*on, *off):
            if quirk in FORMER_QUIRKS:
                raise InputError(f"{quirk!r} is no longer a quirk. {FORMER_QUIRKS[quirk]}")
            if quirk not in QUIRKS:
                raise unknown("quirk", quirk, QUIRKS)
        return cls(name, (PROTOCOLS[name] | frozenset(on)) - frozenset(off))

    def __contains__(self, quirk: str) -> bool:
        if quirk not in QUIRKS:
            raise unknown("quirk", quirk, QUIRKS)
        return quirk in self.quirks

    @property
    def headline(self) -> Literal["seen", "all"]:
        """The outputs among which the reported accuracy is measured: the classes ``seen`` so far, or ``all``."""
        return "all" if "unseen-outputs" in self else "seen"

    @property
    def label_order(self) -> Callable[[list[int]], list[int]]:
        """The order in which a task's classes get the remainder of its quota."""
        return hash_set_order if "hash-ordered-quotas" in self else sorted

    def replay_border(self, dataset: str, padding: int, mean: Sequence[float]) -> tuple[int, tuple[float, ...] | None]:
        """Padding of a replayed image before its random crop, in pixels, and the border's colour (None: black).

        ``padding`` and ``mean`` are the data set's own: pixels, and one value per channel on the scale 0..1.
        """
        if "small-replay-padding" not in self:
            return padding, None
        small = dataset in ("split-mini-imagenet", "split-tiny-imagenet")
        return (1 if small else padding), tuple(mean)


def hash_set_order(labels: list[int]) -> list[int]:
    """The iteration order of a Python set of small integers, which follows their places in a hash table.

    >>> hash_set_order([30, 31, 32, 33, 34, 35, 36, 37, 38, 39])
    [32, 33, 34, 35, 36, 37, 38, 39, 30, 31]
    """
    return list(set(labels))
