"""Where do checkpoints lie on disk? Each is written once into a store, under the digest of its bytes.

A checkpoint is a directory with `folder/` (the hub's layout) and `single.safetensors` (the original
layout), both from the same tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runner.checkpoints import damage, sd15
from runner.checkpoints.tensors import write_safetensors
from runner.checkpoints.tokenizer import clip_files

__all__ = ["Checkpoint", "contents", "digest", "write"]

_METADATA = {"format": "pt"}
_WEIGHTS = {
    "unet": "diffusion_pytorch_model.safetensors",
    "vae": "diffusion_pytorch_model.safetensors",
    "text_encoder": "model.safetensors",
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its `name` on the axis, the sha256 `digest` of its files, its directory."""

    name: str
    digest: str
    path: Path


def contents(name: str) -> dict[str, bytes]:
    """Every file of checkpoint `name`: relative path -> bytes, the same on every machine.

    Raises:
        ValueError: there is no such checkpoint, or this damage does not apply to SD1.5.
    """
    if name not in damage.NAMES:
        raise ValueError(f"unknown checkpoint {name!r}; known: {', '.join(damage.NAMES)}")
    reason = damage.not_applicable(name)
    if reason:
        raise ValueError(reason)
    tensors = damage.remove(sd15.tensors(), name)
    files = {f"folder/{path}": _json(content) for path, content in sd15.CONFIGS.items()}
    files["folder/model_index.json"] = _json(sd15.MODEL_INDEX)
    for path, content in clip_files().items():
        files[f"folder/tokenizer/{path}"] = content.encode() if isinstance(content, str) else _json(content)
    for component, named in tensors.items():
        files[f"folder/{component}/{_WEIGHTS[component]}"] = write_safetensors(named, _METADATA)
    renamed = [sd15.original(component, key, t) for component, named in tensors.items() for key, t in named.items()]
    files["single.safetensors"] = write_safetensors(dict(renamed), _METADATA)
    if name == "truncated":
        for path in (f"folder/unet/{_WEIGHTS['unet']}", "single.safetensors"):
            files[path] = damage.truncate(files[path])
    return files


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def digest(files: dict[str, bytes]) -> str:
    """sha256 (hex) over the sorted paths and the bytes of `files`."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0{hashlib.sha256(files[path]).hexdigest()}\n".encode())
    return total.hexdigest()


def _holds(folder: Path, files: dict[str, bytes]) -> bool:
    try:
        return all((folder / path).read_bytes() == content for path, content in files.items())
    except OSError:
        return False


def write(name: str, store: Path) -> Checkpoint:
    """Write checkpoint `name` below `store`, once.

    A directory that exists is read again: what the guard compares with comes from it, so a rotten file would
    vouch for itself.
    """
    files = contents(name)
    key = digest(files)
    target = store / f"{name}-{key[:16]}"
    if target.exists() and not _holds(target, files):
        shutil.rmtree(target)
    if not target.exists():
        store.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=store))
        for path, content in files.items():
            file = building / path
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
