"""Getting a data set from its publisher: resumed where it stopped, checked, and safely unpacked."""

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
"""Bytes of the disk that a download leaves free."""

BROKEN_LINE = (ConnectionError, TimeoutError, ssl.SSLError)
"""What a connection that breaks while data flows raises; other system errors are the disk's."""

FreeSpace = Callable[[Path], int]


def free_space(folder: Path) -> int:
    """Bytes free on the disk of a folder."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True)
class Download:
    """A file at its publisher's address."""

    url: str
    size: int
    md5: str
    unpacked: int
    """About how many bytes it takes on disk when unpacked."""


def download_and_unpack(
    source: Download,
    folder: Path,
    *,
    quiet: bool = False,
    keep_archive: bool = False,
    attempts: int = 5,
    pause: float = 1.0,
    free: FreeSpace = free_space,
) -> None:
    """Bring an archive from its publisher into a folder and unpack it there.

    An interrupted download continues where it stopped, at once (``attempts`` times, with growing ``pause``) or when
    this is called again. ``free`` says how much room a folder has.
    """
    archive = folder / source.url.rsplit("/", 1)[-1]
    _check_space(folder, source.size + source.unpacked, free)
    _download(source, archive, quiet=quiet, attempts=attempts, pause=pause)
    with progress("Unpacking", None, quiet=quiet) as advance:
        extract(archive, folder, tell=advance)
    if not keep_archive:
        archive.unlink()


def _download(source: Download, target: Path, *, quiet: bool, attempts: int, pause: float) -> None:
    """Bring the file to ``target``; ``target.part`` is what there is of it until it is whole and checked."""
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
            if have > source.size:  # not ours, or of another version
                part.unlink()
                have = 0
            advance(have - shown)
            shown = have
            try:
                _receive(source, part, have, advance)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500 and error.code not in (408, 416, 429):
                    raise AcrError(
                        f"{source.url} answered {error.code} {error.reason}. Its publisher may have moved it; "
                        "get it elsewhere and put it under the same name in your data folder."
                    ) from error
                if error.code == 416:  # there is nothing after what we have: start over
                    part.unlink(missing_ok=True)
                failure = error
            except (urllib.error.URLError, http.client.HTTPException, *BROKEN_LINE) as error:
                failure = error
            shown = part.stat().st_size if part.exists() else 0
        have = part.stat().st_size if part.exists() else 0
        if have != source.size:
            reason = f" ({failure})" if failure else ""
            raise AcrError(
                f"{source.url}: the connection failed{reason} after {have:,} of {source.size:,} bytes. "
                "Give the same command again: it goes on from there."
            )
    _check_content(source, part, target.name)
    os.replace(part, target)


def _receive(source: Download, part: Path, have: int, advance: Callable[[int], None]) -> None:
    """One connection: append to ``part`` what the server has after the first ``have`` bytes."""
    request = urllib.request.Request(source.url, headers={"User-Agent": "acr", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        resumed = response.status == 206
        if resumed and not re.match(rf"bytes {have}-", response.headers.get("Content-Range", "")):
            raise http.client.HTTPException("the server sent another part than was asked for")
        start = have if resumed else 0
        length = response.headers.get("Content-Length")
        if length is not None and length.isdigit() and start + int(length) != source.size:
            raise AcrError(
                f"{source.url} has {start + int(length):,} bytes, not the {source.size:,} its publisher gave: "
                "it is another file now, and is not used."
            )
        if start != have:
            advance(-have)  # the server knows no parts: from the beginning
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
            f"{source.md5}); it was removed. Give the same command again to get it anew."
        )


def _check_space(folder: Path, needed: int, free: FreeSpace) -> None:
    available = free(folder)
    if available < needed + SPARE:
        raise AcrError(
            f"Not enough space in {folder}: {needed / 1e6:,.0f} MB needed, {available / 1e6:,.0f} MB free. "
            "Choose another folder with --data-root."
        )


def told_plainly(error: OSError, folder: Path) -> AcrError:
    """What the disk said, so that a person can act."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return AcrError(
            f"The disk of {folder} is full. What was downloaded is kept: free space and give the same command again, "
            "or choose another folder with --data-root."
        )
    return AcrError(f"{folder} could not be written: {error.strerror or error}. Choose another with --data-root.")
