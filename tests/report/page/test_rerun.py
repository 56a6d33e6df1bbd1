import shlex

import pytest
import yaml

from acr.cli import main
from acr.report.page import rerun
from acr.runs.resolve import make_config
from acr.runs.run import Run


@pytest.mark.parametrize(
    "values",
    [
        {"method": "acr", "seed": 3, "policy": "hard", "confidence_epochs": 3, "temperature": 0.2},
        {"method": "er", "tasks": 2, "class_order": "random:4", "lr_milestones": "3,5", "protocol": "published"},
        {"method": "finetune", "classes_per_task": "4,3,3", "skip_broken": True, "quirk": ["clean-in-ood"]},
        {"method": "acr", "ood_corruptions": "fog,snow", "ood_severities": "1-3", "no_quirk": ["unseen-outputs"]},
    ],
)
def test_the_command_makes_the_same_run(tmp_path, values, monkeypatch):
    config = make_config(values)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"schema": 1, **config.flat()}))
    words = shlex.split(rerun.command(Run(folder)))
    seen = {}
    monkeypatch.setattr("acr.commands.run.run_at", lambda c, *_: (seen.update(config=c), Run(folder))[1])
    monkeypatch.setattr("acr.commands.run.show", lambda run: None)
    main([*words[1:], "--out", str(tmp_path / "elsewhere")])
    assert seen["config"].identity() == config.identity()
