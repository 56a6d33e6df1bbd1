"""Golden traces: what every method did, step by step, on a small stream, when the trace was recorded.

A trace is taken through the public door alone (``acr.run`` and the files of its run folder), so that it can be taken
with any version of the package and compared across a rebuilding of everything inside.

    python tests/helpers/traces.py one METHOD          print the trace of one method, as JSON
    python tests/helpers/traces.py record [METHOD ...] record methods (or all) on this machine's kinds of processor
    python tests/helpers/traces.py plain FILE          record all methods as they are (float32, all defaults), here only
    python tests/helpers/traces.py compare A B         whether two such recordings of one machine agree to the last bit
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parents[1] / "golden" / "traces.json"
METHODS = (
    "acr", "er", "finetune", "joint", "gem", "agem", "gss", "gdumb", "hal", "metasp", "soif", "derpp", "er-ace", "pcr",
    "cls-er", "scr", "aver",
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "dataset": "split-digits",
    "class_order": "0-5",
    "tasks": 3,
    "samples_per_class": 24,
    "test_samples_per_class": 20,
    "batch_size": 16,
    "replay_size": 16,
    "buffer_size": 12,
    "epochs": 3,
    "width": 4,
    "learning_rate": 0.02,
    "ood_corruptions": "fog",
    "ood_every": "end",
    "seed": 3,
    "log_every": 1,
    "threads": 1,
    "device": "cpu",
}
"""Three tasks of two digits, nine steps each: two borders between tasks, seconds in all."""
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    # The strong view ends in rounding to bytes, which two kinds of processor may round differently.
    "acr": {"second_view": "crop-flip"},
    "aver": {"second_view": "crop-flip"},
    "gdumb": {"fit_epochs": 15},  # instead of 250
    "pcr": {"second_view": "crop-flip"},
    "scr": {"second_view": "crop-flip"},
    # Not those of the digits, with which every step renews the plastic copy: both coins are to matter.
    "cls-er": {"consistency_weight": 0.1, "plastic_frequency": 0.9, "stable_frequency": 0.7},
    # Both make much of small differences: GEM in its projection, HAL in batch norms that see single anchors.
    "gem": {"learning_rate": 0.005, "epochs": 2},
    "hal": {"learning_rate": 0.002, "epochs": 2, "anchor_steps": 5, "anchor_weight": 0.001},
}

PROCESSORS = [
    {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn}
    for aten, onednn in itertools.product(("", "default", "avx2"), ("", "SSE41", "AVX2"))
]
"""Environments that make PyTorch compute as on another kind of processor; empty: as on this one."""


def trace(method: str) -> dict[str, Any]:
    """The trace of a method that can be compared across processors."""
    with exact_networks():
        return plain_trace(method, **OWN_SETTINGS.get(method, {}))


def plain_trace(method: str, **changes: Any) -> dict[str, Any]:
    """Losses of all steps, accuracy matrices, and which training samples the memory holds at the end."""
    import acr

    with tempfile.TemporaryDirectory() as out:
        run = acr.run(method=method, out=out, **{**SETTINGS, **changes})
        lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
        steps = [line for line in lines if line["event"] == "step"]
        matrices = {name: np.asarray(matrix) for name, matrix in run.accuracy.items() if name in ("clean", "fog/1")}
        return {
            "losses": [step["loss"] for step in steps],
            "accuracy": {name: json.loads(json.dumps(matrix.tolist())) for name, matrix in matrices.items()},
            "memory": stored_samples(run.folder / "memory.npz"),
        }


@contextmanager
def exact_networks() -> Iterator[None]:
    """Every network in float64, starting from weights that are the same numbers on every processor.

    In float32 these small networks are chaotic: a difference in the last bit between two kinds of processor grows to
    a tenth of the loss within ten steps. In float64 it stays far below anything that a change of the code would cause.
    PyTorch's random numbers differ in their last bits too, so the weights are drawn as whole numbers of 1/1024.
    """
    from acr.networks import Network

    plain = Network.to

    def to(network: Any, *arguments: Any, **named: Any) -> Any:
        draws = np.random.default_rng(7)
        for parameter in plain(network, *arguments, **named).double().parameters():
            if parameter.dim() > 1:
                bound = 2 ** round(np.log2(1024 * np.sqrt(6 / parameter[0].numel())))
                weights = draws.integers(-bound, bound, tuple(parameter.shape), endpoint=True) / 1024
                parameter.data.copy_(parameter.new_tensor(weights))
            else:
                parameter.data.round_()  # ones and zeros of batch norms; a linear head's bias becomes zero
        return network

    Network.to = to
    try:
        yield
    finally:
        Network.to = plain


def stored_samples(path: Path) -> list[list[int]]:
    """Number in the digits (all of them, as scikit-learn has them) and task of every sample of a stored memory."""
    from sklearn.datasets import load_digits

    if not path.exists():
        return []
    pixels = load_digits().images
    number = {np.round(image * (255 / 16)).astype(np.uint8).tobytes(): i for i, image in enumerate(pixels)}
    with np.load(path) as memory:
        rows = zip(memory["images"], memory["tasks"].tolist(), strict=True)
        return [[number[image.tobytes()], task] for image, task in rows]


def record(*methods: str) -> dict[str, Any]:
    """A trace per method, with the largest deviations that other kinds of processor showed from it.

    Methods that are not named keep the trace they have; without a name all are recorded.
    """
    recorded: dict[str, Any] = json.loads(FILE.read_text()) if methods else {}
    for method in methods or METHODS:
        traces = [taken_elsewhere(method, processor) for processor in PROCESSORS]
        first, others = traces[0], traces[1:]
        recorded[method] = {
            **first,
            "deviation": {
                "losses": max(loss_deviation(first, other) for other in others),
                "accuracy": max(accuracy_deviation(first, other) for other in others),
                "memory": max(memory_deviation(first, other) for other in others),
            },
        }
        print(method, recorded[method]["deviation"], file=sys.stderr, flush=True)
    return recorded


def taken_elsewhere(method: str, processor: dict[str, str]) -> dict[str, Any]:
    """A trace taken in a process of its own, whose PyTorch computes as on this kind of processor."""
    environment = {**os.environ, **{name: value for name, value in processor.items() if value}}
    command = [sys.executable, __file__, "one", method]
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def loss_deviation(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference of two losses of the same step, relative to 1 + the loss."""
    assert len(a["losses"]) == len(b["losses"])
    pairs = [(x, y) for x, y in zip(a["losses"], b["losses"], strict=True) if x is not None or y is not None]
    return max((abs(x - y) / (1 + abs(x)) for x, y in pairs), default=0.0)


def accuracy_deviation(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference of two entries of the accuracy matrices; NaN must meet NaN."""
    assert a["accuracy"].keys() == b["accuracy"].keys()
    worst = 0.0
    for name in a["accuracy"]:
        mine, theirs = (np.array(t["accuracy"][name], dtype=float) for t in (a, b))
        assert (np.isnan(mine) == np.isnan(theirs)).all()
        worst = max(worst, float(np.nanmax(np.abs(mine - theirs), initial=0.0)))
    return worst


def memory_deviation(a: dict[str, Any], b: dict[str, Any]) -> int:
    """How many samples of one memory the other does not hold."""
    mine, theirs = ({tuple(row) for row in t["memory"]} for t in (a, b))
    return max(len(mine - theirs), len(theirs - mine))


def main(command: str, *arguments: str) -> None:
    """See above."""
    if command == "one":
        print(json.dumps(trace(*arguments)))
    elif command == "record":
        rows = [f'"{method}": {json.dumps(value)}' for method, value in record(*arguments).items()]
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    elif command == "plain":
        rows = [f'"{method}": {json.dumps(plain_trace(method))}' for method in METHODS]
        Path(*arguments).write_text("{\n" + ",\n".join(rows) + "\n}\n")
    else:
        before, after = (json.loads(Path(path).read_text()) for path in arguments)
        different = [name for name in before if json.dumps(before[name]) != json.dumps(after.get(name))]
        print(f"{len(before)} methods compared; different: {', '.join(different) or 'none'}")
        sys.exit(bool(different))


if __name__ == "__main__":
    main(*sys.argv[1:])
