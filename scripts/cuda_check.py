#!/usr/bin/env python3
"""Measure the CUDA cells on a machine with one GPU, in under ten minutes, and leave a shard that can be merged.

    .venv/bin/python scripts/cuda_check.py OUTPUT [--isolation venv|docker] [--torch 2.13.0]

Runs every load and offload mode of the newest libraries on the GPU and on the CPU beside it, into the run folder
OUTPUT. `OUTPUT/attempts.ndjson` with `OUTPUT/plan.json` is what `metamatrix merge` takes from any shard.
Exit status 0: every CUDA cell was run; 1: some were not, with the reason on standard error; else that of the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MATRIX = """
axes:
  torch: "{torch}"
  diffusers: latest
  transformers: latest
  accelerate: latest
  checkpoint: [canonical, missing-key-unet]
  load: [pretrained, components, single_file, empty_init-remapped]
  offload: [none, model, sequential, disk, group_leaf, group_block]
  runner: [cpu, cuda]
exclude:
  - when: checkpoint != canonical and offload not in (none, sequential)
    reason: a damaged file shows itself at load; one plain and one hooked offload mode are enough after that
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--isolation", default="venv")
    parser.add_argument("--torch", default="2.13.0")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="metamatrix-cuda-") as folder:
        matrix = Path(folder) / "matrix.yaml"
        matrix.write_text(MATRIX.format(torch=options.torch), encoding="utf-8")
        command = [sys.executable, "-m", "metamatrix", "run", "--matrix", str(matrix)]
        command += ["--isolation", options.isolation, "--output", str(options.output)]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status != 0:
        return status
    results = json.loads((options.output / "results.json").read_text(encoding="utf-8"))
    print(f"{time.monotonic() - started:.0f} s")
    return report(results["cells"])


def report(cells: list[dict[str, object]]) -> int:
    """Say how CUDA and CPU compare, cell by cell where they differ; 1 where a CUDA cell has no answer."""
    by_runner: dict[str, dict[tuple[str, ...], dict[str, object]]] = {"cpu": {}, "cuda": {}}
    for cell in cells:
        axes = cell["axes"]
        assert isinstance(axes, dict)
        by_runner[axes["runner"]][axes["checkpoint"], axes["load"], axes["offload"]] = cell
    silent = [cell for cell in by_runner["cuda"].values() if cell["class"] == "no answer"]
    for key, cell in sorted(by_runner["cuda"].items()):
        other = by_runner["cpu"][key]["verdict"]
        if cell["class"] != "no answer" and cell["verdict"] != other:
            print(f"{' '.join(key)}: cuda {cell['verdict']}, cpu {other}")
    for reason in sorted({str(cell["cause"]) for cell in silent}):
        print(f"no answer on CUDA: {reason}", file=sys.stderr)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
