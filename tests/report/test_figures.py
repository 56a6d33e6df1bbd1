from fabricated_runs import make_run, make_sweep

from acr.cli import main
from acr.report.figures import write_figures
from acr.report.groups import gather
from acr.runs.run import find_runs


def test_figures_for_papers(tmp_path):
    make_sweep(tmp_path / "runs", ("acr", "finetune"), seeds=2, corruptions=("fog", "snow"), tasks=3)
    make_run(tmp_path / "clean", "er", 0, corruptions=(), tasks=2)
    main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")])
    names = {path.name.split("-")[0] + path.suffix for path in (tmp_path / "figures").iterdir()}
    assert names == {a + b for a in ("stages", "scatter", "ood", "matrices") for b in (".pdf", ".png", ".svg")}
    assert (tmp_path / "figures").joinpath("stages-split-digits-buffer-50-sound.pdf").read_bytes().startswith(b"%PDF")
    written = write_figures(gather(find_runs(tmp_path / "clean")), tmp_path / "few")
    assert {path.name.split("-")[0] for path in written} == {"stages", "matrices"}
