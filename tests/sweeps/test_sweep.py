import json
import os
import signal
import time
from pathlib import Path

import pytest
from hand_worked_runs import fabricate
from warm_processes import WarmProcess

import acr
from acr.cli import main
from acr.errors import AcrError
from acr.launch import run_config
from acr.runs.resolve import make_config
from acr.sweeps import sweep
from acr.sweeps.engines import LocalEngine, gpu_ids, last_words, worker_environment
from acr.sweeps.jobs import Outcome
from acr.sweeps.recipe import find_recipe
from acr.sweeps.sweep import run_local

TINY = {"epochs": 1, "width": 2, "ood_every": "never", "threads": 1, "checkpoint_every": 0.05}
SOURCE = Path(acr.__file__).parents[1]


class PretendEngine:
    """Finishes, or fails, at once: a script of exit codes for each run."""

    def __init__(self, codes=(), jobs=2):
        self.codes = {name: list(values) for name, values in dict(codes).items()}
        self.jobs, self.running, self.started, self.most = jobs, [], [], 0

    def free(self):
        return self.jobs - len(self.running)

    def start(self, job):
        self.running.append(job)
        self.started.append(job.config.seed)
        self.most = max(self.most, len(self.running))

    def poll(self):
        ended, self.running = self.running, []
        return [self.end(job) for job in ended]

    def end(self, job):
        code = self.codes[job.config.seed].pop(0) if self.codes.get(job.config.seed) else 0
        if code == 0:
            fabricate(job.config, 0.5)
        return Outcome(job, code, f"reason {code}")

    def stop(self):
        self.running = []


def configs(out, seeds):
    return [make_config({**TINY, "method": "er", "seed": seed, "out": out}) for seed in range(seeds)]


def test_a_failed_run_is_tried_again_then_reported_while_the_rest_goes_on(tmp_path):
    engine = PretendEngine({1: [1, 1, 1], 2: [137], 3: [2, 2]})
    report = sweep.run_sweep(configs(tmp_path, 5), engine, retries=2)
    assert sorted(job.config.seed for job in report.done) == [0, 2, 4]
    assert sorted((o.job.config.seed, o.reason) for o in report.failed) == [(1, "reason 1"), (3, "reason 2")]
    assert sorted(engine.started) == [0, 1, 1, 1, 2, 2, 3, 4]  # bad input is not tried again
    assert engine.most == 2
    again = PretendEngine()
    report = sweep.run_sweep(configs(tmp_path, 5), again)
    assert sorted(again.started) == [1, 3]
    assert len(report.found) == 3
    assert report.left == 0


def test_a_run_that_another_process_writes_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "BUSY_SECONDS", 0.2)
    engine = PretendEngine({0: [75, 75, 75]})
    report = sweep.run_sweep(configs(tmp_path, 1), engine, retries=0)
    assert len(engine.started) == 4
    assert len(report.done) == 1


def test_a_worker_that_ends_without_results_has_failed(tmp_path):
    class Liar(PretendEngine):
        def end(self, job):
            return Outcome(job, 0)

    report = sweep.run_sweep(configs(tmp_path, 1), Liar(), retries=1)
    assert "not complete" in report.failed[0].reason


def test_missing_data_is_told_at_once_and_the_rest_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ACR_DATA", str(tmp_path / "nothing"))
    there = configs(tmp_path, 2)
    gone = [make_config({**TINY, "method": "er", "dataset": f"folder:{tmp_path}/none", "seed": s, "out": tmp_path})
            for s in (0, 1)]  # fmt: skip
    engine = PretendEngine()
    report = sweep.run_sweep([*gone, *there], engine)
    assert len(report.done) == 2
    assert len(report.failed) == 2
    assert len(engine.started) == 2


def test_time_left_comes_from_runs_of_the_same_kind(tmp_path):
    report = sweep.SweepState([sweep.Job(config) for config in configs(tmp_path, 4)])
    assert report.seconds_left(2) is None
    report.done = report.jobs[:2]
    report.seconds = {sweep.kind(report.jobs[0]): [10.0, 30.0]}
    assert report.seconds_left(2) == pytest.approx(20.0)


def test_commands_report_failures_by_name_with_exit_code_1(tmp_path, capsys, monkeypatch):
    from acr.commands import sweep as command

    recipe = tmp_path / "mine.yaml"
    recipe.write_text("fixed: {epochs: 1, width: 2, ood_every: never}\ngrid: {method: [er], seed: 0-2}")
    monkeypatch.setattr(command, "make_engine", lambda *_: PretendEngine({1: [1, 1]}))
    with pytest.raises(SystemExit) as exit:
        main(["sweep", str(recipe), "--out", str(tmp_path / "runs")])
    out, err = capsys.readouterr()
    assert exit.value.code == 1
    assert "2 of 3 runs finished" in out
    assert "split-digits-er-b50-s1" in err
    assert "reason 1" in err


def test_bad_flags_are_told(tmp_path, capsys):
    for words, says in (
        (["sweep", "acc", "--scale", "quick", "--address", "here"], "--engine ray"),
        (["sweep", "acc", "--scale", "quick", "--jobs", "0"], "--jobs 0: expected at least 1"),
        (["sweep", "time", "--scale", "quick", "--jobs", "2"], "--jobs may be at most 1"),
        (["sweep", "none"], "There is no recipe"),
        (["reproduce", "ac"], "Did you mean 'acc'"),
    ):
        with pytest.raises(SystemExit) as exit:
            main([*words, "--out", str(tmp_path)])
        err = capsys.readouterr().err
        if "There is no method" in err:
            pytest.skip("this installation has not all of the paper's methods")
        assert says in err
        assert exit.value.code == 2


def test_threads_and_gpus_are_shared_out(tmp_path, monkeypatch):
    monkeypatch.setattr("acr.sweeps.engines.cores", lambda: 8)
    assert LocalEngine(4, gpus=()).threads == 2
    assert LocalEngine(None, gpus=()).jobs == 8
    assert LocalEngine(None, gpus=("0", "3")).jobs == 2
    assert LocalEngine(16, gpus=()).threads == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert gpu_ids() == ["2", "5"]
    assert worker_environment(3, "5")["CUDA_VISIBLE_DEVICES"] == "5"
    assert worker_environment(3, None)["OMP_NUM_THREADS"] == "3"
    engine = LocalEngine(4, gpus=("0", "3"))
    handed = []
    for _ in range(4):
        handed.append(engine._least_used_gpu())
        engine.workers.append(type("Worker", (), {"gpu": handed[-1]}))
    assert handed == ["0", "3", "0", "3"]


def test_last_words(tmp_path):
    log = tmp_path / "log"
    assert last_words(log) == "it left no log"
    log.write_text("a warning\nacr: The loss became nan.\nTry less.\n")
    assert last_words(log) == "The loss became nan. Try less."
    log.write_text("Segmentation fault\n")
    assert last_words(log) == "Segmentation fault"


def test_run_local_finds_what_is_finished_and_raises_what_fails(tmp_path):
    done = []
    for config in configs(tmp_path, 2):
        fabricate(config, 0.5)
    runs = run_local(configs(tmp_path, 2), 2, lambda run: done.append(run))
    assert [run.results.seed for run in runs] == [0, 1]
    assert len(done) == 2
    bad = make_config({**TINY, "method": "er", "buffer_size": 2, "out": tmp_path})
    with pytest.raises(AcrError, match="less than the 10 classes"):
        run_local([bad], 1)


def test_dry_run_counts_and_estimates(tmp_path, capsys):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("fixed: {epochs: 2, width: 2, ood_every: never}\ngrid: {method: [er, joint], seed: 0-1}")
    out = tmp_path / "runs"
    fabricate(find_recipe(recipe).expand(out=out)[0], 0.5)
    main(["sweep", str(recipe), "--out", str(out), "--dry-run"])
    said = capsys.readouterr().out
    assert "4 runs" in said
    assert "1 already finished, 3 to run" in said
    assert "MiB of disk" in said
    assert len(list(out.iterdir())) == 1  # nothing was run


# --- the real thing: processes that are killed ------------------------------------------------------------------------


def start_sweep(recipe, out, *more):
    """A sweep whose workers are interpreters of their own, as always."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        patch.setenv("OMP_NUM_THREADS", "1")
        return WarmProcess(["sweep", str(recipe), "--out", str(out), "--jobs", "2", *more], out.with_suffix(".log"))


def wait_for(condition, process, seconds=240):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        if process.exit_code is not None:
            break
        time.sleep(0.02)
    process.end()
    pytest.fail(f"it did not come so far: {process.output()}")


def under_way(out, checkpoints=1):
    """A run that has saved and is not finished, with the process that writes it."""
    for events in out.glob("*/events.jsonl"):
        folder = events.parent
        if not (folder / "results.json").exists() and events.read_text().count('"checkpoint"') >= checkpoints:
            number = json.loads((folder / "environment.json").read_text())["process"]
            if Path(f"/proc/{number}").exists():
                return folder, number
    return None


def results(out):
    """Results by run, without the time they took."""
    found = {}
    for path in out.glob("*/results.json"):
        found[path.parent.name] = json.loads(path.read_text())
        del found[path.parent.name]["timing"]
    return found


def disturb(tmp_path, recipe, engine=()):
    """Kill a worker, then the whole sweep, start it again, and compare with runs that nobody disturbed."""
    out = tmp_path / "disturbed"
    first = start_sweep(recipe, out, "--retries", "3", *engine)
    folder, worker = wait_for(lambda: under_way(out), first)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: (folder / "results.json").exists() or under_way(out, 3), first)
    first.end()
    second = start_sweep(recipe, out, "--retries", "3", *engine)
    assert second.wait(900) == 0, second.output()

    configs = find_recipe(recipe).expand(out=tmp_path / "undisturbed", quiet=True)
    for config in configs:
        run_config(config)
    assert len(results(out)) == len(configs)
    assert results(out) == results(tmp_path / "undisturbed")


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds workers by /proc")
def test_a_killed_worker_and_a_killed_sweep_change_nothing(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "fixed: {epochs: 2, width: 2, ood_every: never, threads: 1, checkpoint_every: 0.1, samples_per_class: 60}\n"
        "grid: {method: [acr, er, joint]}"
    )
    disturb(tmp_path, recipe)


TWELVE = (
    "fixed: {epochs: 2, width: 4, ood_every: never, threads: 1, checkpoint_every: 0.2}\n"
    "grid: {method: [acr, er, finetune, joint], buffer_size: [20, 40], seed: 0-1}\n"
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds workers by /proc")
def test_twelve_runs_killed_and_started_again(tmp_path):
    recipe = tmp_path / "twelve.yaml"
    recipe.write_text(TWELVE)
    assert len(find_recipe(recipe).expand()) == 12
    disturb(tmp_path, recipe)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds workers by /proc")
def test_twelve_runs_on_ray_with_a_killed_worker(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    recipe = tmp_path / "twelve.yaml"
    recipe.write_text(TWELVE)
    disturb(tmp_path, recipe, ("--engine", "ray"))


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds workers by /proc")
def test_ctrl_c_stops_the_workers_cleanly(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("fixed: {epochs: 40, width: 2, ood_every: never, threads: 1}\ngrid: {method: [finetune]}")
    process = start_sweep(recipe, tmp_path / "runs")

    def training():
        return [e for e in (tmp_path / "runs").glob("*/events.jsonl") if '"step"' in e.read_text()]

    (events,) = wait_for(training, process)
    process.send_signal(signal.SIGINT)
    code, said = process.wait(120), process.output()
    assert code == 130, said
    assert "Run the same command again to resume" in said
    assert '"interrupted"' in events.read_text()
    assert list(events.parent.glob("checkpoint/step-*"))
