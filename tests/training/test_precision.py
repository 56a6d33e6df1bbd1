"""Mixed precision, on the CPU, where it is slow but the same code."""

import math

import pytest
import torch

import acr
from acr.data.loading import load_dataset
from acr.data.stream import TaskStream
from acr.errors import InputError
from acr.launch import build_loop
from acr.methods.method import method_class, method_names
from acr.networks import resnet18
from acr.runs.resolve import make_config
from acr.training.devices import bfloat16_works
from acr.training.trainer import Interrupted, Trainer

SMALL = {"epochs": 1, "width": 2, "samples_per_class": 24, "tasks": 2, "buffer_size": 20, "ood_every": "never",
         "threads": 1}  # fmt: skip


def stream():
    return TaskStream.split(load_dataset("split-digits", samples_per_class=24), 2)


def test_the_default_keeps_the_identity_of_earlier_runs():
    assert make_config({}).identity() == "5135d50920f9424d"
    assert make_config({"precision": "bf16-mixed"}).identity() != make_config({}).identity()
    assert make_config({"tf32": True}).identity() != make_config({}).identity()
    assert make_config({"compile": True}).identity() == make_config({}).identity()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_the_encoder_computes_in_16_bits_and_everything_after_it_in_32(kind):
    network = resnet18(4, width=4)
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    exact = network(images)
    seen = []
    network.encoder.stages[0].register_forward_hook(lambda module, given, result: seen.append(result.dtype))
    network.autocast = kind
    mixed = network(images)
    assert mixed.dtype == network.features(images).dtype == torch.float32
    assert kind in seen
    torch.testing.assert_close(mixed, exact, rtol=0.05, atol=0.05)
    assert not torch.equal(mixed, exact)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_a_run_in_mixed_precision_resumes_where_it_stopped(tmp_path, monkeypatch, precision):
    settings = {**SMALL, "method": "er", "precision": precision, "log_every": 1}
    if precision == "bf16-mixed" and not bfloat16_works():  # a virtual machine whose processor claims more than it has
        with pytest.raises(InputError, match="Use --precision 32"):
            acr.run(out=tmp_path / "whole", **settings)
        return
    whole = acr.run(out=tmp_path / "whole", **settings)
    taken = 0

    def stop_after_four(trainer, step):
        nonlocal taken
        taken += 1
        plain(trainer, step)
        if taken == 4:
            trainer.stop(2)

    plain = Trainer.after_step
    monkeypatch.setattr(Trainer, "after_step", stop_after_four)
    with pytest.raises(Interrupted):
        acr.run(out=tmp_path / "stopped", **settings)
    monkeypatch.undo()
    resumed = acr.run(out=tmp_path / "stopped", **settings)
    losses = [[e["loss"] for e in run.events() if e["event"] == "step"] for run in (whole, resumed)]
    assert losses[0] == losses[1]
    assert all(math.isfinite(loss) for loss in losses[0])
    assert resumed.results.stages == whole.results.stages


def test_the_scale_of_the_loss_is_part_of_the_state():
    """Where an overflow lowered it, a resumed run must not try the high scale again."""
    method = build_loop(make_config({**SMALL, "method": "er", "precision": "16-mixed"}), stream()).method
    assert method.context.scaler.get_scale() == 65536
    method.step(method.network(torch.zeros(4, 1, 8, 8)).sum() * float("inf"))
    assert method.context.scaler.get_scale() < 65536
    other = build_loop(make_config({**SMALL, "method": "er", "precision": "16-mixed"}), stream()).method
    other.load_state_dict(method.state_dict())
    assert other.context.scaler.get_scale() == method.context.scaler.get_scale()


@pytest.mark.parametrize("method", method_names())
def test_a_method_that_cannot_is_refused_before_anything_is_written(tmp_path, method):
    allowed = method_class(method).precisions
    assert "32" in allowed
    for precision in {"bf16-mixed", "16-mixed"} - set(allowed):
        with pytest.raises(InputError, match=rf"--precision {precision}: {method} runs only with .*docs/methods/"):
            acr.run(method=method, out=tmp_path, precision=precision, **SMALL)
    assert not list(tmp_path.iterdir())
