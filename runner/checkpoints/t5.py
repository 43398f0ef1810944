"""What is a tiny T5 encoder? Tensors, configuration, and the two layouts in which its embedding is stored.

The encoder's embedding is tied to `shared.weight`. Files hold that one name, or the same numbers a second time as
`encoder.embed_tokens.weight`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Tensors, prefixed

__all__ = ["SHARED", "T5", "TWIN", "VOCABULARY"]

VOCABULARY = 64
SHARED, TWIN = "shared.weight", "encoder.embed_tokens.weight"
_HEADS, _PER_HEAD, _INNER, _LAYERS, _BUCKETS = 4, 8, 37, 2, 32


@dataclass(frozen=True)
class T5:
    """An encoder of `width`; `seed` begins the seeds of its tensors."""

    seed: str
    width: int

    def tensors(self) -> Tensors:
        text = Layers(self.seed)
        inner = _HEADS * _PER_HEAD
        text.table("shared", VOCABULARY, self.width)
        for layer in range(_LAYERS):
            attention, feed = f"encoder.block.{layer}.layer.0", f"encoder.block.{layer}.layer.1"
            for part in ("q", "k", "v"):
                # T5 does not divide by the square root of the head's width: its queries are that much smaller.
                shrink = _PER_HEAD**0.5 if part == "q" else 1.0
                text.add(
                    f"{attention}.SelfAttention.{part}.weight",
                    (inner, self.width),
                    0.0,
                    (3.0 / self.width) ** 0.5 / shrink,
                )
            text.linear(f"{attention}.SelfAttention.o", inner, self.width, bias=False)
            if layer == 0:
                text.table(f"{attention}.SelfAttention.relative_attention_bias", _BUCKETS, _HEADS)
            text.scale(f"{attention}.layer_norm", self.width)
            text.linear(f"{feed}.DenseReluDense.wi_0", self.width, _INNER, bias=False)
            text.linear(f"{feed}.DenseReluDense.wi_1", self.width, _INNER, bias=False)
            text.linear(f"{feed}.DenseReluDense.wo", _INNER, self.width, bias=False)
            text.scale(f"{feed}.layer_norm", self.width)
        text.scale("encoder.final_layer_norm", self.width)
        return text.tensors

    def config(self) -> dict[str, Any]:
        return {
            "architectures": ["T5EncoderModel"],
            "classifier_dropout": 0.0,
            "d_ff": _INNER,
            "d_kv": _PER_HEAD,
            "d_model": self.width,
            "decoder_start_token_id": 0,
            "dense_act_fn": "gelu_new",
            "dropout_rate": 0.1,
            "eos_token_id": 1,
            "feed_forward_proj": "gated-gelu",
            "initializer_factor": 1.0,
            "is_encoder_decoder": True,
            "is_gated_act": True,
            "layer_norm_epsilon": 1e-06,
            "model_type": "t5",
            "num_decoder_layers": _LAYERS,
            "num_heads": _HEADS,
            "num_layers": _LAYERS,
            "output_past": True,
            "pad_token_id": 0,
            "relative_attention_max_distance": 128,
            "relative_attention_num_buckets": _BUCKETS,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "use_cache": True,
            "vocab_size": VOCABULARY,
        }

    def part(self, prefix: str = "") -> Part:
        """The part; without `prefix` no single file holds it."""
        return Part(
            library="transformers",
            kind="T5EncoderModel",
            config=self.config(),
            tensors=self.tensors(),
            loses="encoder.block.1.layer.1.DenseReluDense.wi_0.weight",
            original=(lambda kept: prefixed(kept, prefix)) if prefix else None,
            ties=((SHARED, TWIN),),
        )
