"""`metamatrix serve`: pages and progress of a run under way, for this machine only."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import expect

from metamatrix.live import Live
from metamatrix.sources import SHIPPED
from reports.publication import publish
from runner.plan import PlannedCell
from runner.probe.words import PROBE_VERSION
from runner.results.attempt import Attempt
from runner.results.folder import RunFolder
from tests.integration.browsing import Watched, chromium
from tests.integration.conftest import variables
from tests.made_up import nights
from tests.strategies import attempt, plan_of

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@contextmanager
def serving(folder: Path, ended_by: signal.Signals = signal.SIGINT) -> Iterator[tuple[str, int]]:
    """The command, and where it listens."""
    command = [sys.executable, "-m", "metamatrix", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://(.+):(\d+)/index.html", line)
        assert found, line
        try:
            yield found[1], int(found[2])
        finally:
            process.send_signal(ended_by)
            assert process.communicate(timeout=60)[0].endswith("ended\n")
            assert process.returncode == 0


def _ask(port: int, path: str, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a plan of six cells and an attempt at two of them."""
    plan = plan_of({"a": 4, "b": 2})
    with RunFolder(tmp_path / "run") as folder:
        folder.keep_plan(plan)
        for number, cell in enumerate(plan.cells[:2]):
            folder.keep_attempt(_attempt(plan.cells[0].environment, cell, number))
    return tmp_path / "run"


def _attempt(environment: str, cell: PlannedCell, number: int) -> Attempt:
    made = attempt(cell, identifier=str(number))
    limits = {"limits": plan_of({"a": 1}).limits.as_json(), "isolation": "venv"}
    return replace(made, environment=environment, probe_version=PROBE_VERSION, conditions=limits)


def test_a_run_is_watched(run: Path) -> None:
    """The page tells how far it is, and goes on telling while another process writes; the other pages are there too."""
    plan = plan_of({"a": 4, "b": 2})
    with RunFolder(run) as folder, serving(run) as (host, port), chromium() as browser:
        watched = Watched(browser.new_page(), f"http://{host}:{port}/")
        page = watched.open("live.html")
        expect(page.locator("#state")).to_contain_text("2 of 6 cells")
        folder.keep_attempt(_attempt("a", plan.cells[2], 2))
        expect(page.locator("#state")).to_contain_text("3 of 6 cells", timeout=10_000)
        page.get_by_role("link", name="Matrix").click()
        watched.settle()
        expect(page.get_by_role("link", name="Live")).to_be_visible()
        assert watched.troubles == []


def test_whether_a_run_is_under_way_is_told_without_touching_it(run: Path) -> None:
    """Held while a process writes, free after; to look is never in the way of a run that starts."""
    live = Live(run)
    assert not live.running()
    with RunFolder(run):
        assert live.running()
        assert live.as_json()["running"]
    assert not live.running()
    assert [live.as_json()[name] for name in ("total", "done")] == [6, 2]


def test_pages_are_made_anew_while_it_runs(run: Path) -> None:
    """A cell that got its attempt after the start is in the data some seconds later."""
    plan = plan_of({"a": 4, "b": 2})
    with RunFolder(run) as folder, serving(run) as (_, port):
        before = _ask(port, "/api/v1/results.csv")[2]
        folder.keep_attempt(_attempt("a", plan.cells[3], 3))
        deadline = time.monotonic() + 60
        while _ask(port, "/api/v1/results.csv")[2] == before and time.monotonic() < deadline:
            time.sleep(0.2)
        assert _ask(port, "/api/v1/results.csv")[2] != before


def test_only_this_machine_is_answered(tmp_path: Path) -> None:
    """It listens on the loopback address, and a foreign name that points here gets nothing."""
    publish(nights(1, 2, 4), tmp_path / "site")
    with serving(tmp_path / "site") as (host, port):
        assert host == "127.0.0.1"
        assert _ask(port, "/index.html")[0] == 200
        for name in (f"localhost:{port}", "127.0.0.1", "[::1]:80"):
            assert _ask(port, "/index.html", host=name)[0] == 200
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "x", " "):
            assert _ask(port, "/index.html", host=name)[0] == 421
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        own = {row[1] for row in listening if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
        assert own == {f"0100007F:{port:04X}"}


def test_files_of_the_folder_only(tmp_path: Path) -> None:
    """No listing, nothing above the folder, no other method; every answer has the strict headers."""
    publish(nights(1, 2, 4), tmp_path / "site")
    (tmp_path / "secret").write_text("secret")
    with serving(tmp_path / "site") as (_, port):
        for path in ("/api/v1/", "/../secret", "/%2e%2e/secret", "/..%2fsecret", "/live.json", "/nothing", "/%00"):
            status, headers, body = _ask(port, path)
            assert status == 404, path
            assert b"secret" not in body.replace(path.encode(), b"")
            assert "default-src 'none'" in headers["content-security-policy"]
        assert _ask(port, "/index.html", "POST")[0] == 501
        assert _ask(port, "/index.html", "HEAD")[2] == b""
        assert _ask(port, "/index.html")[1]["x-content-type-options"] == "nosniff"


def test_a_data_set_is_served_as_a_site(tmp_path: Path) -> None:
    """One that comes with the program, made into pages aside: nothing is written into its folder, and nothing left."""
    shipped = max(SHIPPED.iterdir())
    copy = shutil.copytree(shipped, tmp_path / "data")
    before = set(Path(tempfile.gettempdir()).glob("metamatrix-serve-*"))
    with serving(copy, signal.SIGTERM) as (_, port):
        index = json.loads(_ask(port, "/api/v1/index.json")[2])
        assert index["runs"][0]["cells"] == 6248
    assert [path.name for path in copy.iterdir()] == ["dataset.json"]
    assert set(Path(tempfile.gettempdir()).glob("metamatrix-serve-*")) <= before


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    """An empty folder, and a port that somebody has."""
    command = [sys.executable, "-m", "metamatrix", "serve"]
    empty = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, env=variables())
    assert empty.returncode == 2
    assert "holds no results" in empty.stderr
    publish(nights(1, 2, 4), tmp_path / "site")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*command, str(tmp_path / "site"), "--port", port],
            capture_output=True,
            text=True,
            check=False,
            env=variables(),
        )
    assert done.returncode == 3
    assert f"127.0.0.1:{port} cannot be had" in done.stderr
