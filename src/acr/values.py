"""Values as people write them: numbers, lists, ranges, times and names, turned into what a config holds.

A function here raises a ``ValueError`` that says what was expected; the model whose field it checks adds which field.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

MOST = 10**18 - 1
"""The largest whole number of any field: 18 digits."""
MOST_LABELS = 100_000
"""Labels in a list, once its ranges are written out."""


def whole_number(value: Any) -> Any:
    """A whole number, also as text; ``ValueError`` for anything that is merely close to one, such as 1.5 or yes.

    >>> whole_number(3), whole_number("12"), whole_number(None)
    (3, 12, None)
    """
    if value is None or (isinstance(value, str) and WHOLE.fullmatch(value)):
        value = None if value is None else int(value)
    elif hasattr(type(value), "__index__") and not isinstance(value, bool):  # NumPy's integers among them
        value = value.__index__()
    else:
        raise ValueError("a whole number")
    if value is not None and abs(value) > MOST:
        raise ValueError("a whole number of at most 18 digits")
    return value


WHOLE = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)


def as_list(value: Any) -> Any:
    """``"3,3,4"``, ``"3 3 4"`` and ``["3,3", "4"]`` as a list of single values; a single value as a list of one."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return [word for part in value for word in part.replace(",", " ").split()]
    return [value] if isinstance(value, int) else value


def with_ranges(value: Any) -> Any:
    """As :func:`as_list`, with ``"1-5"`` standing for 1, 2, 3, 4, 5."""
    given = as_list(value)
    if not isinstance(given, (list, tuple)):
        return given  # not a list at all: validation reports it
    parts: list[Any] = []
    for part in given:
        span = RANGE.fullmatch(part) if isinstance(part, str) else None
        parts += range(int(span[1]), int(span[2]) + 1) if span else [part]
        if len(parts) > MOST_LABELS:
            raise ValueError(f"at most {MOST_LABELS:,} numbers")
    return parts


RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)


def to_class_order(value: Any) -> Any:
    """A list of labels as numbers; ``file`` and ``random:SEED`` stay text."""
    if isinstance(value, str) and value.startswith("random:"):
        if not RANDOM_ORDER.fullmatch(value):
            raise ValueError("random:SEED, with a whole number of at most 18 digits as the seed")
        return value
    if value == "file":
        return value
    parts = with_ranges(value)
    if isinstance(value, str) and not all(isinstance(part, int) or WHOLE.fullmatch(part) for part in parts):
        raise ValueError("file, random:SEED, or a list of labels, such as 5,0-3")
    return parts


RANDOM_ORDER = re.compile(r"random:[0-9]{1,18}", re.ASCII)


def seconds(value: Any) -> Any:
    """``"5m"``, ``"90s"``, ``"1h"`` as seconds."""
    if isinstance(value, str) and (match := LENGTH_OF_TIME.fullmatch(value)):
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    return value


LENGTH_OF_TIME = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})([smh])", re.ASCII)


RESNET18 = "resnet18"
FILE_MODULE = "acr-encoder:"
"""What the names of modules begin with that were read from ``FILE.py:FUNCTION``; nobody can import them by name."""
_FUNCTION = re.compile(r"(.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):[^\W\d]\w*(\.[^\W\d]\w*)*", re.DOTALL)


def network_name(value: Any) -> Any:
    """``resnet18``, or the name under which a function that makes an encoder is found again in another process."""
    if callable(value):
        return _name_of_function(value)
    if isinstance(value, str) and value != RESNET18 and not _FUNCTION.fullmatch(value):
        raise ValueError(f"{RESNET18}, or a function that makes an encoder: MODULE:FUNCTION or FILE.py:FUNCTION")
    return value


def _name_of_function(function: Any) -> str:
    """``MODULE:FUNCTION``, or ``FILE.py:FUNCTION`` if it is defined in a script.

    Refuses what has no name that leads back to it, such as a lambda: a run must be able to resume in another process.
    """
    module = sys.modules.get(str(getattr(function, "__module__", None)))
    name = str(getattr(function, "__qualname__", ""))
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    in_a_script = module is not None and (module.__name__ == "__main__" or module.__name__.startswith(FILE_MODULE))
    file = getattr(module, "__file__", None) if in_a_script else None
    if module is None or found is not function or (in_a_script and file is None):
        raise ValueError(
            "a function at the top level of a module or script, so that the run can find it when it resumes"
        )
    if file is None:
        return f"{module.__name__}:{name}"
    path, here = Path(file).resolve(), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{name}"


OFF = "off"
AUTO: Final = "auto"
AUTO_PER_TASK, AUTO_MOST = 0.07, 0.5
"""The rule called ``auto``, in shares of a task's steps: this much per task so far, and at most this much."""
HALF_LIFE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(t?)", re.ASCII)


@dataclass(frozen=True)
class HalfLife:
    """After how many steps something counts half as much in a mean: a number of steps, or a share of a task's.

    The rule ``auto`` is a share that grows with the number of tasks: the more to remember, the longer the mean.
    """

    number: float
    unit: Literal["", "t", "auto"]
    """Steps; shares of a task's steps (``t``); shares of a task's steps per task so far (``auto``)."""

    @classmethod
    def parse(cls, text: str) -> HalfLife:
        """From text such as ``300`` (steps), ``0.5t`` (half of a task's steps) or ``auto`` (the rule).

        >>> [HalfLife.parse(text).steps(of_the_task=640, tasks=10) for text in ("300", "0.2t", "auto")]
        [300.0, 128.0, 320.0]
        """
        if text == AUTO:
            return cls(AUTO_PER_TASK, AUTO)
        match = HALF_LIFE.fullmatch(text)
        if match is None or not float(match[1]) > 0:
            raise ValueError("off, auto, a number of steps such as 300, or a share of a task such as 0.2t")
        return cls(float(match[1]), "t" if match[2] else "")

    def steps(self, of_the_task: int, tasks: int) -> float:
        """The half-life in steps, in a task of so many steps that is the first, second ... (1, 2 ...) of its run."""
        if self.unit == AUTO:
            return min(self.number * tasks, AUTO_MOST) * of_the_task
        return self.number * of_the_task if self.unit else self.number

    def __str__(self) -> str:
        return AUTO if self.unit == AUTO else f"{self.number:.15g}{self.unit}"


def half_life(value: Any) -> Any:
    """``off``, ``auto``, or a half-life in one way of writing, so that ``.50t`` and ``0.5t`` are the same run.

    >>> half_life(".50t"), half_life(300), half_life(False)
    ('0.5t', '300', 'off')
    """
    if value is False or value == OFF:  # YAML reads a bare off as false
        return OFF
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = f"{value:.15g}"
    return str(HalfLife.parse(value if isinstance(value, str) else ""))


MOST_PER_PLACE = 16


def per_place(value: Any) -> Any:
    """``auto``, or how many images share a place of the memory.

    >>> per_place("auto"), per_place("4"), per_place(1)
    ('auto', 4, 1)
    """
    try:
        number = None if value == AUTO else whole_number(value)
    except ValueError:
        number = 0
    if value != AUTO and (number is None or not 1 <= number <= MOST_PER_PLACE):
        raise ValueError(f"auto, or a whole number from 1 to {MOST_PER_PLACE}")
    return AUTO if number is None else number


PerPlace = Annotated[Literal["auto"] | int, BeforeValidator(per_place)]
Whole = Annotated[int, BeforeValidator(whole_number)]
Integers = Annotated[tuple[Whole, ...], BeforeValidator(as_list)]
Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Duration = Annotated[float, BeforeValidator(seconds)]
