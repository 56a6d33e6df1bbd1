import copy

import torch
import torch.nn.functional as F
from method_learning import Learning

from acr.testing import toy_data

FEW = {"anchor_steps": 3}


def test_one_step_is_two_explicit_steps():
    """A plain step to see the anchors move, and back; then the step on both losses.

    In 64 bits: in 32, the order of sums, which depends on the number of threads, shows in the sixth digit.
    """
    learning = Learning("hal", options=FEW)
    learning.run(1, 0, 2)
    method, batch = learning.method, learning.batch()
    method.network.double()
    method.anchors = {column: anchor.double() for column, anchor in method.anchors.items()}
    images, labels = method.with_replay(batch)
    anchors = torch.stack(list(method.anchors.values()))
    assert len(anchors) == 2

    def copy_after(loss_of):
        network = copy.deepcopy(method.network).train()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
        loss_of(network).backward()
        optimizer.step()
        return network

    ahead = copy_after(lambda network: F.cross_entropy(network(images), labels))
    moved = ahead(anchors).detach()
    explicit = copy_after(
        lambda network: F.cross_entropy(network(images), labels) + 0.1 * (moved - network(anchors)).square().mean()
    )
    learning.step()
    for ours, theirs in zip(method.network.parameters(), explicit.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_every_class_gets_an_anchor_that_forgetting_hits():
    learning = Learning("hal", options={"anchor_steps": 20, "embedding_weight": 0.0})
    learning.run(1)
    method = learning.method
    assert list(method.anchors) == [0, 1]
    assert method.side_memory_bytes() == 2 * 3 * 8 * 8 * 4
    learning.place(0, 2, 0)
    now = {name: p.detach() for name, p in method.network.named_parameters()}
    method.network.train()
    after = method.after_replay_step(now)
    mean, std = method.network.mean, method.network.std
    targets = torch.tensor([0, 1])

    def forgetting(images):
        before, behind = (method.each_alone(p, images)[1] for p in (now, after))
        return F.cross_entropy(behind, targets, reduction="none") - F.cross_entropy(before, targets, reduction="none")

    anchors = (torch.stack([method.anchors[0], method.anchors[1]]) - mean) / std
    noise = torch.stack([torch.rand(3, 8, 8, generator=learning.context.generator("anchor", c)) for c in (0, 1)])
    assert (forgetting(anchors) > forgetting(noise)).all()


def test_images_side_by_side_are_as_images_alone():
    learning = Learning("hal", data=toy_data(side=16), options=FEW)
    learning.run(0, 0, 3)
    method = learning.method
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    embeddings, logits = method.each_alone(dict(method.network.named_parameters()), images)
    network = copy.deepcopy(method.network).train()
    for image, embedding, scores in zip(images, embeddings, logits, strict=True):
        alone = network.encoder(image[None])
        torch.testing.assert_close(embedding, alone[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scores, network.head(alone)[0], rtol=1e-4, atol=1e-5)


def test_the_mean_embedding_begins_anew_and_follows_the_batches():
    learning = Learning("hal", options=FEW)
    learning.run(1, 0, 1)
    method = learning.method
    batch = learning.batch()
    old = method.mean_embedding.clone()
    learning.step()
    network = copy.deepcopy(method.network).train()
    expected = 0.5 * old + 0.5 * network.features(batch.augmented).mean(0)
    torch.testing.assert_close(method.mean_embedding, expected.detach())


def test_anchors_leave_the_network_as_it_is():
    learning = Learning("hal", options=FEW)
    learning.run(0, 1, 5)
    method = learning.method
    method.observe(learning.batch())
    before = {name: value.clone() for name, value in method.network.state_dict().items()}
    method.end_task(learning.task)
    assert method.anchors
    assert all(torch.equal(value, before[name]) for name, value in method.network.state_dict().items())


def test_networks_that_cannot_be_mapped_take_the_anchors_one_by_one(monkeypatch):
    def refuses(*_, **__):
        raise RuntimeError("no batching rule")

    method = Learning("hal", width=2).method
    method.network.train()
    values = {name: value.detach() for name, value in method.network.named_parameters()}
    images = torch.randn(3, *method.context.image_shape, generator=torch.Generator().manual_seed(0))
    expected = method.each_alone(values, images)
    monkeypatch.setattr("acr.methods.hal.vmap", refuses)
    torch.testing.assert_close(method.each_alone(values, images), expected)
