"""Engines execute the runs of a sweep. ``local``: processes on this machine; ``ray``: see ray_engine.

An engine only starts jobs and reports how they ended; order, retries and progress are up to the sweep.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import yaml

from acr.errors import InputError
from acr.storage import files
from acr.storage.workers import LIBRARIES, child_command, cores
from acr.sweeps.jobs import STOPPING_SECONDS, Engine, Job, Outcome
from acr.sweeps.ray_engine import RayEngine

LOG_BYTES = 64 << 10
"""How much is read of the end of a worker's log."""
LONGEST_REASON = 3000
"""Characters of the reason that a worker gives."""


@dataclass
class _Worker:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    gpu: str | None


@dataclass
class LocalEngine:
    """One process per run. Threads are set so that jobs x threads = cores; each run gets the id of its GPU.

    Small networks gain more from a second run than from a second thread, so by default there are as many jobs as cores,
    or as GPUs where there are any.
    """

    jobs: int | None = None
    gpus: Sequence[str] | None = None
    """Ids of the GPUs to use; None: all that CUDA shows."""
    workers: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.gpus is None:
            self.gpus = gpu_ids()
        self.jobs = self.jobs or len(self.gpus) or cores()
        self.threads = max(1, cores() // self.jobs)

    def free(self) -> int:
        """How many more jobs can be started."""
        assert self.jobs is not None
        return self.jobs - len(self.workers)

    def start(self, job: Job) -> None:
        """Start a worker. Its log and its config are kept in a hidden folder beside the runs."""
        gpu = self._least_used_gpu() if job.config.device in ("auto", "cuda") else None
        threads = job.config.threads or self.threads
        hidden = job.config.out / ".sweep"
        config_file, log = hidden / f"{job.name}.yaml", hidden / f"{job.name}.log"
        values = job.config.model_copy(update={"threads": threads, "quiet": True}).flat()
        try:
            files.refuse_link(hidden)
            files.write_text(config_file, yaml.safe_dump(values, sort_keys=False))
            with files.start_over(log) as output:
                process = subprocess.Popen(
                    child_command("acr.sweeps.worker:main", str(config_file)),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=worker_environment(threads, gpu),
                    start_new_session=True,  # Ctrl-C reaches only the sweep, which then stops each worker once
                )
        except OSError as error:
            raise InputError(f"Cannot write to {hidden}: {error.strerror}. Choose another --out.") from None
        self.workers.append(_Worker(job, process, log, gpu))

    def poll(self) -> list[Outcome]:
        """The jobs that have ended."""
        ended = [worker for worker in self.workers if worker.process.poll() is not None]
        self.workers = [worker for worker in self.workers if worker not in ended]
        return [self._outcome(worker) for worker in ended]

    def stop(self) -> None:
        """Send SIGTERM to every worker: the runs finish their step, write a checkpoint and end."""
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + STOPPING_SECONDS
        try:
            for worker in self.workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.1, deadline - time.monotonic()))
        finally:  # after a second Ctrl-C, or out of time: the last checkpoints remain
            for worker in self.workers:
                if worker.process.poll() is None:
                    worker.process.kill()
                _close(worker.process.stdin)
        self.workers = []

    def _least_used_gpu(self) -> str | None:
        used = [worker.gpu for worker in self.workers]
        return min(self.gpus, key=used.count) if self.gpus else None

    def _outcome(self, worker: _Worker) -> Outcome:
        _close(worker.process.stdin)
        code = worker.process.returncode
        if code == 0:
            return Outcome(worker.job, 0)
        if code < 0:
            return Outcome(worker.job, 128 - code, f"its process was ended by {signal.Signals(-code).name}")
        return Outcome(worker.job, code, last_words(worker.log))


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()


def worker_environment(threads: int, gpu: str | None) -> dict[str, str]:
    """The environment variables of a worker: its share of the threads, and only its own GPU."""
    environment = {**LIBRARIES, **os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def last_words(log: Path) -> str:
    """Why a worker failed, from the end of its log."""
    try:
        lines = files.read_end(log, LOG_BYTES).decode(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    # The last error that acr printed, which may span several lines; without one, the last line.
    first = next((i for i in reversed(range(len(lines))) if lines[i].startswith("acr: ")), len(lines) - 1)
    words = " ".join(lines[max(first, 0) :])[:LONGEST_REASON].removeprefix("acr: ").strip()
    return words or "it ended without a message"


def gpu_ids() -> list[str]:
    """Ids of the GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part.strip() for part in named.split(",") if part.strip() and part.strip() != "-1"]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def make_engine(name: str, jobs: int | None, address: str | None = None) -> Engine:
    """The engine of this name, for ``jobs`` runs at a time; ``address`` is that of a Ray cluster."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: expected at least 1.")
    if name == "ray":
        return RayEngine(jobs, address)
    if address is not None:
        raise InputError("--address is the address of a Ray cluster; it needs --engine ray.")
    return LocalEngine(jobs)
