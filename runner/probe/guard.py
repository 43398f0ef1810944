"""Is every tensor really there, with the value that the checkpoint gave it?

Each parameter, buffer and plain tensor attribute is real, backed (on meta, a hook holds its data) or an
orphan (on meta, nothing behind it). Real and backed values are compared with the checkpoint, since
uninitialised memory is not on meta and is no weight either.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from runner.probe import words
from runner.probe.backing import Held, asked_names
from runner.probe.census import Entry, entries, hidden_tensors, members, modules_by_path
from runner.probe.data import fingerprint, no_data, strange
from runner.probe.expected import Weights

__all__ = ["Inspection", "inspect_components"]

SHOWN = 10
KEPT = 400
"""How many tensors of one finding are kept by name; the count is always exact."""


class Inspection(NamedTuple):
    findings: List[Dict[str, Any]]
    counts: Dict[str, int]


class _Defects:
    """Collects tensors by kind of finding; `parameters` says how many each component has in all."""

    def __init__(self) -> None:
        self.by_kind: Dict[str, List[Dict[str, Any]]] = {}
        self.parameters: Dict[str, int] = {}

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
            found[-1]["whole"] = [name for name, total in self.parameters.items() if _of(rows, name) == total]
        return found


def _of(rows: List[Dict[str, Any]], component: str) -> int:
    """How many parameters of a component are among `rows`."""
    return sum(1 for row in rows if row["module"] == component and row["kind"] == "parameter")


def inspect_components(
    components: Dict[str, Any],
    weights: Weights,
    backed_allowed: bool,
    dtype: str = "float32",
    others: Optional[Dict[str, Any]] = None,
) -> Inspection:
    """Take the census of `components` (name -> module, or None where the pipeline has none).

    Args:
        components: every component that the checkpoint has weights for, and any other module.
        weights: what the checkpoint says.
        backed_allowed: whether the offload mode may leave data behind hooks at this stage.
        dtype: the floating type that the weights were asked in.
        others: what else the pipeline holds, such as its scheduler; looked through for tensors without data.
    """
    defects = _Defects()
    counts = {"real": 0, "backed": 0, "orphan": 0, "compared": 0, "training": 0}
    known: List[Any] = []
    patched = _patched_methods()
    for method in patched:
        entry = Entry("Module", method, "method", None)
        defects.add(words.CORRUPT, "torch.nn", entry, "patched", "left patched: what is built now may be on meta")
    for component in sorted(set(components) | set(weights.components)):
        module = components.get(component)
        if module is None:
            missing = Entry("", component, "module", None)
            defects.add(words.CORRUPT, component, missing, "absent", "the pipeline has no such component")
        else:
            known += _inspect(component, module, weights, backed_allowed, dtype, defects, counts, not patched)
    _look_behind(components, others or {}, known, defects, counts)
    return Inspection(defects.findings(), counts)


def _inspect(
    component: str,
    module: Any,
    weights: Weights,
    backed_allowed: bool,
    dtype: str,
    defects: _Defects,
    counts: Dict[str, int],
    comparable: bool,
) -> List[Any]:
    """One component; the modules and tensors that were looked at."""
    modules = modules_by_path(module)
    _look_for_training(component, modules, defects, counts)
    asked: Dict[str, List[Tuple[Entry, Held]]] = {}
    for path, name, tensor, held in asked_names(modules):
        entry = Entry(path, name, "hook", tensor)
        asked.setdefault(entry.name, []).append((entry, held))
    values: List[Tuple[Entry, Any]] = []
    orphans: Set[str] = set()
    twins = {(owner, name) for owner, _, name in weights.ties}
    looked_at: List[Any] = list(modules.values())
    for entry in entries(modules):
        looked_at.append(entry.tensor)
        value, problem = entry.tensor, ""
        if entry.tensor.is_meta:
            held = asked[entry.name][-1][1] if entry.name in asked else Held(None, "no hook holds it")
            value, problem = held.value, held.problem and "on meta; " + held.problem
            if not problem:
                counts["backed"] += 1
                if not backed_allowed:
                    detail = "on meta, its data behind a hook, where this mode leaves none"
                    defects.add(words.UNEXPECTED_META, component, entry, "backed", detail)
        else:
            problem = no_data(value)
            counts["real"] += not problem
        if problem:
            counts["orphan"] += 1
            orphans.add(entry.name)
            if (component, entry.name) in twins:
                problem += "; its tie is lost"
            defects.add(words.ORPHAN, component, entry, "orphan", problem)
        else:
            values.append((entry, value))
    defects.parameters[component] = sum(
        1 for part in modules.values() for p in part._parameters.values() if p is not None
    )
    values += _other_values(component, asked, values, orphans, defects)
    if comparable:  # what a class computes can only be built where modules are as torch made them
        _compare(component, module, values, orphans, weights, dtype, defects, counts)
    return looked_at


def _patched_methods() -> List[str]:
    """The methods of torch's modules that somebody else's function stands for, as `init_empty_weights` does it."""
    import torch

    methods = ("register_parameter", "register_buffer")
    return [name for name in methods if getattr(torch.nn.Module, name).__qualname__ != "Module." + name]


def _look_for_training(component: str, modules: Dict[str, Any], defects: _Defects, counts: Dict[str, int]) -> None:
    """A module that was left in training mode drops out at random; the topmost ones are named."""
    training = {path for path, part in modules.items() if part.training}
    counts["training"] += len(training)
    for path in sorted(training):
        if not path or path.rpartition(".")[0] not in training:
            entry = Entry("", path, "module", None)
            defects.add(words.BAD_OUTPUT, component, entry, "training", "in training mode")


def _other_values(
    component: str,
    asked: Dict[str, List[Tuple[Entry, Held]]],
    values: List[Tuple[Entry, Any]],
    orphans: Set[str],
    defects: _Defects,
) -> List[Tuple[Entry, Any]]:
    """What hooks hold beside the values that count now: the next forward will use it. What they lack is dangling."""
    taken = {id(value) for _, value in values}
    more = []
    for name, rows in asked.items():
        for entry, held in rows:
            if not held.problem:
                if id(held.value) not in taken:
                    more.append((entry, held.value))
            elif name not in orphans:
                orphans.add(name)
                defects.add(words.ORPHAN, component, entry, "dangling", "a hook will ask for it; " + held.problem)
    return more


def _look_behind(
    components: Dict[str, Any], others: Dict[str, Any], known: List[Any], defects: _Defects, counts: Dict[str, int]
) -> None:
    """Tensors without data where no module lists them; in what is no component, wrong values of schedulers too."""
    parts = [(name, module) for name, module in components.items() if module is not None]
    roots = [
        member
        for component, module in parts
        for path, part in modules_by_path(module).items()
        for member in members(component + "." + path if path else component, part)
    ]
    for name, tensor in hidden_tensors([*roots, *others.items()], known):
        problem = "on meta; no hook holds it" if tensor.is_meta else no_data(tensor)
        if problem:
            counts["orphan"] += 1
            component, _, rest = name.partition(".")
            defects.add(words.ORPHAN, component, Entry("", rest, "hidden", tensor), "orphan", problem)
    for name, value in others.items():
        for key, tensor in _wrong_tables(value):
            defects.add(
                words.CORRUPT, name, Entry("", key, "table", tensor), "corrupt", "differs from a new scheduler's"
            )


def _wrong_tables(value: Any) -> Iterator[Tuple[str, Any]]:
    """The tables of a scheduler that differ from those of a new one of the same configuration."""
    if not hasattr(value, "alphas_cumprod") or not hasattr(type(value), "from_config"):
        return
    twin = type(value).from_config(value.config)
    for key in ("betas", "alphas", "alphas_cumprod"):
        tensor, witness = getattr(value, key, None), getattr(twin, key, None)
        if tensor is None or witness is None or tensor.is_meta or no_data(tensor):
            continue
        if fingerprint(tensor) != fingerprint(witness):
            yield key, tensor


def _compare(
    component: str,
    module: Any,
    values: List[Tuple[Entry, Any]],
    orphans: Set[str],
    weights: Weights,
    dtype: str,
    defects: _Defects,
    counts: Dict[str, int],
) -> None:
    seen = {match[0] for name in orphans if (match := weights.find(component, name)) is not None}
    fresh: Optional[Dict[str, Any]] = None
    for entry, value in values:
        match = weights.find(component, entry.name)
        if match is not None and entry.kind != "attribute":
            seen.add(match[0])
        problem: Optional[str] = strange(value)
        if problem:
            defects.add(words.HARNESS, component, entry, "unverified", problem)
            continue
        if match is not None:
            expected = match[1]
            if entry.kind != "attribute":
                problem = _difference(value, expected.dtype, dtype, expected.shape, expected.fingerprint)
            else:
                problem = "a plain attribute, where the checkpoint has a parameter"
        elif entry.kind in ("parameter", "buffer") and component in weights.components:
            problem = "not in the checkpoint"
        else:
            # The class computes it: what a plain construction computes is the only witness there is.
            fresh = _constructed(module) if fresh is None else fresh
            problem = _unlike(value, fresh.get(entry.name))
            if problem is None:
                text = "{}.{} has a value that nothing vouches for".format(component, entry.name)
                defects.add(words.HARNESS, component, entry, "unverified", text)
                continue
        counts["compared"] += entry.kind != "hook"
        if problem:
            defects.add(words.CORRUPT, component, entry, "corrupt", problem)
    for name in weights.required(component):
        if name not in seen:
            defects.add(words.CORRUPT, component, Entry("", name, "parameter", None), "absent", "the module lacks it")
    by_name = {entry.name: (entry, value) for entry, value in values if entry.kind in ("parameter", "buffer")}
    for owner, left, right in weights.ties:
        if owner == component:
            _compare_tie(component, by_name, left, right, defects)


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
        return  # an absent name is reported as absent, an orphan as orphan
    if fingerprint(values[left][1]) != fingerprint(values[right][1]):
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
    if witness is None or witness.is_meta or no_data(witness) or strange(witness):
        return None
    if tuple(value.shape) != tuple(witness.shape):
        return "shape {} where its class computes {}".format(list(value.shape), list(witness.shape))
    same = fingerprint(value.to(witness.dtype)) == fingerprint(witness)
    return "" if same else "differs from what its class computes"
