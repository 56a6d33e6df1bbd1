"""The charts of a single run, as figures."""

import numpy as np
import pytest
from fabricated_runs import make_run
from plotly.graph_objects import Figure

import acr
from acr.errors import InputError
from acr.metrics import average_accuracy, stage_accuracy
from acr.report.plots import KINDS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return acr.load_run(make_run(out, "acr", tasks=3, corruptions=("fog", "snow"), severities=(1, 3)))


def values(figure: Figure, place: int = 0, name: str = "y") -> np.ndarray:
    """The numbers of a trace as fractions; None is NaN."""
    return np.array(getattr(figure.data[place], name), dtype=float) / 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_figure_that_can_be_written(run, kind):
    figure = run.plot(kind)
    assert isinstance(figure, Figure)
    assert figure.data
    assert figure.layout.title.text == "ACR on split-digits, seed 0"
    assert len(figure.to_json()) > 1_000


def test_the_first_chart_is_accuracy_after_every_task(run):
    clean, shifted = run.plot().data
    assert (clean.name, shifted.name, shifted.line.dash) == ("clean", "shifted", "dash")
    for place, scenario in enumerate(("clean", "ood")):
        np.testing.assert_allclose(values(run.plot(), place), stage_accuracy(run.accuracy[scenario]), atol=1e-4)


@pytest.mark.parametrize("scenario", ["clean", "ood", "fog/3"])
def test_the_matrix_is_the_run_s(run, scenario):
    np.testing.assert_allclose(values(run.plot("matrix", scenario), name="z"), run.accuracy[scenario], atol=1e-3)


def test_confusion_is_in_percent_of_the_rows(run):
    shares = values(run.plot("confusion"), name="z")
    counts = np.array(run.results.stages[-1].scenarios["clean"].confusion)
    np.testing.assert_allclose(shares, counts / counts.sum(1, keepdims=True), atol=1e-3)


def test_corruptions_are_means_over_severities(run):
    figure = run.plot("corruptions")
    assert list(figure.data[0].y) == ["fog", "snow"]
    expected = [np.mean([average_accuracy(run.accuracy[f"{name}/{s}"]) for s in (1, 3)]) for name in ("fog", "snow")]
    np.testing.assert_allclose(values(figure, name="x"), expected, atol=1e-4)


def test_the_memory_is_counted_by_class(run):
    assert list(run.plot("memory").data[0].y) == run.results.memory.per_class


def test_cells_of_classes_have_names(run):
    names = run.plot("classes").data[0].customdata
    assert names[2][1] == "after 3 · class 1"


def test_a_run_without_shift_has_one_curve(tmp_path):
    alone = acr.load_run(make_run(tmp_path, "finetune", corruptions=()))
    assert [trace.name for trace in alone.plot().data] == ["clean"]
    with pytest.raises(InputError, match=r"nothing to draw for 'corruptions'. No run here was evaluated on shifted"):
        alone.plot("corruptions")
    with pytest.raises(InputError, match=r"nothing to draw for 'memory'. No method here stores samples"):
        alone.plot("memory")


def test_what_cannot_be_drawn_says_why(run, tmp_path):
    with pytest.raises(
        InputError, match=r"no kind of chart 'matrx'. Did you mean 'matrix'\? Known: classes, confidence"
    ):
        run.plot("matrx")
    with pytest.raises(InputError, match=r"no scenario 'fog/2'. Did you mean 'fog/[13]'\?"):
        run.plot("matrix", scenario="fog/2")
    begun = acr.load_run(make_run(tmp_path, "er", finished=False))
    with pytest.raises(InputError, match=r"cannot be drawn, because it is unfinished: .*5 tasks evaluated"):
        begun.plot()
    (run.folder / "events.jsonl").rename(run.folder / "gone")
    with pytest.raises(InputError, match=r"nothing to draw for 'training'. Its events\.jsonl"):
        run.plot("training")


def test_names_are_text_not_markup(tmp_path):
    named = ["<b>one</b>", *map(str, range(1, 10))]
    figure = acr.load_run(make_run(tmp_path, "er", class_names=named)).plot("classes")
    assert figure.layout.xaxis.ticktext[0] == "&lt;b&gt;one&lt;/b&gt;"
