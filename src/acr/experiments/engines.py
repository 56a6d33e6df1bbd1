"""Engines: many runs at a time on one machine."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from acr.config import RunConfig
from acr.experiments.records import Run, load_run


def run_local(configs: Sequence[RunConfig], jobs: int, on_done: Callable[[Run], None] | None = None) -> list[Run]:
    """Run configs in processes of their own, ``jobs`` at a time; finished ones are found, not run again.

    Threads a job are set so that jobs x threads = cores: small networks gain more from a second run than from a second
    thread.
    """
    threads = max(1, (os.cpu_count() or 1) // jobs)
    configs = [config.model_copy(update={"threads": config.threads or threads}) for config in configs]
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads in an unknown state
    folders: dict[int, Path] = {}
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = {pool.submit(_run, config): place for place, config in enumerate(configs)}
        for future in as_completed(futures):
            folders[futures[future]] = future.result()
            if on_done:
                on_done(load_run(folders[futures[future]]))
    return [load_run(folders[place]) for place in range(len(configs))]


def _run(config: RunConfig) -> Path:
    from acr.experiments.launch import run_config

    return run_config(config).folder
