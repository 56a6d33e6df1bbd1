"""``acr methods`` and ``acr doctor``."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from acr.console import Console, say

EXTRAS = {
    "ray": "sweeps over several machines",
    "nicegui": "the live dashboard",
    "tensorboard": "--tensorboard",
    "wandb": "--wandb",
    "onnx": "acr export NAME.onnx",
    "onnxscript": "acr export NAME.onnx",
    "onnxruntime": "acr export NAME.onnx",
}


def methods(name: str | None = None, /, *, dataset: str = "split-cifar100", buffer_size: int | None = None) -> None:
    """List the methods with their options; with a NAME, the defaults of one method and where each comes from.

    Parameters
    ----------
    name
        A method; without it, all methods are listed.
    dataset
        The data set whose defaults are shown.
    buffer_size
        Size of the memory, on which some defaults depend; by default the data set's.
    """
    from acr.methods.method import method_classes, method_problems

    if name is not None:
        describe_method(name, dataset, buffer_size)
        return
    table = Table(box=None, pad_edge=False)
    for head in ("method", "what it does", "options"):
        table.add_column(head)
    for cls in method_classes():
        options = ", ".join(f"--{option.replace('_', '-')}" for option in cls.Options.model_fields)
        table.add_row(*map(escape, (cls.name, cls.summary, options or "–")))
    Console(highlight=False).print(table)
    for problem in method_problems():
        say(problem, error=True)


def describe_method(name: str, dataset: str, buffer_size: int | None) -> None:
    """Print what a method does, and every default that it has on a data set, with its source."""
    from acr.methods.method import method_class
    from acr.runs.resolve import defaults_of

    defaults = defaults_of(name, dataset, buffer_size)
    cls = method_class(name)
    console = Console(highlight=False)
    console.print(f"[bold]{escape(cls.summary or name)}[/]")
    console.print(f"Defaults on {escape(dataset)}:")
    table = Table(box=None, pad_edge=False)
    for head in ("flag", "default", "where it comes from"):
        table.add_column(head, overflow="fold")
    for default in defaults:
        shown = "–" if default.value in (None, [], ()) else str(default.value)
        source = default.source or "its author does not say"
        table.add_row(f"--{default.name.replace('_', '-')}", escape(shown), escape(source))
    console.print(table)


def doctor() -> None:
    """Show versions, devices, threads and disk, and what is missing and how to get it."""
    import torch

    from acr._version import __version__
    from acr.methods.method import method_problems
    from acr.training.devices import describe_devices

    rows = [("acr", __version__), ("python", platform.python_version()), ("system", platform.platform())]
    for package in ("torch", "numpy", "scikit-learn", "scipy", "pillow"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            rows.append((package, f"missing: pip install {package}"))
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    rows += [
        *describe_devices(),
        ("free disk here", f"{free:.1f} GiB" + (" – a full CIFAR-100 suite needs 0.4 GiB" if free < 1 else "")),
        ("can write here", "yes" if os.access(Path.cwd(), os.W_OK) else "no: choose a folder with --out"),
        ("ACR_DATA", os.environ.get("ACR_DATA", "not set (a folder that holds data sets, besides the cache)")),
    ]
    for module, purpose in EXTRAS.items():
        there = find_spec(module) is not None
        found = version(module) if there else f"not installed; needed for {purpose}: "
        rows.append((module, found if there else f"{found}pip install {module}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    Console(highlight=False).print(table)
    for problem in method_problems():
        say(problem, error=True)
    # A broken installation should fail here, not in the middle of a run.
    import_module("acr.methods.acr")
    _ = torch.ones(2, 2) @ torch.ones(2, 2)
    say("Everything that acr needs is installed.")
