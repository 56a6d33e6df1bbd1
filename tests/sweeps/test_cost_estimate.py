"""The probe behind --dry-run: it must meet the state that a real run is in, and multiply rightly."""

import pytest

from acr.config import make_config
from acr.data.stream import TaskStream
from acr.launch import build, load_data
from acr.methods.method import method_class, method_names
from acr.sweeps import cost_estimate as probe

SMALL = {"epochs": 3, "width": 2, "buffer_size": 40, "samples_per_class": 20, "ood_every": "never", "threads": 1}


@pytest.mark.parametrize("method", method_names())
def test_every_method_can_be_probed(method):
    config = make_config({**SMALL, "method": method})
    (cost,) = probe.estimate([config])
    assert cost.seconds > probe.START_SECONDS
    assert cost.bytes > probe.RESULT_BYTES


@pytest.mark.parametrize(
    ("method", "stored"),
    [("gem", 16), ("agem", 16), ("acr", 40), ("er", 40), ("gss", 40), ("gdumb", 40), ("soif", 40), ("hal", 40)],
)
def test_the_memory_in_the_middle_is_what_the_method_would_have_there(method, stored):
    """GEM and A-GEM have stored eight samples of each of two tasks; the others' memories are full."""
    config = make_config({**SMALL, "method": method})
    stream = TaskStream.split(load_data(config), config.tasks)
    made, context = build(config, stream)
    trainer = probe.Trainer(config, stream, made, context, [], None, None)
    probe.learn_earlier(trainer, 2)
    assert len(made.buffer) == stored
    assert context.task == 1
    if method == "hal":
        assert len(made.anchors) == 4


def test_epochs_stand_for_those_around_them():
    """SOIF's last epoch weighs one of fifty; MetaSP's last five weigh six, because 44 is nearer to 48 than to 39."""
    looked_at = probe.epochs_to_look_at(50)
    metasp = {epoch: 7.0 if epoch >= 45 else 1.0 for epoch in looked_at}
    soif = {epoch: 13.0 if epoch == 49 else 1.0 for epoch in looked_at}
    assert probe.mean_over_epochs(soif, 50) == pytest.approx((49 + 13) / 50)
    assert probe.mean_over_epochs(metasp, 50) == pytest.approx((44 + 6 * 7) / 50)


def test_shortened_work_is_multiplied_by_what_was_left_out():
    gdumb = make_config({"method": "gdumb", "dataset": "split-cifar100"})
    options, times = method_class("gdumb").shortened(gdumb)
    assert (options.fit_epochs, times) == (2, 125)
    options, times = method_class("hal").shortened(make_config({"method": "hal"}))
    assert (options.anchor_steps, times) == (4, 25)
    assert method_class("er").shortened(make_config({"method": "er"}))[1] == 1
