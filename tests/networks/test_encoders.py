"""Encoders that users bring: how they are found, called and checked, and what is said if one cannot be used."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from acr.config import RunConfig, validated
from acr.errors import InputError
from acr.networks.building import NetworkBuilder
from acr.networks.encoders import EncoderFunction, try_out
from acr.randomness import keyed_global

MODULE = """
import torch
from torch import nn

class Flat(nn.Module):
    def __init__(self, channels, image_size, features=5):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, features))

    def forward(self, images):
        return self.layers(images)

def plain(channels, image_size):
    return Flat(channels, image_size)

def everything(**given):
    made = Flat(given["channels"], given["image_size"], given["width"])
    made.given = given
    return made

def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6))

def normed(channels, image_size):
    return nn.Sequential(Flat(channels, image_size), nn.BatchNorm1d(5), nn.Dropout())

def maps(channels):
    return nn.Conv2d(channels, 4, 3)

def one_row(channels, image_size):
    return nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, -1)))

class Doubles(Flat):
    def forward(self, images):
        return super().forward(images).double()

class Endless(Flat):
    def forward(self, images):
        return super().forward(images) / 0

class Pair(Flat):
    def forward(self, images):
        return images, images

def fails(width):
    raise KeyError("nothing")

def needs(depth, /, channels):
    return None

def number():
    return 7

SETTING = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current folder with a module of the user's."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found")
    (tmp_path / "restless.py").write_text(
        "from acr.networks.encoders import EncoderFunction\ndef make(): ...\nEncoderFunction('restless.py:make')\n"
    )
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)


def build(network, width=4, head="linear", channels=3, side=8, seed=0, **config):
    config = validated(RunConfig, {"network": network, "width": width, **config})
    with keyed_global(seed):
        return NetworkBuilder(config, 7, head, (channels, side, side), [0.5] * channels, [0.25] * channels).build()


@pytest.mark.parametrize("where", ["mine", "mine.py", "{folder}/mine.py"])
def test_a_function_is_found_by_module_and_by_file(folder, where):
    before = list(sys.path)
    network = build(f"{where.format(folder=folder)}:plain")
    assert sys.path == before
    assert network.features(torch.zeros(3, 3, 8, 8, dtype=torch.uint8)).shape == (3, 5)
    assert network(torch.zeros(3, 3, 8, 8, dtype=torch.uint8)).shape == (3, 7)


def test_images_arrive_normalised(folder):
    network = build("mine:plain")
    seen = []
    network.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    network(torch.full((2, 3, 8, 8), 255, dtype=torch.uint8))
    assert torch.equal(seen[0], torch.full((2, 3, 8, 8), 2.0))  # (1 − 0.5)/0.25


def test_a_function_gets_what_it_names(folder):
    assert build("mine:everything", width=9, channels=1).encoder.given == {"channels": 1, "image_size": 8, "width": 9}
    assert build("mine:Flat").head.in_features == 5  # a class serves too
    assert build("mine:lazy").head.in_features == 6


@pytest.mark.parametrize("head", ["linear", "proxy"])
def test_initialisation_is_keyed(folder, head):
    one, same, other = (build("mine:plain", head=head, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_trial_changes_nothing_and_notices_draws(folder):
    encoder = EncoderFunction("mine:normed").make(channels=3, image_size=8, width=4)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    trial = try_out(encoder, "mine:normed", 3, 8)
    assert (trial.features, trial.draws, encoder.training) == (5, True, True)
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not build("mine:plain").draws


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:make", "there is no module 'nowhere'"),
        ("mine.inner:make", "there is no module 'mine.inner'"),
        ("gone.py:make", "there is no file gone.py"),
        ("broken:make", "importing broken failed: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("broken.py:make", "nowhere_to_be_found"),
        ("restless.py:make", 'if __name__ == "__main__"'),
        ("mine:plian", "mine has no 'plian'. It has: Doubles, "),
        ("mine:SETTING", "is a int; it must be a function"),
        ("mine:number", "returned a int; it must return a torch.nn.Module"),
        ("mine:fails", "failed when called with (width=4): KeyError: 'nothing'"),
        ("mine:needs", "needs 'depth', which a run does not have"),
        ("mine:maps", "it returned float32 of 2 x 4 x 6 x 6"),
        ("mine:one_row", "it returned float32 of 1 x 384"),
        ("mine:Doubles", "it returned float64 of 2 x 5"),
        ("mine:Pair", "it returned a tuple"),
        ("mine:Endless", "not finite"),
    ],
)
def test_what_is_wrong_is_said(folder, name, words):
    with pytest.raises(InputError) as error:
        build(name)
    assert words in str(error.value)
    assert f"--network {name}" in str(error.value)


def test_an_encoder_for_other_images_is_named_with_their_shape(folder):
    (folder / "mine.py").write_text(MODULE + "\ndef fixed():\n    return Flat(3, 32)\n")
    with pytest.raises(InputError, match=r"failed on images of 2 x 3 x 8 x 8: RuntimeError"):
        build("mine.py:fixed")


@pytest.mark.parametrize("name", ["resnet19", "mine", ":make", "mine:", "mine:a b", "9:make", "os.path:x()", 5])
def test_a_name_that_cannot_be_one_is_refused_without_importing(name):
    with pytest.raises(InputError, match="--network"):
        validated(RunConfig, {"network": name})


def top_level(channels: int) -> nn.Module:
    return nn.Flatten()


class Holder:
    @staticmethod
    def inner() -> nn.Module:
        return nn.Flatten()


def test_a_callable_is_recorded_by_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "a_module", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "__name__", "a_module")
    assert validated(RunConfig, {"network": nn.Flatten}).network == "torch.nn.modules.flatten:Flatten"
    assert validated(RunConfig, {"network": top_level}).network == "a_module:top_level"
    assert validated(RunConfig, {"network": Holder.inner}).network == "a_module:Holder.inner"


def test_a_callable_that_no_name_leads_to_is_refused():
    def within():
        return nn.Flatten()

    for value in (lambda: nn.Flatten(), within, nn.Flatten()):
        with pytest.raises(InputError, match="a function at the top level of a module or script"):
            validated(RunConfig, {"network": value})


def test_a_function_in_a_script_is_recorded_by_its_file(tmp_path, monkeypatch):
    """The script itself is not run a second time, also if its run is not guarded."""
    (tmp_path / "script.py").write_text("raise SystemExit('run a second time')")
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "script.py")
    exec("from torch import nn\ndef make():\n    return nn.Flatten()\n", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)
    assert RunConfig(network=main.make).network == "script.py:make"
    assert EncoderFunction("script.py:make").function is main.make
    monkeypatch.chdir(tmp_path.parent)
    assert RunConfig(network=main.make).network == f"{tmp_path.name}/script.py:make"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert RunConfig(network=main.make).network == f"{tmp_path.resolve() / 'script.py'}:make"
    del main.__file__  # as at a prompt
    with pytest.raises(InputError, match="top level of a module or script"):
        validated(RunConfig, {"network": main.make})


def test_a_function_of_a_file_keeps_its_name(folder):
    found = EncoderFunction("mine.py:plain").function
    assert RunConfig(network=found).network == "mine.py:plain"


def test_stems():
    config = {"width": 8, "side": 64}
    small, large = build("resnet18", **config), build("resnet18", stem="imagenet", **config)
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    sides = []
    for network in (small, large):
        network.encoder.stages[0].register_forward_hook(lambda _, __, out: sides.append(out.shape[2]))
        assert network(images).shape == (2, 7)
    assert sides == [64, 16]
    assert large.encoder.conv.weight.shape == (8, 3, 7, 7)
    assert set(small.state_dict()) == set(large.state_dict())
    with pytest.raises(InputError, match="--stem imagenet applies to --network resnet18 only"):
        validated(RunConfig, {"network": "mine:plain", "stem": "imagenet"})


def test_runs_made_before_these_fields_keep_their_identity():
    known = RunConfig()
    assert known.identity() == RunConfig(stem="cifar", weights=Path("x"), weights_digest=None).identity()
    others = [RunConfig(stem="imagenet"), RunConfig(weights_digest="00"), RunConfig(network="a:b")]
    assert len({known.identity(), *(config.identity() for config in others)}) == 4
