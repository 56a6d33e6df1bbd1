"""Where this program keeps and looks for files."""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "ACR_DATA"
CACHE_VARIABLE = "ACR_CACHE"


def cache_folder(data_cache: Path | None = None) -> Path:
    """The folder for everything that can be made again: the one given, else ``ACR_CACHE``, else the user's cache."""
    if data_cache is not None:
        return Path(data_cache).expanduser()
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("acr")


def search_folders(data_root: Path | None = None, data_cache: Path | None = None) -> list[Path]:
    """The folders that are searched for data sets, in this order: the one given, ``ACR_DATA``, the cache."""
    folders = [Path(data_root).expanduser()] if data_root is not None else []
    if named := os.environ.get(DATA_VARIABLE):
        folders.append(Path(named).expanduser())
    return [*folders, cache_folder(data_cache) / "downloads"]
