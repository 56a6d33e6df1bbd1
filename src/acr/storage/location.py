"""Where data sets and the cache lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from acr.errors import InputError

if TYPE_CHECKING:
    from acr.data.catalog import DataSpec

DATA_VARIABLE = "ACR_DATA"
CACHE_VARIABLE = "ACR_CACHE"


def cache_folder(data_cache: Path | None = None) -> Path:
    """The folder of everything that can be made again: what was given, else ``ACR_CACHE``, else the user's cache."""
    if data_cache is not None:
        return Path(data_cache).expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("acr")


def images_folder(data_cache: Path | None = None) -> Path:
    """Where decoded images are kept."""
    return cache_folder(data_cache) / "images"


def downloads_folder(data_root: Path | None = None, data_cache: Path | None = None) -> Path:
    """Where fetched data sets go: the first place in which :func:`locate` looks."""
    return search_folders(data_root, data_cache)[0]


def search_folders(data_root: Path | None = None, data_cache: Path | None = None) -> list[Path]:
    """Where data sets are looked for, in this order: what was given, ``ACR_DATA``, the cache."""
    folders = [Path(data_root).expanduser()] if data_root is not None else []
    if named := os.environ.get(DATA_VARIABLE):
        folders.append(Path(named).expanduser())
    return [*folders, cache_folder(data_cache) / "downloads"]


def locate(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> Path | None:
    """The folder or archive of a data set, or None. ``data_root`` may also be the data set's own folder or archive."""
    if data_root is not None:
        own = Path(data_root).expanduser()
        if not own.exists():
            raise InputError(f"There is no folder {own} (given as the data root).")
        if own.is_file():
            return own
    for folder in search_folders(data_root, data_cache):
        for place in spec.places:
            if (folder / place).exists():
                return folder / place
    if data_root is not None:
        for markers in spec.markers:
            if all(any(own.glob(marker)) for marker in markers):
                return own
    return None


def require(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> Path:
    """As :func:`locate`; where the data set is missing, one message with the next step."""
    found = locate(spec, data_root, data_cache)
    if found is None:
        raise InputError(missing(spec, data_root, data_cache))
    return found


def missing(spec: DataSpec, data_root: Path | None = None, data_cache: Path | None = None) -> str:
    """What to tell a person whose data set is not there."""
    folders = ", ".join(str(folder) for folder in search_folders(data_root, data_cache))
    root = f" --data-root {data_root}" if data_root is not None else ""
    step = f"Run: acr data fetch {spec.name}{root}" if spec.download else spec.how_to_get
    return f"{spec.name} is not here. Looked for {' or '.join(spec.places)} in {folders}. {step}"
