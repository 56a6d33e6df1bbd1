import pytest

from acr.cli import main
from acr.report.groups import gather
from acr.runs.run import find_runs


def test_tables_for_other_programs(sweep, tmp_path, capsys):
    words = ["--csv", str(tmp_path / "csv"), "--latex", str(tmp_path / "tex")]
    main(["report", str(sweep), "-o", str(tmp_path / "page.html"), *words])
    out = capsys.readouterr().out
    assert "13 runs in 5 groups" in out
    assert out.count("not counted") == 2
    rows = (tmp_path / "csv" / "runs.csv").read_text().splitlines()
    assert len(rows) == 14
    gathered = gather(find_runs(sweep))
    first = rows[1].split(",")
    assert float(first[rows[0].split(",").index("acc")]) == pytest.approx(gathered.runs[0].summary()["acc"])
    tex = (tmp_path / "tex" / "acc.tex").read_text()
    assert f"{100 * gathered.groups[0].estimate('acc').mean:.1f}" in tex
    assert tex.count(r"\textbf") == 2


def test_words_that_are_wrong_are_said_in_one_sentence(tmp_path, capsys):
    for words in (["report"], ["report", str(tmp_path / "none")], ["report", str(tmp_path)]):
        with pytest.raises(SystemExit) as exit:
            main(words)
        assert exit.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
