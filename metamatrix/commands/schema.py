"""`metamatrix schema`: the JSON Schemas that the repository holds, made from the models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import reports
import runner
from reports.api_schema import SCHEMA_FOLDER, api_schemas
from reports.document import json_schema
from runner.matrix.schema import MatrixModel

__all__ = ["run_schema"]


def _files() -> dict[Path, dict[str, Any]]:
    matrix = {"$schema": "https://json-schema.org/draft/2020-12/schema", **MatrixModel.model_json_schema()}
    return {
        Path(runner.__file__).parent / "matrix" / "matrix.schema.json": matrix,
        Path(reports.__file__).parent / "results.schema.json": json_schema(),
        **{SCHEMA_FOLDER / f"{name}.schema.json": schema for name, schema in api_schemas().items()},
    }


def run_schema(check: bool) -> int:
    """Write the schemas, or with `check` say which of them is not current (exit code 2)."""
    stale = 0
    for path, content in _files().items():
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            print(f"{path.name} is not current; run `metamatrix schema`", file=sys.stderr)
            stale += 1
        elif not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path)
    return 2 if stale else 0
