import pytest
from hand_worked_runs import make_planned

from acr.cli import main


def test_compare_tells_config_result_task_and_corruption(tmp_path, capsys):
    first = make_planned(tmp_path, "acr", 0, 0.30, ood=0.10).run.folder
    second = make_planned(tmp_path, "er", 0, 0.35, ood=0.20).run.folder
    main(["compare", str(first), str(second)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "method acr er" in lines
    assert "temperature 0.09 no such option" in lines
    assert "ACC % 30.0 35.0 +5.0" in lines
    assert lines.count("task 2 30.0 35.0 +5.0") == 1
    assert "fog/1 10.0 20.0 +10.0" in lines
    assert not any(line.startswith("out ") for line in lines)


def test_compare_refuses_what_is_not_finished(tmp_path, capsys):
    first = make_planned(tmp_path, "acr", 0, 0.3).run.folder
    second = make_planned(tmp_path, "er", 0, 0.3).run.folder
    (second / "results.json").unlink()
    with pytest.raises(SystemExit) as exit:
        main(["compare", str(first), str(second)])
    assert exit.value.code == 2
    assert "acr resume" in capsys.readouterr().err
