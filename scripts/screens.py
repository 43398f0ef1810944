"""Screens of every page, for the README: a real browser over the site of the data that come with the program.

python scripts/screens.py [FOLDER]        docs/images by default; needs Debian's chromium
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import ViewportSize, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from metamatrix.sources import SHIPPED
from reports.dataset import FILE, read_dataset
from reports.publication import publish
from tests.integration.browsing import a_day_later

PAGES = {
    "answer": "index.html#pipeline=sdxl&offload=sequential",
    "broken": "index.html#pipeline=sd3&load=single_file",
    "matrix": "matrix.html",
    "causes": "causes.html",
    "cause": "causes/aee36169c8f0.html",
    "changes": "compare.html",
    "environments": "environments.html",
    "environment": "environments/e443dabd7c0fb276.html",
    "cell": "cell.html#environment=e443dabd7c0fb276&pipeline=sd15&load=empty_init-raw&offload=sequential"
    "&checkpoint=canonical&lifecycle=single",
    "history": "history.html",
    "charts": "charts.html",
    "profiles": "profiles.html",
    "diagnose": "diagnose.html",
    "about": "about.html",
}
SIZE: ViewportSize = {"width": 1100, "height": 760}


def main(folder: Path) -> None:
    """Write a PNG a page. The second night is made up: it shows what changes look like."""
    first = read_dataset(max(SHIPPED.glob(f"*/{FILE}")).parent)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        site = Path(place) / "site"
        publish([first, a_day_later(first)], site)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        schemes: list[tuple[Literal["light", "dark"], str]] = [("light", ""), ("dark", "-dark")]
        for scheme, suffix in schemes:
            page = browser.new_context(viewport=SIZE, color_scheme=scheme).new_page()
            for name, path in PAGES.items():
                if suffix and name != "answer":
                    continue
                page.goto("about:blank")
                page.goto(f"file://{site}/{path}")
                page.wait_for_load_state("networkidle")
                if name == "diagnose":
                    page.get_by_label("Log").fill("NotImplementedError: Cannot copy out of meta tensor; no data!")
                page.wait_for_timeout(300)
                page.screenshot(path=folder / f"{name}{suffix}.png")
        narrow = browser.new_context(viewport={"width": 320, "height": 640}).new_page()
        narrow.goto(f"file://{site}/{PAGES['answer']}")
        narrow.wait_for_timeout(500)
        narrow.screenshot(path=folder / "answer-narrow.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "docs" / "images")
