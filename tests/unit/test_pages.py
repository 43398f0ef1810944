"""Pages and files for people: hostile text is inert everywhere."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metamatrix.commands.schema import run_schema
from reports.document import ResultsModel, read_results
from reports.junit import write_junit
from reports.site.build import build_site
from reports.summary import summary
from reports.wording import MEANINGS
from runner.verdicts import Verdict

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


@given(st.lists(st.tuples(*[st.sampled_from("ab")] * 4), min_size=1, max_size=12, unique=True))
def test_every_cell_is_in_the_overview_once(places: list[tuple[str, ...]]) -> None:
    """Whatever axes differ, no cell hides another: a red one cannot be lost behind a green one."""
    plain = results("x")
    axes = ("pipeline", "lifecycle", "offload", "load")
    cells = [
        plain.cells[0].model_copy(
            update={"subject": str(number), "axes": {**plain.cells[0].axes, **dict(zip(axes, values, strict=True))}}
        )
        for number, values in enumerate(places)
    ]
    with tempfile.TemporaryDirectory() as folder:
        build_site(plain.model_copy(update={"cells": cells}), Path(folder) / "site", lambda _: "", lambda _: "")
        text = (Path(folder) / "site" / "index.html").read_text(encoding="utf-8")
    assert sorted(re.findall(r'href="cells/(\d+).html"', text)) == sorted(str(number) for number in range(len(cells)))


def test_hostile_text_is_inert_on_every_page(tmp_path: Path) -> None:
    """No page holds a live script tag, a control character or a link made of foreign text; all have a strict policy."""
    build_site(results(HOSTILE), tmp_path / "site", lambda _digest: HOSTILE * 100, lambda _digest: HOSTILE)
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 3
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        assert "\x1b" not in text.replace("\\x1b", "")
        assert 'href="javascript' not in text
        assert "default-src 'none'" in text
        assert "style=" not in text


def test_a_site_is_replaced_whole(tmp_path: Path) -> None:
    """Building again leaves no page of the old site and no folder beside it."""
    for _ in range(2):
        build_site(results("x"), tmp_path / "site", lambda _digest: "", lambda _digest: "")
        (tmp_path / "site" / "stale.html").write_text("old")
    build_site(results("x"), tmp_path / "site", lambda _digest: "", lambda _digest: "")
    assert not (tmp_path / "site" / "stale.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


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


def test_the_schemas_in_the_repository_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """`metamatrix schema --check` agrees."""
    assert run_schema(check=True) == 0, capsys.readouterr().err
