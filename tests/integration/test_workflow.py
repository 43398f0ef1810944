"""The nightly workflow does what it says: its scripts are run as a runner does, with two shards of a few cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import ROOT
from tests.integration.github_runner import Runner

pytestmark = pytest.mark.slow

REPORTS = False
"""Whether `metamatrix report` has --history and --base-url; until then the step that calls it is left out."""

SELECT = "quick and diffusers == 0.38.0 and checkpoint == canonical and load == pretrained and offload == none"
"""Two environments of the quick selection, a cell each."""


def _workflow() -> dict[str, Any]:
    """The file, with what makes it long replaced: the selection, the shards; and containers, which CI may not have."""
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    assert found["env"] == {"SELECT": "nightly"}
    found["env"]["SELECT"] = SELECT
    shard = found["jobs"]["shard"]
    shard["strategy"]["matrix"]["shard"] = [1, 2]
    run = next(step for step in shard["steps"] if step.get("name") == "Run")
    assert run["env"]["METAMATRIX_ISOLATION"] == "docker"
    run["env"]["METAMATRIX_ISOLATION"] = "venv"
    return found


def _runner(root: Path, **more: Any) -> Runner:
    steps = () if REPORTS else ("Report",)
    workflow = _workflow()
    if not REPORTS:  # what it would have written
        publish = workflow["jobs"]["publish"]["steps"]
        publish[:] = [step for step in publish if not step.get("uses", "").startswith("actions/upload-pages-artifact")]
    return Runner(workflow, root, inputs={"first": True}, skipped=steps, **more)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A first night, played to its end."""
    runner = _runner(tmp_path_factory.mktemp("night"))
    runner.play()
    return runner


def _next(night: Runner, root: Path, *done: str) -> Runner:
    """A night with the same artifacts, in which these jobs have ended well already."""
    runner = _runner(root, results=dict.fromkeys(done, "success"))
    shutil.copytree(night.artifacts, runner.artifacts)
    return runner


def test_a_night_ends_well(night: Runner) -> None:
    """Every job succeeds, each shard has one environment, and the merged folder has a verdict for every cell."""
    assert set(night.results.values()) == {"success"}, night.said
    assert night.outputs["publish"] == {"merge": "0"}
    merged = night.root / "publish" / "workspace" / "merged"
    cells = json.loads((merged / "results.json").read_text(encoding="utf-8"))["cells"]
    assert [cell["verdict"] for cell in cells] == ["pass", "pass"]
    shards = [json.loads((night.artifacts / f"shard-{n}" / "plan.json").read_text(encoding="utf-8")) for n in (1, 2)]
    assert [shard["shard"] for shard in shards] == ["1/2", "2/2"]
    assert [len(shard["environments"]) for shard in shards] == [1, 1]
    if REPORTS:
        assert (night.artifacts / "github-pages" / "index.html").exists()


def test_a_night_without_a_shard_is_published_and_red(night: Runner, tmp_path: Path) -> None:
    """What the other shard found is published; the run ends red, with the missing shard named."""
    runner = _next(night, tmp_path, "plan")
    runner.results["shard"] = "failure"
    shutil.rmtree(runner.artifacts / "shard-2")
    runner.play()
    assert runner.results == {
        "plan": "success",
        "shard": "failure",
        "publish": "success",
        "deploy": "success",
        "complete": "failure",
    }
    assert "shard 2/2 is missing: 1 of its 1 cells have no verdict" in runner.said["publish"]
    assert "::error::" in runner.said["complete"]


def test_a_night_without_any_shard_publishes_nothing(night: Runner, tmp_path: Path) -> None:
    """The merge fails, and neither `deploy` nor anything after it runs."""
    runner = _next(night, tmp_path, "plan")
    runner.results["shard"] = "failure"
    for number in (1, 2):
        shutil.rmtree(runner.artifacts / f"shard-{number}")
    runner.play()
    assert (runner.results["publish"], runner.results["deploy"]) == ("failure", "skipped")
    assert "is no folder" in runner.said["publish"]


def test_a_hostile_shard_publishes_nothing(night: Runner, tmp_path: Path) -> None:
    """What no kill leaves stops the night before it is published."""
    runner = _next(night, tmp_path, "plan", "shard")
    with (runner.artifacts / "shard-1" / "attempts.ndjson").open("a") as file:
        file.write("{}\n")
    runner.play()
    assert (runner.results["publish"], runner.results["deploy"]) == ("failure", "skipped")
    assert "is no attempt" in runner.said["publish"]


def test_what_a_failed_shard_wrote_is_uploaded(night: Runner, tmp_path: Path) -> None:
    """The upload does not ask how the run ended."""
    runner = _next(night, tmp_path, "plan")
    for number in (1, 2):
        shutil.rmtree(runner.artifacts / f"shard-{number}")
    (runner.artifacts / "plan" / "plan.json").write_text("{}")
    runner.job("shard")
    assert runner.results["shard"] == "failure"
    assert "is no plan file" in runner.said["shard-1"]
    assert (runner.artifacts / "shard-1").is_dir()


@pytest.mark.parametrize(
    ("repository", "url"),
    [
        ("Somebody/metamatrix", "https://somebody.github.io/metamatrix/"),
        ("Somebody/somebody.github.io", "https://somebody.github.io/"),
    ],
)
def test_the_address_of_the_pages(tmp_path: Path, repository: str, url: str) -> None:
    """As Pages gives it to a project, and to a user's own site."""
    workflow = _workflow()
    address = next(step for step in workflow["jobs"]["publish"]["steps"] if step.get("name") == "Address")
    job = {"steps": [address], "outputs": {"url": "${{ steps.address.outputs.url }}"}}
    runner = Runner({"jobs": {"address": job}}, tmp_path, repository=repository)
    runner.play()
    assert runner.outputs["address"] == {"url": url}
