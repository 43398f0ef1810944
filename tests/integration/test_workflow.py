"""The nightly workflow does what it says: its scripts are run as a runner does, with two shards of a few cells."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.browsing import served
from tests.integration.conftest import ROOT
from tests.integration.github_runner import Runner

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """What is published, as a folder and as the address where it is served; nothing at first."""
    folder = tmp_path_factory.mktemp("pages")
    with served(folder) as address:
        yield folder, address


def _runner(root: Path, address: str, first: bool = True, **more: Any) -> Runner:
    return Runner(_workflow(), root, inputs={"first": first}, variables={"PAGES_URL": address}, **more)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, pages: tuple[Path, str]) -> Runner:
    """A first night, played to its end."""
    runner = _runner(tmp_path_factory.mktemp("night"), pages[1])
    runner.play()
    return runner


def _next(night: Runner, root: Path, *done: str) -> Runner:
    """A night with the same artifacts, in which these jobs have ended well already."""
    address = night.variables["PAGES_URL"]
    runner = _runner(root, address, results=dict.fromkeys(done, "success"))
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
    index = json.loads((night.artifacts / "github-pages" / "api" / "v1" / "index.json").read_bytes())
    assert len(index["runs"]) == 1
    assert f"<loc>{night.variables['PAGES_URL']}" in (night.artifacts / "github-pages" / "sitemap.xml").read_text()


def test_a_second_night_is_added_to_the_first(night: Runner, pages: tuple[Path, str], tmp_path: Path) -> None:
    """What was published is fetched, checked and published again, with the new night beside it."""
    folder, address = pages
    shutil.copytree(night.artifacts / "github-pages", folder, dirs_exist_ok=True)
    try:
        second = _runner(tmp_path / "second", address, first=False)
        second.play()
        assert set(second.results.values()) == {"success"}, second.said
        index = json.loads((second.artifacts / "github-pages" / "api" / "v1" / "index.json").read_bytes())
        first = json.loads((night.artifacts / "github-pages" / "api" / "v1" / "index.json").read_bytes())
        assert [run["sha256"] for run in index["runs"]][:1] == [run["sha256"] for run in first["runs"]]
        assert [len(index["runs"]), len(index["compare"])] == [2, 1]
        again = _next(night, tmp_path / "again", "plan", "shard")
        again.play()  # a first night where something is published already
        assert (again.results["publish"], again.results["deploy"]) == ("failure", "skipped")
        assert "has published runs already" in again.said["publish"]
        data = folder / "api" / "v1" / index["runs"][0]["data"]
        data.write_bytes(data.read_bytes().replace(b'"pass"', b'"PASS"'))
        changed = _next(night, tmp_path / "changed", "plan", "shard")
        changed.inputs["first"] = False
        changed.play()
        assert (changed.results["publish"], changed.results["deploy"]) == ("failure", "skipped")
        assert "is not what the index says" in changed.said["publish"]
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_without_the_earlier_nights_nothing_is_published(night: Runner, tmp_path: Path) -> None:
    """Neither where the pages are gone nor where nobody answers: what cannot be fetched is not forgotten."""
    for number, (address, said) in enumerate(
        ((night.variables["PAGES_URL"], "there is no"), ("http://127.0.0.1:1/", "does not answer"))
    ):
        runner = _next(night, tmp_path / str(number), "plan", "shard")
        runner.inputs["first"], runner.variables["PAGES_URL"] = False, address
        runner.play()
        assert (runner.results["publish"], runner.results["deploy"]) == ("failure", "skipped")
        assert said in runner.said["publish"]
        assert not (runner.root / "publish" / "workspace" / "site").exists()


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
