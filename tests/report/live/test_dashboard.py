"""The dashboard, in a browser, while runs come, go on, break and vanish."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fabricated_runs import make_run

import acr
from acr.cli import main
from acr.report.live.charts import live_panels, matrix_panel
from acr.report.live.watch import Watch

LIMIT = 60_000
STAGE = {"event": "stage", "stage": 0, "accuracy": 0.5, "memory": 3, "parts": {"0/1": 3}, "taken": 50,
         "accuracies": {"clean": [0.5]}}  # fmt: skip


def append(folder, **event):
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps({"schema": 1, "time": time.time(), **event}) + "\n")


def begin(out, name="live", method="er"):
    """A run that has only just begun."""
    folder = make_run(out, method, 0, name=name, finished=False)
    (folder / "events.jsonl").write_text("")
    append(folder, event="start", task=0, epoch=0, step=0, steps=100, tasks=2, taken=0)
    return folder


def test_a_run_is_followed_from_start_to_end(tmp_path):
    watch = Watch([tmp_path])
    assert watch.look() == []
    folder = begin(tmp_path)
    assert [(run.state, run.progress) for run in watch.look()] == [("running", 0.0)]
    append(folder, event="step", task=0, epoch=0, step=0, taken=25, loss=1.5, images_per_second=10.0)
    (run,) = watch.look()
    assert run.progress == 0.25
    assert run.last("step", "loss") == 1.5
    append(folder, **STAGE)
    (run,) = watch.look()
    assert {"loss", "accuracy", "memory"} <= set(live_panels([run]))
    assert matrix_panel(run)["data"][0]["z"] == [[50.0]]
    append(folder, event="interrupted", signal=2)
    assert watch.look()[0].state == "interrupted"
    shutil.rmtree(folder)
    assert watch.look() == []
    make_run(tmp_path, "er", 0, name="live")
    assert [(run.state, run.progress) for run in watch.look()] == [("finished", 1.0)]


def test_half_a_line_waits_and_rubbish_is_passed_over(tmp_path):
    folder = begin(tmp_path)
    watch = Watch([tmp_path])
    with open(folder / "events.jsonl", "ab") as file:
        file.write(b'{"event": "step", "taken": 10')
    assert watch.look()[0].progress == 0
    with open(folder / "events.jsonl", "ab") as file:
        file.write(b', "loss": 1.0}\n\xff\xfe\n[1]\n{"event": 3}\n{"event": "step", "taken": "many", "loss": {}}\n')
        file.write(b'{"event": "stage", "stage": "x", "parts": [1], "accuracies": {"clean": "no"}}\n')
    (run,) = watch.look()
    assert run.progress == 0.1
    assert live_panels([run])
    (folder / "events.jsonl").write_text("")
    assert watch.look()[0].state == "waiting"


@pytest.mark.parametrize(("name", "content"), [("results.json", b"{"), ("config.yaml", b"\xff\xff")])
def test_damage_is_a_state(tmp_path, name, content):
    folder = begin(tmp_path)
    watch = Watch([tmp_path])
    watch.look()
    (folder / name).write_bytes(content)
    (run,) = watch.look()
    assert run.state == "damaged"
    assert run.reason
    assert isinstance(live_panels([run]), dict)


def test_a_missing_package_a_missing_folder_and_a_taken_port_are_said(tmp_path, capsys, monkeypatch):
    def said(*words):
        with pytest.raises(SystemExit) as exit:
            main(["dashboard", *map(str, words)])
        assert exit.value.code == 2
        return capsys.readouterr().err

    assert "does not exist" in said(tmp_path / "none")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr("acr.report.live.dashboard.find_spec", lambda name: object())
        assert "--port" in said(tmp_path, "--port", taken.getsockname()[1])
    monkeypatch.setattr("acr.report.live.dashboard.find_spec", lambda name: None)
    assert "[dashboard]" in said(tmp_path)


QUICKLY = """
import sys
from acr.cli import main
from acr.report.live import dashboard
dashboard.EVERY = 0.5  # seconds between two looks at the runs
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory):
    """A dashboard in a process of its own, over an empty folder; gives its address and the folder."""
    pytest.importorskip("nicegui", reason="nicegui is not installed; the dashboard was not looked at")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = tmp_path_factory.mktemp("dashboard")
    runs = home / "runs"
    runs.mkdir()
    words = [sys.executable, "-c", QUICKLY, "dashboard", str(runs), "--port", str(port), "--debug"]
    env = {**os.environ, "PYTHONPATH": str(Path(acr.__file__).parents[1])}
    env.pop("PYTEST_CURRENT_TEST", None)  # nicegui would take itself for a test of its own
    log = open(home / "log", "w")  # noqa: SIM115 - closed below
    process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=home, env=env)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(address, timeout=20).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
        yield address, runs
    finally:
        process.terminate()
        process.wait(30)
        log.close()
    assert "Traceback" not in (home / "log").read_text()
    assert not (home / ".nicegui").exists()


def test_the_dashboard_keeps_up(browser, dashboard):
    address, runs = dashboard
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    complaints, elsewhere = [], []
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: elsewhere.append(r.url) if not r.url.startswith((address, "data:", "blob:")) else None)
    page.goto(address)
    page.get_by_text("yet: acr run").wait_for(timeout=LIMIT)

    folder = begin(runs, "<b>one 🦊")
    page.get_by_text("1 running").wait_for(timeout=LIMIT)
    page.get_by_text("<b>one 🦊").first.wait_for(timeout=LIMIT)
    append(folder, event="step", task=0, epoch=0, step=0, taken=25, loss=1.5, images_per_second=10.0)
    page.get_by_text("25 %").wait_for(timeout=LIMIT)
    append(folder, event="step", task=0, epoch=0, step=9, taken=40, loss=0.75, images_per_second=10.0)
    page.get_by_text("0.750").wait_for(timeout=LIMIT)
    append(folder, **STAGE)
    page.get_by_text("50.0", exact=True).wait_for(timeout=LIMIT)
    page.get_by_text("what the memory of").wait_for(timeout=LIMIT)
    assert page.locator(".js-plotly-plot .main-svg").count() > 0

    make_run(runs, "acr", 0, name="two")
    page.get_by_text("1 finished").wait_for(timeout=LIMIT)
    page.locator("tbody tr", has_text="two").get_by_role("checkbox").click()
    page.get_by_text("Charts show the picked runs (1)").wait_for(timeout=LIMIT)
    page.locator("tbody tr", has_text="one").get_by_role("checkbox").click()
    page.get_by_text("How the picked runs differ").wait_for(timeout=LIMIT)

    (folder / "results.json").write_text("{torn")
    page.get_by_text("1 damaged").wait_for(timeout=LIMIT)
    shutil.rmtree(folder)
    page.get_by_text("1 runs in").wait_for(timeout=LIMIT)
    report = context.new_page()
    report.goto(f"{address}/report")
    report.wait_for_selector("#overview-table")
    assert complaints == []
    assert elsewhere == []
    context.close()


def test_the_dashboard_answers_this_machine_only(dashboard):
    address, _ = dashboard
    request = urllib.request.Request(address, headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 400
    for path in ("/../../etc/passwd", "/runs/config.yaml", "/_nicegui/../../log"):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address + path, timeout=30)
