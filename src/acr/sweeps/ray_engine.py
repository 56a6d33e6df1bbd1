"""The engine for many machines: Ray. Runs become Ray tasks; CPUs and GPUs per run are Ray resources.

Without an address, Ray is started on this machine and stopped with the sweep. On a cluster, all machines must share the
output folder: a run whose worker was lost is then resumed from its checkpoint on another machine.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from acr.errors import AcrError, InputError
from acr.storage.workers import cores
from acr.sweeps.jobs import STOPPING_SECONDS, Job, Outcome
from acr.sweeps.worker import execute_config


class RayEngine:
    """Runs as Ray tasks, each in a process of its own."""

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise InputError("--engine ray needs Ray: pip install ray (or use --engine local).") from None
        self.ray: Any = ray
        self.jobs = jobs
        self.own = address is None
        # Removed by stop(), not before: Ray starts its workers in this folder, and they die if it is gone.
        self.empty = tempfile.TemporaryDirectory(prefix="acr-ray-")
        try:
            with _current(self.empty.name):
                self._connect(address)
        except Exception as error:  # Ray raises many kinds of error, all of which mean this
            self.empty.cleanup()
            where = f"Cannot reach the Ray cluster at {address}" if address else "Cannot start Ray on this machine"
            raise AcrError(f"{where}: {' '.join(str(error).split())}") from None
        self.task = ray.remote(max_retries=0, max_calls=1)(execute_config)
        self.running: dict[Any, Job] = {}

    def _connect(self, address: str | None) -> None:
        """Start Ray on this machine, or connect to a cluster."""
        how = {"log_to_driver": False, "configure_logging": False}
        if address is None:
            self.ray.init(num_cpus=max(cores(), self.jobs or 1), include_dashboard=False, **how)
        else:
            self.ray.init(address=address, **how)

    def cpus_per_run(self, job: Job) -> int:
        """Threads and Ray CPUs of a run: those of its config, else an equal share of this machine's cores, else one."""
        if job.config.threads:
            return job.config.threads
        return max(1, cores() // self.jobs) if self.own and self.jobs else 1

    def free(self) -> int:
        """How many more jobs can be started: up to ``jobs``, or else up to what the cluster has room for now."""
        if self.jobs is not None:
            return self.jobs - len(self.running)
        resources = self.ray.cluster_resources()
        room = int(resources.get("GPU") or resources.get("CPU") or 1)
        return room - len(self.running)

    def start(self, job: Job) -> None:
        """Hand a job to Ray."""
        cpus = self.cpus_per_run(job)
        wants_gpu = job.config.device in ("auto", "cuda") and self.ray.cluster_resources().get("GPU", 0) > 0
        config = job.config.model_copy(update={"threads": cpus, "quiet": True})
        task = self.task.options(num_cpus=cpus, num_gpus=1 if wants_gpu else 0, name=job.name)
        self.running[task.remote(config)] = job

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; if a worker was lost, its attempt has failed."""
        if not self.running:
            return []
        ended, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        outcomes = []
        for reference in ended:
            job = self.running.pop(reference)
            try:
                outcomes.append(Outcome(job, *self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                first_line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                outcomes.append(Outcome(job, 1, f"its worker was lost ({first_line})"))
        return outcomes

    def stop(self) -> None:
        """Interrupt all tasks, wait until they have saved, and disconnect from Ray."""
        deadline = time.monotonic() + STOPPING_SECONDS
        try:
            for reference in self.running:
                with contextlib.suppress(Exception):
                    self.ray.cancel(reference, force=False)
            if self.running:
                self.ray.wait(list(self.running), num_returns=len(self.running),
                              timeout=max(0.1, deadline - time.monotonic()))  # fmt: skip
        finally:
            self.running = {}
            self.ray.shutdown()
            self.empty.cleanup()


@contextlib.contextmanager
def _current(folder: str) -> Iterator[None]:
    """Make an empty folder the current one for a moment.

    Ray puts the folder that is current when it is started first on the path of its workers: a ``torch.py`` that lies
    there would be executed by every run.
    """
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
