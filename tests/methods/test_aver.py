"""AVER against its loss written out, against ACR, and the rule for its averaged weights."""

import copy

import pytest
import torch
from method_learning import Learning

import acr
from acr.runs.resolve import make_config


def written_out(embeddings, labels, proxies, temperature):
    """Per sample, −log of its share among the proxies of the batch's samples, and among those of all classes."""
    f = embeddings / (embeddings.norm(dim=1, keepdim=True) + 1e-6)
    w = proxies / (proxies.norm(dim=1, keepdim=True) + 1e-6)
    scores = f @ w.T / temperature
    losses = []
    for row, label in enumerate(labels.tolist()):
        own = scores[row, label].exp()
        in_batch = sum(scores[row, other].exp() for other in labels.tolist())
        losses.append(-(own / in_batch).log() / 2 - (own / scores[row].exp().sum()).log() / 2)
    return torch.stack(losses).mean()


def test_a_step_takes_the_mean_of_acrs_loss_and_cross_entropy_over_all_outputs():
    learning = Learning("aver", tasks=((0, 1), (2, 3)))
    learning.run(1, 0, 2)
    method, context, batch = learning.method, learning.context, learning.batch()
    network = copy.deepcopy(method.network).train()
    slots = method.buffer.draw(8, context.generator("retrieve"))
    first = [
        context.views.crop_flip(batch.plain, batch.draw_view()),
        context.views.replay(
            method.buffer.images[slots], context.views.draw_replay(8, context.generator("replay-view"))
        ),
    ]
    groups = [torch.cat([g, context.views.strong(g, context.generator("second-view", i))]) for i, g in enumerate(first)]
    labels = torch.cat([batch.labels.repeat(2), method.buffer.labels[slots].repeat(2)])
    expected = written_out(network.features(torch.cat(groups)), labels, network.head.proxies, 0.09)
    torch.testing.assert_close(learning.step(), expected.detach())
    expected.backward()
    proxies = network.head.proxies
    torch.testing.assert_close(method.network.head.proxies, proxies - 0.05 * proxies.grad)


def test_its_memory_has_random_samples_in_acrs_balance():
    """As many of every task and class as ACR has, but others, and no confidence to choose them by."""
    one, two = Learning("aver"), Learning("acr")
    one.run()
    two.run()
    assert one.method.policy.name == "balanced-random"
    assert one.method.confidence is None
    ours, theirs = one.method.memory(), two.method.memory()
    for name in ("tasks", "labels"):
        assert ours[name].bincount().tolist() == theirs[name].bincount().tolist()
    images = [{image.numpy().tobytes() for image in memory["images"]} for memory in (ours, theirs)]
    assert images[0] != images[1]


@pytest.mark.parametrize("dataset", ["split-digits", "split-cifar100", "split-tiny-imagenet", "folder:photos"])
def test_the_same_two_rules_for_all_data_sets(dataset):
    config = make_config({"method": "aver", "dataset": dataset})
    assert (config.average_weights, config.images_per_place) == ("auto", "auto")


def test_the_average_can_be_switched_off():
    assert make_config({"method": "aver", "average_weights": "off"}).average_weights == "off"
    assert make_config({"method": "acr"}).average_weights == "off"


def test_a_classifier_uses_it_too(tmp_path):
    images = torch.randint(0, 256, (12, 8, 8), dtype=torch.uint8).numpy()
    model = acr.ContinualClassifier("aver", buffer_size=4, width=2, epochs=2, image_size=8, threads=1, verbose=False)
    model.partial_fit(images, [0, 1] * 6)
    assert model._knowledge.method.average is not None
