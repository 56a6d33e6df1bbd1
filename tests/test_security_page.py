"""The bounds that docs/security.md states are those of the code."""

import re
from pathlib import Path

import pytest

from acr.data.fingerprint import MOST_FILES
from acr.data.readers import decoding, file_tree, pickles, table
from acr.data.readers.archives import LIMITS
from acr.data.sources import arrays

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/security.md").read_text()
MIB = 1 << 20

BOUNDS = {
    "formats of images": ", ".join(decoding.FORMATS),
    "pixels of an image": f"{decoding.MOST_PIXELS:,}",
    "longer side of an image, relative to the shorter": f"{decoding.MOST_ASPECT} times",
    "size of an image file": f"{decoding.MOST_FILE_BYTES // MIB} MiB",
    "an array in a zip or `.npz`": f"{arrays.MOST_BYTES >> 30} GiB, and no more than the file holds",
    "what an archive unpacks to": f"{LIMITS.ratio} times its size ({LIMITS.free_bytes // MIB} MiB are always allowed), "
    f"{LIMITS.total_bytes >> 30} GiB, {LIMITS.members:,} members",
    "a member of an archive that is read into memory": f"{LIMITS.member_bytes // MIB:,} MiB",
    "a text file of a data set (lists of classes or files)": f"{file_tree.MOST_TEXT // MIB} MiB",
    "rows of a CSV file of images": f"{table.MOST_ROWS:,}; {table.MOST_COLUMNS:,} columns; "
    f"labels of {table.LONGEST_LABEL} characters",
    "keys of the dicts and sets of a pickle": f"{pickles.MOST_KEYS:,}, all plain",
    "items that a pickle unfolds to": f"{pickles.MOST_ITEMS:,}",
    "nesting of a pickle": f"{pickles.DEEPEST} levels",
    "files that a run describes one by one in its `data.json`": f"{MOST_FILES:,}",
}


@pytest.mark.parametrize("what", BOUNDS)
def test_the_page_states_the_bound_of_the_code(what: str) -> None:
    assert f"\n| {what} | {BOUNDS[what]} |" in PAGE


def test_the_floors_on_the_page_are_those_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    rows = re.findall(r"^\| (\w[\w-]*) \| ([\d.]+) \| CVE|^\| (\w[\w-]*) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    floors = {(a or c).lower(): b or d for a, b, c, d in rows}
    floors["torch"] = floors.pop("pytorch")
    assert len(floors) == 7
    for name, floor in floors.items():
        assert re.search(rf'"{name}>={re.escape(floor)}[",]', project), (name, floor)


def test_the_lock_names_no_place_and_holds_a_hash_for_everything() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?:|file:|index-url|find-links", lock)
    blocks = re.split(r"\n(?=[a-z0-9])", lock)
    assert blocks[0].startswith("# torch==")
    assert len(blocks) > 50
    assert all("==" in block and "--hash=sha256:" in block for block in blocks[1:])
