"""How is a checkpoint damaged? Each damage is a pure change of tensors or of a written file.

`canonical` is no damage. To refuse a damaged file is right; to load it silently is what we look for.
"""

from __future__ import annotations

from runner.checkpoints import sd15
from runner.checkpoints.tensors import Tensor

__all__ = ["CANONICAL", "NAMES", "missing", "not_applicable", "remove", "truncate"]

CANONICAL = "canonical"

_MISSING = {
    "unet": "mid_block.resnets.0.conv1.weight",
    "vae": "decoder.mid_block.resnets.0.conv1.weight",
    "text_encoder": "text_model.encoder.layers.1.mlp.fc1.weight",
}
NAMES = (CANONICAL, *(f"missing-key-{component}" for component in sd15.COMPONENTS), "untied", "truncated")


def not_applicable(checkpoint: str) -> str | None:
    """Why this damage cannot be done to SD1.5, or None where it can."""
    if checkpoint == "untied" and not sd15.TIES:
        return "sd15 ties no two tensors, so there is nothing to untie"
    return None


def missing(checkpoint: str) -> tuple[str, str] | None:
    """(component, name) of the one tensor that the damage leaves out, or None."""
    component = checkpoint.removeprefix("missing-key-")
    return (component, _MISSING[component]) if component in _MISSING else None


def remove(tensors: dict[str, dict[str, Tensor]], checkpoint: str) -> dict[str, dict[str, Tensor]]:
    """The tensors that are left after `missing-key-…`; all of them after any other damage."""
    gone = missing(checkpoint)
    return {
        component: {name: tensor for name, tensor in named.items() if (component, name) != gone}
        for component, named in tensors.items()
    }


def truncate(content: bytes) -> bytes:
    """A download that broke off: the header is whole, the last third of the file is not there."""
    return content[: len(content) * 2 // 3]
