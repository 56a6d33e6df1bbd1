"""Files of this program: written whole or not at all, and never through a link; read up to a bound, if they are files.

A folder of runs may come from anyone. A file of ours in it that is a link would make us write to, or show, what the
link points to; a pipe would make us wait for ever. So files inside such folders are opened by :func:`open_regular`,
which does neither. Folders *above* them may be links, such as a folder of runs on another disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

NOT_FOLLOWED = "it is a link, and links in place of files of a run are not followed"
KINDS = (
    (stat.S_ISLNK, NOT_FOLLOWED),
    (stat.S_ISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, "it is a pipe, not a file"),
    (stat.S_ISSOCK, "it is a socket, not a file"),
    (stat.S_ISCHR, "it is a device, not a file"),
    (stat.S_ISBLK, "it is a device, not a file"),
)


class NotRegular(OSError):
    """Something else is where a file is expected: a link, a pipe, a folder. ``strerror`` says what."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EINVAL, why, str(path))


class TooLarge(OSError):
    """A file is larger than anything that this program writes or needs. ``strerror`` says how large it may be."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(errno.EFBIG, f"it is larger than {in_bytes(limit)}, the most that is read of such a file",
                         str(path))  # fmt: skip


def in_bytes(size: int) -> str:
    """A size for people.

    >>> in_bytes(256 << 10), in_bytes(64 << 20), in_bytes(32 << 30)
    ('256 KiB', '64 MiB', '32 GiB')
    """
    power = min(3, max(0, (size.bit_length() - 1) // 10))
    return f"{size / (1 << 10 * power):.0f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def refuse_link(path: Path) -> None:
    """Raise :class:`NotRegular` if there is a link at ``path``; for folders of ours that are written into."""
    if path.is_symlink():
        raise NotRegular(path, NOT_FOLLOWED)


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """A descriptor of a regular file, opened without waiting for anybody; anything else is :class:`NotRegular`.

    Args:
        path: the file.
        flags: how to open it, as for ``os.open``.
        follow: whether ``path`` may be a link; for files that the user names, not for those found in a run folder.
    """
    # Not every system has these flags; there the check before opening has to do.
    careful = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    careful |= 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    check_regular(path, follow=follow)
    try:
        descriptor = os.open(path, flags | careful, 0o666)
    except OSError:
        check_regular(path, follow=follow)  # it may have changed just now: the better reason
        raise
    try:
        why = unlike_a_file(os.fstat(descriptor).st_mode)
        if why:
            raise NotRegular(path, why)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: Path, *, follow: bool = False) -> None:
    """Raise :class:`NotRegular` if there is something at ``path`` that is not a regular file."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except FileNotFoundError:
        return
    why = unlike_a_file(status.st_mode)
    if why:
        raise NotRegular(path, why)


def unlike_a_file(mode: int) -> str:
    """What something is if it is not a regular file; empty if it is one."""
    if stat.S_ISREG(mode):
        return ""
    return next((why for test, why in KINDS if test(mode)), "it is not a file")


def read_bytes(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; :class:`TooLarge` if it has more."""
    with os.fdopen(open_regular(path, follow=follow), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise TooLarge(path, limit)
        content = file.read(size)
        while more := file.read(1 << 20):  # it has grown meanwhile
            content += more
            if len(content) > limit:
                raise TooLarge(path, limit)
    return content


def read_end(path: Path, limit: int) -> bytes:
    """The last ``limit`` bytes of a regular file, or all of it if it has fewer."""
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return file.read(limit)


def append_to(path: Path) -> IO[bytes]:
    """Open a regular file to add to its end; it is created if it does not exist."""
    return os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b")


def start_over(path: Path) -> IO[bytes]:
    """Open a regular file to write it anew from the beginning, as a log is."""
    return os.fdopen(open_regular(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT), "wb")


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
    """Atomic counterpart of ``Path.write_text``, as UTF-8; a character that UTF-8 does not have is written escaped.

    Such characters come from file names that are not UTF-8. One of them must not keep a report from being written.
    """
    write_bytes(path, content.encode(errors="backslashreplace"))


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
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        os.replace(target, old)
    os.replace(source, target)
    sync_folder(target.parent)
    remove_tree(old)


def remove_tree(folder: Path) -> None:
    """Remove a folder and everything in it, if it exists; of a link, the link only."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
