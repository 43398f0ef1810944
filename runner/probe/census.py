"""Which tensors does a module tree hold? Every one, also those that torch's own lists leave out."""

from __future__ import annotations

import types
from collections import deque
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

__all__ = ["Entry", "entries", "hidden_tensors", "members", "modules_by_path"]

_HOOKS = ("_hf_hook", "_diffusers_hook", "_old_forward")
"""What accelerate and diffusers keep of their own at a module; `backing` asks it."""
_REGISTERS = ("_parameters", "_buffers", "_modules")
"""Where a torch module keeps its tensors and children."""
_PLAIN = (bool, int, float, complex, str, bytes, type)
_LISTS = (list, tuple, set, frozenset, deque)
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_FOREIGN = frozenset(
    ("builtins", "enum", "functools", "logging", "re", "threading", "weakref", "numpy", "PIL", "tokenizers", "inspect")
)


class Entry(NamedTuple):
    """One tensor: module `path`, attribute `key`, `kind` (parameter, buffer, non-persistent-buffer, attribute)."""

    path: str
    key: str
    kind: str
    tensor: Any

    @property
    def name(self) -> str:
        return self.path + "." + self.key if self.path else self.key


def modules_by_path(root: Any) -> Dict[str, Any]:
    """Every module under every path that leads to it, so that shared modules are seen under all names."""
    return dict(root.named_modules(remove_duplicate=False))


def entries(modules: Dict[str, Any]) -> Iterator[Entry]:
    """All tensors of `modules`; a tied tensor appears under each of its names.

    Attributes are followed through lists, dictionaries and the like; what lies in other objects is found by
    `hidden_tensors`.
    """
    import torch

    # What every module has (hooks, flags): some twenty attributes each, and no place for a tensor.
    skipped = set(vars(torch.nn.Module())).union(_HOOKS)
    for path, module in modules.items():
        for key, tensor in module._parameters.items():
            if tensor is not None:
                yield Entry(path, key, "parameter", tensor)
        for key, tensor in module._buffers.items():
            if tensor is not None:
                persistent = key not in module._non_persistent_buffers_set
                yield Entry(path, key, "buffer" if persistent else "non-persistent-buffer", tensor)
        for key, value in vars(module).items():
            if key not in skipped and value is not None and not isinstance(value, _PLAIN):
                for name, tensor in _inside(key, value, set()):
                    yield Entry(path, name, "attribute", tensor)


def _inside(name: str, value: Any, seen: Set[int]) -> List[Tuple[str, Any]]:
    """Tensors in an attribute: itself, or within lists, tuples, sets and dictionaries, however deep."""
    import torch

    if isinstance(value, torch.Tensor):
        return [(name, value)]
    found = []
    for key, child in _children(value):
        if child is not None and not isinstance(child, _PLAIN) and id(child) not in seen:
            seen.add(id(child))
            found += _inside("{}[{}]".format(name, key), child, seen)
    return found


def _children(value: Any) -> List[Tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, _LISTS) else []


def hidden_tensors(roots: Iterable[Tuple[str, Any]], known: Iterable[Any]) -> Iterator[Tuple[str, Any]]:
    """(name, tensor) of all that hangs below `roots` (name, object) outside of what is known.

    Attention processors, schedulers, modules in plain lists and in objects: no list of torch's names them,
    and a forward pass may still use them. `known` are the modules and tensors that are counted elsewhere.
    """
    import torch

    counted = {id(value) for value in known}
    seen: Set[int] = set()
    pending = list(roots)
    while pending:
        here, value = pending.pop()
        if value is None or isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if id(value) not in counted:
                yield here, value
            # A quantised weight keeps its scales in an object at the tensor.
            pending += [("{}.{}".format(here, key), child) for key, child in vars(value).items()]
        elif isinstance(value, torch.nn.Module) and id(value) in counted:
            continue
        elif isinstance(value, (dict, *_LISTS)):
            pending += [("{}[{}]".format(here, key), child) for key, child in _children(value)]
        else:
            pending += members(here, value)


def members(here: str, value: Any) -> List[Tuple[str, Any]]:
    """(name, object) of what an object called `here` holds; a module's tensors and children by their own names."""
    found = []
    for key, child in _attributes(value):
        if key in _REGISTERS and isinstance(child, dict):
            found += [(_below(here, name), member) for name, member in child.items()]
        else:
            found.append((_below(here, key), child))
    return found


def _below(here: str, key: str) -> str:
    return "{}.{}".format(here, key) if here else str(key)


def _attributes(value: Any) -> List[Tuple[str, Any]]:
    """What an object holds, its slots too; what the language and other libraries made holds nothing of a pipeline."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in _FOREIGN or isinstance(value, _CODE):
        return []
    found = [(key, child) for key, child in getattr(value, "__dict__", {}).items() if key not in _HOOKS]
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                found.append((slot, getattr(value, slot, None)))
    return found
