"""Writing files and folders atomically: completely, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Call ``write`` with a temporary file, which gets the name ``path`` only once all of it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Atomic counterpart of ``Path.write_bytes``."""
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, content: str) -> None:
    """Atomic counterpart of ``Path.write_text``."""
    write_bytes(path, content.encode())


def sync_folder(folder: Path) -> None:
    """Make a rename inside this folder survive a power failure, if the system supports that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def umask() -> int:
    """The permissions that new files are not given; the system only tells by setting them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace_folder(source: Path, target: Path) -> None:
    """Rename the finished folder ``source`` to ``target``; an existing ``target`` is moved aside, then removed."""
    old = target.with_name(f".old-{target.name}")
    remove_tree(old)
    if target.exists():
        os.replace(target, old)
    os.replace(source, target)
    sync_folder(target.parent)
    remove_tree(old)


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything in it, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)
