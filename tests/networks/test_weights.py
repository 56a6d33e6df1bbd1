"""Starting from weights: which files serve, what is said about others, and that the run is tied to the file."""

import pytest
import torch
from safetensors.torch import save_file

from acr.errors import InputError
from acr.networks import resnet18
from acr.networks.weights import digest_of, load_encoder, read_weights
from acr.runs.resolve import make_config


def encoder(seed=0, width=2):
    torch.manual_seed(seed)
    made = resnet18(3, width=width).encoder
    made.bn.running_mean.uniform_()
    return made


def named(state, prefix):
    return {f"{prefix}{name}": value.contiguous() for name, value in state.items()}


@pytest.mark.parametrize("prefix", ["", "encoder.", "module.encoder.", "/method/network/encoder."])
def test_the_whole_state_is_loaded_behind_any_prefix(tmp_path, prefix):
    source, target = encoder(1), encoder(2)
    tensors = named(source.state_dict(), prefix)
    if prefix:  # what is not the encoder's is not looked at
        tensors |= {"head.weight": torch.zeros(3, 16), "mean": torch.zeros(3), "conv.weights": torch.zeros(1)}
    save_file(tensors, tmp_path / "w.safetensors")
    load_encoder(target, read_weights(tmp_path / "w.safetensors"), tmp_path / "w.safetensors")
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value)


def test_what_does_not_fit_is_listed(tmp_path):
    tensors = dict(encoder().state_dict())
    tensors["conv.weight"] = torch.zeros(2, 3, 5, 5)
    tensors["bn.bias"] = torch.tensor([1.0, torch.nan])
    for name in ("bn.weight", "stages.0.0.bn1.weight", "stages.0.0.bn1.bias", "stages.0.0.bn2.bias"):
        del tensors[name]
    tensors["fc.weight"] = torch.zeros(2)
    target = encoder()
    before = target.state_dict()["bn.running_mean"].clone()
    with pytest.raises(InputError) as error:
        load_encoder(target, tensors, tmp_path / "w")
    assert str(error.value) == (
        f"--weights {tmp_path / 'w'} does not fit the encoder. "
        "4 tensors are missing: bn.weight, stages.0.0.bn1.weight, stages.0.0.bn1.bias and 1 more. "
        "1 tensor is not known to the encoder: fc.weight. "
        "1 tensor is of another shape: conv.weight (2x3x5x5 instead of 2x3x3x3). "
        "1 tensor is not finite: bn.bias."
    )
    assert torch.equal(target.state_dict()["bn.running_mean"], before)


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\xff" * 100])
def test_files_of_other_kinds_are_refused(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_weights(tmp_path / "w")


def test_the_content_is_part_of_the_identity(tmp_path):
    one, copy, other, gone = (tmp_path / name for name in ("one", "copy", "other", "gone"))
    for path, seed in ((one, 1), (copy, 1), (other, 2)):
        save_file(named(encoder(seed).state_dict(), ""), path)
    plain, a, b, c = (make_config({"weights": path}) for path in (None, one, copy, other))
    assert a.identity() == b.identity()
    assert len({plain.identity(), a.identity(), c.identity()}) == 3
    assert a.weights_digest == digest_of(one)
    # The config of a run is read without its file, but the run accepts no other.
    assert make_config({**a.flat(), "weights": gone}).identity() == a.identity()
    with pytest.raises(InputError, match="is not the file that this run began with"):
        read_weights(other, a.weights_digest)
    with pytest.raises(InputError, match="A run needs the file until it is finished"):
        make_config({"weights": gone})
