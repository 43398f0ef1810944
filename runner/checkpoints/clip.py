"""What is a tiny CLIP text encoder? Tensors, configuration, and the names that OpenCLIP gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Tensors, prefixed
from runner.checkpoints.tensors import Tensor, identity, joined

__all__ = ["LENGTH", "VOCABULARY", "Clip"]

VOCABULARY = 517
"""256 letters, the same at a word's end, three merges, start and end of text: see `tokenizers.clip_files`."""
LENGTH = 77
_INNER, _LAYERS, _HEADS = 37, 2, 4
_IDS = "text_model.embeddings.position_ids"
_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")


@dataclass(frozen=True)
class Clip:
    """A text encoder of `width`; with a `projection` it is a CLIPTextModelWithProjection.

    `seed` begins the seeds of its tensors. `identity` makes the projection the identity, as in files that store none.
    """

    seed: str
    width: int
    activation: str
    projection: bool = False
    identity: bool = False

    def tensors(self) -> Tensors:
        text = Layers(self.seed)
        text.table("text_model.embeddings.token_embedding", VOCABULARY, self.width)
        text.table("text_model.embeddings.position_embedding", LENGTH, self.width)
        for layer in range(_LAYERS):
            name = f"text_model.encoder.layers.{layer}"
            text.attention(f"{name}.self_attn", self.width, _ATTENTION)
            text.norm(f"{name}.layer_norm1", self.width)
            text.linear(f"{name}.mlp.fc1", self.width, _INNER)
            text.linear(f"{name}.mlp.fc2", _INNER, self.width)
            text.norm(f"{name}.layer_norm2", self.width)
        text.norm("text_model.final_layer_norm", self.width)
        if self.projection:
            text.linear("text_projection", self.width, self.width, bias=False)
        if self.identity:
            text.tensors["text_projection.weight"] = identity(self.width)
        return text.tensors

    def config(self) -> dict[str, Any]:
        extra = {"projection_dim": self.width} if self.projection else {}
        return {
            "architectures": ["CLIPTextModelWithProjection" if self.projection else "CLIPTextModel"],
            "attention_dropout": 0.0,
            "bos_token_id": VOCABULARY - 2,
            "dropout": 0.0,
            "eos_token_id": VOCABULARY - 1,
            "hidden_act": self.activation,
            "hidden_size": self.width,
            "initializer_factor": 1.0,
            "initializer_range": 0.02,
            "intermediate_size": _INNER,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": LENGTH,
            "model_type": "clip_text_model",
            "num_attention_heads": _HEADS,
            "num_hidden_layers": _LAYERS,
            "pad_token_id": 1,
            **extra,
            "torch_dtype": "float32",
            "vocab_size": VOCABULARY,
        }

    def part(self, prefix: str, stores_ids: bool = True, open_clip: bool = False) -> Part:
        """The part, its single-file names behind `prefix`: as they are, or as OpenCLIP calls them.

        `stores_ids` says whether the published file keeps `position_ids`, which newer classes compute.
        """
        tensors = self.tensors()
        if stores_ids:
            tensors[_IDS] = Tensor.counting(LENGTH)
        stored = _open_clip if open_clip else self._stored
        return Part(
            library="transformers",
            kind="CLIPTextModelWithProjection" if self.projection else "CLIPTextModel",
            config=self.config(),
            tensors=tensors,
            loses="text_model.encoder.layers.1.mlp.fc1.weight",
            original=lambda kept: prefixed(stored(kept), prefix),
            derived={_IDS: LENGTH},
        )

    def _stored(self, tensors: Tensors) -> Tensors:
        return {name: t for name, t in tensors.items() if not (self.identity and name == "text_projection.weight")}


_OPEN_CLIP = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
}
_OPEN_CLIP_LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}


def _open_clip(tensors: Tensors) -> Tensors:
    """OpenCLIP keeps query, key and value in one tensor, and its projection as a matrix that is multiplied from the right."""
    found: Tensors = {new: tensors[old] for old, new in _OPEN_CLIP.items() if old in tensors}
    if "text_projection.weight" in tensors:
        found["text_projection"] = tensors["text_projection.weight"].transposed()
    for layer in range(_LAYERS):
        here, there = f"text_model.encoder.layers.{layer}", f"transformer.resblocks.{layer}"
        for end in ("weight", "bias"):
            for old, new in _OPEN_CLIP_LAYER.items():
                if f"{here}.{old}.{end}" in tensors:
                    found[f"{there}.{new}.{end}"] = tensors[f"{here}.{old}.{end}"]
            parts = [tensors[f"{here}.self_attn.{part}.{end}"] for part in _ATTENTION[:3]]
            found[f"{there}.attn.in_proj_{end}"] = joined(parts)
    return found
