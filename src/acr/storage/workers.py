"""A pool of child interpreters that share work, and the number of cores available.

The children are plain interpreters that receive one JSON line per job and answer with one. There is a pool of our own
for two reasons, which were found with joblib's loky (and hold for ``multiprocessing``): loky's children start with the
current folder on their path, so that a ``json.py`` in a data folder is executed; and when their parent is killed, they
live on for minutes. Ours start isolated and end as soon as their input ends. Neither kind runs the user's script again,
so that a script needs no guard around its main part.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import acr
from acr.errors import AcrError

START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from importlib import import_module; "
    "module, name = sys.argv[2].split(':'); del sys.argv[1:3]; getattr(import_module(module), name)()"
)
"""What a child executes. Up to the third statement it is isolated: it imports nothing but Python's own modules."""


PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Variables that make threads sleep while they wait. By default they spin, and where a machine has other work to do, a
thread that spins keeps the one it waits for from running: a step was seen to take thirty times as long."""


SAME_SUMS = {"MKL_CBWR": "AUTO"}
"""Makes MKL add numbers in the same order every time. By default it divides small products among threads as they come,
and two equal steps on a single image with two threads were seen to differ in their last bits. It costs nothing that
can be measured. MKL reads it when it is first used, and never again."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Makes malloc ask Linux for large pages, which takes time off every training step on a CPU. The C library reads it
when a process starts: it has an effect in the processes that this one starts, and none on other systems."""
LIBRARIES = {**PASSIVE, **SAME_SUMS, **HUGE_PAGES}
"""How the libraries below PyTorch are to behave in every process of this program."""


def set_up_libraries() -> None:
    """Ask the libraries below PyTorch to behave so; a user's own settings stay. Comes before PyTorch is imported."""
    for name, value in LIBRARIES.items():
        os.environ.setdefault(name, value)


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerPool:
    """Child interpreters that all run one function. They start with the first job and end with the block.

    ``task`` is a function at the top level of a module. It takes one argument and returns one answer, both of which
    JSON can hold. ``what`` describes the work ("decodes images") in the error about a child that died. ``count`` is the
    number of children, by default one per core.
    """

    def __init__(self, task: Callable[[Any], Any], what: str, count: int | None = None) -> None:
        self.task = f"{task.__module__}:{task.__qualname__}"
        self.what = what
        self.count = count or cores()
        self.children: list[subprocess.Popen[str]] = []
        self._idle: queue.Queue[subprocess.Popen[str]] = queue.Queue()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *problem: object) -> None:
        for child in self.children:
            child.kill()
            child.communicate()

    def map(self, jobs: Iterable[Any]) -> Iterator[Any]:
        """The answers to the jobs, in the order of the jobs."""
        lines = [json.dumps(job) for job in jobs]
        self._start(min(self.count, len(lines)))
        with ThreadPoolExecutor(self.count) as threads:
            yield from threads.map(self._ask, lines)

    def _start(self, count: int) -> None:
        while len(self.children) < count:
            command = child_command("acr.storage.workers:serve", self.task)
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.children.append(child)
            self._idle.put(child)

    def _ask(self, line: str) -> Any:
        """Give a job to an idle child and wait for its answer."""
        child = self._idle.get()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except OSError:
            answer = ""
        self._idle.put(child)
        if not answer.endswith("\n"):
            raise AcrError(f"A process that {self.what} ended with code {child.wait()}; it may have run out of memory.")
        return json.loads(answer)


def child_command(function: str, *arguments: str) -> list[str]:
    """The command that calls a ``module:function`` without arguments in a new interpreter; ``sys.argv`` has them.

    The interpreter starts isolated (``-I``): with ``-m`` or ``-c`` alone, Python would look for modules in the current
    folder first, and execute a ``json.py`` or ``numpy.py`` that lies there. It is given the path of this process.
    """
    return [sys.executable, "-I", "-c", START, json.dumps(import_path()), function, *arguments]


def import_path() -> list[str]:
    """Where children look for modules: where this process does, except in the current folder as such."""
    return list(dict.fromkeys([*(folder for folder in sys.path if folder), str(Path(acr.__file__).parents[1])]))


def serve() -> None:
    """The main loop of a child: read one job per line and answer with one line, until there is no more input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends its children
    module, _, name = sys.argv[1].partition(":")
    function = getattr(import_module(module), name)
    for line in sys.stdin:
        try:
            print(json.dumps(function(json.loads(line))), flush=True)
        except BrokenPipeError:  # the parent is gone
            os._exit(1)
