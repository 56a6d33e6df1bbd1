"""What holds for all methods of the registry. A new one is tested by being registered."""

import pytest
import torch
from method_learning import Learning

from acr.methods.method import REGISTRY, method_class, method_names
from acr.testing import toy_data
from acr.training.checkpoint import flatten, restore
from acr.training.loop import Cursor

QUICK = {"gdumb": {"fit_epochs": 3}, "hal": {"anchor_steps": 3}}

pytestmark = pytest.mark.usefixtures("plain_convolutions")


def learning_of(name, **settings):
    return Learning(name, width=4, options=QUICK.get(name), **settings)


@pytest.mark.parametrize("name", REGISTRY)
@pytest.mark.parametrize(
    "settings",
    [
        # unequal tasks, two of a single class, grey images
        {"tasks": ((0, 1, 2), (3,), (4,)), "batch_size": 8, "buffer_size": 10, "channels": 1},
        # a last batch of one sample, and a memory smaller than a batch
        {"tasks": ((4, 0), (1, 2, 3)), "batch_size": 5, "buffer_size": 4, "channels": 3, "known_tasks": False},
    ],
)
def test_runs_on_awkward_streams_within_its_budget(name, settings):
    settings = dict(settings)
    data = toy_data(classes=5, train=8, channels=settings.pop("channels"))
    learning = learning_of(name, data=data, **settings)
    while not learning.done:
        loss = learning.step()
        assert loss is None or (loss.ndim == 0 and not loss.requires_grad and torch.isfinite(loss))
        memory = learning.method.memory()
        if memory:
            assert set(memory) >= {"images", "labels", "tasks"}
            assert len({len(value) for value in memory.values()}) == 1
            assert len(memory["labels"]) <= settings["buffer_size"]
            assert memory["images"].dtype == torch.uint8
        assert learning.method.side_memory_bytes() >= 0
    learning.method.network.eval()
    assert learning.method.logits(learning.stream[0].images()[:3]).shape == (3, 5)
    if method_class(name).uses_memory:
        stored_rows_are_real(learning)


def stored_rows_are_real(learning):
    """Every stored image is an image of the task and class that stand beside it."""
    memory = learning.method.memory()
    assert len(memory["labels"]) > 0
    for image, label, task in zip(memory["images"], memory["labels"], memory["tasks"], strict=True):
        samples = learning.stream[int(task)]
        same = samples.images()[samples.targets == label].flatten(1)
        assert (same == image.flatten()).all(1).any()


@pytest.mark.parametrize("name", REGISTRY)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(name):
    settings = {"tasks": ((0, 1), (2,), (3,)), "data": toy_data(train=19), "buffer_size": 12}
    learning = learning_of(name, **settings)
    learning.run(1, 1, 2)
    tensors = {}
    content = flatten(learning.method.state_dict(), tensors)  # as a checkpoint holds it: no object survives
    state = restore(content, {key: value.clone() for key, value in tensors.items()})

    torch.manual_seed(12345)  # the global generator plays no part
    again = learning_of(name, **settings)
    again.loop.cursor = Cursor(**vars(learning.loop.cursor))
    again.method.load_state_dict(state)
    for _ in range(20):
        if learning.done:
            break
        one = learning.step()
        torch.rand(3)
        two = again.step()
        assert (one is None and two is None) or torch.equal(one, two)
    for key, value in learning.method.network.state_dict().items():
        assert torch.equal(value, again.method.network.state_dict()[key]), key
    for key, value in learning.method.memory().items():
        torch.testing.assert_close(value, again.method.memory()[key], rtol=0, atol=0, equal_nan=True)


def test_the_papers_settings_name_existing_fields():
    from acr.config import RunConfig
    from acr.data.catalog import CATALOG

    for name in method_names():
        cls = method_class(name)
        for dataset in CATALOG:
            for size in (200, 1000):
                values = cls.settings_for(dataset, size)
                assert set(values) <= {*RunConfig.model_fields, *cls.Options.model_fields}
        assert set(cls.settings) <= set(CATALOG)


def test_the_papers_settings_are_in_force():
    from acr.runs.resolve import make_config

    def values(method, dataset, buffer_size=500):
        return make_config({"method": method, "dataset": dataset, "buffer_size": buffer_size}).flat()

    assert values("gem", "split-cifar100")["learning_rate"] == 0.03
    assert values("agem", "split-tiny-imagenet")["learning_rate"] == 0.01
    assert values("gss", "split-mini-imagenet")["learning_rate"] == 0.03
    assert values("soif", "split-cifar100")["learning_rate"] == 0.1
    assert values("er", "split-tiny-imagenet", 1000)["learning_rate"] == 0.1
    hal = values("hal", "split-cifar100")
    assert (hal["anchor_weight"], hal["mean_decay"], hal["embedding_weight"]) == (0.1, 0.3, 0.1)
    assert values("hal", "split-tiny-imagenet")["mean_decay"] == 0.5
    small, large = values("gdumb", "split-cifar100"), values("gdumb", "split-cifar100", 1000)
    assert (small["momentum"], large["momentum"], small["weight_decay"]) == (0.9, 0.0, 1e-6)
    tiny = values("gdumb", "split-tiny-imagenet")
    assert (tiny["momentum"], tiny["weight_decay"], tiny["fit_epochs"]) == (0.0, 0.0, 256)
    assert small["fit_epochs"] == 250
