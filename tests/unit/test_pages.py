"""Files of one run: hostile text is inert in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from metamatrix.commands.schema import run_schema
from reports.document import ResultsModel, read_results
from reports.junit import write_junit
from reports.summary import summary
from reports.wording import CLASSES, LETTERS, MEANINGS
from runner.verdicts import Verdict, class_of

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202eevil\x00 ]]> | `x` ![a](b) &amp;"


def results(text: str) -> ResultsModel:
    """One bad cell with `text` in every free field."""
    stage = {"stage": "load", "seconds": 0.1, "facts": {text: text}, "findings": [{"kind": "orphan", "text": text}]}
    attempt = {
        "id": "a",
        "mode": "fork",
        "alone": False,
        "how": "exited",
        "verdict": "orphan-meta",
        "stage": "load",
        "started": text,
        "seconds": 1.0,
        "peak_rss_kb": 1,
        "log": "l",
        "conditions": {},
        "stages": [stage],
    }
    axes = {
        "pipeline": "sd15",
        "checkpoint": text,
        "load": text,
        "offload": "none",
        "lifecycle": "single",
        "dtype": "float32",
        "runner": "cpu",
    }
    row = {"module": text, "name": text, "kind": "parameter", "state": "orphan", "shape": [1], "detail": text}
    cell = {
        "id": "c",
        "subject": "s",
        "environment": "e",
        "axes": axes,
        "requested": {"torch": text},
        "verdict": "orphan-meta",
        "class": "bad",
        "stage": "load",
        "cause": text,
        "signature": "f",
        "emulated": False,
        "rebuilt": text,
        "expected": False,
        "expired": False,
        "attempts": 1,
        "tensors": [row],
        "history": [attempt],
        "expectation": {"verdict": "pass", "expires": "2027-01-01", "link": "javascript:alert(1)", "reason": text},
        "rerun": text,
    }
    environment = {
        "id": "e",
        "requested": {"torch": text, "diffusers": text, "transformers": text},
        "installed": {"x": text},
        "lock": "sha256:l",
        "python": text,
        "platform": text,
        "torch_build": text,
        "direct_url": {text: text},
        "controls": [
            {
                "id": text,
                "pipeline": text,
                "expected": text,
                "got": [text],
                "expected_verdict": text,
                "verdict": text,
                "caught": False,
            }
        ],
        "drift": text,
        "proof": text,
        "fault": text,
    }
    run = {
        "id": text,
        "started": text,
        "tool": text,
        "no_answer_share": 0.0,
        "matrix": text,
        "select": text,
        "isolation": "venv",
        "limits": {},
        "excluded": [{"reason": text, "when": text, "count": 1}],
        "warnings": [text],
    }
    content: dict[str, Any] = {"schema_version": 1, "run": run, "environments": [environment], "cells": [cell]}
    return ResultsModel.model_validate(content)


def test_junit_is_xml_whatever_the_messages_hold(tmp_path: Path) -> None:
    """Characters that XML forbids are replaced; the unexpected bad cell is a failure."""
    write_junit(results(HOSTILE), tmp_path / "junit.xml")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert len(root.findall(".//testcase/failure")) == 1


def test_the_summary_holds_no_foreign_markup() -> None:
    """Neither HTML nor Markdown of a message is alive, and a table row stays one row."""
    text = summary(results(HOSTILE))
    assert "<script" not in text
    assert "![a]" not in text
    rows = [line for line in text.splitlines() if line.startswith("| orphan-meta `")]
    assert len(rows) == 1
    assert rows[0].count("|") == 5


def test_results_round_trip_and_ignore_what_they_do_not_know(tmp_path: Path) -> None:
    """A document of a later, additive version is read."""
    content = json.loads(results("x").as_json())
    content["new"] = content["cells"][0]["new"] = 1
    path = tmp_path / "results.json"
    path.write_text(json.dumps(content))
    assert read_results(path) == results("x")
    assert content["cells"][0]["class"] == "bad"


def test_every_verdict_has_a_meaning() -> None:
    """The words of the pages cover all verdicts."""
    assert {verdict.value for verdict in Verdict} <= set(MEANINGS)


def test_every_verdict_has_its_class_and_bad_ones_a_letter_of_their_own() -> None:
    """The pages agree with the program on what is good, and no two kinds of bad look alike."""
    assert {verdict.value: class_of(verdict).value for verdict in Verdict} == {
        name: group for name, group in CLASSES.items() if name != "unfinished"
    }
    assert {name for name, group in CLASSES.items() if group == "bad"} <= set(LETTERS)
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_the_schemas_in_the_repository_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """`metamatrix schema --check` agrees."""
    assert run_schema(check=True) == 0, capsys.readouterr().err
