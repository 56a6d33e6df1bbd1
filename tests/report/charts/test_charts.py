import numpy as np
import pytest

from acr.report.charts.classes import class_accuracy, class_change
from acr.report.charts.shift import spread
from acr.report.groups import gather
from acr.runs.run import find_runs


def test_forgetting_of_classes_is_the_change_since_first_seen(sweep):
    group = gather(find_runs(sweep)).groups[0]
    change = class_change(class_accuracy(group))
    run_changes = []
    for run in group.runs:
        stages = [s.scenarios["clean"] for s in run.results.stages]
        run_changes.append((stages[-1].correct["seen"][0][1] - stages[0].correct["seen"][0][1]) / 30)
    assert change[1] == pytest.approx(np.mean(run_changes))
    assert np.isnan(change[-2:]).all()


def test_names_beside_points_keep_their_distance():
    heights = spread([50, 51, 52, 90, 10], 0, 100, 5)
    assert all(b - a >= 5 - 1e-6 for a, b in zip(sorted(heights), sorted(heights)[1:], strict=False))
