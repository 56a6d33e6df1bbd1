"""check_method passes every method there is, and fails each of a row of broken ones for the right reason."""

import random
import runpy
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import acr
from acr.config import MethodOptions
from acr.data.stream import TaskStream
from acr.methods.er import ER
from acr.methods.finetune import Finetune
from acr.methods.method import REGISTRY, Method, method_class, method_names
from acr.testing import CHECKS, check_method, toy_data
from acr.testing.rehearsal import Rehearsal, different_tensors

QUICK = {"hal": {"anchor_steps": 5}, "gdumb": {"fit_epochs": 2}}
"""Options that make a method's checks shorter, not laxer."""
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.usefixtures("plain_convolutions", "narrow_networks", "shallow_networks")


@pytest.fixture
def narrow_networks(monkeypatch):
    """No check is about the size of the network."""
    monkeypatch.setattr("acr.testing.rehearsal.WIDTH", 2)


@pytest.mark.parametrize("name", method_names())
def test_every_method_conforms(name):
    before = (random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist(), dict(REGISTRY))
    report = check_method(method_class(name), **QUICK.get(name, {}))
    assert {*report.checks, *report.exemptions} == set(CHECKS)
    assert report.memory_bytes <= report.budget_bytes
    assert report.method in str(report)
    assert before == (random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist(), dict(REGISTRY))


MIXER = f"{EXAMPLES / 'own_encoder.py'}:patch_mixer"
"""Patches, layer norms and dropout: nothing of it is in the ResNet."""


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_every_method_conforms_with_another_encoder(name, monkeypatch):
    monkeypatch.setattr("acr.testing.rehearsal.WIDTH", 16)  # narrower ones learn too slowly for a check of 48 steps
    cls = method_class(name)
    if (
        name == "scr"
    ):  # its loss counts pairs: it rises when replay joins, and this encoder cannot make up for that here
        reason = "its loss depends on the size of the batch, which replay doubles"
        monkeypatch.setattr(cls, "exemptions", {"learns": reason})
    check_method(cls, network=MIXER, **QUICK.get(name, {}))


@pytest.mark.parametrize("name", method_names())
def test_every_method_resumes_with_another_encoder(name):
    """Interrupted in the second task, it ends with the same losses and state, whatever the global generator did."""
    cls, stream = method_class(name), TaskStream(toy_data(train=8), ((0, 1), (2, 3)))

    def rehearsal():
        return Rehearsal(cls, stream, QUICK.get(name, {}), network=MIXER, batch_size=6, buffer_size=8)

    before = torch.get_rng_state()
    whole, begun = rehearsal(), rehearsal()
    whole.go()
    assert whole.method.network.draws
    torch.manual_seed(1)
    begun.go(len(whole.losses) - 2)
    torch.manual_seed(2)
    resumed = rehearsal()
    resumed.load_state(begun.copy_of_state())
    resumed.go()
    assert whole.losses == begun.losses + resumed.losses
    assert not different_tensors(whole.tensors(), resumed.tensors())
    torch.set_rng_state(before)


class Broken(ER):
    name = "broken"


class GlobalTorch(Broken):
    def observe(self, batch):
        torch.rand(1)
        return super().observe(batch)


class GlobalNumpy(Broken):
    def observe(self, batch):
        return super().observe(batch) * (1 + np.random.rand())


class ReseedsPython(Broken):
    def observe(self, batch):
        random.seed(4)
        return super().observe(batch)


class Undetermined(Broken):
    calls: ClassVar[list[int]] = []

    def observe(self, batch):
        self.calls.append(1)
        return super().observe(batch) + len(self.calls)


class ForgetsACounter(Broken):
    def __init__(self, *given):
        super().__init__(*given)
        self.steps = 0

    def observe(self, batch):
        self.steps += 1
        return super().observe(batch) * self.steps


class ForgetsTheReservoirsCounter(Broken):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.buffer.seen = len(self.buffer)


class SavesAnObject(Broken):
    def state_dict(self):
        return {**super().state_dict(), "views": self.context.views}


class KeepsOneMore(Broken):
    def memory(self):
        return {name: torch.cat([values, values[:1]]) for name, values in super().memory().items()}


class HoardsBesideADenseMemory(Broken):
    """Codes of images do not look like images, but they have used up the room."""

    def observe(self, batch):
        if self.context.per_place > 1:
            self.hoard = batch.plain
        return super().observe(batch)


class HoardsOnTheSide(Broken):
    def __init__(self, *given):
        super().__init__(*given)
        self.hoard = []

    def observe(self, batch):
        self.hoard.append(batch.plain)
        return super().observe(batch)


class StoresFloats(Broken):
    def memory(self):
        stored = super().memory()
        return {**stored, "images": stored["images"].float()}


class UndeclaredColumn(Broken):
    def memory(self):
        stored = super().memory()
        return {**stored, "logits": torch.zeros(len(stored["labels"]), 50)}


class ReadsAllLabels(Broken):
    def begin_task(self, task):
        super().begin_task(task)
        self.classes = task.train.classes


class ReadsOtherSamples(Broken):
    def begin_task(self, task):
        super().begin_task(task)
        task.train.images[:4]


class ReadsBehindTheGuard(Broken):
    """Gets at the raw memory of the array, where no guard sees it."""

    def begin_task(self, task):
        super().begin_task(task)
        raw = np.frombuffer(memoryview(task.train.images), np.uint8)
        with torch.no_grad():
            self.network.head.bias += float(raw.astype(float).mean()) / 1000


class GoesBackToTheFirstTask(Broken):
    def begin_task(self, task):
        super().begin_task(task)
        self.first = getattr(self, "first", task)
        self.first.images()


class LearnsFromTestImages(Broken):
    def logits(self, images):
        self.network.train()
        return super().logits(images)


class LossIsNan(Broken):
    def observe(self, batch):
        loss = super().observe(batch)
        return loss * float("nan") if batch.task == 1 else loss


class LossPerSample(Broken):
    def observe(self, batch):
        super().observe(batch)
        return torch.zeros(len(batch))


class SeenOutputsOnly(Broken):
    def logits(self, images):
        return super().logits(images)[:, self.context.seen]


class AnswersPastTheAverage(Broken):
    def __init__(self, *given):
        super().__init__(*given)
        self.own = self.network

    def logits(self, images):
        return self.own.eval()(images)


class LooksAtTheAverage(Broken):
    def observe(self, batch):
        return super().observe(batch) + (0 if self.average is None else 1)


class DoesNotLearn(Broken):
    def step(self, loss):
        pass

    def observe(self, batch):
        return super().observe(batch) * 0 + 1


class NeverRemembers(Broken):
    def remember(self, batch, images=None, **columns):
        pass


class NeedsColour(Broken):
    def observe(self, batch):
        if batch.plain.shape[1] != 3:
            raise ValueError("three channels wanted")
        return super().observe(batch)


class Nameless(Method):
    name = ""


class ClashingOptions(MethodOptions):
    seed: int = 3


class Clashing(Broken):
    Options = ClashingOptions


class TakesAName(Finetune):
    name = "er"


class FalselyExempt(Broken):
    exemptions: ClassVar = {"gravity": "because"}


class ExemptWithoutReason(Broken):
    exemptions: ClassVar = {"learns": " "}


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (GlobalTorch, "'own-randomness': the global generator of PyTorch was used"),
        (GlobalNumpy, "'deterministic': two runs with the same seed: the losses differ at step 0"),
        (ReseedsPython, "'own-randomness': the global generator of Python was used"),
        (Undetermined, "'deterministic': two runs with the same seed: the losses differ at step 0"),
        (ForgetsACounter, "'resumes': saved after step 4 and loaded, .* is missing from state_dict"),
        (ForgetsTheReservoirsCounter, "'resumes': the state saved after step 4 and the one loaded differ in numbers"),
        (SavesAnObject, "'deterministic': its state cannot be saved.*views is Views"),
        (KeepsOneMore, "the memory holds 19 samples; its budget is 18"),
        (HoardsBesideADenseMemory, "'dense-memory': the method keeps .* bytes of images; .* is the memory's budget"),
        (HoardsOnTheSide, "the method keeps .* bytes of images; 3456 is the memory's budget and 0 is what"),
        (StoresFloats, "the memory holds torch.float32 images"),
        (UndeclaredColumn, r"the columns \['logits'\], which are not declared"),
        (ReadsAllLabels, r"'no-future': the method looked at samples or labels of tasks \[1, 2\] while task 0"),
        (ReadsOtherSamples, r"'no-future': the method looked at samples or labels of tasks"),
        (
            ReadsBehindTheGuard,
            "'no-future': two streams that differ only in samples of tasks other .* the losses differ",
        ),
        (GoesBackToTheFirstTask, "'no-future': the method looked at samples of task 0 while task 1 was learned"),
        (LearnsFromTestImages, "'no-test-images': a run with evaluations and one without: the"),
        (LossIsNan, "the loss is nan at task 1, epoch 0, step 0"),
        (LossPerSample, r"a loss of shape \(8,\) at task 0"),
        (SeenOutputsOnly, r"'all-outputs': .*the shape \(1, 0\), not \(1, 6\)"),
        (AnswersPastTheAverage, "'averages': logits are the same with averaged weights"),
        (LooksAtTheAverage, "'averages': with weights averaged beside it, the losses differ at step 0"),
        (DoesNotLearn, "'learns': the loss does not decrease"),
        (NeverRemembers, r"'within-budget': uses_memory is set, but memory\(\) stayed empty"),
        (NeedsColour, "'single-channel': it raised ValueError: three channels wanted"),
        (Nameless, "'registered': the class has no name"),
        (Clashing, r"'registered': the options \['seed'\] have names that are already fields"),
        (TakesAName, "'registered': the name 'er' belongs to another method"),
        (FalselyExempt, "exempt from 'gravity'; the checks are"),
        (ExemptWithoutReason, "exempt from 'learns' without a reason"),
        (int, "is not a subclass of"),
    ],
)
def test_a_broken_method_fails_with_the_right_sentence(cls, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_method(cls)


class NoLoss(Finetune):
    """Collects, and returns no loss: honest if it says so."""

    name = "no-loss"
    exemptions: ClassVar = {"learns": "returns no loss"}

    def observe(self, batch):
        super().observe(batch)


def test_exemptions_are_honoured_and_listed():
    report = check_method(NoLoss)
    assert "learns" not in report.checks
    assert report.exemptions == {"learns": "returns no loss"}
    assert "exempt from learns: returns no loss" in str(report)


def test_the_example_of_the_docs_conforms_and_runs(monkeypatch, capsys):
    as_written = acr.run
    monkeypatch.setattr(acr, "run", lambda *a, **k: as_written(*a, **{**k, "epochs": 1, "width": 4}), raising=False)
    try:
        runpy.run_path(str(EXAMPLES / "own_method.py"), run_name="__main__")
    finally:
        REGISTRY.pop("gentle-replay", None)
    out = capsys.readouterr().out
    assert "gentle-replay: 16 checks passed" in out
    assert "accuracy on ten digits" in out


def test_a_method_of_an_installed_package_is_found(tmp_path):
    """Another distribution offers a method by an entry point; the command line knows it and its options."""
    (tmp_path / "other_package.py").write_text((EXAMPLES / "own_method.py").read_text().replace("@register\n", ""))
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[acr.methods]\ngentle-replay = other_package:GentleReplay\n")
    words = ["run", "--method", "gentle-replay", "--replay-weight", "0.2", "--epochs", "1", "--width", "2",
             "--samples-per-class", "20", "--buffer-size", "20", "--threads", "1"]  # fmt: skip
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from acr.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--ood-every", "never", "--out", str(tmp_path / "runs"), "--quiet"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "gentle-replay" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert "replay_weight: 0.2" in (folder / "config.yaml").read_text()


def test_loss_may_be_a_scalar_of_any_kind():
    class Halved(Finetune):
        name = "halved"

        def observe(self, batch):
            loss = F.cross_entropy(self.network(batch.plain), batch.labels)
            self.step(loss)
            return loss.detach().double().reshape(1)

    assert len(check_method(Halved).checks) == len(CHECKS)
