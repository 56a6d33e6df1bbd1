import pytest
import torch
from method_learning import Learning

from acr.errors import InputError
from acr.memory import Buffer
from acr.memory.policies import Reservoir
from acr.methods.gdumb import GDumb, GreedyBalanced
from acr.methods.maths.fitting import learning_rates
from acr.runs.resolve import make_config

QUICK = {"fit_epochs": 2}


def test_greedy_sampler_stays_balanced_as_classes_arrive():
    buffer, policy = Buffer(10, (1, 2, 2)), GreedyBalanced()
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        classes = step // 10 + 1  # a class more every ten batches, the newest the most frequent
        labels = torch.randint(classes, (7,), generator=generator)
        labels[::2] = classes - 1
        policy.observe(buffer, torch.full((7, 1, 2, 2), step % 256, dtype=torch.uint8), labels, 0, generator)
        if step % 10 == 9:
            counts = torch.bincount(buffer.labels, minlength=classes)
            assert int(counts.sum()) == 10
            assert int(counts.max() - counts.min()) <= 1
    assert buffer.seen == 280


def test_greedy_sampler_evicts_at_random_inside_the_largest_class():
    places = set()
    for seed in range(20):
        buffer = Buffer(4, (1, 1, 1))
        buffer.append(torch.zeros(4, 1, 1, 1, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64), 0)
        new = torch.ones(1, 1, 1, 1, dtype=torch.uint8)
        GreedyBalanced().observe(buffer, new, torch.tensor([5]), 1, torch.Generator().manual_seed(seed))
        assert buffer.labels.tolist().count(5) == 1
        places.add(buffer.labels.tolist().index(5))
    assert places == {0, 1, 2, 3}


def test_a_sample_is_offered_once_so_nothing_is_stored_twice():
    learning = Learning("gdumb", buffer_size=40, options=QUICK)
    learning.run()
    images = learning.method.buffer.images.flatten(1)
    assert len(images) == 40
    assert len(torch.unique(images, dim=0)) == 40


def test_steps_have_no_loss_and_change_nothing():
    learning = Learning("gdumb", options=QUICK)
    before = learning.method.network
    assert learning.step() is None
    assert learning.method.network is before
    learning.run(1)
    assert learning.method.network is not before


def test_a_fit_follows_the_schedule_and_begins_afresh(monkeypatch):
    learning = Learning("gdumb", buffer_size=12, options={"fit_epochs": 5, "cutmix": 0.0})
    method = learning.method
    rates = []
    step = type(method).step
    monkeypatch.setattr(
        type(method), "step", lambda self, loss: (rates.append(self.optimizer.param_groups[0]["lr"]), step(self, loss))
    )
    learning.run(1)
    expected = [rate for rate in learning_rates(5) for _ in range(2)]  # 12 samples in batches of 8 and 4
    assert rates == expected
    fresh = learning.context.build_network("gdumb-0")
    assert not torch.equal(method.network.head.weight, fresh.head.weight)


@pytest.mark.parametrize("epochs", [50, 10, 1])
def test_a_fit_has_its_own_epochs_whatever_those_of_the_stream(epochs):
    assert len(Learning("gdumb", epochs=epochs).method.schedule()) == 250
    assert len(Learning("gdumb", epochs=epochs, options={"fit_epochs": 3}).method.schedule()) == 3


@pytest.mark.parametrize(("stored", "sizes"), [(10, [10]), (11, [11]), (12, [8, 4]), (16, [8, 8]), (3, [3])])
def test_a_last_batch_too_small_for_batch_norm_joins_the_one_before(monkeypatch, stored, sizes):
    learning = Learning("gdumb", buffer_size=stored, options={"fit_epochs": 1, "cutmix": 0.0})
    seen = []
    monkeypatch.setattr(type(learning.method.network), "forward", recorded_forward(seen))
    learning.run(1)
    assert seen == sizes


def recorded_forward(seen):
    from acr.networks import Network

    forward = Network.forward
    return lambda self, images: (seen.append(len(images)), forward(self, images))[1]


def test_a_short_fit_is_said_beside_the_number():
    assert GDumb.caveat(make_config({"method": "gdumb", "fit_epochs": 30}).flat()) == "fit epochs 30"
    assert GDumb.caveat(make_config({"method": "gdumb"}).flat()) == ""
    tiny = {"method": "gdumb", "dataset": "split-tiny-imagenet"}
    assert GDumb.caveat(make_config({**tiny, "fit_epochs": 250}).flat()) == "fit epochs 250"
    assert GDumb.caveat(make_config(tiny).flat()) == ""


def test_it_learns():
    learning = Learning("gdumb", buffer_size=40, epochs=1, options={"fit_epochs": 30})
    learning.run()
    assert learning.accuracy() > 0.8


@pytest.mark.parametrize(
    "settings",
    [
        {"quirks": ["gdumb-as-released"], "options": QUICK},
        {"options": {**QUICK, "sampler": "reservoir", "fit": "final"}},
    ],
)
def test_as_released_it_fills_a_reservoir_and_fits_once(settings):
    learning = Learning("gdumb", **settings)
    first = learning.method.network
    learning.run(1)
    assert learning.method.network is first
    learning.run()
    assert learning.method.network is not first
    assert isinstance(learning.method.policy, Reservoir)
    assert learning.method.buffer.seen == 2 * 96


def test_a_last_task_must_be_known_to_fit_after_it():
    with pytest.raises(InputError, match="--fit every"):
        Learning("gdumb", known_tasks=False, options={"fit": "final"})


def test_rates_the_wrong_way_round_are_refused():
    with pytest.raises(InputError, match="is above --fit-learning-rate"):
        make_config({"method": "gdumb", "fit_min_learning_rate": 0.1})
