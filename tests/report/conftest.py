"""A browser where there is one, and a sweep made up once for all tests of a module."""

import shutil

import pytest
from fabricated_runs import make_run, make_sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """Three methods, three seeds, two buffer sizes, all corruptions; one run unfinished, one damaged."""
    out = tmp_path_factory.mktemp("sweep")
    make_sweep(out, ("acr", "er", "finetune"))
    make_sweep(out, ("acr", "er"), buffer_size=100, seeds=2)
    make_run(out, "er", 7, finished=False)
    (make_run(out, "er", 8) / "results.json").write_text('{"torn')
    return out


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by playwright."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; pages were not looked at"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium): pages were not looked at")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()
