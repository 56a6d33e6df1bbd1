"""Reading and extracting archives from sources that are not trusted.

An archive is refused, and nothing in it is used, when a member's name leads out of the target (``..``, an absolute
path, a drive), when it holds links, devices or other special files (no data set needs them), when it would unpack to
more than any data set does or to far more than its own size, or when it is cut short.
"""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, cast

from acr.errors import InputError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What an archive may unpack to. The defaults leave room for ImageNet-sized sets."""

    members: int = 5_000_000
    total_bytes: int = 512 << 30
    ratio: int = 200
    """Unpacked bytes per byte of the archive; the formats can reach about 1000, with nothing but zeros."""
    free_bytes: int = 64 * MIB
    """Below this total the ratio is not checked."""
    member_bytes: int = 1 << 30
    """Most bytes of a member that is read into memory; the largest file of CIFAR has 155 MB."""

    def allowance(self, archive: Path) -> int:
        """How many bytes this archive may unpack to."""
        return min(self.total_bytes, max(self.free_bytes, self.ratio * archive.stat().st_size))


LIMITS = Limits()


def is_archive(path: Path) -> bool:
    """Whether the file name is that of a supported archive."""
    return path.name.lower().endswith((".zip", ".npz", ".tar", ".tar.gz", ".tgz"))


def check_name(name: str, archive: Path) -> str:
    """The name of a member, if it stays below the target; otherwise an error."""
    if name in (".", "./"):  # the target itself, the first entry of many tar files
        return name
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    bad = posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts or "\0" in name
    if bad or not name.strip("./"):
        raise InputError(f"{archive} is refused: its member {name!r} leads out of the folder it is unpacked in.")
    return name


@contextmanager
def open_zip(path: Path, limits: Limits | None = None) -> Iterator[zipfile.ZipFile]:
    """A zip file whose table of contents has been checked."""
    limits = limits or LIMITS
    with _readable_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_count(path, len(members), limits)
        for member in members:
            check_name(member.filename, path)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _special_file(path, member.filename)
            if member.flag_bits & 1:
                raise InputError(f"{path} is encrypted. Unpack it yourself and use the folder instead.")
        _check_total(path, sum(member.file_size for member in members), limits)
        yield archive


def tar_members(path: Path, limits: Limits | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the regular files of a tar (also gzipped), in order; each is readable until the next."""
    limits = limits or LIMITS
    compressed = path.name.lower().endswith(("gz", "tgz"))
    with _readable_errors(path), path.open("rb") as raw:
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if compressed else raw)
        metered = _Metered(stream, path, limits)
        with tarfile.open(fileobj=metered, mode="r|") as archive:
            count = 0
            for member in archive:
                count += 1
                _check_count(path, count, limits)
                check_name(member.name, path)
                if member.isdir():
                    continue
                if not member.isreg():
                    raise _special_file(path, member.name)
                _check_total(path, member.size, limits)
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file
        while metered.read(MIB):  # to the end, where gzip keeps its checksum
            pass


def read_members(path: Path, wanted: Callable[[str], bool], limits: Limits | None = None) -> dict[str, bytes]:
    """Contents of the wanted files of a tar or zip, without unpacking it to disk."""
    most = (limits or LIMITS).member_bytes
    content: dict[str, bytes] = {}
    with _readable_errors(path):
        for name, file in _members(path, limits):
            if wanted(name):
                content[name] = file.read(most + 1)
                if len(content[name]) > most:
                    raise InputError(f"{path} is refused: its member {name!r} is larger than {most / MIB:,.0f} MiB.")
    return content


def extract(
    path: Path, target: Path, *, limits: Limits | None = None, advance: Callable[[int], None] = lambda files: None
) -> None:
    """Unpack a tar or zip into the folder ``target``: all of it, or nothing.

    It is first unpacked into a new folder inside ``target``, so that no link that already exists can redirect a write.
    A top-level name that ``target`` already has is an error, and nothing is replaced. ``advance`` is called with 1
    after each file.
    """
    target.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target, prefix=f".{path.name}.", suffix=".part"))
    try:
        with _readable_errors(path):
            for name, file in _members(path, limits):
                destination = temporary / PurePosixPath(name)
                destination.parent.mkdir(parents=True, exist_ok=True)
                with destination.open("xb") as out:
                    shutil.copyfileobj(file, out, MIB)
                advance(1)
        tops = sorted(temporary.iterdir())
        if taken := [top.name for top in tops if (target / top.name).exists()]:
            raise InputError(f"{target} already holds {', '.join(taken)}. Move it away first.")
        for top in tops:
            os.rename(top, target / top.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _members(path: Path, limits: Limits | None) -> Iterator[tuple[str, IO[bytes]]]:
    if not zipfile.is_zipfile(path):
        yield from tar_members(path, limits)
        return
    with open_zip(path, limits) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as file:
                    yield member.filename, file


class _Metered(io.RawIOBase):
    """Counts the bytes read from a stream and stops when there are too many, whatever the headers claim."""

    def __init__(self, stream: IO[bytes], path: Path, limits: Limits) -> None:
        self._stream, self._path, self._limits = stream, path, limits
        self._left = limits.allowance(path) + MIB

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, MIB) if size >= 0 else MIB)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._path, self._limits.allowance(self._path))
        return data


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Turn the errors of the libraries that read archives into ones that say what to do."""
    try:
        yield
    except InputError:
        raise
    except NotImplementedError as error:
        raise InputError(
            f"{path} uses an unsupported compression ({error}). Unpack it yourself and use the folder instead."
        ) from error
    except (EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, struct.error,
            ValueError, OverflowError, RuntimeError) as error:  # fmt: skip
        raise InputError(f"{path} is cut short or damaged ({error}). Delete it and download it again.") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{path} is refused: two of its members claim the same name, {error.filename}.") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning of the file
            raise
        raise InputError(f"{path} is damaged ({error}). Delete it and download it again.") from error


def _check_count(path: Path, count: int, limits: Limits) -> None:
    if count > limits.members:
        raise InputError(f"{path} is refused: it holds more than {limits.members:,} files.")


def _check_total(path: Path, total: int, limits: Limits) -> None:
    if total > limits.allowance(path):
        raise _too_large(path, limits.allowance(path))


def _too_large(path: Path, allowed: int) -> InputError:
    return InputError(
        f"{path} is refused: it unpacks to more than {allowed / MIB:,.0f} MiB, far more than an archive of its size "
        "should. If you trust it, unpack it yourself and use the folder instead."
    )


def _special_file(path: Path, name: str) -> InputError:
    return InputError(f"{path} is refused: its member {name!r} is a link or a special file, not plain data.")
