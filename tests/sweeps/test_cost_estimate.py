"""The estimate behind --dry-run: it must meet the state that a real run is in, and multiply rightly."""

import pytest

from acr.data.loading import load_dataset
from acr.data.stream import TaskStream
from acr.launch import build_loop
from acr.methods.method import method_class, method_names
from acr.runs.resolve import make_config
from acr.sweeps import cost_estimate

SMALL = {"epochs": 3, "width": 2, "buffer_size": 40, "samples_per_class": 20, "ood_every": "never", "threads": 1}
QUICK = {"hal": {"anchor_steps": 3}, "gdumb": {"fit_epochs": 2}}
"""Options that make a method's work at the end of a task shorter."""


@pytest.mark.parametrize("method", method_names())
def test_every_method_can_be_estimated(method):
    config = make_config({**SMALL, "method": method})
    (cost,) = cost_estimate.estimate([config])
    assert cost.seconds > cost_estimate.START_SECONDS
    assert cost.bytes > cost_estimate.RESULT_BYTES


@pytest.mark.parametrize(
    ("method", "stored"),
    [("gem", 16), ("agem", 16), ("acr", 40), ("er", 40), ("gss", 40), ("gdumb", 40), ("soif", 40), ("hal", 40)],
)
def test_the_memory_in_the_middle_is_what_the_method_would_have_there(method, stored):
    """GEM and A-GEM have stored eight samples of each of two tasks; the others' memories are full."""
    config = make_config({**SMALL, "method": method, **QUICK.get(method, {})})
    stream = TaskStream.split(load_dataset(config.dataset, config), config.tasks)
    loop = build_loop(config, stream)
    cost_estimate.learn_earlier(loop, 2)
    assert len(loop.method.buffer) == stored
    assert loop.context.task == 1
    if method == "hal":
        assert len(loop.method.anchors) == 4


def test_epochs_stand_for_those_around_them():
    """SOIF's last epoch weighs one of fifty; MetaSP's last five weigh six, because 44 is nearer to 48 than to 39."""
    looked_at = cost_estimate.epochs_to_try(50)
    metasp = {epoch: 7.0 if epoch >= 45 else 1.0 for epoch in looked_at}
    soif = {epoch: 13.0 if epoch == 49 else 1.0 for epoch in looked_at}
    assert cost_estimate.mean_over_epochs(soif, 50) == pytest.approx((49 + 13) / 50)
    assert cost_estimate.mean_over_epochs(metasp, 50) == pytest.approx((44 + 6 * 7) / 50)


def test_shortened_work_is_multiplied_by_what_was_left_out():
    gdumb = make_config({"method": "gdumb", "dataset": "split-cifar100"})
    options, times = method_class("gdumb").shortened(gdumb)
    assert (options.fit_epochs, times) == (2, 125)
    options, times = method_class("hal").shortened(make_config({"method": "hal"}))
    assert (options.anchor_steps, times) == (4, 25)
    assert method_class("er").shortened(make_config({"method": "er"}))[1] == 1


def test_every_kind_of_run_has_a_trial_of_its_own(monkeypatch):
    """Dense memories and averaged weights change what a step costs, so one trial cannot stand for all."""
    tried = []

    def measured(config, data):
        tried.append((config.images_per_place, config.average_weights))
        return cost_estimate.Measured(1.0, 1.0, 1.0, 1, 64)

    monkeypatch.setattr(cost_estimate, "measure", measured)
    kinds = [(1, "off"), (1, "auto"), (4, "off"), (4, "auto")]
    configs = [make_config({**SMALL, "images_per_place": n, "average_weights": a, "seed": s})
               for n, a in kinds for s in (0, 1)]  # fmt: skip
    costs = cost_estimate.estimate(configs)
    assert tried == kinds
    assert costs[4].bytes - costs[0].bytes == 3 * 40 * 64  # memory.npz has images, not codes
