"""What a lifecycle meets is named for what it is: the library's error, what a version lacks, or a fault of ours."""

from __future__ import annotations

from typing import Any

import pytest

from runner.probe.child import Cell, _Acts
from runner.probe.expected import Weights
from runner.probe.lifecycles import LIFECYCLES, Lifecycle
from runner.probe.loads import Unsupported

REQUEST = {"lifecycle": "single", "offload": "disk"}


def _raises(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


def _report(after: Any) -> dict[str, Any]:
    """What the last stage of a cell says whose lifecycle is `after`."""
    reports: list[dict[str, Any]] = []
    cell = Cell(dict(REQUEST), Weights({"files": {}}), "/nowhere", reports.append)
    cell._acts = _Acts(cell, "/nowhere/offload", None)
    cell._lifecycle = Lifecycle(lambda acts: None, after)
    cell._stage("lifecycle", cell._live)
    return reports[0]


@pytest.mark.parametrize("during", ["load", "offload", "step"])
def test_an_error_of_a_library_is_one_finding_with_what_was_done(during: str) -> None:
    """It ends the cell, and says what was being done; nothing else is made of it."""
    report = _report(lambda acts: acts.library(during, "something", _raises(ValueError("no"))))
    (found,) = report["findings"]
    assert (found["kind"], found["during"], found["doing"]) == ("exception", during, "something")
    assert [step["step"] for step in report["facts"]["steps"]] == ["something"]


@pytest.mark.parametrize("inside", [True, False])
def test_what_a_version_lacks_is_unsupported(inside: bool) -> None:
    """Whether a call finds out or the lifecycle itself."""
    lacks = _raises(Unsupported("not here"))
    (found,) = _report(lambda acts: acts.library("load", "x", lacks) if inside else lacks())["findings"]
    assert (found["kind"], found["text"]) == ("unsupported", "not here")


def test_a_fault_of_the_lifecycle_itself_is_ours() -> None:
    """What fails outside of a call into a library is never published as its fault."""
    (found,) = _report(lambda acts: _raises(KeyError("x"))())["findings"]
    assert found["kind"] == "harness"


def test_every_lifecycle_can_be_asked_for() -> None:
    """The plain one comes first: a matrix that says nothing means it."""
    assert next(iter(LIFECYCLES)) == "single"
    assert len(LIFECYCLES) == 8
