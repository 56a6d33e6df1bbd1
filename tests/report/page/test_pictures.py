import pytest
from fabricated_runs import make_run

from acr.cli import main
from acr.report.page.pictures import TILES, memory_of, share_out
from acr.runs.run import Run


def test_memory_tiles_are_few_ordered_and_from_every_class(tmp_path):
    folder = make_run(tmp_path, "acr", 0, buffer_size=1000, side=32, channels=3)
    memory = memory_of(Run(folder), 10**7)
    assert sum(len(g["variance"]) for g in memory["groups"]) <= TILES
    assert len(memory["groups"]) == 10
    for group in memory["groups"]:
        assert group["variance"] == sorted(group["variance"], reverse=True)
        assert group["stored"] == 100
    small = memory_of(Run(folder), 40_000)
    assert len(small["sprite"]["src"]) < 0.75 * len(memory["sprite"]["src"])
    assert share_out({(0, 0): [1], (0, 1): list(range(50))}, 10)[0, 1][0] == 0


def test_damaged_arrays_leave_out_their_picture_only(tmp_path):
    folder = make_run(tmp_path, "acr", 0)
    for name in ("memory.npz", "confidence.npz", "samples.npz", "events.jsonl"):
        (folder / name).write_bytes(b"PK not a zip")
    with pytest.warns(UserWarning, match="Left out of the page: .*memory.npz is damaged"):
        main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")])
    assert "This could not be drawn" not in (tmp_path / "page.html").read_text(encoding="utf-8")
