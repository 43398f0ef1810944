"""`metamatrix plan`: what would be run, what is left out, and what it costs."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from metamatrix.planning import plan_matrix
from runner.isolation.venv import Venv, default_store
from runner.plan import Plan, write_plan
from runner.resolve.uv import Uv

__all__ = ["estimate", "run_plan"]

_CELL_SECONDS = 0.6
_OPEN_SECONDS = 12.0
_BUILD_SECONDS = 15.0
_WITNESS_SECONDS = 25.0
_UNPACKED = 4.0
"""Installed size over download size; and rough costs measured with the quick selection on two cores."""


def estimate(plan: Plan, store: Venv, jobs: int) -> dict[str, float]:
    """Seconds and MiB that running the plan will take, roughly; what the store holds costs nothing."""
    missing = [entry for entry in plan.environments if entry.lock and store.find(entry.key) is None]
    running = sum(
        _OPEN_SECONDS + _WITNESS_SECONDS + len(plan.of(entry.key)) * _CELL_SECONDS
        for entry in plan.environments
        if entry.lock
    )
    downloads: dict[str, int] = {}
    for entry in missing:
        downloads |= {package.sha256: package.size for package in plan.lock(entry).packages}
    size = sum(downloads.values())
    return {
        "seconds": round(_BUILD_SECONDS * len(missing) + running / max(1, jobs)),
        "disk_mib": round(size * _UNPACKED / 2**20),
        "download_mib": round(size / 2**20),
    }


def run_plan(matrix: Path, select: str | None, output: Path | None, as_json: bool) -> int:
    """Print the plan; write it where asked to."""
    uv = Uv()
    plan = plan_matrix(matrix, select, uv, Console(stderr=True))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_plan(plan, output / "plan.json")
    cost = estimate(plan, Venv(default_store(), uv), os.cpu_count() or 1)
    if as_json:
        print(json.dumps(_as_json(plan, cost), indent=1))
    else:
        _print(plan, cost)
    return 0


def _as_json(plan: Plan, cost: dict[str, float]) -> dict[str, Any]:
    data = asdict(plan)
    del data["locks"]
    return {"schema_version": 1, **data, "estimate": cost}


def _print(plan: Plan, cost: dict[str, float]) -> None:
    console = Console()
    counts = Counter(cell.environment for cell in plan.cells)
    table = Table(title=f"{len(plan.environments)} environments, {len(plan.cells)} cells")
    for column in ("environment", "asked", "becomes", "cells"):
        table.add_column(column, overflow="fold")
    for entry in plan.environments:
        became = " ".join(f"{name} {version}" for name, version in entry.versions.items())
        if entry.proof:
            became = "does not exist: " + entry.proof
        elif entry.fault:
            became = "no answer: " + entry.fault
        asked = " ".join(f"{axis} {value}" for axis, value in entry.asked.items())
        table.add_row(entry.key, asked, _plain(became), str(counts[entry.key]))
    console.print(table)
    for rule in plan.excluded:
        console.print(f"left out: {rule.count} cells ({_plain(rule.when)}): {_plain(rule.reason)}")
    for warning in plan.warnings:
        console.print(f"warning: {_plain(warning)}")
    console.print(
        f"about {cost['seconds'] / 60:.0f} min, {cost['disk_mib']:.0f} MiB of disk, at least "
        f"{cost['download_mib']:.0f} MiB to download"
    )


def _plain(text: str) -> str:
    """Text from outside, with rich's markup made harmless."""
    return text.replace("[", r"\[")
