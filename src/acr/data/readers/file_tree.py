"""Files below a folder or inside a zip, through one interface: their names, their identity, their bytes."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Protocol

from acr.data.readers.archives import open_zip
from acr.errors import InputError

MOST_TEXT = 64 << 20
"""Most bytes of a text file of a data set, such as a list of classes."""

TRAIN = ("train", "training")
TEST = ("test", "testing")
VALIDATION = ("val", "valid", "validation")
"""Names of the parts of a data set, in lower case."""


class Tree(Protocol):
    """A tree of files. ``names`` are relative to the root, with ``/`` between parts, in natural order."""

    root: Path
    names: list[str]
    folders: list[str]
    """The folders, empty ones included."""

    def identity(self, names: Iterable[str] | None = None) -> str:
        """A digest that changes when any of these files (by default all) is changed, added or removed."""

    def open(self, name: str) -> IO[bytes]:
        """The file, for reading."""

    def size(self, name: str) -> int:
        """The number of bytes of a file."""

    def close(self) -> None:
        """Close whatever is open."""


def natural(text: str) -> tuple[object, ...]:
    """A sorting key in which ``class2`` comes before ``class10``.

    >>> sorted(["b", "class10", "class2", "A"], key=natural)
    ['A', 'b', 'class2', 'class10']
    """
    parts = re.split(r"(\d+)", text.casefold())
    return (tuple((1, int(part), "") if part.isdigit() and part.isascii() else (0, 0, part) for part in parts), text)


def file_name(name: str) -> str:
    """The last part of a name. Done on plain text: with 100,000 names, path objects would take seconds."""
    return name.rpartition("/")[2]


def open_tree(path: Path) -> Tree:
    """The tree of a folder or of a zip file."""
    if path.is_dir():
        return FolderTree(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return ZipTree(path)
    if path.is_file():
        raise InputError(f"{path} is neither a folder nor a valid zip file.")
    raise InputError(f"{path} does not exist.")


class FolderTree:
    """All files below a folder, except hidden ones. Links are followed; each folder is visited once.

    With ``listed=False`` the folder is not searched, which is enough to open files whose names are known.
    """

    def __init__(self, root: Path, *, listed: bool = True) -> None:
        self.root = root
        self.folders: list[str] = []
        self._marks: dict[str, tuple[int, int, int]] = {}
        seen: set[tuple[int, int]] = set()

        def walk(folder: str, prefix: str) -> None:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                return
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        self.folders.append(prefix + entry.name)
                        walk(entry.path, f"{prefix}{entry.name}/")
                    else:
                        self._marks[prefix + entry.name] = _mark(entry)

        if listed:
            walk(str(root), "")
        self.names = sorted(self._marks, key=natural)

    def identity(self, names: Iterable[str] | None = None) -> str:
        """Digest of path, names, sizes, modification times, and permissions (they decide what can be read)."""
        chosen = self.names if names is None else names
        return _digest(str(self.root.resolve()), ((name, self._marks[name]) for name in chosen))

    def open(self, name: str) -> IO[bytes]:
        """The file, for reading."""
        return open_regular(self.root / name)

    def size(self, name: str) -> int:
        """The number of bytes of a file."""
        return (self.root / name).stat().st_size

    def close(self) -> None:
        """Nothing stays open."""


class FileList(FolderTree):
    """Files that somebody listed, anywhere on the disk: their names are relative to ``root``, or absolute."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        super().__init__(root, listed=False)
        self.names = list(names)
        self._marks = {name: _mark(root / name) for name in self.names}


class ZipTree:
    """The files of a zip, read in place. Can be used from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._opening = open_zip(root)
        self._zip = self._opening.__enter__()
        self._lock = threading.Lock()
        shown = [
            member
            for member in self._zip.infolist()
            if not any(part.startswith((".", "__MACOSX")) for part in member.filename.split("/"))
        ]
        self.names = sorted((member.filename for member in shown if not member.is_dir()), key=natural)
        self.folders = [member.filename.rstrip("/") for member in shown if member.is_dir()]

    def identity(self, names: Iterable[str] | None = None) -> str:
        """Digest of the zip's path, size and modification time, and of the names and checksums inside."""
        status = self.root.stat()
        chosen = self.names if names is None else names
        head = f"{self.root.resolve()}:{status.st_size}:{status.st_mtime_ns}"
        return _digest(head, ((name, (info := self._zip.getinfo(name)).file_size, info.CRC) for name in chosen))

    def open(self, name: str) -> IO[bytes]:
        """The file, for reading; its checksum is verified when its end is reached."""
        with self._lock:
            return self._zip.open(name)

    def size(self, name: str) -> int:
        """The number of bytes of a file, unpacked; no more than this can be read from it."""
        return self._zip.getinfo(name).file_size

    def close(self) -> None:
        """Close the zip."""
        self._zip.close()


def open_regular(path: Path) -> IO[bytes]:
    """A regular file, for reading; links to one are followed. Pipes, which could hang us, and devices are refused."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file but a pipe, a socket or a device", str(path))
    return path.open("rb")


def read_text(tree: Tree, name: str) -> str:
    """A text file of a tree, such as a list of classes; one of more than ``MOST_TEXT`` bytes is refused."""
    with tree.open(name) as file:
        content = file.read(MOST_TEXT + 1)
    if len(content) > MOST_TEXT:
        raise InputError(f"{tree.root}: {name} is refused: it is larger than {MOST_TEXT >> 20} MiB.")
    return content.decode("utf-8", "replace")


def common_prefix(names: Iterable[str], stop: Callable[[str], bool] = lambda part: False) -> str:
    """The folders that contain everything else (``"tiny-imagenet-200/"``), up to the first for which ``stop`` is true.

    >>> common_prefix(["a/b/x.png", "a/b/c/y.png"]), common_prefix(["train/x.png"], stop=lambda part: part == "train")
    ('a/b/', '')
    """
    folders = [name.split("/")[:-1] for name in names]
    prefix = ""
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1 or stop(parts[0]):
            break
        prefix += parts[0] + "/"
    return prefix if folders else ""


def by_class(files: Sequence[str], part: str) -> list[tuple[str, str]]:
    """Pairs (class, file) of the files below the folder ``part`` (``""``: the root); the class is the next folder."""
    prefix = f"{part}/" if part else ""
    below = [name for name in files if name.startswith(prefix) and "/" in name.removeprefix(prefix)]
    return [(name.removeprefix(prefix).split("/")[0], name) for name in below]


def _mark(entry: os.DirEntry[str] | Path) -> tuple[int, int, int]:
    """Size, modification time and permissions: what a change of the file is recognised by."""
    try:
        status = entry.stat()
    except OSError:  # a dangling link, or no such file: it will be listed among the unreadable files
        return (-1, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_mode)


def _digest(head: str, rows: Iterable[tuple[object, ...]]) -> str:
    state = hashlib.blake2b(head.encode("utf-8", "surrogateescape"), digest_size=16)
    for row in rows:
        state.update(repr(row).encode("utf-8", "surrogateescape"))
    return state.hexdigest()
