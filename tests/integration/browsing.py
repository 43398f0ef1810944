"""A real browser over a real site: what several tests of pages share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from reports.dataset import Column, DatasetModel
from tests.local_server import listening

PAGES = (
    "index.html",
    "matrix.html",
    "causes.html",
    "compare.html",
    "environments.html",
    "history.html",
    "charts.html",
    "profiles.html",
    "diagnose.html",
    "about.html",
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """The tests look at what the browser saw."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder that is served on this machine."""
    with listening(partial(_Quiet, directory=str(folder))) as address:
        yield address


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. As root it has no sandbox of its own; it opens our own pages only."""
    place = shutil.which("chromium")
    assert place is not None, "install Debian's package `chromium`"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page that remembers all that it should not do."""

    def __init__(self, page: Page, root: str) -> None:
        self.page, self.root = page, root
        self.troubles: list[str] = []
        page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url))
        page.on("requestfailed", self._failed)
        page.on(
            "response", lambda answer: answer.status < 400 or self.troubles.append(f"{answer.status}: {answer.url}")
        )

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # an icon, say, that was under way when the test went on
            self.troubles.append(f"failed: {request.url} ({request.failure})")

    def _asked(self, address: str) -> None:
        if not address.startswith(self.root):
            self.troubles.append(f"asked elsewhere: {address}")

    def open(self, path: str) -> Page:
        """Go to a page of the site and wait until it shows what it has to show."""
        self.page.goto("about:blank")
        self.page.goto(self.root + path)
        self.settle()
        return self.page

    def settle(self) -> None:
        expect(self.page.locator('[aria-busy="true"]')).to_have_count(0)
        trouble = self.page.locator("#trouble")
        if trouble.count() and trouble.is_visible():
            self.troubles.append(f"said: {trouble.inner_text()}")


def a_day_later(before: DatasetModel) -> DatasetModel:
    """A second run of the same: one failure has gone, one cell has become bad, one is new, one is gone."""
    columns = {name: column.model_copy() for name, column in before.columns.items()}
    verdicts = [before.columns["verdict"][row] for row in range(len(before))]
    mended = [row for row, verdict in enumerate(verdicts) if verdict == "load-error"]
    broken = next(row for row, verdict in enumerate(verdicts) if verdict == "pass")
    values = {
        "verdict": ("pass", "step-error"),
        "group": ("good", "bad"),
        "stage": ("lifecycle", "step"),
        "cause": ("", "RuntimeError: something new"),
        "signature": ("", "0123456789ab"),
        "expected": (False, False),
        "expectation": (None, None),
    }
    for name, (good, bad) in values.items():
        whole = [columns[name][row] for row in range(len(before))]
        for row in mended:
            whole[row] = good
        whole[broken] = bad
        columns[name] = Column.of(whole)
    subjects = [columns["subject"][row] for row in range(len(before))]
    last = max(row for row, verdict in enumerate(verdicts) if verdict == "pass")
    subjects[last] = "anothersubject00"
    columns["subject"] = Column(values=subjects, rows=list(range(len(subjects))))
    started = datetime.fromisoformat(before.run.started) + timedelta(days=1)
    run = before.run.model_copy(update={"id": "aday1ater0000000", "started": started.isoformat()})
    return before.model_copy(update={"run": run, "columns": columns})
