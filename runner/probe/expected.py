"""Which value should each weight have? Read from the checkpoint's own files, without the libraries.

The zygote reads them once, before any fork; the children inherit the fingerprints.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

__all__ = ["Expected", "Weights", "aliases", "fingerprint_bytes"]

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
_PREFIX = "text_model."


class Expected(NamedTuple):
    """dtype (as torch prints it), shape and sha256 of the bytes; `optional` where a class may lack it."""

    dtype: str
    shape: Tuple[int, ...]
    fingerprint: str
    optional: bool


def fingerprint_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def aliases(name: str) -> List[str]:
    """The names that one CLIP weight goes by: transformers 5.6 dropped the `text_model.` prefix."""
    other = name[len(_PREFIX) :] if name.startswith(_PREFIX) else _PREFIX + name
    return [name, other]


class Weights:
    """Expected values per component, from a specification that the engine sends.

    `specification` is {"files": {component: path}, "derived": {component: {name: n}},
    "ties": [[component, name, name]]}; a derived tensor counts 0 … n-1 as int64 in the shape (1, n).
    """

    def __init__(self, specification: Dict[str, Any]) -> None:
        self.components: Dict[str, Dict[str, Expected]] = {}
        self.ties: List[Tuple[str, str, str]] = [
            (str(component), str(left), str(right)) for component, left, right in specification.get("ties", [])
        ]
        for component, path in specification["files"].items():
            self.components[component] = _read(path)
        for component, names in specification.get("derived", {}).items():
            for name, count in names.items():
                data = struct.pack(f"<{count}q", *range(count))
                self.components[component][name] = Expected("int64", (1, count), fingerprint_bytes(data), True)

    def find(self, component: str, name: str) -> Optional[Tuple[str, Expected]]:
        """(checkpoint name, expected value) of a tensor that the module calls `name`; None if unknown."""
        known = self.components.get(component, {})
        stored = [left for owner, left, right in self.ties if owner == component and right == name]
        for candidate in aliases(name) + stored:
            if candidate in known:
                return candidate, known[candidate]
        return None

    def required(self, component: str) -> List[str]:
        return [name for name, value in self.components.get(component, {}).items() if not value.optional]


def _read(path: str) -> Dict[str, Expected]:
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        body = file.read()
    values = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            values[name] = Expected(
                _DTYPES[entry["dtype"]], tuple(entry["shape"]), fingerprint_bytes(body[start:end]), False
            )
    return values
