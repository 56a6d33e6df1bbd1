"""Encoders that users bring: found by name, made by their function, and tried out before anything is trained.

The function takes any of ``channels``, ``image_size`` and ``width`` and returns a module that maps normalised images,
n x channels x image_size x image_size, to n x F vectors. F is found by a trial pass.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from acr.errors import InputError
from acr.values import FILE_MODULE

GIVEN = ("channels", "image_size", "width")
"""Parameters that the function may have; each is passed by name if it does."""


class EncoderFunction:
    """A function that makes encoders, by its name ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``.

    Finding it imports the module, and so runs code of the user's. It is imported once for all encoders of a run. The
    current folder can be imported from, as with ``python -m``; for FILE.py it is the file's folder.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.where, _, self.function_name = name.rpartition(":")
        self.folder = Path(self.where).resolve().parent if self.where.endswith(".py") else Path.cwd()
        with _importable(self.folder):
            self.function = self._find()
        self.given = _accepted(self.function, name)

    def _find(self) -> Callable[..., Any]:
        try:
            module = _read_file(Path(self.where)) if self.where.endswith(".py") else _import(self.where)
        except InputError as error:
            raise InputError(f"--network {self.name}: {error}") from error.__cause__
        found: Any = module
        for part in self.function_name.split("."):
            if not hasattr(found, part):
                there = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
                listed = f" It has: {', '.join(there[:8])}." if there else ""
                raise InputError(f"--network {self.name}: {self.where} has no {self.function_name!r}.{listed}")
            found = getattr(found, part)
        if not callable(found):
            kind = type(found).__name__
            raise InputError(f"--network {self.name} is a {kind}; it must be a function that makes an encoder.")
        return found

    def make(self, **values: int) -> nn.Module:
        """A new encoder; ``values`` are those of :data:`GIVEN`. Initialisers draw from the global generator."""
        with _importable(self.folder):
            try:
                made = self.function(**{name: values[name] for name in self.given})
            except InputError:
                raise
            except Exception as error:
                call = ", ".join(f"{name}={values[name]}" for name in self.given)
                raise InputError(f"--network {self.name} failed when called with ({call}): {_short(error)}") from error
        if not isinstance(made, nn.Module):
            raise InputError(
                f"--network {self.name} returned a {type(made).__name__}; it must return a torch.nn.Module."
            )
        return made


@dataclass(frozen=True)
class Trial:
    """What a trial pass shows about an encoder."""

    features: int
    """Length of the vectors."""
    draws: bool
    """Whether it draws from the global generator in training mode, as dropout does."""


def try_out(encoder: nn.Module, name: str, channels: int, image_size: int) -> Trial:
    """Pass two images through a new encoder, in evaluation and in training mode, and check what comes out.

    Neither parameters nor buffers are changed; afterwards it is in training mode. ``name`` is for error messages.
    """
    images = torch.zeros(2, channels, image_size, image_size)
    with torch.no_grad():
        # A real call first: lazy layers take their shapes from it.
        features = _width_of(_pass(encoder.eval(), images, name), images, name)
        before = torch.get_rng_state()
        encoder.train()
        # In training mode on copies of the buffers, so that batch norm's running averages stay as they are.
        copies = {buffer: value.clone() for buffer, value in encoder.named_buffers()}
        _width_of(_pass(lambda x: functional_call(encoder, copies, (x,)), images, name), images, name)
    return Trial(features, not torch.equal(before, torch.get_rng_state()))


def _pass(encoder: Callable[[Tensor], Any], images: Tensor, name: str) -> Any:
    try:
        return encoder(images)
    except Exception as error:
        shape = " x ".join(map(str, images.shape))
        raise InputError(f"The encoder of --network {name} failed on images of {shape}: {_short(error)}") from error


def _width_of(vectors: Any, images: Tensor, name: str) -> int:
    """The length of the vectors that an encoder returned, if they are as they must be."""
    expected = f"must return {len(images)} vectors for {len(images)} images, a float32 tensor of images x features"
    if not isinstance(vectors, Tensor):
        raise InputError(f"The encoder of --network {name} {expected}; it returned a {type(vectors).__name__}.")
    if vectors.ndim != 2 or len(vectors) != len(images) or not vectors.shape[1] or vectors.dtype != torch.float32:
        shape, kind = " x ".join(map(str, vectors.shape)) or "no dimension", str(vectors.dtype).removeprefix("torch.")
        raise InputError(f"The encoder of --network {name} {expected}; it returned {kind} of {shape}.")
    if not vectors.isfinite().all():
        raise InputError(f"The encoder of --network {name} returns values that are not finite for images of zeros.")
    return vectors.shape[1]


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules in a folder can be imported within this context; installed ones of the same name come first."""
    sys.path.append(str(folder))
    importlib.invalidate_caches()  # the file may be newer than the last look into its folder
    try:
        yield
    finally:
        if str(folder) in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(str(folder))]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"importing {name} failed: {_short(error)}") from error
        raise InputError(
            f"there is no module {name!r}, neither installed nor in {Path.cwd()}. "
            "Start from the folder that holds it, or name the file: FILE.py:FUNCTION."
        ) from None
    except Exception as error:
        raise InputError(f"importing {name} failed: {_short(error)}") from error


_being_read: set[str] = set()
"""Names of the modules whose files are being executed now."""


def _read_file(path: Path) -> ModuleType:
    """The module in a Python file. The script that is running is not run a second time."""
    if not path.is_file():
        raise InputError(f"there is no file {path} (looked for in {Path.cwd()}).")
    path = path.resolve()
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None) is not None and Path(str(main.__file__)).resolve() == path:
        return main
    name = f"{FILE_MODULE}{path.stem}-{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    if name in _being_read:
        raise InputError(f'{path} starts a run while it is read. Put that part under: if __name__ == "__main__":')
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    _being_read.add(name)
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"reading {path} failed: {_short(error)}") from error
    finally:
        _being_read.discard(name)
    return module


def _accepted(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Which of :data:`GIVEN` a function takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C do not tell
        return ()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return GIVEN
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    optional = {p.name for p in parameters if p.default is not p.empty or p.kind is p.VAR_POSITIONAL}
    unmet = [p.name for p in parameters if p.name not in optional and p.name not in by_name.intersection(GIVEN)]
    if unmet:
        raise InputError(
            f"--network {name} needs {', '.join(map(repr, unmet))}, which a run does not have. It is called with those "
            f"of {', '.join(GIVEN)} that it takes; give its other parameters defaults."
        )
    return tuple(known for known in GIVEN if known in by_name)


def _short(error: BaseException) -> str:
    """The first line of an error, with its type."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
