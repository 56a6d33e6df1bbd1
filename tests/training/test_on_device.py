"""The device path, on a pretend accelerator: the same run as on the CPU, bit for bit, and nothing waits on its way."""

import pytest
import torch
from device_runs import make_loop, on_cpu, on_device
from pretend_device import PretendDevice

import acr
from acr.data.stream import TaskStream
from acr.evaluation.evaluator import evaluate
from acr.evaluation.scenarios import StoredImages
from acr.methods.method import method_names
from acr.testing import toy_data
from acr.transfer import send

NEVER = ("acr", "er", "derpp", "er-ace", "pcr", "cls-er", "scr", "aver", "finetune", "joint")
WAITS = {**dict.fromkeys(NEVER, 0), "agem": 1, "gem": 2}
"""Waits of a step that the design allows. What the other methods cost is in docs/performance.md."""
COPIES, BYTES_IN = 2, 16 * 1024


@pytest.mark.parametrize("method", method_names())
def test_every_method_learns_on_a_device_what_it_learns_on_the_cpu(method, plain_convolutions, shallow_networks):
    there, here = on_device(method), on_cpu(method)
    assert there.losses == here.losses
    assert list(there.memory) == list(here.memory)
    for name, value in here.memory.items():
        torch.testing.assert_close(there.memory[name], value, rtol=0, atol=0, equal_nan=True)
    for name, value in here.weights.items():
        assert torch.equal(there.weights[name], value), name
    if method in WAITS:
        steps = there.steady() or [counts for *_, counts in there.steps[1:]]
        assert max(counts.waits for counts in steps) <= WAITS[method], str(steps[-1])
        assert max(counts.bytes_out for counts in steps) <= 4096, "a gradient went to the host"
    if WAITS.get(method) == 0:
        assert max(counts.copies_in for counts in steps) <= COPIES, str(steps[-1])
        assert max(counts.bytes_in for counts in steps) <= BYTES_IN
        assert all(counts.blocking_copies_in == 0 for counts in steps)


@pytest.mark.parametrize(
    "changes",
    [{"policy": "reservoir"}, {"second_view": "crop-flip"}, {"confidence_from": "training-view"},
     {"denominator": "set", "passes": "joint"}],
)  # fmt: skip
def test_variants_of_acr_wait_for_nothing_either(changes, shallow_networks):
    there, here = on_device("acr", **changes), on_cpu("acr", **changes)
    assert there.losses == here.losses
    assert max(counts.waits for counts in there.steady()) == 0
    assert max(counts.copies_in for counts in there.steady()) <= COPIES


def test_images_that_do_not_fit_are_sent_batch_by_batch():
    there, here = on_device("er", data_device="host"), on_cpu("er")
    assert there.losses == here.losses
    assert max(counts.waits for counts in there.steady()) == 0
    assert max(counts.bytes_in for counts in there.steady()) > 32 * 3 * 16 * 16


def test_an_evaluation_reads_the_device_once_per_scenario():
    stream = TaskStream.split(toy_data(6, 8, 20, side=8), 3)
    weights = torch.randn(192, 6, generator=torch.Generator().manual_seed(0))
    clean = StoredImages("clean", stream.data.test.images)
    here = evaluate(lambda images: images.flatten(1).float() @ weights, clean, stream, 2)
    with PretendDevice() as device:
        there_weights = device.put(weights)
        stored = StoredImages("clean", stream.data.test.images, device.device)
        evaluate(lambda images: images.flatten(1).float() @ there_weights, stored, stream, 2)
        with device.counting() as counts:
            there = evaluate(lambda images: images.flatten(1).float() @ there_weights, stored, stream, 2)
    assert there == here
    assert counts.waits == 1


def test_a_whole_run_reads_its_losses_only_when_a_line_is_due(tmp_path, monkeypatch):
    small = {"method": "er", "epochs": 2, "width": 2, "samples_per_class": 64, "buffer_size": 20, "threads": 1,
             "tasks": 2, "ood_every": "never", "log_every": 1000}  # fmt: skip
    here = acr.run(out=tmp_path / "cpu", **small)
    with PretendDevice() as device:
        there = acr.run(out=tmp_path / "device", device=str(device.device), **small)
        at_the_loss = [n.waits for line, n in device.by_line.items() if "loss_record.py" in line]
    assert (there.accuracy["clean"][1] == here.accuracy["clean"][1]).all()
    # Two tasks of two epochs: one reading at the first step of each epoch, and one before each checkpoint.
    assert sum(at_the_loss) <= 4 + 2


def test_a_loss_that_is_lost_between_two_lines_is_found_before_any_checkpoint(tmp_path):
    from acr.methods.er import ER
    from acr.methods.method import REGISTRY
    from acr.training.trainer import Diverged

    class Lost(ER):
        """Its tenth loss is not a number."""

        name = "lost"

        def observe(self, batch):
            loss = super().observe(batch)
            return loss * float("nan") if batch.step == 2 else loss

    REGISTRY["lost"] = Lost
    try:
        with PretendDevice() as device, pytest.raises(Diverged, match="task 1/5, epoch 1/2, step 3"):
            acr.run(method="lost", out=tmp_path, device=str(device.device), epochs=2, width=2, buffer_size=20,
                    ood_every="never", log_every=1000, threads=1)  # fmt: skip
    finally:
        del REGISTRY["lost"]
    assert not list(tmp_path.glob("*/checkpoint/step-*"))


def test_all_draws_of_a_step_go_over_in_one_copy():
    tree = (torch.arange(5), [torch.ones(3, dtype=torch.bool), None], torch.rand(2, 3, dtype=torch.float64), 7)
    with PretendDevice() as device:
        with device.counting() as counts:
            moved = send(tree, device.device)
        assert (counts.copies_in, counts.waits) == (1, 0)
        assert torch.equal(device.read(moved[0]), tree[0])
        assert torch.equal(device.read(moved[1][0]), tree[1][0])
        assert torch.equal(device.read(moved[2]), tree[2])
        assert moved[1][1] is None
        assert moved[3] == 7


def test_the_memory_is_on_the_device_and_what_decides_about_it_is_not():
    with PretendDevice() as device:
        loop = make_loop("derpp", str(device.device))
        for _ in loop:
            pass
        buffer = loop.method.buffer
        assert buffer.images.device == buffer.column("logits").device == device.device
        assert buffer.labels.device == buffer.tasks.device == torch.device("cpu")
