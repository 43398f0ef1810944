"""`metamatrix merge`: one run's folder out of those of its shards."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from metamatrix.document import document
from runner.results.folder import RunFolder
from runner.results.merge import Account, Merged, merge
from runner.whole_files import write_whole

__all__ = ["run_merge"]


def run_merge(folders: Sequence[Path], output: Path, plan_file: Path | None, as_json: bool) -> int:
    """Merge, write results.json; 4 where a shard is missing or cut, else 0."""
    with Console(stderr=True).status("merging"):
        merged = merge(folders, output, plan_file)
        with RunFolder(output, writing=False) as folder:
            write_whole(output / "results.json", document(folder).as_json().encode())
    for note in merged.notes:
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(json.dumps(_as_json(merged, output), indent=1))
    else:
        cells = sum(account.cells for account in merged.shards)
        print(f"{len(merged.shards)} shards, {cells} cells, {merged.attempts} attempts: {output}")
    for account in merged.shards:
        if not account.complete:
            print(_words(account), file=sys.stderr)
    if merged.complete:
        return 0
    plan = shlex.quote(str(output / "plan.json"))
    print(
        f"Run what is missing again and merge it into the same folder, or finish it here: "
        f"metamatrix run --plan {plan} --output {shlex.quote(str(output))}",
        file=sys.stderr,
    )
    return 4


def _words(account: Account) -> str:
    if not account.given:
        return f"shard {account.shard} is missing: {account.lacking} of its {account.cells} cells have no verdict"
    return f"shard {account.shard} is cut: {account.lacking} of its {account.cells} cells have no verdict"


def _as_json(merged: Merged, output: Path) -> dict[str, object]:
    return {
        "schema_version": 1,
        "folder": str(output),
        "plan": merged.digest,
        "complete": merged.complete,
        "attempts": merged.attempts,
        "cells": sum(account.cells for account in merged.shards),
        "lacking": sum(account.lacking for account in merged.shards),
        "shards": [
            {"shard": str(one.shard), "given": one.given, "cells": one.cells, "lacking": one.lacking}
            for one in merged.shards
        ],
        "notes": list(merged.notes),
    }
