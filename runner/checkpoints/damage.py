"""Which checkpoints are there of a pipeline? The sound ones, and how each of the others is damaged.

Each damage is a pure change of tensors or of a written file. `canonical` and `duplicated-tie` are sound: both are
layouts in which the same weights are published. To refuse a damaged file is right; to load it silently is what we
look for.
"""

from __future__ import annotations

import struct

from runner.checkpoints.pipeline import Pipeline, Tensors
from runner.checkpoints.pipelines import PIPELINES
from runner.checkpoints.tensors import seeded

__all__ = ["CANONICAL", "NAMES", "apply", "damaged", "not_applicable", "spoil"]

CANONICAL = "canonical"
_DUPLICATED = "duplicated-tie"
_MISSING = "missing-key-"
_TIES = (_DUPLICATED, "untied", "twin-only")
_PARTS = tuple(dict.fromkeys(part for pipeline in PIPELINES.values() for part in pipeline.part_names))

NAMES = (
    CANONICAL,
    _DUPLICATED,
    *(_MISSING + part for part in _PARTS),
    "renamed",
    "wrong-shape",
    "untied",
    "twin-only",
    "swapped-component",
    "truncated",
    "wrong-header",
)
"""The values of the axis `checkpoint`."""


def damaged(checkpoint: str) -> bool:
    """Whether to refuse this checkpoint is right."""
    return checkpoint not in (CANONICAL, _DUPLICATED)


def not_applicable(checkpoint: str, pipeline: str) -> str | None:
    """Why this checkpoint cannot be made of a pipeline, or None where it can."""
    if checkpoint in _TIES and not any(part.ties for part in PIPELINES[pipeline].parts.values()):
        return f"{pipeline} ties no two tensors"
    part = checkpoint.removeprefix(_MISSING)
    if checkpoint.startswith(_MISSING) and part not in PIPELINES[pipeline].part_names:
        return f"{pipeline} has no {part}"
    return None


def apply(checkpoint: str, pipeline: Pipeline) -> dict[str, Tensors]:
    """The tensors that a checkpoint holds, by part."""
    tensors = {name: dict(part.tensors) for name, part in pipeline.parts.items()}
    first = next(iter(pipeline.parts))
    lost = pipeline.parts[first].loses
    if checkpoint.startswith(_MISSING):
        part = checkpoint.removeprefix(_MISSING)
        del tensors[part][pipeline.parts[part].loses]
    elif checkpoint == "renamed":
        tensors[first][lost.replace(".weight", ".kernel")] = tensors[first].pop(lost)
    elif checkpoint == "wrong-shape":
        tensors[first][lost] = tensors[first][lost].without_last_row()
    elif checkpoint == "swapped-component":
        tensors["vae"], tensors["text_encoder"] = tensors["text_encoder"], tensors["vae"]
    elif checkpoint in _TIES:
        _change_ties(checkpoint, pipeline, tensors)
    return tensors


def _change_ties(checkpoint: str, pipeline: Pipeline, tensors: dict[str, Tensors]) -> None:
    for name, part in pipeline.parts.items():
        for stored, twin in part.ties:
            tensor = tensors[name][stored]
            other = seeded(f"{pipeline.name}/untied", tensor.shape) if checkpoint == "untied" else tensor
            tensors[name][twin] = other
            if checkpoint == "twin-only":
                del tensors[name][stored]


def spoil(checkpoint: str, content: bytes) -> bytes:
    """What a damage of files makes of the bytes of a safetensors file; other checkpoints leave them as they are."""
    if checkpoint == "truncated":  # a download that broke off: the header is whole, the last third is not there
        return content[: len(content) * 2 // 3]
    if checkpoint == "wrong-header":  # the length of the header reaches beyond the end of the file
        return struct.pack("<Q", len(content)) + content[8:]
    return content
