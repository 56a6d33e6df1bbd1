"""PCR against its loss written out over pairs of samples and proxies, and against ACR."""

import copy

import pytest
import torch
from method_learning import Learning

from acr.runs.resolve import make_config


def written_out(embeddings, labels, proxies, temperature):
    """The mean over samples of −log of the share of the own proxy among the proxies of all samples of the batch."""
    f = embeddings / (embeddings.norm(dim=1, keepdim=True) + 1e-6)
    w = proxies[labels] / (proxies[labels].norm(dim=1, keepdim=True) + 1e-6)  # one proxy per sample, not per class
    exponentials = (f @ w.T / temperature).exp()
    return -(exponentials.diag() / exponentials.sum(1)).log().mean()


@pytest.mark.parametrize("passes", ["joint", "separate"])
def test_a_step_contrasts_the_images_and_their_strong_views_with_the_proxies_in_the_batch(passes):
    learning = Learning("pcr", options={"passes": passes})
    learning.run(1, 0, 2)
    method, context, batch = learning.method, learning.context, learning.batch()
    network = copy.deepcopy(method.network).train()
    slots = method.buffer.draw(8, context.generator("retrieve"))
    groups = [batch.plain, method.buffer.images[slots]]  # neither current nor replayed images are cropped
    groups = [
        torch.cat([g, context.views.strong(g, context.generator("second-view", i))]) for i, g in enumerate(groups)
    ]
    labels = torch.cat([batch.labels.repeat(2), method.buffer.labels[slots].repeat(2)])
    if passes == "joint":
        embeddings = network.features(torch.cat(groups))
    else:
        embeddings = torch.cat([network.features(group) for group in groups])
    expected = written_out(embeddings, labels, network.head.proxies, 0.09)
    torch.testing.assert_close(learning.step(), expected.detach())
    expected.backward()
    proxies = network.head.proxies
    torch.testing.assert_close(method.network.head.proxies, proxies - 0.05 * proxies.grad)


def test_the_memory_is_a_reservoir_that_replays_in_the_first_task():
    learning = Learning("pcr")
    learning.run(0, 0, 1)
    assert len(learning.method.buffer) == 8
    learning.run()
    assert learning.method.buffer.seen == 2 * 2 * 48
    assert learning.method.confidence is None


def test_it_is_acr_with_other_options():
    options = {"policy": "reservoir", "passes": "joint", "first_view": "crop-flip"}
    one = Learning("pcr", options=options).run(1, 0, 3)
    two = Learning("acr", options=options).run(1, 0, 3)
    assert all(map(torch.equal, one, two))


def test_settings_of_acr_are_not_settings_of_pcr():
    digits = make_config({"method": "pcr", "dataset": "split-digits"}).options
    assert (digits.policy, digits.first_view, digits.temperature) == ("reservoir", "plain", 0.09)
    assert digits == make_config({"method": "pcr", "dataset": "split-cifar100"}).options
