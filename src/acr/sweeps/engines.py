"""Engines: where the runs of a sweep are carried out. ``local``: processes on this machine; ``ray``: see ray_engine.

An engine starts jobs and says how they ended, nothing more; order, retries and reporting are the sweep's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import yaml

from acr.errors import InputError
from acr.storage import files
from acr.storage.workers import cores
from acr.sweeps.jobs import STOPPING_SECONDS, Engine, Job, Outcome
from acr.sweeps.ray_engine import RayEngine


@dataclass
class _Worker:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    gpu: str | None


@dataclass
class LocalEngine:
    """One process per run. Threads are set so that jobs x threads = cores; GPUs are handed out by id.

    Small networks gain more from a second run than from a second thread, so by default there are as many jobs as cores,
    or as GPUs where there are any.
    """

    jobs: int | None = None
    gpus: Sequence[str] | None = None
    """Ids of the GPUs to hand out; all that CUDA shows if None."""
    workers: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.gpus is None:
            self.gpus = gpu_ids()
        self.jobs = self.jobs or len(self.gpus) or cores()
        self.threads = max(1, cores() // self.jobs)

    def free(self) -> int:
        """Jobs that are not taken."""
        assert self.jobs is not None
        return self.jobs - len(self.workers)

    def start(self, job: Job) -> None:
        """Start a worker. Its log and its config are kept in a hidden folder beside the runs."""
        gpu = self._least_used_gpu() if job.config.device in ("auto", "cuda") else None
        threads = job.config.threads or self.threads
        backstage = job.config.out / ".sweep"
        config_file, log = backstage / f"{job.name}.yaml", backstage / f"{job.name}.log"
        values = job.config.model_copy(update={"threads": threads, "quiet": True}).flat()
        try:
            files.write_text(config_file, yaml.safe_dump(values, sort_keys=False))
            with open(log, "wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "acr.sweeps.worker", str(config_file)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=worker_environment(threads, gpu),
                    start_new_session=True,  # Ctrl-C reaches the sweep alone, which then stops its workers once
                )
        except OSError as error:
            raise InputError(f"Cannot write to {backstage}: {error.strerror}. Choose another --out.") from None
        self.workers.append(_Worker(job, process, log, gpu))

    def poll(self) -> list[Outcome]:
        """What has ended."""
        ended = [worker for worker in self.workers if worker.process.poll() is not None]
        self.workers = [worker for worker in self.workers if worker not in ended]
        return [self._outcome(worker) for worker in ended]

    def stop(self) -> None:
        """One SIGTERM each: the runs finish their step, write a checkpoint and end."""
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + STOPPING_SECONDS
        try:
            for worker in self.workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.1, deadline - time.monotonic()))
        finally:  # a second Ctrl-C, or patience is over: their last checkpoints stand
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
    """The environment of a worker: its share of the threads, and its GPU alone."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return environment


def last_words(log: Path) -> str:
    """Why a worker failed, from the end of its log."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    told = next((place for place in reversed(range(len(lines))) if lines[place].startswith("acr: ")), len(lines) - 1)
    words = " ".join(lines[max(told, 0) :]).removeprefix("acr: ").strip()
    return words or "it ended without a word"


def gpu_ids() -> list[str]:
    """The GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [part.strip() for part in named.split(",") if part.strip() and part.strip() != "-1"]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def make_engine(name: str, jobs: int | None, address: str | None = None) -> Engine:
    """The engine of this name."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs {jobs}: at least one run at a time.")
    if name == "ray":
        return RayEngine(jobs, address)
    if address is not None:
        raise InputError("--address names a Ray cluster; it goes with --engine ray.")
    return LocalEngine(jobs)
