"""Is there data behind a meta tensor? What the offload hooks of accelerate hold, asked without trust.

A hook backs a tensor when it will ask for it at the next forward, and its map gives a value of the same
shape that has data itself. Maps are unwrapped by hand: `in` on an accelerate map loads from disk, and a
prefixed map lists names that it cannot look up.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from runner.probe.data import no_data

__all__ = ["Held", "asked_names", "hooks"]


class Held(NamedTuple):
    """`value` is the tensor that a hook would put back, or None with the `problem`."""

    value: Any
    problem: str


def hooks(module: Any) -> List[Any]:
    """The accelerate hooks of one module; a SequentialHook may nest."""
    pending = [module.__dict__.get("_hf_hook")]
    found = []
    while pending:
        hook = pending.pop(0)
        if hook is None:
            continue
        inner = getattr(hook, "hooks", None)
        if isinstance(inner, (tuple, list)):
            pending[:0] = list(inner)
        else:
            found.append(hook)
    return found


def _offloading(module: Any) -> List[Any]:
    return [hook for hook in hooks(module) if getattr(hook, "offload", False)]


def _look_up(mapping: Any, name: str) -> Held:
    """The value that `mapping[name]` would give, or why it gives none."""
    if mapping is None:
        return Held(None, "the hook has no map")
    if hasattr(mapping, "dataset") and hasattr(mapping, "prefix"):
        return _look_up(mapping.dataset, mapping.prefix + name)
    if hasattr(mapping, "state_dict") and hasattr(mapping, "index"):
        if name in mapping.state_dict:
            return Held(mapping.state_dict[name], "")
        if name not in mapping.index:
            return Held(None, "the hook's map has no such name")
        entry = mapping.index[name]
        path = entry.get("safetensors_file") or os.path.join(str(mapping.save_folder), name + ".dat")
        if not os.path.exists(path):
            return Held(None, "the hook's file is gone")
    try:
        return Held(mapping[name], "")
    except KeyError:
        return Held(None, "the hook's map has no such name")
    except Exception as error:  # whatever a map raises is what forward would meet
        return Held(None, "the hook's map fails: " + type(error).__name__ + ": " + str(error)[:200])


def _checked(held: Held, tensor: Any) -> Held:
    value = held.value
    if held.problem:
        return held
    if value is None or not hasattr(value, "shape"):
        return Held(None, "the hook holds no tensor")
    if getattr(value, "is_meta", False):
        return Held(None, "the hook's own value is on meta")
    if tuple(value.shape) != tuple(tensor.shape):
        return Held(None, "the hook holds shape {}".format(list(value.shape)))
    missing = no_data(value)
    return Held(None, "the hook's own value has no data: " + missing) if missing else held


def asked_names(modules: Dict[str, Any]) -> Iterator[Tuple[str, str, Any, Held]]:
    """(module path, name, present tensor, what the hook holds) for all that hooks will ask for.

    This does not depend on where the tensors are now: a hook whose map lacks a name fails at the next
    forward, also while everything is still on a device. In the order in which they will put tensors in
    place: of two that ask for the same one, the later has the last word.
    """
    keeps_non_persistent = not _skips_non_persistent()
    for path, module in modules.items():
        for hook in _offloading(module):
            recurse = bool(getattr(hook, "place_submodules", False))
            named = list(module.named_parameters(recurse=recurse, remove_duplicate=False)) + list(
                _buffers(module, recurse, keeps_non_persistent) if getattr(hook, "offload_buffers", False) else []
            )
            for name, tensor in named:
                yield path, name, tensor, _checked(_look_up(hook.weights_map, name), tensor)


def _buffers(module: Any, recurse: bool, with_non_persistent: bool) -> Iterator[Tuple[str, Any]]:
    for path, owner in module.named_modules() if recurse else [("", module)]:
        for key, tensor in owner._buffers.items():
            if tensor is not None and (with_non_persistent or key not in owner._non_persistent_buffers_set):
                yield (path + "." + key if path else key), tensor


def _skips_non_persistent() -> bool:
    """Hooks of accelerate 0.25 and later leave non-persistent buffers alone."""
    from accelerate.utils.modeling import named_module_tensors

    return "remove_non_persistent" in inspect.signature(named_module_tensors).parameters
