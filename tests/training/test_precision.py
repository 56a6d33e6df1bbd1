"""Mixed precision, on the CPU, where it is slow but the same code."""

import pytest
import torch

import acr
from acr.errors import InputError
from acr.methods.method import method_class, method_names
from acr.networks import resnet18
from acr.runs.resolve import make_config

SMALL = {"epochs": 1, "width": 2, "samples_per_class": 24, "tasks": 2, "buffer_size": 20, "ood_every": "never",
         "threads": 1}  # fmt: skip


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
def test_a_run_in_mixed_precision_learns_and_resumes(tmp_path, precision):
    whole = acr.run(method="er", out=tmp_path / "whole", precision=precision, **SMALL)
    losses = [event["loss"] for event in whole.events() if event["event"] == "step"]
    assert all(loss is not None and loss == loss for loss in losses)
    again = acr.run(method="er", out=tmp_path / "again", precision=precision, **SMALL)
    assert (whole.accuracy["clean"][-1] == again.accuracy["clean"][-1]).all()


@pytest.mark.parametrize("method", method_names())
def test_a_method_that_cannot_is_refused_before_anything_is_written(tmp_path, method):
    allowed = method_class(method).precisions
    assert "32" in allowed
    for precision in {"bf16-mixed", "16-mixed"} - set(allowed):
        with pytest.raises(InputError, match=rf"--precision {precision}: {method} runs only with .*docs/methods/"):
            acr.run(method=method, out=tmp_path, precision=precision, **SMALL)
    assert not list(tmp_path.iterdir())
