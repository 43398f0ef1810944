"""Where do checkpoints lie on disk? Each is written once into a store, under the digest of its bytes.

A checkpoint is a directory with `folder/` (the hub's layout) and, where the original project publishes one,
`single.safetensors` (the original layout), both from the same tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runner.checkpoints import damage
from runner.checkpoints.pipelines import PIPELINES
from runner.checkpoints.tensors import write_safetensors

__all__ = ["SINGLE", "Checkpoint", "contents", "digest", "path", "write"]

_METADATA = {"format": "pt"}
SINGLE = "single.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its `name` on the axis, the sha256 `digest` of its files, its directory."""

    name: str
    digest: str
    path: Path


def contents(pipeline: str, name: str) -> dict[str, bytes]:
    """Every file of checkpoint `name` of a pipeline: relative path -> bytes, the same on every machine.

    Raises:
        ValueError: there is no such checkpoint, or this damage does not apply to this pipeline.
    """
    if name not in damage.NAMES:
        raise ValueError(f"unknown checkpoint {name!r}; known: {', '.join(damage.NAMES)}")
    reason = damage.not_applicable(name, pipeline)
    if reason:
        raise ValueError(reason)
    tiny = PIPELINES[pipeline]
    tensors = damage.apply(name, tiny)
    texts = {**tiny.files, "model_index.json": tiny.index}
    texts |= {f"{part}/config.json": tiny.parts[part].config for part in tensors}
    files = {
        f"folder/{path}": content.encode() if isinstance(content, str) else _json(content)
        for path, content in texts.items()
    }
    weights = {path(pipeline, part): write_safetensors(named, _METADATA) for part, named in tensors.items()}
    if not tiny.no_single:
        single = {}
        for part, named in tensors.items():
            original = tiny.parts[part].original
            single.update(original(named) if original else {})
        weights[SINGLE] = write_safetensors(single, _METADATA)
    spoiled = (path(pipeline, next(iter(tensors))), SINGLE)
    return files | {
        place: damage.spoil(name, content) if place in spoiled else content for place, content in weights.items()
    }


def path(pipeline: str, part: str) -> str:
    """Where the weights of a part lie in the checkpoint's directory."""
    return f"folder/{part}/{PIPELINES[pipeline].parts[part].file}"


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def digest(files: dict[str, bytes]) -> str:
    """sha256 (hex) over the sorted paths and the bytes of `files`."""
    total = hashlib.sha256()
    for place in sorted(files):
        total.update(f"{place}\0{hashlib.sha256(files[place]).hexdigest()}\n".encode())
    return total.hexdigest()


def _holds(folder: Path, files: dict[str, bytes]) -> bool:
    try:
        return all((folder / place).read_bytes() == content for place, content in files.items())
    except OSError:
        return False


def write(pipeline: str, name: str, store: Path) -> Checkpoint:
    """Write checkpoint `name` of a pipeline below `store`, once.

    A directory that exists is read again: what the guard compares with comes from it, so a rotten file would
    vouch for itself.
    """
    files = contents(pipeline, name)
    key = digest(files)
    target = store / f"{pipeline}-{name}-{key[:16]}"
    if target.exists() and not _holds(target, files):
        shutil.rmtree(target)
    if not target.exists():
        store.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=store))
        for place, content in files.items():
            file = building / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        building.chmod(0o755)
        try:
            os.rename(building, target)
        except OSError:  # another process was faster: its directory holds the same bytes
            shutil.rmtree(building)
            if not target.exists():
                raise
    return Checkpoint(name, key, target)
