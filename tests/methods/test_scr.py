"""SCR against its loss written out over pairs, and its answers against distances from class means."""

import copy

import pytest
import torch
from method_learning import Learning

from acr.losses import supervised_contrastive_loss


def written_out(z, labels, temperature):
    """The loss, sample by sample."""
    z = z / z.norm(dim=1, keepdim=True)
    total = 0.0
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        sum_of_all = sum((z[i] @ z[a] / temperature).exp() for a in others)
        same = [p for p in others if labels[p] == labels[i]]
        total = total - sum(((z[i] @ z[p] / temperature).exp() / sum_of_all).log() for p in same) / len(same)
    return total / len(z)


def test_the_loss_is_its_formula_and_has_a_finite_gradient():
    draws = torch.Generator().manual_seed(0)
    z = torch.randn(10, 4, dtype=torch.float64, generator=draws).requires_grad_()
    labels = torch.tensor([0, 1, 2, 0, 1]).repeat(2)
    loss, expected = supervised_contrastive_loss(z, labels, 0.5), written_out(z, labels, 0.5)
    torch.testing.assert_close(loss, expected)
    (found,), (wanted,) = (torch.autograd.grad(value, [z]) for value in (loss, expected))
    torch.testing.assert_close(found, wanted)


def test_a_step_trains_encoder_and_projection_on_two_views():
    learning = Learning("scr")
    learning.run(1, 0, 2)
    method, context, batch = learning.method, learning.context, learning.batch()
    network, projection = copy.deepcopy(method.network).train(), copy.deepcopy(method.projection)
    slots = method.buffer.draw(8, context.generator("retrieve"))
    images = torch.cat([batch.plain, method.buffer.images[slots]])
    labels = torch.cat([batch.labels, method.buffer.labels[slots]]).repeat(2)
    views = [images, context.views.strong(images, context.generator("second-view", 0))]
    expected = written_out(projection(torch.cat([network.features(view) for view in views])), labels, 0.07)
    torch.testing.assert_close(learning.step(), expected.detach())
    expected.backward()
    pairs = [(network.encoder, method.network.encoder), (projection, method.projection)]
    for old, new in pairs:
        for before, after in zip(old.parameters(), new.parameters(), strict=True):
            torch.testing.assert_close(after, before - 0.05 * before.grad, rtol=1e-4, atol=1e-6)


def test_the_nearest_mean_of_unit_embeddings_answers():
    learning = Learning("scr", buffer_size=20)
    learning.run()
    method, network = learning.method, learning.method.network.eval()
    images = learning.data.train.images[:30]
    images = torch.from_numpy(images.copy())
    with torch.no_grad():
        means = []
        for label in range(4):
            stored = network.features(method.buffer.images[method.buffer.labels == label])
            mean = (stored / stored.norm(dim=1, keepdim=True)).mean(0)
            means.append(mean / mean.norm())
        embeddings = network.features(images)
        distances = torch.cdist(embeddings / embeddings.norm(dim=1, keepdim=True), torch.stack(means))
        scores = method.logits(images)
    assert torch.equal(scores.argmax(1), distances.argmin(1))
    torch.testing.assert_close(scores * 0.07, 1 - distances.square() / 2, rtol=1e-4, atol=1e-5)


def test_a_class_without_stored_images_is_never_predicted():
    learning = Learning("scr", tasks=((0, 1), (2, 3)))
    method = learning.method
    method.network.eval()
    assert method.logits(learning.task.images()).isfinite().all()
    method.network.train()
    learning.run(1, 0, 0)
    method.network.eval()
    scores = method.logits(learning.task.images())
    assert scores.isfinite().all()
    assert scores.argmax(1).max() < 2
    assert scores.softmax(1)[:, 2:].max() == 0


@pytest.mark.parametrize("change", ["step", "load"])
def test_the_means_are_those_of_the_present_weights_and_memory(change):
    learning = Learning("scr")
    learning.run(1, 0, 2)
    method, images = learning.method, learning.task.images()[:6]
    state = copy.deepcopy(method.state_dict())
    method.network.eval()
    before = method.logits(images)
    assert torch.equal(before, method.logits(images))
    method.network.train()
    learning.step()
    if change == "load":
        method.network.eval()
        method.logits(images)
        method.load_state_dict(state)
    method.network.eval()
    assert torch.equal(before, method.logits(images)) == (change == "load")
