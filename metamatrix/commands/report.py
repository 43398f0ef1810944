"""`metamatrix report`: from a run's folder to pages and files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from metamatrix.publish import document
from reports.junit import write_junit
from reports.site.build import build_site
from reports.summary import summary
from runner.results.folder import RunFolder, read_text

__all__ = ["run_report"]


def run_report(folder: Path, site: Path | None, as_json: bool) -> int:
    """Write everything; print where it is. Exit code 0."""
    with RunFolder(folder, writing=False) as run:
        results = document(run)
    target = site or folder / "site"
    build_site(
        results,
        target,
        lambda digest: read_text(folder / "logs" / digest),
        lambda digest: read_text(folder / "locks" / digest, 1 << 20),
    )
    files = {
        "site": target / "index.html",
        "results": folder / "results.json",
        "junit": folder / "junit.xml",
        "summary": folder / "summary.md",
    }
    _replace(files["results"], results.as_json())
    _replace(files["summary"], summary(results))
    write_junit(results, files["junit"])
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(summary(results))
    if as_json:
        print(json.dumps({name: str(path) for name, path in files.items()}, indent=1))
    else:
        for name, path in files.items():
            print(f"{name}: {path}", file=sys.stdout)
    return 0


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(temporary, path)
