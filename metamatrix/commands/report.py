"""`metamatrix report`: from a run's folder to pages and files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from metamatrix.dataset import dataset
from metamatrix.publish import document
from reports.dataset import FILE
from reports.junit import write_junit
from reports.site.build import build_site
from reports.summary import summary
from runner.results.folder import RunFolder, read_text
from runner.whole_files import write_whole

__all__ = ["run_report"]


def run_report(folder: Path, site: Path | None, data: Path | None, as_json: bool) -> int:
    """Write everything, with `data` the compact data set too; print where it is. Exit code 0."""
    with RunFolder(folder, writing=False) as run:
        results = document(run)
        kept = dataset(run) if data is not None else None
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
    if data is not None and kept is not None:
        files["dataset"] = data / FILE
        data.mkdir(parents=True, exist_ok=True)
        write_whole(files["dataset"], kept.as_json().encode("utf-8", "backslashreplace"))
    text = summary(results)
    write_whole(files["results"], results.as_json().encode())
    write_whole(files["summary"], text.encode("utf-8", "backslashreplace"))
    write_junit(results, files["junit"])
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(text)
    if as_json:
        print(json.dumps({name: str(path) for name, path in files.items()}, indent=1))
    else:
        for name, path in files.items():
            print(f"{name}: {path}", file=sys.stdout)
    return 0
