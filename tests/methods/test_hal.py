import copy

import torch
import torch.nn.functional as F
from method_learning import Learning

FEW = {"anchor_steps": 3}


def test_one_step_is_two_explicit_steps():
    """A plain step to see the anchors move, and back; then the step on both losses."""
    learning = Learning("hal", options=FEW)
    learning.run(1, 0, 2)
    method, batch = learning.method, learning.batch()
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
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


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
    target = torch.tensor([1])

    def forgetting(image):
        return F.cross_entropy(method.spare(after, image), target) - F.cross_entropy(method.spare(now, image), target)

    noise = torch.rand(learning.context.image_shape, generator=learning.context.generator("anchor", 1))
    start = (noise * method.network.std[0] + method.network.mean[0])[None]
    assert forgetting(method.anchors[1][None]) > forgetting(start)


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
