"""What publishing and asking cost: a million results, made up. Numbers depend on the machine; limits are in the issue's words.

`nox -s bench -- publish` runs this only.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reports.answers import Answers
from reports.evidence import Evidence
from reports.lookup import known_axes, known_packages, look_up
from reports.publication import publish
from reports.query import parse_query
from tests.made_up import dataset, nights

RUNS, ENVIRONMENTS, WIDE = 5, 400, 2000
QUESTIONS = 300


def main() -> None:
    """Print one line a measurement."""
    with tempfile.TemporaryDirectory(prefix="metamatrix-bench-") as place:
        folder = Path(place)
        _site(folder / "site")
        _lookups(folder)
        _command(folder)


def _said(what: str, value: float, unit: str) -> None:
    print(f"{what:64} {value:10.3f} {unit}", flush=True)


def _site(site: Path) -> None:
    """A site of five nights of 200,000 cells, built, built again, and opened."""
    runs = list(nights(RUNS, ENVIRONMENTS, noise=0.01))
    started = time.perf_counter()
    publish(runs, site)
    _said(f"site of {sum(map(len, runs)):,} results, built", time.perf_counter() - started, "s")
    started = time.perf_counter()
    written = publish(runs, site)
    _said(f"the same again ({written} files written)", time.perf_counter() - started, "s")
    size = sum(len(gzip.compress((site / "data" / name).read_bytes())) for name in ("answers.js", "errors.js"))
    _said("data of the first page and the matrix, 200,000 cells, compressed", size / 1e6, "MB")
    for page in ("index.html", "matrix.html"):
        paint, ready = _opened(site / page)
        _said(f"{page}: first paint", paint / 1000, "s")
        _said(f"{page}: answered", ready / 1000, "s")


def _opened(page: Path) -> tuple[float, float]:
    """Milliseconds until something is painted, and until the page has its answer."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.goto("about:blank")
        tab.goto(page.as_uri())
        tab.locator('[aria-busy="true"]').first.wait_for(state="detached")
        ready = tab.evaluate("performance.now()")
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return float(paint), float(ready)


def _lookups(folder: Path) -> None:
    """Questions drawn at random over a million cells, in one process."""
    wide = dataset(0, WIDE, noise=0.002)
    started = time.perf_counter()
    answers = Evidence([wide]).answers()
    _said(f"answers of {len(wide):,} cells, made", time.perf_counter() - started, "s")
    (folder / "wide" / "api" / "v1").mkdir(parents=True)
    (folder / "wide" / "api" / "v1" / "answers.json").write_text(json.dumps(answers.as_json(), separators=(",", ":")))
    axes, packages = known_axes(answers), known_packages(answers)
    chance = random.Random(3)
    asked, told = [], []
    for _ in range(QUESTIONS):
        terms = _question(answers, chance)
        started = time.perf_counter()
        answer = look_up(answers, parse_query(terms, axes, packages))
        asked.append(time.perf_counter() - started)
        answer.as_json()
        told.append(time.perf_counter() - started)
    for what, times in (("a question", sorted(asked)), ("the same with all its ranges as JSON", sorted(told))):
        _said(f"{what}, median", times[len(times) // 2] * 1000, "ms")
        _said(f"{what}, 95 of 100", times[len(times) * 95 // 100] * 1000, "ms")
    started = time.perf_counter()
    look_up(answers, parse_query(["verdict=bad", "load=any", "lifecycle=any"], axes, packages)).as_json()
    _said("the widest question: everything that is bad", (time.perf_counter() - started) * 1000, "ms")


def _question(answers: Answers, chance: random.Random) -> list[str]:
    """What people ask: mostly a pipeline, often an offload mode, now and then versions or a verdict."""
    terms = []
    for axis, often in (("pipeline", 0.9), ("offload", 0.7), ("load", 0.3), ("lifecycle", 0.2)):
        if chance.random() < often:
            terms.append(f"{axis}={chance.choice(answers.values[axis])}")
    if chance.random() < 0.4:
        version, _ = chance.choice(answers.order["diffusers"])
        terms.append(f"diffusers>={version}")
    if chance.random() < 0.2:
        terms.append("verdict=bad")
    return terms


def _command(folder: Path) -> None:
    """`metamatrix lookup` in a process of its own, over the same million cells."""
    command = [sys.executable, "-m", "metamatrix", "lookup", "--data", str(folder / "wide"), "pipeline=sdxl"]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([*command, "offload=sequential"], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    _said("metamatrix lookup, median of 5", sorted(times)[2], "s")


if __name__ == "__main__":
    main()
