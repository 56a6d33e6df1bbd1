"""Evaluation under shift: the common corruptions of Hendrycks & Dietterich (ICLR 2019), batched and keyed.

The names and tables are light; the functions need numpy, scipy and torch, and are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acr.shift.severities import CONSTANTS, CORRUPTIONS, PAPER_CORRUPTIONS, SEVERITIES

if TYPE_CHECKING:
    from acr.shift.corruptions import corrupt, corrupt_float, wrap, wrapped_bytes

__all__ = [
    "CONSTANTS",
    "CORRUPTIONS",
    "PAPER_CORRUPTIONS",
    "SEVERITIES",
    "corrupt",
    "corrupt_float",
    "wrap",
    "wrapped_bytes",
]

_LAZY = ("corrupt", "corrupt_float", "wrap", "wrapped_bytes")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from acr.shift import corruptions

        return getattr(corruptions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
