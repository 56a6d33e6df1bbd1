"""Runs with an encoder and with weights of one's own: every network of a run is made of them, and the run resumes."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import acr
from acr.cli import main
from acr.data.stream import TaskStream
from acr.errors import InputError
from acr.launch import build_loop
from acr.networks import resnet18
from acr.runs.resolve import make_config
from acr.testing import toy_data
from acr.training.checkpoint import CheckpointError
from acr.training.trainer import Interrupted, Trainer

MIXER = Path(__file__).parents[2] / "examples" / "own_encoder.py"
SMALL = {"method": "er", "epochs": 1, "samples_per_class": 8, "test_samples_per_class": 4, "ood_every": "never",
         "width": 4, "threads": 1, "tasks": 2, "log_every": 1}  # fmt: skip


@pytest.fixture
def stopping(monkeypatch):
    """Runs stop after their third step, until the function that this gives is called."""
    plain, taken = Trainer.after_step, [0]

    def after_step(trainer, step):
        plain(trainer, step)
        taken[0] += 1
        if taken[0] == 3:
            trainer.stop(2)

    monkeypatch.setattr(Trainer, "after_step", after_step)
    return monkeypatch.undo


def losses(run):
    return [event["loss"] for event in run.events() if event["event"] == "step"]


def test_a_run_with_an_own_encoder_and_weights_resumes(tmp_path, stopping, capsys):
    shutil.copy(MIXER, tmp_path / "mixer.py")
    network = f"{tmp_path / 'mixer.py'}:patch_mixer"
    file = tmp_path / "start.safetensors"
    made = build_loop(make_config({**SMALL, "network": network}), stream(channels=1)).method.network
    save_file(made.state_dict(), file)
    settings = {**SMALL, "network": network, "weights": file}
    with pytest.raises(Interrupted):
        acr.run(out=tmp_path, **settings)
    (folder,) = (path.parent for path in tmp_path.glob("*/config.yaml"))
    stopping()

    # A folder alone does not decide which code is run.
    with pytest.raises(InputError, match=r"resuming it runs that code. If you trust it: acr resume .* --network"):
        acr.resume_run(folder)
    with pytest.raises(InputError, match="would change the results"):
        acr.resume_run(folder, network="resnet18")
    # The file may have been moved, but not changed.
    moved = file.rename(tmp_path / "moved.safetensors")
    with pytest.raises(InputError, match="name its new place with --weights"):
        acr.resume_run(folder, network=network)
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(InputError, match="not the file that this run began with"):
        acr.resume_run(folder, network=network)
    # A function that makes another encoder now.
    code = (tmp_path / "mixer.py").read_text()
    (tmp_path / "mixer.py").write_text(code.replace("blocks: int = 2", "blocks: int = 3"))
    with pytest.raises((CheckpointError, InputError), match="does not fit"):
        acr.resume_run(folder, network=network, weights=moved)
    (tmp_path / "mixer.py").write_text(code)

    main(["resume", str(folder), "--network", network, "--weights", str(moved), "--quiet"])
    capsys.readouterr()
    resumed, whole = acr.load_run(folder), acr.run(out=tmp_path / "whole", **{**settings, "weights": moved})
    assert losses(resumed) == losses(whole)
    assert resumed.results.stages == whole.results.stages
    assert acr.resume_run(folder).finished  # a finished run is read, and nothing is run


def stream(channels=3):
    return TaskStream(toy_data(channels=channels, train=8), ((0, 1), (2, 3)))


@pytest.mark.parametrize("method", ["gdumb", "acr"])
def test_every_network_starts_from_the_weights_and_a_head_of_its_own(tmp_path, method):
    torch.manual_seed(5)
    start = resnet18(9, width=8, head="proxy")
    save_file({name: value.contiguous() for name, value in start.state_dict().items()}, tmp_path / "start.safetensors")
    config = make_config({"method": method, "width": 8, "weights": tmp_path / "start.safetensors", "device": "cpu"})
    loop = build_loop(config, stream())
    one, other = loop.method.network, loop.context.build_network("gdumb-1")
    for network in (one, other):
        for name, value in start.encoder.state_dict().items():
            assert torch.equal(network.encoder.state_dict()[name], value)
        assert network.encoder.conv.weight.is_contiguous(memory_format=torch.channels_last)
    heads = [next(network.head.parameters()) for network in (one, other)]
    assert not torch.equal(*heads)


def test_a_checkpoint_of_a_run_serves_as_weights(tmp_path):
    run = acr.run(out=tmp_path, **{**SMALL, "width": 2, "keep": 1})
    (file,) = run.folder.glob("checkpoint/*/tensors.safetensors")
    loop = build_loop(make_config({**SMALL, "width": 2, "weights": file}), stream(channels=1))
    trained, fresh = loop.method.network.encoder, build_loop(make_config({**SMALL, "width": 2}), stream(1)).method
    assert not torch.equal(trained.bn.running_mean, fresh.network.encoder.bn.running_mean)


@pytest.mark.parametrize("method", ["gss", "hal", "metasp"])
@pytest.mark.usefixtures("plain_convolutions")
def test_methods_that_look_into_the_network_take_the_imagenet_stem(method):
    quick = {"anchor_steps": 2} if method == "hal" else {}
    values = {**SMALL, "method": method, "stem": "imagenet", "epochs": 2, "buffer_size": 8, "device": "cpu", **quick}
    config, data = make_config({**values, "width": 2}), toy_data(train=4, side=16)
    loop = build_loop(config, TaskStream(data, ((0, 1), (2, 3))))
    for event in loop:
        loss = getattr(event, "loss", None)
        assert loss is None or torch.isfinite(loss)


def test_an_own_encoder_computes_in_mixed_precision():
    config = make_config({**SMALL, "network": f"{MIXER}:patch_mixer", "precision": "bf16-mixed", "device": "cpu"})
    network = build_loop(config, stream()).method.network
    seen = []
    network.encoder.embed.register_forward_hook(lambda module, given, result: seen.append(result.dtype))
    assert network(torch.zeros(2, 3, 8, 8, dtype=torch.uint8)).dtype == torch.float32
    assert seen == [torch.bfloat16]


def test_the_example_runs(capsys):
    runpy.run_path(str(MIXER), run_name="__main__")
    assert "average accuracy on split-digits" in capsys.readouterr().out


def test_the_function_in_the_documentation_makes_an_encoder(tmp_path):
    page = (MIXER.parents[1] / "docs" / "extending.md").read_text()
    (code,) = [part for part in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def small(" in part]
    (tmp_path / "file.py").write_text(code)
    config = make_config({**SMALL, "network": f"{tmp_path / 'file.py'}:small", "device": "cpu"})
    assert build_loop(config, stream()).method.network.head.in_features == 8 * SMALL["width"]
