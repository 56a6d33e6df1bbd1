"""Images from a list of paths, wherever they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from acr.data.readers.decoding import Images, decode_files
from acr.data.readers.file_tree import FolderTree
from acr.storage.cache import Writer


def decode_paths(paths: Sequence[str | Path], size: int, *, quiet: bool = True) -> tuple[Images, dict[int, str]]:
    """The images in these files, uint8 ``N x 3 x size x size``, and the rows that could not be read, with the reasons.

    Large numbers of files are shared among processes. Rows that could not be read are black.
    """
    if not paths:
        return np.zeros((0, 3, size, size), np.uint8), {}
    names = [os.path.abspath(path) for path in paths]
    with TemporaryDirectory(prefix="acr-images-") as scratch:
        writer = Writer(Path(scratch))
        writer.create("images", (len(names), 3, size, size), np.uint8)
        anywhere = FolderTree(Path(os.sep), listed=False)  # absolute names are found below any folder
        broken = decode_files(anywhere, names, writer.path("images"), size, quiet=quiet)
        return np.load(writer.path("images"), allow_pickle=False), broken
