"""JUnit XML: what a CI server shows. One suite per environment, one case per cell."""

from __future__ import annotations

import re
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from reports.document import CellModel, ResultsModel
from reports.wording import cell_name, environment_name

__all__ = ["write_junit"]

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONG = 4000


def write_junit(results: ResultsModel, path: Path) -> None:
    """Write all cells: an unexpected bad verdict fails, a no-answer is an error, the rest is skipped or passes."""
    xml = JUnitXml("metamatrix")
    for environment in results.environments:
        suite = TestSuite(_clean(environment_name(environment)))
        for cell in results.cells:
            if cell.environment == environment.id:
                suite.add_testcase(_case(cell))
        xml.add_testsuite(suite)
    xml.write(str(path), pretty=True)


def _case(cell: CellModel) -> TestCase:
    case = TestCase(_clean(cell_name(cell)), classname=f"metamatrix.{cell.environment}")
    case.time = sum(attempt.seconds for attempt in cell.history)
    text = _clean(f"{cell.verdict or 'unfinished'} at {cell.stage}: {cell.cause}")
    if cell.group == "bad":
        expected = cell.expected and not cell.expired
        case.result = [Skipped(f"expected: {text}") if expected else Failure(text, cell.verdict)]
    elif cell.group in ("no answer", "unfinished"):
        case.result = [Error(text, cell.verdict or "unfinished")]
    elif cell.group == "not applicable":
        case.result = [Skipped(text)]
    return case


def _clean(text: str) -> str:
    """Only characters that XML allows."""
    return _NOT_XML.sub("\ufffd", text)[:_LONG]
