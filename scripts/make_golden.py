"""Take the golden arrays of pipelines from the references of a run, after checking that its references agree.

    python scripts/make_golden.py RUN_FOLDER PIPELINE …

Golden arrays change only when the checkpoint or the step does; review such a change.
"""

from __future__ import annotations

import argparse
import base64
import json
from array import array
from pathlib import Path
from typing import Any

from runner.checkpoints import files
from runner.checkpoints.golden import golden_path
from runner.probe.step import GOLDEN_TOLERANCE
from runner.probe.words import PROBE_VERSION
from runner.results.conclude import reference_arrays
from runner.results.folder import RunFolder

Arrays = dict[str, dict[str, Any]]


def _values(entry: dict[str, Any]) -> array[float]:
    values = array("f")
    values.frombytes(base64.b64decode(entry["data"]))
    return values


def _difference(one: Arrays, two: Arrays) -> float:
    """The largest difference, relative to the larger of 1 and the largest value of its array."""
    worst = 0.0
    for name in one:
        pairs = list(zip(_values(one[name]), _values(two[name]), strict=True))
        scale = max(1.0, *(abs(right) for _, right in pairs))
        worst = max(worst, *(abs(left - right) / scale for left, right in pairs))
    return worst


def _references(folder: Path, pipeline: str) -> list[Arrays]:
    """The different arrays of the references of all environments."""
    with RunFolder(folder, writing=False) as run:
        plan = run.plan()
        if plan is None:
            raise SystemExit(f"{folder} has no plan")
        attempts = run.attempts(PROBE_VERSION, plan.limits.as_json())
        digests = {reference_arrays(cell, attempts) for cell in plan.cells if cell.probe["pipeline"] == pipeline}
        return [run.arrays(digest) for digest in sorted(digests - {""})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pipelines", nargs="+")
    options = parser.parse_args()
    for pipeline in options.pipelines:
        found = _references(options.folder, pipeline)
        if not found:
            raise SystemExit(f"no good reference of {pipeline} in {options.folder}")
        spread = max((_difference(found[0], other) for other in found[1:]), default=0.0)
        print(f"{pipeline}: {len(found)} different references, at most {spread:.2e} apart")
        if spread > GOLDEN_TOLERANCE:
            raise SystemExit("the references of this run disagree; there is nothing golden about them")
        content = {"checkpoint": files.digest(files.contents(pipeline, "canonical")), "arrays": found[0]}
        golden_path(pipeline).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(golden_path(pipeline))


if __name__ == "__main__":
    main()
