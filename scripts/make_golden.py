"""Take the golden arrays of a pipeline from the reference of a run, after checking that its references agree.

    python scripts/make_golden.py RUN_FOLDER [--pipeline sd15]

Golden arrays change only when the checkpoint or the step does; review such a change.
"""

from __future__ import annotations

import argparse
import base64
import json
from array import array
from pathlib import Path

from runner.checkpoints import files
from runner.checkpoints.golden import golden_path

TOLERANCE = 1e-5


def _values(entry: dict[str, object]) -> array[float]:
    values = array("f")
    values.frombytes(base64.b64decode(str(entry["data"])))
    return values


def _difference(one: dict[str, dict[str, object]], two: dict[str, dict[str, object]]) -> float:
    """The largest difference, relative to the larger of 1 and the value."""
    return max(
        abs(left - right) / max(1.0, abs(right))
        for name in one
        for left, right in zip(_values(one[name]), _values(two[name]), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pipeline", default="sd15")
    options = parser.parse_args()
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((options.folder / "arrays").iterdir())]
    spread = max((_difference(found[0], other) for other in found[1:]), default=0.0)
    print(f"{len(found)} different references, at most {spread:.2e} apart")
    if spread > TOLERANCE:
        raise SystemExit("the references of this run disagree; there is nothing golden about them")
    content = {"checkpoint": files.digest(files.contents("canonical")), "arrays": found[0]}
    golden_path(options.pipeline).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(golden_path(options.pipeline))


if __name__ == "__main__":
    main()
