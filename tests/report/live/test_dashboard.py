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
from acr.report.live.charts import live_panels, matrix_panel, name_runs
from acr.report.live.watch import LiveRun, Watch
from acr.report.style import method_label

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
    assert "pip install nicegui" in said(tmp_path)


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
    temporary = home / "tmp"
    temporary.mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(acr.__file__).parents[1]), "TMPDIR": str(temporary)}
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
        assert list(temporary.glob("acr-dashboard-*"))
    finally:
        process.terminate()
        process.wait(30)
        log.close()
    assert "Traceback" not in (home / "log").read_text()
    assert not (home / ".nicegui").exists()
    assert list(temporary.iterdir()) == []  # SIGTERM, which ended it, leaves nothing behind either


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
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=LIMIT)

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


def live(name, **values):
    return LiveRun(Path(name), name, {"method": "acr", "dataset": "split-digits", "buffer_size": 50, **values})


def test_runs_are_named_by_what_differs_between_those_shown():
    two_seeds = [live("a", seed=0), live("b", seed=1)]
    assert list(name_runs(two_seeds).values()) == ["ACR, seed 0", "ACR, seed 1"]
    two_methods = [live("a", seed=0, temperature=0.1), live("b", seed=0, method="er", second_view="none")]
    assert list(name_runs(two_methods).values()) == ["ACR", "ER"]
    tuned = [live("a", seed=0, temperature=0.1), live("b", seed=0, temperature=0.2), live("c", seed=0, method="er")]
    assert list(name_runs(tuned).values()) == ["ACR, temperature 0.1", "ACR, temperature 0.2", "ER"]
    mixed = [live("a", seed=0), live("b", seed=1, method="finetune", buffer_size=0)]
    assert list(name_runs(mixed).values()) == ["ACR, seed 0", f"{method_label('finetune')}, seed 1"]
    again = [live("a", seed=0), live("a-2", seed=0)]
    assert list(name_runs(again).values()) == ["ACR (a)", "ACR (a-2)"]
    assert list(name_runs([live("a", seed=3)]).values()) == ["acr, seed 3"]


def test_each_run_shown_has_a_line_style_of_its_own():
    runs = [live(f"run{seed}", seed=seed) for seed in range(7)] + [live("er", seed=0, method="er")]
    for run in runs:
        run.events = [{"event": "step", "taken": step, "loss": 1.0} for step in range(3)]
        run.events += [{"event": "stage", "stage": 0, "accuracy": 0.5, "accuracies": {"clean": [0.5], "fog/1": [0.4]}}]
    panels = live_panels(runs)
    styles = [(trace["line"]["color"], trace["line"]["dash"]) for trace in panels["loss"]["data"]]
    assert len(set(styles)) == len(runs)
    accuracy = panels["accuracy"]["data"]
    assert len({(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in accuracy}) == 2 * len(runs)
    assert len({trace["name"] for trace in accuracy}) == 2 * len(runs)


def handshake(address, path="/_nicegui_ws/socket.io/?EIO=4&transport=websocket", **headers):
    """The first line of the answer to a request to open a WebSocket."""
    host, port = address.removeprefix("http://").split(":")
    asked = {"Host": f"{host}:{port}", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}  # fmt: skip
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items() if value is not None)]
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return connection.recv(4096).split(b"\r\n")[0].decode()


def test_only_its_own_pages_may_open_a_websocket(dashboard):
    """Any page in the same browser can try, and the browser only says which page it was."""
    address, _ = dashboard
    port = address.rpartition(":")[2]
    assert " 101 " in handshake(address, Origin=address)
    assert " 101 " in handshake(address, Origin=f"http://localhost:{port}", Host=f"localhost:{port}")
    for origin in ("http://elsewhere.example", f"http://elsewhere.example:{port}", "https://127.0.0.1", "null", None,
                   f"https://127.0.0.1:{port}", "http://127.0.0.1:1", f"{address}.elsewhere.example"):  # fmt: skip
        assert " 403 " in handshake(address, Origin=origin), origin
    assert " 101 " not in handshake(address, Origin=address, Host="elsewhere.example")  # a name made to lead here


def test_other_pages_cannot_read_it_by_plain_requests_either(dashboard):
    address, _ = dashboard
    for path in ("/", "/report", "/_nicegui_ws/socket.io/?EIO=4&transport=polling"):
        request = urllib.request.Request(address + path, headers={"Origin": "http://elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 403
