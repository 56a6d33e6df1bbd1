"""Runs that are killed without warning, again and again, end exactly like runs that are not."""

import json
import random
import signal
import time
from itertools import count

import numpy as np
import pytest
import torch
from warm_processes import WarmProcess

import acr
from acr.methods.method import method_names
from acr.training.checkpoint import Checkpoints

SMALL = {"width": 2, "samples_per_class": 20, "batch_size": 8, "buffer_size": 30, "ood_every": "never", "threads": 1}
QUICK = {"hal": {"anchor_steps": 5}, "gdumb": {"fit_epochs": 2}}
"""Options that make a method's work at the end of a task shorter."""
PATIENCE = 300
"""Seconds a process may stay without any progress before the test gives up: for hung processes, not slow machines."""


def flags(config):
    return [word for name, value in config.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def content(run):
    """Everything a run leaves behind but clock and log: results, last weights, memory, confidence."""
    results = json.loads((run.folder / "results.json").read_text())
    results.pop("timing")
    _, state = Checkpoints(run.folder / "checkpoint", run.config.identity()).load()
    networks = {"": state["method"]["network"], "average.": state["method"].get("average", {}).get("network", {})}
    weights = {f"{which}{name}": value.numpy() for which, part in networks.items() for name, value in part.items()}
    arrays = {}
    for path in run.folder.glob("*.npz"):
        with np.load(path, allow_pickle=False) as file:
            arrays |= {f"{path.name}/{name}": file[name] for name in file.files}
    return results, {**weights, **arrays}


def same_bits(a, b):
    (results_a, arrays_a), (results_b, arrays_b) = a, b
    assert results_a == results_b
    assert arrays_a.keys() == arrays_b.keys()
    different = [name for name in arrays_a if arrays_a[name].tobytes() != arrays_b[name].tobytes()]
    assert different == []


def wait_for(process, path, event, more, offset):
    """Until ``more`` lines of this kind stand in the events file past ``offset``, or the process has ended."""
    last = time.monotonic()
    size = offset
    while process.exit_code is None:
        if path and path.exists() and path.stat().st_size > size:
            size, last = path.stat().st_size, time.monotonic()
        if path and path.exists() and path.read_bytes()[offset:].count(b'"event": "%s"' % event.encode()) >= more:
            return
        assert time.monotonic() - last < PATIENCE, "no progress"
        time.sleep(0.002)


def run_with_kills(method, out, kills, seed, config):
    """Kill a run so many times at random moments, then let it finish. Returns the run and the number of kills."""
    rng = random.Random(seed)
    words = ["run", "--method", method, "--out", str(out), "--resume", "auto", "--quiet", "--log-every", "1",
             "--checkpoint-every", "0.01s", *flags(config)]  # fmt: skip
    out.mkdir()
    done = 0
    for life in count():
        events = next(iter(out.glob("*/events.jsonl")), None)
        resume = events is not None and (events.parent / "config.yaml").exists() and life % 2 == 1
        offset = events.stat().st_size if events else 0
        process = WarmProcess(["resume", str(events.parent), "--quiet"] if resume else words, out / f"life-{life}.txt")
        try:
            if done < kills:
                while events is None and process.exit_code is None:  # the first life: the folder is not there yet
                    events = next(iter(out.glob("*/events.jsonl")), None)
                    time.sleep(0.002)
                # The first kill comes before the first checkpoint if it can: such a run starts over.
                wait_for(process, events, *(("start", 1) if life == 0 else ("checkpoint", rng.randint(1, 4))), offset)
                time.sleep(rng.uniform(0, 0.06))
                process.send_signal(signal.SIGKILL)
            code = process.wait(PATIENCE)
        finally:
            process.end()
        if code == 0:
            break
        assert code == -signal.SIGKILL, process.output()
        done += 1
    assert events is not None
    return acr.load_run(events.parent), done


def check(method, tmp_path, kills, seed, **more):
    for epochs in (2, 4, 8):  # a machine that is through before it could be killed often enough gets more to do
        config = {**SMALL, "epochs": epochs, **QUICK.get(method, {}), **more}
        out = tmp_path / str(epochs)
        killed, done = run_with_kills(method, out, kills, seed, config)
        if done >= kills:
            break
    assert done >= kills
    undisturbed = acr.run(method=method, out=tmp_path / "undisturbed", **config)
    same_bits(content(killed), content(undisturbed))
    assert sum(event["event"] == "start" for event in killed.events()) > kills
    left = [p.name for p in (killed.folder, killed.folder / "checkpoint") for p in p.iterdir() if "part" in p.name]
    assert left == []


@pytest.mark.parametrize(
    ("method", "more"), [("acr", {"average_weights": "auto", "images_per_place": 2}), ("er", {})], ids=["acr", "er"]
)
def test_killed_runs_end_like_undisturbed_ones(method, more, tmp_path):
    check(method, tmp_path, kills=3, seed=11, **more)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("method", method_names())
def test_every_method_survives_many_kills(method, seed, tmp_path):
    check(method, tmp_path, kills=6, seed=seed)


def test_weights_are_compared_bit_for_bit():
    a = ({"x": 1}, {"w": torch.tensor([0.0]).numpy()})
    b = ({"x": 1}, {"w": torch.tensor([-0.0]).numpy()})
    with pytest.raises(AssertionError):
        same_bits(a, b)
