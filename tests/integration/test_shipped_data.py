"""The data set that comes with the program: it says what is known, and any of its cells gives the same answer again."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from metamatrix.sources import SHIPPED
from reports.dataset import FILE, DatasetModel, read_dataset
from tests.integration.conftest import metamatrix, results

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shipped() -> DatasetModel:
    """The newest of them."""
    return read_dataset(max(SHIPPED.glob(f"*/{FILE}")).parent)


def test_it_is_wide_enough(shipped: DatasetModel) -> None:
    """Twelve environments at least, from the oldest stack to the newest, two torch versions, few enough cells each."""
    built = [environment for environment in shipped.environments if environment.controls]
    assert len(built) >= 12
    oldest = {"diffusers": "0.27.2", "transformers": "4.41.2", "accelerate": "0.30.1"}
    for package, version in oldest.items():
        assert min(Version(environment.installed[package]) for environment in built) == Version(version)
    newest = [e for e in built if e.requested["diffusers"] == e.requested["transformers"] == "latest"]
    assert len(newest) == 1
    assert len({Version(environment.installed["torch"]).public for environment in built}) >= 2
    rows = shipped.columns["environment"].rows
    assert max(rows.count(place) for place in set(rows)) <= 1500


def test_every_cell_has_an_answer_and_every_defect_was_caught(shipped: DatasetModel) -> None:
    """Nothing is without an answer; no guard missed a planted defect; no reference drifts."""
    assert shipped.run.no_answer_share == 0.0
    assert set(shipped.columns["group"].values) == {"good", "bad", "not applicable"}
    assert [environment.missed for environment in shipped.environments if environment.missed] == []
    assert {environment.drift for environment in shipped.environments} == {""}


def test_it_names_no_place_of_the_machine_that_made_it(shipped: DatasetModel) -> None:
    """Packages are kept by name, version and digest: no path, no address of an index."""
    locks = json.dumps([environment.packages for environment in shipped.environments])
    assert not re.search(r'://|"/', locks)


def test_clean_pipelines_pass_wherever_they_exist(shipped: DatasetModel) -> None:
    """A plain load of a sound checkpoint from its folder passes in every environment and mode, or is unsupported."""
    plain = {"checkpoint": "canonical", "load": "pretrained", "lifecycle": "single"}
    found: dict[tuple[str, str], list[str]] = {}
    for cell in shipped.cells():
        if plain.items() <= cell.axes.items() and cell.verdict not in ("unsupported", "unresolvable"):
            found.setdefault((cell.axes["pipeline"], cell.axes["offload"]), []).append(str(cell.verdict))
    assert len(found) == 5 * 6
    assert {verdict for verdicts in found.values() for verdict in verdicts} == {"pass"}


def test_a_lookup_answers_at_once() -> None:
    """The questions of the README, from the data that come with the program."""
    started = time.monotonic()
    done = metamatrix("lookup", "pipeline=sdxl", "offload=sequential", "load=pretrained", "--json")
    assert time.monotonic() - started < 5  # a bound against a hang; `nox -s bench` measures
    answer: dict[str, Any] = json.loads(done.stdout)
    (line,) = answer["lines"]
    assert [span["verdict"] for span in line["spans"]] == ["pass"]
    assert line["spans"][0]["versions"]["diffusers"][0] == "0.27.2"
    broken = json.loads(metamatrix("lookup", "pipeline=sd15", "load=single_file", "verdict=bad", "--json").stdout)
    spans = [span for line in broken["lines"] for span in line["spans"] if line["axes"]["offload"] == "none"]
    assert [(span["verdict"], span["versions"]["diffusers"]) for span in spans] == [
        ("load-error", ["0.38.0", "0.38.0"])
    ]
    assert Version(spans[0]["versions"]["transformers"][0]) == Version("5.6.0")
    good = json.loads(metamatrix("lookup", "--good-for", "sdxl,flux", "--json").stdout)
    assert good["newest_good"]["install"].startswith("pip install ")
    nowhere = metamatrix("lookup", "--good-for", "sdxl", "--runner", "cuda")
    assert nowhere.stdout.startswith("not measured on cuda")


def test_cells_drawn_at_random_say_the_same_again(shipped: DatasetModel, tmp_path: Path) -> None:
    """In the very environment of the data set, resolved from its packages: the same verdict and signature."""
    chance = random.Random(4)
    environment = next(e for e in shipped.environments if e.installed.get("diffusers") == "0.32.2")
    own = [cell for cell in shipped.cells() if cell.environment == environment.id]
    drawn = chance.sample([cell for cell in own if cell.group in ("good", "bad")], 6)
    select = f"subject in ({', '.join(cell.subject for cell in drawn)})"
    folder = SHIPPED / max(path.parent.name for path in SHIPPED.glob(f"*/{FILE}"))
    done = metamatrix("run", "--plan", str(folder), "--select", select, "--output", str(tmp_path / "run"))
    assert done.status == 0, done.stderr
    again = {cell["subject"]: cell for cell in results(tmp_path / "run")["cells"]}
    assert {cell["environment"] for cell in again.values()} == {environment.id}
    for cell in drawn:
        found = again[cell.subject]
        assert (found["verdict"], found["stage"], found["signature"]) == (cell.verdict, cell.stage, cell.signature)
