"""ACR step by step, against the algorithm written out plainly."""

import copy

import pytest
import torch

from acr.data.stream import TaskStream
from acr.launch import build_loop
from acr.losses import proxy_contrastive_loss
from acr.methods.method import Batch
from acr.randomness import Position
from acr.runs.resolve import make_config
from acr.testing import toy_data


def setup(method="acr", classes=4, buffer_size=8, **options):
    config = make_config({"method": method, "epochs": 3, "width": 8, "buffer_size": buffer_size, "learning_rate": 0.05,
                          "replay_size": 6, **options})  # fmt: skip
    stream = TaskStream.split(toy_data(classes=classes), tasks=classes // 2)
    loop = build_loop(config, stream)
    made, context = loop.method, loop.context
    made.network.train()
    return made, context, stream


def batch_of(stream, context, task=0, epoch=0, step=0, size=8):
    part = stream[task]
    context.position = Position(context.seed, task, epoch, step)
    indices = torch.arange(step * size, (step + 1) * size)
    return Batch(indices, part.images(indices), part.targets[indices], context.position, context.views)


def fill_memory(method, stream, context):
    method.begin_task(stream[0])
    for step in range(6):
        method.observe(batch_of(stream, context, step=step))
    for epoch in (1, 2):
        for step in range(6):
            method.observe(batch_of(stream, context, epoch=epoch, step=step))
    method.end_task(stream[0])


def test_first_task_trains_on_two_views_of_the_current_batch():
    method, context, stream = setup()
    method.begin_task(stream[0])
    before = copy.deepcopy(method.network)
    batch = batch_of(stream, context)
    loss = method.observe(batch)

    first = batch.augmented
    second = context.views.strong(first, context.generator("second-view", 0))
    embeddings = before.features(torch.cat([first, second]))
    expected = proxy_contrastive_loss(embeddings, batch.labels.repeat(2), before.head.proxies)
    torch.testing.assert_close(loss, expected.detach())
    expected.backward()
    for old, new in zip(before.parameters(), method.network.parameters(), strict=True):
        torch.testing.assert_close(new, old - 0.05 * old.grad if old.grad is not None else old)


@pytest.mark.parametrize("passes", ["separate", "joint"])
@pytest.mark.parametrize("denominator", ["counted", "set"])
def test_later_steps_add_two_views_of_a_replay_batch(passes, denominator):
    method, context, stream = setup(passes=passes, denominator=denominator)
    fill_memory(method, stream, context)
    method.begin_task(stream[1])
    before = copy.deepcopy(method.network)
    batch = batch_of(stream, context, task=1)
    loss = method.observe(batch)

    slots = method.buffer.draw(6, context.generator("retrieve"))
    memory = context.views.replay(method.buffer.images[slots], context.generator("replay-view"))
    groups = [batch.augmented, memory]
    groups = [
        torch.cat([g, context.views.strong(g, context.generator("second-view", i))]) for i, g in enumerate(groups)
    ]
    assert [len(group) for group in groups] == [16, 12]
    labels = torch.cat([batch.labels.repeat(2), method.buffer.labels[slots].repeat(2)])
    if passes == "separate":
        embeddings = torch.cat([before.features(group) for group in groups])
    else:
        embeddings = before.features(torch.cat(groups))
    expected = proxy_contrastive_loss(embeddings, labels, before.head.proxies, 0.09, denominator)
    torch.testing.assert_close(loss, expected.detach())


def test_confidence_is_of_the_plain_view_before_the_update_with_the_new_running_averages():
    method, context, stream = setup()
    method.begin_task(stream[0])
    before = copy.deepcopy(method.network)
    batch = batch_of(stream, context)
    method.observe(batch)
    # The training pass moves the running averages, the step moves the weights: the first has happened, not the second.
    second = context.views.strong(batch.augmented, context.generator("second-view", 0))
    before.features(torch.cat([batch.augmented, second]))
    before.eval()
    expected = before(batch.plain).softmax(1).gather(1, batch.labels[:, None]).squeeze(1)
    torch.testing.assert_close(method.confidence.values[batch.indices, 0], expected.detach())
    assert method.network.training


def test_with_separate_passes_confidence_is_read_between_them():
    """The running averages include the current images by then, but not the memory's, as in the released program."""
    method, context, stream = setup(passes="separate")
    fill_memory(method, stream, context)
    method.begin_task(stream[1])
    before = copy.deepcopy(method.network)
    batch = batch_of(stream, context, task=1)
    method.observe(batch)
    before.features(
        torch.cat([batch.augmented, context.views.strong(batch.augmented, context.generator("second-view", 0))])
    )
    before.eval()
    expected = before(batch.plain).softmax(1).gather(1, batch.labels[:, None]).squeeze(1)
    torch.testing.assert_close(method.confidence.values[batch.indices, 0], expected.detach())


@pytest.mark.parametrize("dataset", ["split-digits", "split-cifar100", "split-tiny-imagenet", "folder:photos"])
def test_one_pass_is_the_default_on_every_data_set_and_two_are_the_published_program_s(dataset):
    def passes(**given):
        return make_config({"dataset": dataset, **given}).options.passes

    assert passes() == "joint"
    assert passes(protocol="published") == passes(quirk="separate-passes") == "separate"
    assert passes(protocol="published", no_quirk="separate-passes") == "joint"
    assert passes(passes="separate") == "separate"
    assert passes(protocol="published", passes="joint") == "joint"  # what is asked for by name holds


def test_the_method_asks_the_protocol_where_the_option_is_not_given():
    assert setup(protocol="published")[0].passes == "separate"
    assert setup()[0].passes == "joint"


def test_a_variant_is_a_name_for_its_options():
    """The config records the options, so that one run is one run whichever way it was asked for."""
    text = {"denominator": "set", "passes": "joint", "confidence_from": "training-view", "first_view": "plain",
            "second_view": "crop-flip"}  # fmt: skip
    named, spelled = make_config({"variant": "paper-text"}), make_config(text)
    assert named == spelled
    assert named.identity() == spelled.identity()
    assert make_config({"variant": "released"}).identity() == make_config({"passes": "separate"}).identity()
    assert make_config({"variant": "paper-text", "second_view": "strong"}).options.second_view == "strong"
    assert make_config({"variant": "paper-text", "second_view": "strong"}).options.denominator == "set"
    with pytest.raises(ValueError, match="paper-text"):
        make_config({"variant": "paper"})


def test_a_config_written_before_there_was_one_default_is_read_as_it_was():
    """It names its passes, and no preset; the identity of its run stays the same."""
    old = make_config({"dataset": "split-cifar100"}).flat()
    del old["variant"]
    for passes in ("separate", "joint"):
        read = make_config({**old, "passes": passes, "protocol": "published"})
        assert read.options.passes == passes
    assert make_config(old).identity() == make_config({"dataset": "split-cifar100"}).identity()


def test_confidence_from_the_training_view():
    method, context, stream = setup(confidence_from="training-view")
    method.begin_task(stream[0])
    before = copy.deepcopy(method.network)
    batch = batch_of(stream, context)
    method.observe(batch)
    views = torch.cat([batch.augmented, context.views.strong(batch.augmented, context.generator("second-view", 0))])
    scores = before(views)[: len(batch)]
    expected = scores.softmax(1).gather(1, batch.labels[:, None]).squeeze(1)
    torch.testing.assert_close(method.confidence.values[batch.indices, 0], expected.detach())


def test_confidence_is_recorded_in_the_first_epochs_only():
    method, context, stream = setup(confidence_epochs=2)
    method.begin_task(stream[0])
    for epoch in range(3):
        for step in range(6):
            method.observe(batch_of(stream, context, epoch=epoch, step=step))
    assert method.confidence.values.shape == (48, 2)
    assert torch.isfinite(method.confidence.values).all()


def test_memory_changes_at_the_end_of_a_task_only_and_holds_the_most_varying():
    method, context, stream = setup()
    method.begin_task(stream[0])
    for epoch in range(3):
        for step in range(6):
            method.observe(batch_of(stream, context, epoch=epoch, step=step))
            assert len(method.buffer) == 0
    method.end_task(stream[0])
    variance, targets = method.confidence.variance(), stream[0].targets
    assert torch.bincount(method.buffer.labels).tolist() == [4, 4]
    for label in (0, 1):
        best = variance[targets == label].sort(descending=True).values[:4]
        stored = method.buffer.column("confidence_variance")[method.buffer.labels == label]
        torch.testing.assert_close(stored.double(), best, atol=1e-6, rtol=1e-4)
    images = {image.numpy().tobytes() for image in stream[0].images()}
    assert all(image.numpy().tobytes() in images for image in method.buffer.images)  # plain views


@pytest.mark.parametrize(("first", "second", "size"), [("plain", "none", 8), ("crop-flip", "crop-flip", 16)])
def test_view_options(monkeypatch, first, second, size):
    method, context, stream = setup(first_view=first, second_view=second)
    method.begin_task(stream[0])
    seen = []
    features = method.network.features
    monkeypatch.setattr(method.network, "features", lambda images: seen.append(images) or features(images))
    batch = batch_of(stream, context)
    method.observe(batch)
    assert len(seen[0]) == size
    assert torch.equal(seen[0][:8], batch.plain if first == "plain" else batch.augmented)


def test_reservoir_policy_replays_from_the_second_step_of_the_first_task():
    method, context, stream = setup(policy="reservoir")
    method.begin_task(stream[0])
    method.observe(batch_of(stream, context))
    assert len(method.buffer) == 8
    assert method.confidence is None


def test_one_confidence_epoch_warns():
    with pytest.warns(UserWarning, match="no variance"):
        setup(confidence_epochs=1)


def test_wrapped_views_reach_the_network_as_floats():
    method, context, stream = setup(quirk="wrapped-views")
    fill_memory(method, stream, context)
    method.begin_task(stream[1])
    assert torch.isfinite(method.observe(batch_of(stream, context, task=1)))


def test_er_trains_on_current_and_replayed_in_one_pass():
    method, context, stream = setup("er")
    method.begin_task(stream[0])
    method.observe(batch_of(stream, context))
    before = copy.deepcopy(method.network)
    stored, labels = method.buffer.images.clone(), method.buffer.labels.clone()
    batch = batch_of(stream, context, step=1)
    slots = method.buffer.draw(6, context.generator("retrieve"))
    loss = method.observe(batch)
    replayed = context.views.replay(stored[slots], context.generator("replay-view"))
    scores = before(torch.cat([batch.augmented, replayed]))
    expected = torch.nn.functional.cross_entropy(scores, torch.cat([batch.labels, labels[slots]]))
    torch.testing.assert_close(loss, expected.detach())


def test_er_stores_plain_views_and_with_the_quirk_augmented_ones():
    for quirk, view in (((), "plain"), (("frozen-replay",), "augmented")):
        method, context, stream = setup("er", quirk=quirk)
        method.begin_task(stream[0])
        batch = batch_of(stream, context)
        method.observe(batch)
        assert torch.equal(method.buffer.images, getattr(batch, view))
