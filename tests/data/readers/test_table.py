"""Tables of images as people save them: from Excel, from pandas, by hand; and files that are no tables at all."""

import csv
import io
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acr.data.readers import table
from acr.data.readers.table import read_table, without_repetitions
from acr.errors import InputError

GOOD = "path,label\na/1.png,cat\nb/2.png,dog\n"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "images.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r"),
        GOOD.rstrip("\n"),
        GOOD.encode("utf-8-sig"),
        GOOD.encode("utf-16"),
        GOOD.replace(",", ";"),
        GOOD.replace(",", "\t"),
        GOOD.replace(",", " , "),
        GOOD.replace("path,label", "File,CLASS"),
        GOOD.replace("path,label", "filename,label"),
        GOOD.replace("path,label", "image,class"),
        GOOD.replace("\nb", "\n\n,\nb"),
        'number,"label","path"\n1,"cat","a/1.png"\n2,dog,b/2.png\n',
        "label,image,path\ncat,x,a/1.png\ndog,y,b/2.png\n",
        "path,label,class\na/1.png,cat,0\nb/2.png,dog,1\n",
        "path,label,\na/1.png,cat\nb/2.png,dog,\n",
    ],
)
def test_one_table_in_many_forms(tmp_path: Path, content: str | bytes) -> None:
    rows = read_table(written(tmp_path, content))
    assert [(row.path, row.label, row.split) for row in rows] == [
        (tmp_path / "a/1.png", "cat", ""),
        (tmp_path / "b/2.png", "dog", ""),
    ]


def test_paths_are_absolute_and_those_of_the_file_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lists").mkdir()
    written(tmp_path / "lists", "path,label\n../a.png,x\n/elsewhere/b.png,x\n./c//d.png,x\n")
    monkeypatch.chdir(tmp_path)
    rows = read_table(Path("lists/images.csv"))
    assert [str(row.path) for row in rows] == [f"{tmp_path}/a.png", "/elsewhere/b.png", f"{tmp_path}/lists/c/d.png"]


def test_parts_and_lines(tmp_path: Path) -> None:
    content = "path,label,split\n1.png,a,Train\n\n2.png,a,testing\n3.png,b,validation\n4.png,b,val\n"
    rows = read_table(written(tmp_path, content))
    assert [(row.line, row.split) for row in rows] == [(2, "train"), (4, "test"), (5, "val"), (6, "val")]


def test_the_same_row_twice_is_told_apart(tmp_path: Path) -> None:
    rows = read_table(written(tmp_path, "path,label\n1.png,a\n./1.png,a\n2.png,b\n1.png,a\n"))
    first, again = without_repetitions(rows)
    assert [row.line for row in first] == [2, 4]
    assert [row.line for row in again] == [3, 5]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "images.csv is empty.*path,label"),
        ("\n\n , \n", "is empty"),
        ("path,label\n", "has no rows"),
        ("a/1.png,cat\nb/2.png,dog\n", "no column named path or file or filename or image.*is a row, not a header"),
        ("name,label\na,b\n", "no column named path.*its first line is 'name,label'"),
        ("path,kind\na,b\n", "no column named label or class"),
        ("path,path,label\na,b,c\n", "has 2 columns named path"),
        ("path,label\na.png,cat,dog\n", "line 2: it has 3 values, but the first line names 2 columns"),
        ("path,label\na.png,cat\nb.png\n", "line 3: it has 1 value,"),
        ("path,label\n,cat\n", "line 2: the path is empty"),
        ("path,label\na.png,\n", "line 2: the label is empty"),
        ('path,label\na.png,"cat\n', "line 2: it is not valid CSV.*quotation mark may be missing"),
        ('path,label\na.png,"cat"s\n', "line 2: it is not valid CSV"),
        ('path,label\na.png,"cat\ndog"\n', "line 2: the label has a line break in it"),
        ('path,label\n"a\n.png",cat\n', "line 2: the path has a line break in it"),
        ("path,label\nhttps://example.org/a.png,cat\n", "line 2: .* is an address, not a file"),
        (f"path,label\na.png,{'x' * 256}\n", "line 2: the label is longer than 255 characters"),
        ("path,label,split\na.png,cat,holdout\n", "line 2: the split is 'holdout'; it must be train, test or val"),
        ("path,label,split\na.png,cat,\n", "line 2: the split is empty"),
        ("path,label\na.png,cat\nb.png,cat\n./a.png,dog\n", "lines 2 and 4: .*a.png has two labels, 'cat' and 'dog'"),
        ("path,label,split\na.png,x,train\na.png,x,test\n", "lines 2 and 3: .*two splits, 'train' and 'test'"),
        (b"path,label\na.png,caf\xe9\n", "line 2: it is not UTF-8 text. Save the file as CSV in UTF-8"),
        (b"path,label\na.png,c\0t\n", "line 2: it has a null byte"),
        (GOOD.encode("utf-16-le"), "null byte"),
        (b"\xff\xfep\0a\0", "no column named path"),
        (b"\xff\xfep\0a", "is not UTF-8 text"),
        (",".join(["path", "label", *map(str, range(1_000))]), "1,002 columns, and at most 1,000 are read"),
        (f'path,label\n"{"x" * 200_000}",a\n', "line 2: it is not valid CSV.*field larger"),
    ],
)
def test_what_is_no_table_says_why_and_where(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_table(written(tmp_path, content))
    assert str(tmp_path / "images.csv") in str(caught.value)


def test_the_bounds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 2)
    assert len(read_table(written(tmp_path, GOOD))) == 2
    with pytest.raises(InputError, match="more than 2 rows"):
        read_table(written(tmp_path, GOOD + "c.png,cat\n"))
    monkeypatch.setattr(table, "MOST_TEXT", 10)
    with pytest.raises(InputError, match="larger than 10 bytes"):
        read_table(written(tmp_path, GOOD))


def test_what_is_not_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no file .*none\.csv"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"is a folder, not a CSV file.*folder:"):
        read_table(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="it is a pipe, not a file"):
        read_table(tmp_path / "pipe.csv")


TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Zs")), min_size=1, max_size=20)


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), quoting=st.sampled_from([0, 1]))
def test_what_a_program_wrote_is_what_is_read(tmp_path_factory, rows: list[tuple[str, str]], quoting: int) -> None:
    folder = tmp_path_factory.getbasetemp()
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=quoting)
    writer.writerow(("path", "label"))
    writer.writerows((f"{number}{name}.png", label) for number, (name, label) in enumerate(rows))
    read = read_table(written(folder, buffer.getvalue()))
    assert [row.label for row in read] == [label for _, label in rows]
    expected = [os.path.abspath(folder / f"{number}{name}.png") for number, (name, _) in enumerate(rows)]
    assert [str(row.path) for row in read] == expected


@given(noise=st.binary(max_size=40), at=st.integers(0, len(GOOD)))
def test_bytes_of_any_kind_are_read_or_refused(tmp_path_factory, noise: bytes, at: int) -> None:
    content = GOOD.encode()
    with suppress(InputError):
        rows = read_table(written(tmp_path_factory.getbasetemp(), content[:at] + noise + content[at:]))
        assert all(row.path.is_absolute() and row.label for row in rows)
