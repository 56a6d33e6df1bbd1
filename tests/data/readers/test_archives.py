import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_archives import tar_with

from acr.data.readers.archives import Limits, check_name, extract, open_zip, read_members
from acr.data.readers.file_tree import ZipTree
from acr.errors import InputError

OUTSIDE = ["../evil", "a/../../evil", "/evil", "..", "C:\\evil", "a\\..\\..\\evil", "\\\\server\\evil", "a/..\\../b"]


def zip_with(path: Path, *members: tuple[str, bytes], mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def all_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder that holds the archive and the target, so that a write outside the target shows."""
    (tmp_path / "stage" / "target").mkdir(parents=True)
    return tmp_path / "stage"


def refused(stage: Path, archive: Path, words: str) -> None:
    before = all_files(stage)
    with pytest.raises(InputError, match=words):
        extract(archive, stage / "target")
    assert all_files(stage) == before
    assert not Path("/evil").exists()


@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_extracting_gives_what_is_inside(stage: Path, make: Callable[..., Path]) -> None:
    archive = make(stage / ("a.zip" if make is zip_with else "a.tar.gz"), ("set/one", b"1"), ("set/deep/two", b"22"))
    extract(archive, stage / "target")
    assert (stage / "target/set/one").read_bytes() == b"1"
    assert (stage / "target/set/deep/two").read_bytes() == b"22"
    assert read_members(archive, lambda name: name.endswith("two")) == {"set/deep/two": b"22"}
    with pytest.raises(InputError, match="already holds set"):
        extract(archive, stage / "target")


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_names_that_lead_out_are_refused(stage: Path, make: Callable[..., Path], name: str) -> None:
    archive = make(stage / ("a.zip" if make is zip_with else "a.tar.gz"), ("good", b"1"), (name, b"evil"))
    refused(stage, archive, "leads out")
    with pytest.raises(InputError, match="leads out"):
        read_members(archive, lambda name: True)


@given(st.lists(st.sampled_from(["..", ".", "a", "", "C:", "b c"]), min_size=1, max_size=5), st.sampled_from("/\\"))
def test_an_accepted_name_stays_inside(parts: list[str], separator: str) -> None:
    name = separator.join(parts)
    try:
        check_name(name, Path("x"))
    except InputError:
        return
    inside = os.path.normpath(os.path.join("/srv/target", name))
    assert inside.startswith("/srv/target")
    assert ".." not in name.replace("\\", "/").split("/")


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc"),
        (tarfile.SYMTYPE, "../.."),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.CHRTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(stage: Path, kind: bytes, link: str) -> None:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, link
    refused(stage, tar_with(stage / "a.tar.gz", ("way", info), ("way/evil", b"evil")), "link or a special")


def test_a_link_in_a_zip_is_refused(stage: Path) -> None:
    refused(stage, zip_with(stage / "a.zip", ("way", b"/etc"), mode=stat.S_IFLNK | 0o777), "link or a special")


def test_an_archive_cut_short_is_refused(stage: Path) -> None:
    content = os.urandom(200_000)
    for name, make in (("a.tar.gz", tar_with), ("a.zip", zip_with)):
        archive = make(stage / name, ("one", content), ("two", content))
        whole = archive.read_bytes()
        for length in (0, 10, 1000, len(whole) // 2, len(whole) - 4):
            archive.write_bytes(whole[:length])
            refused(stage, archive, "cut short or damaged")
            with pytest.raises(InputError, match="cut short or damaged"):
                read_members(archive, lambda name: True)


def test_a_flipped_byte_in_an_archive_is_noticed(stage: Path) -> None:
    for name, make in (("a.tar.gz", tar_with), ("a.zip", zip_with)):
        archive = make(stage / name, ("one", os.urandom(10_000)))
        content = bytearray(archive.read_bytes())
        content[5_000] ^= 1
        archive.write_bytes(content)
        refused(stage, archive, "cut short or damaged")


@pytest.mark.parametrize("make", [tar_with, zip_with])
def test_a_bomb_is_refused(stage: Path, make: Callable[..., Path]) -> None:
    zeros = bytes(20 << 20)
    members = [(f"zeros{i}", zeros) for i in range(5)]  # 100 MiB from about 100 KiB
    archive = make(stage / ("a.zip" if make is zip_with else "a.tar.gz"), *members)
    assert archive.stat().st_size < 200_000
    refused(stage, archive, "far more than an archive of its size")
    with pytest.raises(InputError, match="far more"):
        read_members(archive, lambda name: True)


def test_too_many_files_are_refused(stage: Path) -> None:
    archive = zip_with(stage / "a.zip", *((str(i), b"") for i in range(20)))
    with pytest.raises(InputError, match="more than 10 files"), open_zip(archive, Limits(members=10)):
        pass


def test_a_zip_whose_table_lies_about_sizes_gives_no_more_than_it_says(stage: Path) -> None:
    archive = zip_with(stage / "a.zip", ("zeros", bytes(1 << 20)))
    content = bytearray(archive.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    archive.write_bytes(content)
    refused(stage, archive, "cut short or damaged")


def test_two_members_of_one_name_are_refused(stage: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        archive = zip_with(stage / "a.zip", ("a", b"1"), ("a", b"2"))
    refused(stage, archive, "same name")


def test_a_zip_tree_refuses_what_extraction_refuses(stage: Path) -> None:
    with pytest.raises(InputError, match="leads out"):
        ZipTree(zip_with(stage / "a.zip", ("../evil.png", b"evil")))
