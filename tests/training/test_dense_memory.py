"""Runs whose memory holds several compressed images in a place."""

import numpy as np
import pytest
import torch
from device_runs import make_loop, on_cpu, on_device

import acr
from acr.data.stream import seen_through
from acr.errors import InputError
from acr.memory.codec import Codec
from acr.methods.er import ER
from acr.runs.resolve import make_config
from acr.testing.rehearsal import different_tensors
from acr.training import loop as training_loop
from acr.training.building import codec_of
from acr.training.loop import Step

SHAPE = (3, 16, 16)


@pytest.mark.parametrize("limit", [2**30, 0])
def test_all_images_are_learned_as_compression_leaves_them(limit, monkeypatch):
    """Whether they are looked through once per task, or batch by batch where a task is too large."""
    monkeypatch.setattr(training_loop, "SEEN_BYTES", limit)
    loop = make_loop("er", "cpu", images_per_place=4)
    plain = seen_through(None, loop.tasks)
    for event in loop:
        if isinstance(event, Step):
            batch = event.batch
            expected = Codec(SHAPE, 4).as_stored(plain[batch.task].images(batch.indices))
            assert torch.equal(batch.plain, expected)


def test_what_the_memory_gives_back_are_these_images_compressed_once_more():
    loop = make_loop("acr", "cpu", images_per_place=4)
    for _ in loop:
        pass
    memory, codec = loop.method.memory(), Codec(SHAPE, 4)
    assert len(memory["images"]) == 4 * 60  # of 288 that there were
    learned = {image.numpy().tobytes() for task in loop.tasks for image in codec.as_stored(task.images())}
    assert {image.numpy().tobytes() for image in memory["images"]} <= learned


def test_the_first_task_is_learned_alike_with_any_size_of_the_memory():
    """Until the memory is used it makes no difference, so the comparison of two sizes is one of the memory."""
    small, large = (on_cpu("acr", images_per_place=2, buffer_size=size).losses for size in (20, 60))
    assert small[:6] == large[:6]
    assert small != large


@pytest.mark.parametrize("method", ["acr", "gss", "scr", "derpp"])
def test_a_device_learns_what_the_cpu_learns(method, plain_convolutions, shallow_networks):
    there, here = on_device(method, images_per_place=4), on_cpu(method, images_per_place=4)
    assert there.losses == here.losses
    assert not different_tensors(there.memory, here.memory)
    assert not different_tensors(there.weights, here.weights)
    if method in ("acr", "derpp"):
        assert max(counts.waits for counts in there.steady()) == 0


@pytest.mark.parametrize(
    ("asked", "shape", "found"),
    [
        (1, (3, 32, 32), 1),
        (3, (1, 8, 8), 3),
        ("auto", (3, 32, 32), 8),
        ("auto", (3, 84, 84), 8),
        ("auto", (3, 31, 64), 1),
        ("auto", (1, 32, 32), 1),
    ],
)
def test_how_many_share_a_place(asked, shape, found):
    codec = codec_of(make_config({"images_per_place": asked}), shape)
    assert (1 if codec is None else codec.per_place) == found


def test_the_field_of_the_config():
    plain, four = make_config({}), make_config({"images_per_place": "4"})
    assert plain.images_per_place == 1
    assert four.images_per_place == 4
    assert plain.identity() == make_config({"images_per_place": 1}).identity() != four.identity()
    assert make_config({"method": "joint", "images_per_place": 4}).images_per_place == 1  # it has no memory
    for wrong in ("many", 0, 17, 1.5, True, None, "1-4"):
        with pytest.raises(InputError, match=r"--images-per-place .*: expected auto, or a whole number from 1 to 16"):
            make_config({"images_per_place": wrong})


def test_a_method_that_cannot_says_so(monkeypatch):
    monkeypatch.setattr(ER, "exemptions", {"dense-memory": "its memory is a list"})
    with pytest.raises(InputError, match="--images-per-place does not apply to er: its memory is a list"):
        make_config({"method": "er", "images_per_place": 2})
    assert make_config({"method": "er"}).images_per_place == 1


def test_a_run_of_before_is_what_it_was(tmp_path):
    """AVER had whole images once: its run folders do not name the field, and are neither re-made nor refused."""
    settings = {"width": 2, "epochs": 2, "tasks": 2, "samples_per_class": 12, "class_order": "0-3", "buffer_size": 8,
                "ood_every": "never", "threads": 1, "quiet": True}  # fmt: skip
    run = acr.run("aver", out=tmp_path, images_per_place=1, **settings)
    file = run.folder / "config.yaml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("images_per_place")) + "\n")
    again = acr.load_run(run.folder)
    assert again.config.images_per_place == 1
    assert again.config.identity() == run.config.identity()
    assert acr.run("aver", out=tmp_path, images_per_place=1, **settings).folder == run.folder


def test_a_run_reports_what_its_memory_takes(tmp_path):
    run = acr.run("er", out=tmp_path, images_per_place=2, buffer_size=20, samples_per_class=20, width=2, epochs=1,
                  threads=1, ood_every="never", quiet=True)  # fmt: skip
    memory = run.results.memory
    assert memory.size == 40
    assert memory.bytes == 40 * (32 + 8 + 8)
    stored = run.arrays("memory.npz")
    assert stored["images"].shape == (40, 1, 8, 8)
    assert stored["images"].dtype == np.uint8
    classifier = run.classifier()
    assert classifier.images_per_place == 2
    assert len(classifier.memory_) == 40


def test_images_too_small_for_so_many():
    codec = codec_of(make_config({"images_per_place": 16}), (1, 2, 4))
    with pytest.raises(InputError, match="Images of 2 x 4 pixels are too small for 16 of them in a place"):
        codec.encode(torch.zeros(1, 1, 2, 4, dtype=torch.uint8))


def test_room_is_counted_in_images(tmp_path):
    """Three places of four images each are enough for ten classes, two are not."""
    small = {"images_per_place": 4, "samples_per_class": 6, "width": 2, "epochs": 1, "threads": 1, "ood_every": "never",
             "quiet": True, "out": tmp_path}  # fmt: skip
    assert acr.run("er", buffer_size=3, **small).results.memory.size == 12
    with pytest.raises(InputError, match="--buffer-size 2 has room for 8 images, less than the 10 classes"):
        acr.run("er", buffer_size=2, **small)


@pytest.mark.parametrize(("policy", "made"), [("reservoir", 0), ("balanced-random", 80)])
def test_the_end_of_a_task_makes_only_the_images_that_are_stored(policy, made):
    looked = []
    loop = make_loop("er", "cpu", images_per_place=4, policy=policy, epochs=1, buffer_size=20)
    loop.tasks = seen_through(lambda images: looked.append(len(images)) or images, loop.tasks)
    events = iter(loop)
    event = next(event for event in events if type(event).__name__ == "TaskEnd")
    assert event.task.index == 0
    assert sum(looked) - len(event.task) == made  # the whole task was looked through once, when it began
