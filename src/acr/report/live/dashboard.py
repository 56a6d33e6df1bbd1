"""The live page: runs while they are running, in a browser on this machine only."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from acr.console import say
from acr.errors import InputError, command, printable
from acr.report.groups import ASIDE
from acr.report.live.charts import live_panels, matrix_panel, name_runs
from acr.report.live.watch import LiveRun, Watch
from acr.report.page.render import render_all
from acr.report.wording import config_value
from acr.storage.progress import duration

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""What a browser on this machine may call it. Any other name in a request is a page elsewhere that resolves to us."""
EVERY = 2.0
"""Seconds between two looks."""
MOST = 8
"""Runs that are drawn if none is picked."""
COLUMNS = (
    ("run", "Run", "left"),
    ("state", "State", "left"),
    ("progress", "Progress", "right"),
    ("left", "Time left", "right"),
    ("task", "Task", "right"),
    ("loss", "Loss", "right"),
    ("accuracy", "Accuracy %", "right"),
    ("memory", "Memory", "right"),
    ("speed", "Images/s", "right"),
    ("note", "Note", "left"),
)


def serve(folders: Sequence[Path], port: int) -> None:
    """Serve the dashboard until it is interrupted."""
    if find_spec("nicegui") is None:
        raise InputError(
            "The dashboard needs a package that is not installed: pip install nicegui "
            "(acr report makes a page without it)"
        )
    check_port(port)
    with tempfile.TemporaryDirectory(prefix="acr-dashboard-") as folder:
        os.environ["NICEGUI_STORAGE_PATH"] = folder  # nothing of the dashboard is left behind in the user's folder
        nicegui: Any = import_module("nicegui")
        middleware: Any = import_module("starlette.middleware.trustedhost")
        nicegui.app.add_middleware(middleware.TrustedHostMiddleware, allowed_hosts=list(NAMES))
        nicegui.app.add_middleware(SameOrigin, origins=[f"http://{name}:{port}" for name in NAMES])
        Dashboard(nicegui, folders).route()
        say(
            f"Watching {', '.join(map(str, folders))}: http://{HOST}:{port}  (Ctrl-C ends it; runs continue)",
        )
        nicegui.ui.run(
            host=HOST, port=port, title="acr dashboard", reload=False, show=False, dark=None, favicon="📈",
            show_welcome_message=False,
        )  # fmt: skip


def check_port(port: int) -> None:
    """Say so if the port is taken."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except (OSError, OverflowError):
            raise InputError(
                f"Port {port} cannot be used, perhaps by another dashboard. Choose one with --port."
            ) from None


class SameOrigin:
    """Refuses requests that a page of another origin makes; an ASGI application around another one.

    Browsers let any page open a WebSocket to this machine, and only tell which page it was. Without this check, a page
    elsewhere could read what the dashboard shows.
    """

    def __init__(self, app: Any, origins: Sequence[str]) -> None:
        self.app = app
        self.origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on if it comes from one of our own pages. A WebSocket must say where it comes from."""
        kind = scope["type"]
        named = [value for name, value in scope.get("headers", ()) if name == b"origin"]
        foreign = any(origin not in self.origins for origin in named)
        if kind == "websocket" and (foreign or not named):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif kind == "http" and foreign:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"This page is for browsers on this machine only."})
        else:
            await self.app(scope, receive, send)


class Dashboard:
    """What the pages share: one watch over the folders, and the report of what is finished."""

    def __init__(self, nicegui: Any, folders: Sequence[Path]) -> None:
        self.ng = nicegui
        self.folders = list(folders)
        self.watch = Watch(folders)
        self.runs: list[LiveRun] = []
        self._lock = threading.Lock()
        self._report: tuple[Any, str] = (None, "")

    def route(self) -> None:
        """Two addresses: the live page, and the report of the runs as they are now."""
        responses: Any = import_module("starlette.responses")
        self.ng.ui.page("/")(self.page)
        self.ng.app.get("/report")(lambda: responses.HTMLResponse(self.report()))
        self.ng.app.timer(EVERY, self.look)

    async def look(self) -> None:
        """Read what is new, beside the loop that serves pages."""
        self.runs = await self.ng.run.io_bound(self.watch.look) or []

    def report(self) -> str:
        """The report page, made anew when a run was added, finished, changed or removed."""
        from acr.runs.run import Run

        with self._lock:
            runs = [run for run in self.runs if (run.folder / "config.yaml").exists()]
            key = [(run.folder, run.state, run.updated if run.state == "finished" else 0) for run in runs]
            if self._report[0] != key:
                self._report = (key, render_all([Run(run.folder) for run in runs])[1])
            return self._report[1]

    def page(self) -> None:
        """Build the live page for one visitor, and keep it up to date."""
        Visit(self).build()


class Visit:
    """The live page of one visitor."""

    def __init__(self, board: Dashboard) -> None:
        self.board = board
        self.ui: Any = board.ng.ui
        self.plots: dict[str, tuple[Any, Any, Any]] = {}
        """Box, title and chart by name."""

    def build(self) -> None:
        """All elements, empty; :meth:`refresh` fills them."""
        ui = self.ui
        ui.add_head_html(HEAD)
        self.dark = ui.dark_mode(None)
        with ui.column().classes("w-full max-w-screen-xl mx-auto p-4 gap-4"):
            with ui.row().classes("w-full items-center justify-between"):
                ui.label("Runs, live").classes("text-2xl font-bold").props('role="heading" aria-level="1"')
                with ui.row().classes("items-center gap-2"):
                    ui.link("Report of the finished runs", "/report", new_tab=True)
                    button = ui.button(icon="contrast", on_click=self.turn).props('flat dense round color="grey"')
                    button.props('aria-label="Switch between light and dark"')
            self.head = ui.label("Looking…").classes("soft").mark("head")
            self.bar = ui.linear_progress(0, show_value=False).props('aria-label="progress of all runs"').mark("bar")
            columns = [{"name": n, "label": t, "field": n, "align": a, "sortable": True} for n, t, a in COLUMNS]
            columns[0]["style"] = NARROW
            self.table = ui.table(columns=columns, rows=[], row_key="run", selection="multiple", pagination=10,
                                  on_select=self.refresh).classes("w-full").props("flat bordered dense")  # fmt: skip
            self.hint = ui.label("").classes("soft")
            self.grid = ui.element("div").classes("charts")
            self.empty = ui.label("").classes("soft")
            self.differ_title = ui.label("How the picked runs differ").classes("text-lg font-semibold")
            self.differ = ui.table(columns=[], rows=[], row_key="field").classes("w-full").props("flat bordered dense")
        self.refresh()
        ui.timer(EVERY, self.refresh)

    def turn(self) -> None:
        """Light to dark and back."""
        self.dark.set_value(not self.dark.value)

    def refresh(self) -> None:
        """Show what is there now."""
        runs = self.board.runs
        states = [run.state for run in runs]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        where = printable(", ".join(map(str, self.board.folders)))
        make = printable(command("acr", "run", "--out", self.board.folders[0]))
        self.head.text = f"{len(runs)} runs in {where}: {counts}" if runs else f"No run in {where} yet: {make}"
        self.bar.value = round(sum(run.progress for run in runs) / len(runs), 4) if runs else 0
        names = {run.name for run in runs}
        self.table.selected = [row for row in self.table.selected if row["run"] in names]
        self.table.rows = [row_of(run) for run in runs]
        self.table.update()
        chosen = {row["run"] for row in self.table.selected}
        picked = [run for run in runs if run.name in chosen] or runs[:MOST]
        shown = f"Charts show the first {len(picked)} of {len(runs)} runs. Tick runs above to compare them."
        self.hint.text = f"Charts show the picked runs ({len(picked)})." if chosen else shown if runs else ""
        self.draw(picked)
        self.compare(picked if len(chosen) > 1 else [])

    def draw(self, picked: Sequence[LiveRun]) -> None:
        """Charts of the picked runs; a chart that has nothing to show is taken away."""
        panels = live_panels(picked)
        names = name_runs(picked)
        for run in picked[:4]:
            panel = matrix_panel(run)
            if panel is not None:
                panels[f"matrix {run.name}"] = {**panel, "title": f"accuracy matrix so far: {names[run.name]}"}
        for name in [name for name in self.plots if name not in panels]:
            self.plots.pop(name)[0].delete()
        for name, panel in panels.items():
            figure = {
                "data": panel["data"],
                "layout": themed(panel["layout"]),
                "config": {"displayModeBar": False, "responsive": True},
            }
            if name not in self.plots:
                with self.grid, self.ui.element("div").classes("chart") as box:
                    title = self.ui.label(panel["title"]).classes("font-semibold")
                    self.plots[name] = (box, title, self.ui.plotly(figure).classes("w-full"))
            elif self.plots[name][2].figure != figure:
                self.plots[name][1].text = panel["title"]
                self.plots[name][2].update_figure(figure)
        self.empty.text = "" if panels else "No chart yet: a run draws its first one after its first steps."

    def compare(self, picked: Sequence[LiveRun]) -> None:
        """Fields of the config in which the picked runs differ."""
        self.differ_title.visible = self.differ.visible = bool(picked)
        if not picked:
            return
        fields = list(dict.fromkeys(name for run in picked for name in run.values))
        differ = [f for f in fields if f not in ASIDE - {"seed"} and len({repr(r.values.get(f)) for r in picked}) > 1]
        heads = [{"name": "field", "label": "Field", "field": "field", "align": "left"}]
        names = name_runs(picked)
        heads += [
            {"name": f"r{i}", "label": names[run.name], "field": f"r{i}", "align": "left"}
            for i, run in enumerate(picked)
        ]
        self.differ.columns = heads
        self.differ.rows = [
            {"field": name, **{f"r{i}": config_value(run.values.get(name)) for i, run in enumerate(picked)}}
            for name in differ
        ]
        self.differ.update()


def row_of(run: LiveRun) -> dict[str, Any]:
    """A run as a line of the table."""
    loss, accuracy = run.last("step", "loss"), run.last("stage", "accuracy")
    task, tasks = run.last("step", "task"), run.last("start", "tasks")
    stages = run.stages
    return {
        "run": run.name,
        "state": run.state,
        "progress": f"{100 * run.progress:.0f} %",
        "left": duration(run.seconds_left),
        "task": f"{task + 1} of {tasks or '?'}" if isinstance(task, int) else "–",
        "loss": f"{loss:.3f}" if isinstance(loss, int | float) else "–",
        "accuracy": f"{100 * accuracy:.1f}" if isinstance(accuracy, int | float) else "–",
        "memory": str(stages[-1].get("memory", "–")) if stages else "–",
        "speed": f"{run.last('step', 'images_per_second') or 0:.0f}" if run.state == "running" else "–",
        "note": run.reason,
    }


def themed(layout: dict[str, Any]) -> dict[str, Any]:
    """A layout that reads on light and on dark: no ground of its own, and a grey that both carry."""
    grey = {"gridcolor": "rgba(128,128,128,.22)", "linecolor": "rgba(128,128,128,.4)"}
    legend = {"orientation": "h", "x": 0, "y": -0.28, "yanchor": "top"}
    margin = {**layout["margin"], "b": 60}
    font = {"size": 12, "color": "#7d8794"}
    return {**layout, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": font,
            "xaxis": {**layout["xaxis"], **grey}, "yaxis": {**layout["yaxis"], **grey}, "autosize": True,
            "showlegend": True, "legend": legend, "margin": margin, "height": 330}  # fmt: skip


NARROW = "max-width: min(22rem, 40vw); overflow: hidden; text-overflow: ellipsis"
"""A long name must not push the rest of its row off a phone's screen."""
HEAD = """<style>
.soft { color: #7d8794; }
.charts { display: grid; gap: 1.25rem; width: 100%;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.chart { min-width: 0; }
</style>"""
