"""Weights to start from: an encoder's parameters and buffers in a safetensors file. Nothing is unpickled."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from torch import Tensor, nn

from acr.errors import InputError

SHOWN = 3
"""How many names of tensors an error message lists."""


def digest_of(path: Path) -> str:
    """The checksum of a file of weights; the same file is read only once."""
    try:
        about = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise _unreadable(path, error) from None
    return _digest_of(path.resolve(), about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    return checksum(_read(path))


def checksum(content: bytes) -> str:
    """Of the content of a file, as it is recorded with a run."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def read_weights(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; with a ``digest``, of the file with this checksum only."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = _read(path)
    if digest is not None and (found := checksum(content)) != digest:
        raise InputError(
            f"--weights {path} is not the file that this run began with: its checksum is {found}, not {digest}. "
            "Name that file, or start a run of its own with this one."
        )
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"--weights {path} is not a safetensors file that can be read ({error}).") from None


def load_encoder(encoder: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load an encoder's whole state from tensors named as in ``encoder.state_dict()``, or so behind a prefix.

    So the state of an encoder serves (``conv.weight``), that of a whole network (``encoder.conv.weight``), and the
    tensors of a checkpoint. What is not behind the prefix, such as a head, is not used; behind it nothing may be
    missing or left over. ``path`` is for error messages.
    """
    wanted = encoder.state_dict()
    prefix = _prefix(list(wanted), tensors)
    found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    shared = [name for name in wanted if name in found]
    misshapen = [
        f"{name} ({_shape(found[name])} instead of {_shape(wanted[name])})"
        for name in shared
        if found[name].shape != wanted[name].shape
    ]
    problems = [
        _listed("missing", [name for name in wanted if name not in found]),
        _listed("not known to the encoder", [name for name in found if name not in wanted]),
        _listed("of another shape", misshapen),
        _listed("not finite", [name for name in shared if not found[name].isfinite().all()]),
    ]
    if any(problems):
        raise InputError(f"--weights {path} does not fit the encoder. {' '.join(filter(None, problems))}")
    encoder.load_state_dict(found)


def _prefix(wanted: list[str], tensors: dict[str, Tensor]) -> str:
    """What stands before the encoder's names in a file: where most of them are found; the shortest such prefix."""
    if not wanted:
        return ""
    ends = [name.removesuffix(own) for own in (wanted[0], wanted[-1]) for name in tensors if name.endswith(own)]
    candidates = {"", *(end for end in ends if end.endswith((".", "/")))}

    def quality(prefix: str) -> tuple[int, int, str]:
        return -sum(f"{prefix}{name}" in tensors for name in wanted), len(prefix), prefix

    return min(candidates, key=quality)


def _listed(what: str, names: list[str]) -> str:
    """``3 tensors are missing: a, b, c.``; nothing if there are none."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return f"{count} {what}: {', '.join(names[:SHOWN])}{more}." if names else ""


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> InputError:
    why = getattr(error, "strerror", None) or error
    return InputError(
        f"Cannot read --weights {path}: {why}. A run needs the file until it is finished; "
        "if it has been moved, name its new place with --weights."
    )
