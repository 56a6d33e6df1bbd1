import copy

import pytest
import torch
import torch.nn.functional as F
from method_learning import Learning

from acr.methods import gem as gem_module
from acr.methods.maths.gradients import flat_gradient, project_agem, project_gem


def flat(network):
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()])


def gradient_of(network, images, labels):
    network.zero_grad()
    F.cross_entropy(network(images), labels).backward()
    return flat_gradient(network.parameters())


@pytest.fixture
def third_task():
    """GEM or A-GEM with two earlier tasks in memory, at a step of the third."""

    def make(name, **settings):
        learning = Learning(name, tasks=((0,), (1,), (2, 3)), buffer_size=9, epochs=1, **settings)
        learning.run(2, 0, 1)
        return learning

    return make


def test_one_gem_step_is_the_explicit_projection(third_task):
    learning = third_task("gem")
    method, batch = learning.method, learning.batch()
    network = copy.deepcopy(method.network).train()
    rows = []
    for task in (0, 1):
        slots = (method.buffer.tasks == task).nonzero()[:, 0]
        view = learning.context.views.replay(
            method.buffer.images[slots], learning.context.generator("replay-view", task)
        )
        rows.append(gradient_of(network, view, method.buffer.labels[slots]))
    gradient = gradient_of(network, batch.augmented, batch.labels)
    projected = project_gem(gradient, torch.stack(rows), 0.5, 1e-3)
    assert (torch.stack(rows) @ gradient < 0).any(), "the test is about a step that needs correction"
    before = flat(method.network)
    learning.step()
    torch.testing.assert_close(flat(method.network), before - 0.05 * projected, rtol=1e-4, atol=1e-6)


def test_one_agem_step_is_the_explicit_projection(third_task):
    learning = third_task("agem")
    method, batch = learning.method, learning.batch()
    network = copy.deepcopy(method.network).train()
    gradient = gradient_of(network, batch.augmented, batch.labels)
    images, labels = method.retrieve()
    reference = gradient_of(network, images, labels)
    assert gradient @ reference < 0
    before = flat(method.network)
    learning.step()
    expected = before - 0.05 * project_agem(gradient, reference)
    torch.testing.assert_close(flat(method.network), expected, rtol=1e-4, atol=1e-6)


def test_gradients_of_large_tasks_are_taken_in_parts(third_task, monkeypatch):
    learning = third_task("gem")
    method = learning.method
    method.network.eval()  # where the parts do not see each other, the sum is exact
    learning.batch()
    whole = method.task_gradient(1)
    monkeypatch.setattr(gem_module, "LARGEST_PASS", 2)
    torch.testing.assert_close(method.task_gradient(1), whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["gem", "agem"])
def test_each_task_gets_its_part_of_the_memory(name):
    learning = Learning(name, tasks=((0,), (1,), (2, 3)), buffer_size=10, epochs=1)
    learning.run()
    assert torch.bincount(learning.method.buffer.tasks).tolist() == [3, 3, 3]
    open_ended = Learning(name, tasks=((0,), (1,), (2, 3)), buffer_size=10, epochs=1, known_tasks=False)
    sizes = []
    for task in (1, 2, 3):
        open_ended.run(task)
        sizes.append(torch.bincount(open_ended.method.buffer.tasks).tolist())
    assert sizes == [[10], [5, 5], [3, 3, 3]]


def test_more_tasks_than_places_keep_what_fits():
    learning = Learning("gem", tasks=((0,), (1,), (2,), (3,)), buffer_size=2, epochs=1, known_tasks=False)
    learning.run()
    assert torch.bincount(learning.method.buffer.tasks).tolist() == [1, 1]
