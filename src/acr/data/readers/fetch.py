"""Downloading a data set from its publisher: resumed where it stopped, verified, and safely unpacked."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from acr.data.readers.archives import extract
from acr.errors import AcrError
from acr.storage.progress import progress

CHUNK = 1 << 20
TIMEOUT = 60.0
SPARE = 64 << 20
"""Bytes that a download leaves free on the disk."""

CONNECTION_LOST = (ConnectionError, TimeoutError, ssl.SSLError)
"""Errors of a connection that breaks during a download; other system errors come from the disk."""

FreeSpace = Callable[[Path], int]


def free_space(folder: Path) -> int:
    """Free bytes on the disk that holds a folder."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Download:
    """A file that its publisher offers, with the size and checksum that it must have."""

    url: str
    size: int
    md5: str
    unpacked: int
    """Approximate number of bytes on disk when unpacked."""


def download_and_unpack(
    source: Download,
    folder: Path,
    *,
    quiet: bool = False,
    attempts: int = 5,
    pause: float = 1.0,
    free: FreeSpace = free_space,
) -> None:
    """Download an archive from its publisher into a folder and unpack it there.

    An interrupted download is resumed where it stopped: at once, in up to ``attempts`` attempts with growing ``pause``
    (in seconds) between them, or when this is called again. ``free`` returns the free bytes on the disk of a folder.
    """
    archive = folder / source.url.rsplit("/", 1)[-1]
    _check_space(folder, source.size + source.unpacked, free)
    _download(source, archive, quiet=quiet, attempts=attempts, pause=pause)
    with progress("Unpacking", None, quiet=quiet) as advance:
        extract(archive, folder, advance=advance)
    archive.unlink()


def _download(source: Download, target: Path, *, quiet: bool, attempts: int, pause: float) -> None:
    """Download the file to ``target``; until it is complete and verified, it is named ``target.part``."""
    part = target.with_name(target.name + ".part")
    failure: Exception | None = None
    with progress(f"Downloading {target.name}", source.size, quiet=quiet, bytes=True) as advance:
        shown = 0
        for attempt in range(attempts):
            if attempt:
                time.sleep(pause * 2 ** (attempt - 1))
            have = part.stat().st_size if part.exists() else 0
            if have == source.size:
                break
            if have > source.size:  # not ours, or another version of the file
                part.unlink()
                have = 0
            advance(have - shown)  # the bar shows what is on disk, including earlier downloads
            shown = have
            try:
                _receive(source, part, have, advance)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500 and error.code not in (408, 416, 429):
                    raise AcrError(
                        f"{source.url} answered {error.code} {error.reason}. Its publisher may have moved it; "
                        "get it elsewhere and put it into your data folder under the same name."
                    ) from error
                if error.code == 416:  # the server has nothing after the bytes we have: start over
                    part.unlink(missing_ok=True)
                failure = error
            except (urllib.error.URLError, http.client.HTTPException, *CONNECTION_LOST) as error:
                failure = error
            shown = part.stat().st_size if part.exists() else 0
        have = part.stat().st_size if part.exists() else 0
        if have != source.size:
            reason = f" ({failure})" if failure else ""
            raise AcrError(
                f"{source.url}: the connection failed{reason} after {have:,} of {source.size:,} bytes. "
                "Run the same command again: it resumes from there."
            )
    _check_content(source, part, target.name)
    os.replace(part, target)


def _receive(source: Download, part: Path, have: int, advance: Callable[[int], None]) -> None:
    """One connection: append to ``part`` what the server has after the first ``have`` bytes.

    ``advance`` is called with the number of bytes that were received.
    """
    request = urllib.request.Request(source.url, headers={"User-Agent": "acr", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        resumed = response.status == 206
        if resumed and not re.match(rf"bytes {have}-", response.headers.get("Content-Range", "")):
            raise http.client.HTTPException("the server sent a different part of the file than requested")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        if length is not None and length.isdigit() and start + int(length) != source.size:
            raise AcrError(
                f"{source.url} has {start + int(length):,} bytes, not the {source.size:,} that its publisher states: "
                "the file has changed, so it is not used."
            )
        if start != have:
            advance(-have)  # the server cannot send a part of the file: start from the beginning
        left = source.size - start
        with part.open("r+b" if resumed else "wb") as file:
            file.seek(start)
            while left > 0 and (data := response.read(min(CHUNK, left))):
                file.write(data)
                left -= len(data)
                advance(len(data))
            file.flush()
            os.fsync(file.fileno())


def _check_content(source: Download, path: Path, name: str) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    if digest.hexdigest() != source.md5:
        path.unlink()
        raise AcrError(
            f"{name} is not the file its publisher describes (its md5 is {digest.hexdigest()}, it should be "
            f"{source.md5}); it was removed. Run the same command again to download it again."
        )


def _check_space(folder: Path, needed: int, free: FreeSpace) -> None:
    available = free(folder)
    if available < needed + SPARE:
        raise AcrError(
            f"Not enough space in {folder}: {needed / 1e6:,.0f} MB needed, {available / 1e6:,.0f} MB free. "
            "Choose another folder with --data-root."
        )


def disk_error(error: OSError, folder: Path) -> AcrError:
    """The error for a disk that cannot be written; it says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AcrError(
            f"The disk that holds {folder} is full. The partial download is kept: free some space and run the same "
            "command again, or choose another folder with --data-root."
        )
    return AcrError(f"{folder} could not be written: {error.strerror or error}. Choose another with --data-root.")
