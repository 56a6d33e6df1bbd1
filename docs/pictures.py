"""The badges and the picture of a report page in README.md: python docs/pictures.py demo/runs

`acr demo` makes such runs. Needs playwright and a chromium (the `dev` extra, and Debian's chromium, for example).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from acr.report.page.render import write_page
from acr.runs.run import find_runs

WIDTH, HEIGHT = 1180, 1440
PATIENCE = 300_000
"""Milliseconds to wait for the page; plotly.js takes a while on a busy machine."""
COLOURS = 256
BADGES = {
    "licence": ("licence", "MIT", "#2f6f4f"),
    "python": ("python", "3.10 and newer", "#2c5f8a"),
    "types": ("types", "mypy, strict", "#5a4f8a"),
}
"""What each badge says; a test compares it with pyproject.toml."""


def main() -> None:
    """Write the badges and the page, look at the page, and keep the picture small."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="folder of runs")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "report.png")
    given = parser.parse_args()
    for name, (left, right, colour) in BADGES.items():
        (Path(__file__).parent / "badges" / f"{name}.svg").write_text(badge(left, right, colour), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        page = write_page(find_runs(given.runs), Path(folder) / "report.html")
        raw = Path(folder) / "report.png"
        photograph(page, raw)
        picture = Image.open(raw).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        picture.save(given.output, optimize=True)
    print(f"{given.output}: {given.output.stat().st_size / 1024:.0f} KiB")


def badge(left: str, right: str, colour: str) -> str:
    """Two words side by side on grey and on a colour, as SVG; nothing is asked of any network."""
    widths = [7 * len(word) + 12 for word in (left, right)]
    total, middle = sum(widths), [widths[0] / 2, widths[0] + widths[1] / 2]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img" aria-label="{left}: {right}">'
        f'<clipPath id="r"><rect width="{total}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{widths[0]}" height="20" fill="#555"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{colour}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{middle[0]:g}" y="14">{left}</text><text x="{middle[1]:g}" y="14">{right}</text></g></svg>\n'
    )


def photograph(page: Path, output: Path) -> None:
    """The top of the page, with its first charts drawn."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.set_default_timeout(PATIENCE)
        view.goto(page.as_uri())
        view.wait_for_selector("#scatter .plot[data-drawn]", state="attached")
        view.screenshot(path=str(output))
        browser.close()


if __name__ == "__main__":
    main()
