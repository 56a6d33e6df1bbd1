"""A cache of arrays on disk: built once, memory-mapped from then on, and checked at every opening.

An entry is a folder with one ``.npy`` file per array and a ``meta.json``. These are checked at every opening:

* ``meta.json`` against its own checksum, the version of the format, and the requested key;
* for every array, the file's size and the CRC-32 of all its bytes, read in parts so that they do not stay in memory.

CRC-32 runs at several GB/s, so that the 184 MB of CIFAR-100 take a few hundredths of a second, and it detects every
change of a single byte and every burst of up to 32 bits. An entry that fails a check is deleted and built again.

An entry is built in a temporary folder and renamed when complete, so that a reader sees all of it or nothing.
Processes that build the same entry wait for each other; if the file system has no locks, both build it, and the first
to finish wins.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.errors import AcrError
from acr.storage.files import sync_folder, umask, write_text
from acr.storage.locks import exclusive

FORMAT = 1
"""Increased when the layout of an entry changes; entries of another format are built again."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Entry:
    """An opened entry. The arrays are read-only and memory-mapped."""

    folder: Path
    arrays: Mapping[str, Array]
    notes: Mapping[str, Any]
    """What the builder recorded beside the arrays."""
    built: bool
    """Whether this opening had to build it."""


@dataclass
class Writer:
    """What a builder fills: named arrays, and notes that can be stored as JSON."""

    folder: Path
    notes: dict[str, Any] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """The file of an array."""
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise ValueError(f"{name!r} cannot name a cached array: letters, digits, '_', '-' and '.' only.")
        return self.folder / f"{name}.npy"

    def create(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """A memory-mapped array to be filled in place; its disk space is reserved now, not when pages are written."""
        path = self.path(name)
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            size = file.tell() + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            file.flush()
            _reserve_space(file.fileno(), size)
            file.truncate(size)
        return _load(path, "r+")

    def save(self, name: str, array: npt.ArrayLike) -> None:
        """Write an array that is in memory."""
        values = np.asarray(array)
        if values.dtype.hasobject:
            raise ValueError(f"{name!r} holds Python objects; the cache holds numbers and text.")
        if values.ndim == 0:  # nothing to map
            np.save(self.path(name), values, allow_pickle=False)
        else:  # not by np.save, whose error for a full disk has no error number
            self.create(name, values.shape, values.dtype)[...] = values

    def discard(self, name: str) -> None:
        """Delete an array that was created or saved."""
        self.path(name).unlink()


def open_or_build(
    folder: Path, key: Mapping[str, Any], build: Callable[[Writer], object], *, name: str = "entry"
) -> Entry:
    """The arrays that belong to ``key``: opened if they are below ``folder`` and intact, else built there.

    ``key`` holds, as JSON values, everything that the content depends on: identity of the source files, sizes, versions
    of the code that makes it. ``build`` fills the writer that it is given. ``name`` only makes the name of the entry's
    folder readable.
    """
    canonical = json.loads(_dump(dict(key)))
    digest = hashlib.blake2b(_dump(canonical).encode(), digest_size=8).hexdigest()
    place = Path(folder) / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-.') or 'entry'}-{digest}"
    found = _open(place, canonical)
    if found is not None:
        return found
    try:
        with exclusive(place.parent / f".{place.name}.lock") as alone:
            found = _open(place, canonical)  # another process may have built it while we waited
            if found is not None:
                return found
            if alone:
                _remove_leftovers(place)
            _build(place, canonical, build)
    except OSError as error:
        if (explained := _explain(error, place)) is None:
            raise
        raise explained from error
    found = _open(place, canonical)
    if found is None:
        raise AcrError(f"The cache at {place} is damaged right after it was written. Check the disk.")
    return Entry(found.folder, found.arrays, found.notes, built=True)


def _build(place: Path, key: Mapping[str, Any], build: Callable[[Writer], object]) -> None:
    temporary = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part"))
    try:
        os.chmod(temporary, 0o777 & ~umask())
        writer = Writer(temporary)
        build(writer)
        arrays = {}
        for file in sorted(temporary.glob("*.npy")):
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
            size, checksum = file.stat().st_size, _crc32(file)
            arrays[file.stem] = {"bytes": size, "crc32": checksum}
        meta = {"format": FORMAT, "key": key, "notes": writer.notes, "arrays": arrays}
        write_text(temporary / "meta.json", _dump({"checksum": _checksum(meta), **meta}))
        _publish(temporary, place, key)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, place: Path, key: Mapping[str, Any]) -> None:
    """Give the finished folder its name, unless an intact folder of that name has appeared meanwhile."""
    for _ in range(10):
        try:
            os.rename(temporary, place)
            sync_folder(place.parent)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.EACCES, errno.EPERM) or not place.exists():
                raise
        if _open(place, key) is not None:
            return
        # The folder in the way is damaged: move it aside in one step, then delete it, and try again.
        aside = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part"))
        try:
            os.rename(place, aside / "damaged")
        except FileNotFoundError:
            pass
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    raise AcrError(f"{place} could not be replaced. Remove this folder and try again.")


def _open(place: Path, key: Mapping[str, Any]) -> Entry | None:
    """The entry if it exists and is intact, else None."""
    try:
        meta = json.loads((place / "meta.json").read_text())
        checksum = meta.pop("checksum")
        if checksum != _checksum(meta) or meta["format"] != FORMAT or meta["key"] != key:
            return None
        arrays = {}
        for name, known in meta["arrays"].items():
            file = place / f"{name}.npy"
            if file.stat().st_size != known["bytes"] or _crc32(file) != known["crc32"]:
                return None
            arrays[name] = _load(file, "r")
        return Entry(place, arrays, meta["notes"], built=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _load(path: Path, mode: str) -> Array:
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        shape, _, _ = np.lib.format.read_array_header_1_0(file)
    if 0 in shape:  # an empty array cannot be mapped
        return np.load(path, allow_pickle=False)
    return np.load(path, mmap_mode="r" if mode == "r" else "r+", allow_pickle=False)


def _crc32(path: Path) -> int:
    """Checksum of the whole file, read in parts: if it were mapped, all of it would count as memory of this process."""
    value = 0
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):
            value = zlib.crc32(buffer[:count], value)
    return value


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.blake2b(_dump(meta).encode(), digest_size=16).hexdigest()


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _remove_leftovers(place: Path) -> None:
    """Delete temporary folders of builders that were killed; only under the lock, when no other builder is running."""
    for folder in place.parent.glob(f".{place.name}.*.part"):
        shutil.rmtree(folder, ignore_errors=True)


def _reserve_space(descriptor: int, size: int) -> None:
    """Make a full disk an error now; later, when a mapped page is written, it would kill the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):  # file systems that cannot reserve space
            raise


def _explain(error: OSError, place: Path) -> AcrError | None:
    """The error in plain words if writing the cache failed; None if reading the source failed."""
    advice = "Free space there, or choose another folder with --data-cache or the environment variable ACR_CACHE."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AcrError(f"The disk is full: the cache {place} could not be written. {advice}")
    if error.filename is not None and str(place.parent) in str(error.filename):
        return AcrError(f"The cache {place} could not be written: {error.strerror}. {advice}")
    return None
