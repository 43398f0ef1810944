"""Is every tensor really there, with the value that the checkpoint gave it?

Each parameter, buffer and plain tensor attribute is real, backed (on meta, a hook holds its data) or an
orphan (on meta, nothing behind it). Real and backed values are compared with the checkpoint, since
uninitialised memory is not on meta and is no weight either.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from runner.probe import words
from runner.probe.backing import asked_names, held_by_hooks
from runner.probe.census import Entry, entries, fingerprint, modules_by_path
from runner.probe.expected import Weights

__all__ = ["Inspection", "inspect_components"]

SHOWN = 10
KEPT = 400
"""How many tensors of one finding are kept by name; the count is always exact."""


class Inspection(NamedTuple):
    findings: List[Dict[str, Any]]
    counts: Dict[str, int]


class _Defects:
    """Collects tensors by kind of finding."""

    def __init__(self) -> None:
        self.by_kind: Dict[str, List[Dict[str, Any]]] = {}

    def add(self, kind: str, component: str, entry: Entry, state: str, detail: str) -> None:
        row = {
            "module": component,
            "name": entry.name,
            "kind": entry.kind,
            "state": state,
            "shape": [int(size) for size in entry.tensor.shape] if entry.tensor is not None else [],
            "detail": detail,
        }
        self.by_kind.setdefault(kind, []).append(row)

    def findings(self) -> List[Dict[str, Any]]:
        found = []
        for kind, rows in self.by_kind.items():
            names = ", ".join("{}.{} ({})".format(row["module"], row["name"], row["detail"]) for row in rows[:SHOWN])
            more = " and {} more".format(len(rows) - SHOWN) if len(rows) > SHOWN else ""
            found.append(words.finding(kind, "{} tensor(s): {}{}".format(len(rows), names, more), rows[:KEPT]))
            found[-1]["count"] = len(rows)
        return found


def inspect_components(
    components: Dict[str, Any], weights: Weights, backed_allowed: bool, dtype: str = "float32"
) -> Inspection:
    """Take the census of `components` (name -> module, or None where the pipeline has none).

    Args:
        components: every component that the checkpoint has weights for, and any other module.
        weights: what the checkpoint says.
        backed_allowed: whether the offload mode may leave data behind hooks at this stage.
        dtype: the floating type that the weights were asked in.
    """
    defects = _Defects()
    counts = {"real": 0, "backed": 0, "orphan": 0, "compared": 0, "training": 0}
    for component in sorted(set(components) | set(weights.components)):
        module = components.get(component)
        if module is None:
            missing = Entry("", component, "module", None)
            defects.add(words.CORRUPT, component, missing, "absent", "the pipeline has no such component")
        else:
            _inspect(component, module, weights, backed_allowed, dtype, defects, counts)
    return Inspection(defects.findings(), counts)


def _inspect(
    component: str,
    module: Any,
    weights: Weights,
    backed_allowed: bool,
    dtype: str,
    defects: _Defects,
    counts: Dict[str, int],
) -> None:
    modules = modules_by_path(module)
    counts["training"] += sum(1 for part in modules.values() if part.training)
    values: Dict[str, Tuple[Entry, Any]] = {}
    orphans = set()
    for entry in entries(modules):
        value = entry.tensor
        if entry.tensor.is_meta:
            held = held_by_hooks(modules, entry.path, entry.key, entry.tensor)
            value = held.value
            if held.problem:
                counts["orphan"] += 1
                orphans.add(entry.name)
                defects.add(words.ORPHAN, component, entry, "orphan", "on meta; " + held.problem)
            else:
                counts["backed"] += 1
                if not backed_allowed:
                    detail = "on meta, its data behind a hook, where this mode leaves none"
                    defects.add(words.UNEXPECTED_META, component, entry, "backed", detail)
        else:
            counts["real"] += 1
        values[entry.name] = (entry, None if entry.name in orphans else value)
    for path, name, tensor, held in asked_names(modules):
        full = path + "." + name if path else name
        if held.problem and full not in orphans:
            orphans.add(full)
            entry = Entry(path, name, "hook", tensor)
            defects.add(words.ORPHAN, component, entry, "dangling", "a hook will ask for it; " + held.problem)
    _compare(component, module, values, weights, dtype, defects, counts)


def _compare(
    component: str,
    module: Any,
    values: Dict[str, Tuple[Entry, Any]],
    weights: Weights,
    dtype: str,
    defects: _Defects,
    counts: Dict[str, int],
) -> None:
    seen = set()
    fresh: Optional[Dict[str, Any]] = None
    for name, (entry, value) in values.items():
        match = weights.find(component, name)
        if match is not None:
            seen.add(match[0])
        if value is None:
            continue
        if match is not None:
            expected = match[1]
            problem: Optional[str] = _difference(value, expected.dtype, dtype, expected.shape, expected.fingerprint)
        elif entry.kind in ("parameter", "buffer") and component in weights.components:
            problem = "not in the checkpoint"
        else:
            # The class computes it: what a plain construction computes is the only witness there is.
            fresh = _constructed(module) if fresh is None else fresh
            problem = _unlike(value, fresh.get(name))
            if problem is None:
                text = "{}.{} has a value that nothing vouches for".format(component, name)
                defects.add(words.HARNESS, component, entry, "unverified", text)
                continue
        counts["compared"] += 1
        if problem:
            defects.add(words.CORRUPT, component, entry, "corrupt", problem)
    for name in weights.required(component):
        if name not in seen:
            defects.add(words.CORRUPT, component, Entry("", name, "parameter", None), "absent", "the module lacks it")
    for owner, left, right in weights.ties:
        if owner == component:
            _compare_tie(component, values, left, right, defects)


def _difference(value: Any, stored: str, asked: str, shape: Tuple[int, ...], wanted: str) -> str:
    import torch

    actual = str(value.dtype).replace("torch.", "")
    expected = asked if stored.startswith(("float", "bfloat")) else stored
    if tuple(value.shape) != tuple(shape):
        return "shape {} where the checkpoint has {}".format(list(value.shape), list(shape))
    if actual != expected:
        return "{} where {} is expected".format(actual, expected)
    if fingerprint(value) == wanted:
        return ""
    plain = value.detach().to("cpu")
    if plain.is_floating_point() and not bool(torch.isfinite(plain).all()):
        return "differs from the checkpoint: not finite"
    if not bool(plain.any()):
        return "differs from the checkpoint: all zero"
    return "differs from the checkpoint"


def _compare_tie(
    component: str, values: Dict[str, Tuple[Entry, Any]], left: str, right: str, defects: _Defects
) -> None:
    if left not in values or right not in values:
        return  # an absent name is reported as absent
    one, two = values[left][1], values[right][1]
    if one is None or two is None:
        return  # an orphan is reported as orphan
    if fingerprint(one) != fingerprint(two):
        defects.add(words.CORRUPT, component, values[right][0], "untied", "differs from {}, its twin".format(left))


def _constructed(module: Any) -> Dict[str, Any]:
    """Tensors of a new module of the same class and configuration, built in the ordinary way."""
    kind = type(module)
    if hasattr(kind, "from_config") and not hasattr(kind, "config_class"):
        twin = kind.from_config(module.config)
    elif hasattr(module, "config"):
        twin = kind(module.config)
    else:
        return {}
    return {entry.name: entry.tensor for entry in entries(modules_by_path(twin))}


def _unlike(value: Any, witness: Any) -> Optional[str]:
    """ "" where equal, the difference where not, None where there is no witness."""
    if witness is None or witness.is_meta:
        return None
    if tuple(value.shape) != tuple(witness.shape):
        return "shape {} where its class computes {}".format(list(value.shape), list(witness.shape))
    same = fingerprint(value.to(witness.dtype)) == fingerprint(witness)
    return "" if same else "differs from what its class computes"
