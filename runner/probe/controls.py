"""Would the guard notice? Every defect of the catalogue, planted into a copy of a pipeline that loaded well.

An environment whose guard misses one of them publishes no `pass`.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, List

from runner.probe.defects import CONTROLS, Components, Control
from runner.probe.expected import Weights
from runner.probe.guard import inspect_components

__all__ = ["run"]


def run(pristine: Components, weights: Weights) -> List[Dict[str, Any]]:
    """Plant each defect in a copy; say for each whether the guard found it, with kind and name."""
    return [_one(name, control, pristine, weights) for name, control in CONTROLS.items()]


def _one(name: str, control: Control, pristine: Components, weights: Weights) -> Dict[str, Any]:
    components = {key: copy.deepcopy(module) for key, module in pristine.items()}
    known = copy.deepcopy(weights)
    where = control.plant(components, known)
    found = inspect_components(components, known, True).findings
    caught = any(
        finding["kind"] == control.expected
        and any("{}.{}".format(row["module"], row["name"]).startswith(where) for row in finding.get("tensors", []))
        for finding in found
    )
    got = [finding["kind"] for finding in found]
    return {"id": name, "expected": control.expected, "got": got, "where": where, "caught": caught}
