"""A run can be killed, stopped, reordered and repeated, and says the same."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.isolation.venv import Venv, default_store
from runner.resolve.uv import Uv
from tests.integration.conftest import ROOT, metamatrix, results, run_text, start, verdicts, wait_for_attempts
from tests.integration.programs import run_with_probe

pytestmark = pytest.mark.slow

ONE = "quick and diffusers == 0.38.0 and transformers == 5.6.0"
PLAIN = f"{ONE} and checkpoint == canonical and load == pretrained and offload == none"
SOME = f"{ONE} and checkpoint in (canonical, missing-key-unet) and offload in (none, sequential)"


def _start(folder: Path, select: str) -> subprocess.Popen[str]:
    return start("run", "--select", select, "--output", str(folder))


def _attempts(folder: Path) -> list[tuple[str, str, str]]:
    database = sqlite3.connect(folder / "results.sqlite")
    rows = database.execute("SELECT id, cell, mode FROM attempts").fetchall()
    database.close()
    return rows


def test_kill_at_random_instants_loses_and_doubles_nothing(quick: dict[str, Any], tmp_path: Path) -> None:
    """After `kill -9` at random instants a last run gives every cell its verdict, each forked once."""
    chance = random.Random(5)
    folder = tmp_path / "run"
    for _ in range(4):
        with _start(folder, SOME) as process:
            time.sleep(chance.uniform(1.0, 9.0))
            process.kill()
    done = metamatrix("run", "--select", SOME, "--output", str(folder))
    assert done.status == 0, done.stderr
    expected = verdicts(quick)
    found = verdicts(results(folder))
    assert len(found) == 20
    assert found == {subject: expected[subject] for subject in found}
    rows = _attempts(folder)
    forked = [cell for _, cell, mode in rows if mode == "fork"]
    assert len(forked) == len(set(forked))
    exchanged = [json.loads(line)["id"] for line in (folder / "attempts.ndjson").read_text().splitlines()]
    assert sorted(exchanged) == sorted(identifier for identifier, _, _ in rows)


def test_nothing_is_run_twice(quick_folder: Path) -> None:
    """A second run of a complete folder makes no attempt."""
    before = _attempts(quick_folder)
    done = metamatrix("run", "--select", "quick", "--output", str(quick_folder))
    assert done.status == 0, done.stderr
    assert _attempts(quick_folder) == before


def test_interrupt_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    """Ctrl-C ends with exit code 4 and the way to continue; no process of the run is left."""
    folder = tmp_path / "run"
    process = _start(folder, ONE)
    wait_for_attempts(folder, 1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "Run the same command again to go on" in stderr
    left = subprocess.run(["pgrep", "-f", "probe-.*pyz"], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_shuffled_and_cold_give_the_same_verdicts(quick: dict[str, Any], tmp_path: Path) -> None:
    """Another order, and a fresh process per cell, change no verdict."""
    expected = verdicts(quick)
    some = f"{ONE} and checkpoint in (canonical, missing-key-text_encoder) and offload == none"
    for name, flags in (("shuffled", ["--shuffle", "3", "--jobs", "1"]), ("cold", ["--cold"])):
        folder = tmp_path / name
        done = metamatrix("run", "--select", some, "--output", str(folder), *flags)
        assert done.status == 0, done.stderr
        found = verdicts(results(folder))
        assert len(found) == 10
        assert found == {subject: expected[subject] for subject in found}, name


def test_a_cell_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    """The time limit ends a cell, and the verdict names the stage that was under way."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8").replace("seconds: 120", "seconds: 1")
    found = run_text(tmp_path, text, "--select", PLAIN, "--cold")
    assert set(verdicts(found).values()) == {("timeout", "import")}


def test_an_environment_that_cannot_exist_is_unresolvable_with_its_proof(tmp_path: Path) -> None:
    """The resolver's derivation is the cause, and nothing is built."""
    select = "pipeline == sd15 and diffusers == latest and transformers == 4.57.6 and checkpoint == canonical"
    done = metamatrix("run", "--select", select, "--output", str(tmp_path / "run"), "--json")
    assert done.status == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert {cell["verdict"] for cell in cells} == {"unresolvable"}
    assert "huggingface-hub" in cells[0]["cause"]


def test_published_results_follow_their_schema(quick: dict[str, Any]) -> None:
    """`results.json` of a real run is valid against the schema in the repository."""
    schema = json.loads((ROOT / "reports" / "results.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(quick)


def test_a_cell_can_be_run_alone_by_its_published_command(
    quick: dict[str, Any], quick_folder: Path, tmp_path: Path
) -> None:
    """The `rerun` line of a cell, with its plan's locks, gives the same verdict."""
    cell = next(cell for cell in quick["cells"] if cell["verdict"] == "orphan-meta")
    select = f"subject == {cell['subject']}"
    plan = str(quick_folder / "plan.json")
    assert select in cell["rerun"]
    done = metamatrix("run", "--plan", plan, "--select", select, "--output", str(tmp_path / "one"))
    assert done.status == 0, done.stderr
    assert verdicts(results(tmp_path / "one")) == {cell["subject"]: (cell["verdict"], cell["stage"])}


def test_the_site_has_every_cell_with_its_attempts(quick: dict[str, Any], quick_folder: Path) -> None:
    """`metamatrix report` writes a file for every subject, a page for every environment; JUnit counts every cell."""
    done = metamatrix("report", str(quick_folder), "--json")
    assert done.status == 0, done.stderr
    site = quick_folder / "site"
    cells = {path.stem: json.loads(path.read_bytes()) for path in (site / "api" / "v1" / "cells").iterdir()}
    assert {subject: cell["verdict"] for subject, cell in cells.items()} == {
        cell["subject"]: cell["verdict"] for cell in quick["cells"]
    }
    for cell in quick["cells"]:
        published = cells[cell["subject"]]
        assert [entry["id"] for entry in published["executions"]] == [entry["id"] for entry in cell["history"]]
        assert published["rerun"] == cell["rerun"]
    pages = {path.stem for path in (site / "environments").glob("*.html")}
    assert pages == {environment["id"] for environment in quick["environments"]}
    junit = (quick_folder / "junit.xml").read_text(encoding="utf-8")
    assert junit.count("<testcase ") == len(quick["cells"])


def test_every_defect_of_the_catalogue_is_caught_and_shown(quick: dict[str, Any], quick_folder: Path) -> None:
    """`metamatrix controls` shows at least 25 defects for every environment, each caught as what it is."""
    done = metamatrix("controls", str(quick_folder), "--json")
    assert done.status == 0, done.stderr
    rows = json.loads(done.stdout)["controls"]
    for environment in quick["environments"]:
        mine = [row for row in rows if row["environment"] == environment["id"]]
        assert len({row["id"] for row in mine}) == len(mine)
        planted = [row for row in mine if not row["id"].startswith("checkpoint-")]
        assert len(planted) >= 25
        assert [row for row in planted if not row["caught"] or row["verdict"] != row["expected_verdict"]] == []
        damaged = {row["id"]: row["verdict"] for row in mine if row["id"].startswith("checkpoint-")}
        assert damaged["checkpoint-truncated"] == "refused"
        assert "pass" not in damaged.values()
    table = metamatrix("controls", str(quick_folder)).stdout
    assert "parameter-on-meta" in table and "MISSED" not in table


IMPORTLESS = """
axes:
  torch: "2.13.0"
  diffusers: "0.34.0"
  transformers: "5.6.0"
  accelerate: "1.15.0"
  load: [pretrained, single_file]
  offload: [none, sequential]
"""


def test_an_environment_that_installs_but_does_not_import(tmp_path: Path) -> None:
    """The pipeline class is asked for: one import fails for all cells, and one cold process confirms it."""
    cells = run_text(tmp_path, IMPORTLESS)["cells"]
    assert {(cell["verdict"], cell["stage"]) for cell in cells} == {("import-error", "import")}
    assert "FLAX_WEIGHTS_NAME" in cells[0]["cause"]
    assert sorted(mode for _, _, mode in _attempts(tmp_path / "run")).count("cold") == 1


def test_a_cell_that_gets_no_memory_is_bad_and_never_a_pass(tmp_path: Path) -> None:
    """With 64 MiB nothing can be imported; how a library says so differs, that it is no pass and no fault of ours not."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8").replace("memory_mb: 4096", "memory_mb: 64")
    found = set(verdicts(run_text(tmp_path, text, "--select", PLAIN, "--cold")).values())
    assert found <= {("crash", "import"), ("out-of-memory", "import"), ("import-error", "import")}
    assert found


def test_a_lost_zygote_is_replaced(quick: dict[str, Any], tmp_path: Path) -> None:
    """`kill -9` of the zygote in the middle of a run: its cells run again, and every verdict is the usual one."""
    folder = tmp_path / "run"
    select = f"{ONE} and checkpoint == canonical and load in (pretrained, components)"
    with _start(folder, select) as process:
        wait_for_attempts(folder, 4)
        zygote = subprocess.run(["pgrep", "-o", "-f", "probe-.*pyz"], capture_output=True, text=True, check=True)
        os.kill(int(zygote.stdout), signal.SIGKILL)
        _, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    expected = verdicts(quick)
    found = verdicts(results(folder))
    assert len(found) == 12
    assert found == {subject: expected[subject] for subject in found}


KILLER = """
import os
import signal
import time
from runner.probe import zygote

class Killer(zygote.Cell):
    def run(self):
        if self._request["offload"] == "disk" and not self._request["controls"]:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(30)
        super().run()

zygote.Cell = Killer
zygote.main()
"""


def test_a_cell_that_kills_its_zygote_each_time_is_a_crash_and_its_neighbours_pass(
    quick_folder: Path, tmp_path: Path
) -> None:
    """Twice in a fork it says nothing, since an engine may have gone; in a process of its own it is the verdict."""
    cells = run_with_probe(KILLER, quick_folder, Venv(default_store(), Uv()), tmp_path / "run")
    verdict = {name: cell.verdict for name, cell in cells.items()}
    assert verdict == {"none": "pass", "sequential": "pass", "disk": "crash"}
