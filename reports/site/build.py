"""How do results become pages? Built aside and swapped in, so that a site is never half new."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports.document import CellModel, EnvironmentModel, ResultsModel
from reports.wording import GROUP_MARKS, MEANINGS, cell_name, environment_name, mark

__all__ = ["build_site"]

_LOG = 64 * 1024


def build_site(
    results: ResultsModel, target: Path, read_log: Callable[[str], str], read_lock: Callable[[str], str]
) -> None:
    """Write the site to `target`, replacing what is there at once.

    Args:
        results: what to show.
        target: the folder of the site.
        read_log: sha256 of a log -> its text.
        read_lock: sha256 of a lock -> its text.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _Pages(results, building, read_log, read_lock).write()
        building.chmod(0o755)
        old = building.with_name(building.name + "-old")
        if target.exists():
            os.rename(target, old)
        os.rename(building, target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _harmless(value: object) -> object:
    """What any expression of a template gives: line breaks stay, other control characters are shown as numbers.

    So neither colours nor marks that change the direction of text get through; HTML is escaped after this.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(letter if letter.isprintable() or letter in "\n\t" else f"\\x{ord(letter):02x}" for letter in value)


class _Pages:
    def __init__(
        self, results: ResultsModel, folder: Path, read_log: Callable[[str], str], read_lock: Callable[[str], str]
    ) -> None:
        self._results, self._folder = results, folder
        self._read_log, self._read_lock = read_log, read_lock
        self._jinja = Environment(
            loader=PackageLoader("reports.site"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_harmless,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.globals.update(
            meanings=MEANINGS,
            marks=GROUP_MARKS,
            mark=mark,
            cell_name=cell_name,
            environment_name=environment_name,
            run=results.run,
        )

    def write(self) -> None:
        style = Path(__file__).parent / "style.css"
        shutil.copyfile(style, self._folder / "style.css")
        for name in ("environments", "cells"):
            (self._folder / name).mkdir()
        self._page("index.html", "index.html", "", **self._overview())
        for environment in self._results.environments:
            cells = [cell for cell in self._results.cells if cell.environment == environment.id]
            lock = self._read_lock(environment.lock.removeprefix("sha256:")) if environment.lock else ""
            path = f"environments/{environment.id}.html"
            self._page(path, "environment.html", "../", environment=environment, cells=cells, lock=lock)
        for cell in self._results.cells:
            self._cell(cell)

    def _page(self, path: str, template: str, up: str, **values: Any) -> None:
        text = self._jinja.get_template(template).render(up=up, **values)
        (self._folder / path).write_text(text, encoding="utf-8", errors="backslashreplace")

    def _cell(self, cell: CellModel) -> None:
        environment = self._results.environment(cell.environment)
        logs = [(attempt, self._read_log(attempt.log)[:_LOG]) for attempt in cell.history]
        self._page(f"cells/{cell.subject}.html", "cell.html", "../", cell=cell, environment=environment, logs=logs)

    def _overview(self) -> dict[str, Any]:
        """Columns are environment and offload mode, rows all other axes that differ: no cell hides another."""
        cells = self._results.cells
        others = [axis for axis in cells[0].axes if axis != "offload"] if cells else []
        varied = [axis for axis in others if len({cell.axes[axis] for cell in cells}) > 1]
        shown = [axis for axis in others if axis in varied or axis in ("checkpoint", "load")]
        row = {cell.subject: tuple(cell.axes[axis] for axis in shown) for cell in cells}
        rows = list(dict.fromkeys(row.values()))
        columns: list[tuple[EnvironmentModel, list[str]]] = []
        for environment in self._results.environments:
            own = [cell.axes["offload"] for cell in cells if cell.environment == environment.id]
            columns.append((environment, list(dict.fromkeys(own))))
        places: dict[tuple[object, ...], list[CellModel]] = {}
        for cell in cells:  # two requests may have become one environment: both are shown
            places.setdefault((row[cell.subject], cell.environment, cell.axes["offload"]), []).append(cell)
        groups = {
            environment.id: Counter(cell.group for cell in cells if cell.environment == environment.id)
            for environment in self._results.environments
        }
        counts = sorted(self._results.counts().items(), key=lambda pair: (-pair[1], pair[0]))
        verdicts = {cell.verdict or "unfinished": cell for cell in cells}
        return {
            "rows": rows,
            "shown": shown,
            "columns": columns,
            "places": places,
            "counts": counts,
            "groups": groups,
            "examples": verdicts,
            "total": len(cells) - self._results.run.not_run,
            "runners": list(dict.fromkeys(cell.axes["runner"] for cell in cells)),
            "not_run": sorted({cell.cause for cell in cells if cell.verdict == "not-run"}),
            "environments": self._results.environments,
        }
