import pytest
import torch
from method_learning import Learning

from acr.errors import InputError
from acr.methods.metasp import least_useful
from acr.runs.resolve import make_config


def in_second_task(**settings):
    learning = Learning("metasp", epochs=3, options={"replay_epochs": 2}, **settings)
    learning.run(1, 2, 5)  # before its last step
    return learning


def test_a_task_replays_in_its_last_epochs_only():
    for epochs, first in [(50, 45), (20, 18), (6, 5), (5, 4), (2, 1), (1, 0)]:
        assert Learning("metasp", epochs=epochs).method.first_replay_epoch == first
        assert make_config({"method": "metasp", "epochs": epochs}).options.replay_epochs == epochs - first
    assert Learning("metasp", epochs=5, options={"replay_epochs": 4}).method.first_replay_epoch == 1
    with pytest.raises(InputError, match="--replay-epochs 6 must not be more"):
        make_config({"method": "metasp", "epochs": 5, "replay_epochs": 6})


def test_the_first_task_fills_the_memory_from_its_clusters(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "acr.methods.metasp.kmeans_pick",
        lambda pixels, scores, clusters, seed: (asked.append((len(pixels), clusters)), torch.arange(20, 30))[1],
    )
    learning = Learning("metasp", epochs=2)
    learning.run(0, 1, 5)
    assert len(learning.method.buffer) == 0
    learning.run(1)
    assert asked == [(48, 10)]  # R = B
    expected = learning.stream[0].images()[20:30].flatten(1)
    assert torch.equal(learning.method.buffer.images.flatten(1).sort(0).values, expected.sort(0).values)


def test_one_epoch_replays_with_what_has_arrived_of_the_task():
    learning = Learning("metasp", epochs=1, buffer_size=20)
    learning.run(1)
    learning.step()
    method = learning.method
    assert method.store.known == 8
    assert int(method.buffer.column("visits").sum()) == 8
    assert learning.run()


def test_later_tasks_wait():
    learning = Learning("metasp", epochs=3, options={"replay_epochs": 2})
    learning.run(1)
    method = learning.method
    assert method.buffer.seen == 48
    images = method.buffer.images.clone()
    learning.run(1, 2, 5)
    assert torch.equal(method.buffer.images, images)
    assert method.buffer.column("visits").max() > 1
    assert method.store.visits.max() == 2
    assert torch.equal(method.store.images, learning.task.images())
    assert method.side_memory_bytes() == 48 * 3 * 8 * 8


def test_running_means_are_means(monkeypatch):
    learning = in_second_task()
    seen = {}
    module = "acr.methods.metasp.pareto_weights"

    def recorded(stability, plasticity):
        influence = torch.arange(len(stability)).float()
        seen["values"] = influence
        return 0.5, influence

    method, batch = learning.method, learning.batch()
    mean, visits = method.store.influence[batch.indices].clone(), method.store.visits[batch.indices].clone()
    monkeypatch.setattr(module, recorded)
    monkeypatch.setattr(method, "end_task", lambda task: None)
    learning.step()
    expected = (mean * visits + seen["values"][: len(batch)]) / (visits + 1)
    torch.testing.assert_close(method.store.influence[batch.indices], expected)


def chosen_rows(learning):
    """Positions in the task of what was stored of it."""
    method, task = learning.method, learning.stream[1]
    stored = method.buffer.images[method.buffer.tasks == 1].flatten(1)
    return (stored[:, None] == task.images().flatten(1)).all(2).nonzero()[:, 1]


@pytest.mark.parametrize("quirks", [[], ["shuffled-metasp"]])
def test_the_best_of_each_cluster_replace_the_least_useful(monkeypatch, quirks):
    learning = in_second_task(quirks=quirks)
    method = learning.method
    chosen = torch.tensor([3, 7, 11, 13, 17])
    monkeypatch.setattr("acr.methods.metasp.kmeans_pick", lambda pixels, scores, clusters, seed: chosen)
    before = method.buffer.images.clone()
    observe = method.observe
    leaving = []

    def observe_and_look(batch):
        loss = observe(batch)
        leaving.extend(least_useful(method.buffer.labels, method.buffer.column("influence"), 5).tolist())
        return loss

    monkeypatch.setattr(method, "observe", observe_and_look)
    learning.step()
    replaced = (method.buffer.images != before).flatten(1).any(1).nonzero()[:, 0].tolist()
    rows = sorted(set(chosen_rows(learning).tolist()))
    assert set(replaced) <= set(leaving)
    assert len(replaced) == min(len(leaving), 5)
    assert method.buffer.column("influence").eq(1).all()
    assert method.buffer.column("visits").eq(0).all()
    if quirks:
        assert not set(rows) <= set(chosen.tolist())
    else:
        assert set(rows) <= set(chosen.tolist())
        assert len(rows) == len(replaced)
    labels = learning.stream[1].targets[chosen_rows(learning)]
    assert torch.equal(method.buffer.labels[method.buffer.tasks == 1], labels)


def test_room_in_the_memory_is_filled_before_anything_is_replaced():
    learning = Learning("metasp", tasks=((0,), (1, 2, 3)), buffer_size=100, epochs=2)
    learning.run(1)
    assert len(learning.method.buffer) == 24  # all there are of the first task
    learning.run()
    assert torch.bincount(learning.method.buffer.tasks).tolist() == [24, 50]


def test_least_useful_takes_the_same_number_of_each_class():
    labels = torch.tensor([2, 2, 2, 5, 5, 7])
    influence = torch.tensor([0.3, 0.9, 0.5, 0.1, 0.2, 0.0])
    assert least_useful(labels, influence, 6).tolist() == [1, 2, 4, 3, 5]
    assert least_useful(labels, influence, 1).tolist() == [1, 4, 5]
    assert least_useful(torch.zeros(0, dtype=torch.int64), torch.zeros(0), 3).tolist() == []


def test_frozen_replay_stores_the_augmented_view():
    learning = Learning("metasp", quirks=["frozen-replay"], buffer_size=8)
    batch = learning.batch()
    learning.step()
    assert torch.equal(learning.method.store.samples(batch.indices)[0], batch.augmented)
    assert not torch.equal(batch.augmented, batch.plain)
