"""The workflows: what they may do, and that everything that they use is pinned. What they do is run elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
every = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def _jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return jobs


def _steps(job: dict[str, Any], action: str) -> list[dict[str, Any]]:
    return [step for step in job["steps"] if step.get("uses", "").startswith(action + "@")]


def test_there_are_workflows() -> None:
    """The tests below have something to look at."""
    assert {path.name for path in FILES} >= {"ci.yml", "nightly.yml"}


@every
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    """40 hexadecimal digits, and the version beside them; the same action has the same pin everywhere."""
    used = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert used
    for line in used:
        assert re.fullmatch(r"(- )?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    pins = {line.split("uses: ")[1] for line in used}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})


@every
def test_no_script_has_an_expression_in_it(path: Path) -> None:
    """Values come by variables: a value that becomes part of a script is run."""
    scripts = [step["run"] for job in _jobs(path).values() for step in job["steps"] if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


@every
def test_nobody_may_do_more_than_he_must(path: Path) -> None:
    """Nothing at the top, at most reading in a job that runs anything, a time limit for all, no secret, no kept token."""
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {}
    assert "secrets." not in text
    for name, job in _jobs(path).items():
        assert job["timeout-minutes"] <= 180, name
        if any("run" in step for step in job["steps"]):
            assert job["permissions"] in ({}, {"contents": "read"}), name
        for step in _steps(job, "actions/checkout"):
            assert step["with"]["persist-credentials"] is False, name


@every
def test_who_may_publish_runs_nothing_of_ours(path: Path) -> None:
    """A job with a right to write does one thing, by an action, and has no code."""
    for name, job in _jobs(path).items():
        if "write" in job["permissions"].values():
            assert [step["uses"].partition("@")[0] for step in job["steps"]] == ["actions/deploy-pages"], name


def test_the_shards_are_those_that_the_command_is_told() -> None:
    """1 to N without a gap, and N is their number; what a shard has written is uploaded whatever came of it."""
    shard = _jobs(ROOT / ".github" / "workflows" / "nightly.yml")["shard"]
    numbers = shard["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert shard["strategy"]["fail-fast"] is False
    run = next(step for step in shard["steps"] if step.get("name") == "Run")
    assert run["env"]["SHARD"] == "${{ matrix.shard }}/${{ strategy.job-total }}"
    assert run["timeout-minutes"] < shard["timeout-minutes"]
    assert _steps(shard, "actions/upload-artifact")[0]["if"] == "${{ always() }}"
