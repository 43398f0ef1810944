"""What is a tiny FLUX.1? The layout of schnell: a transformer with double and single blocks, CLIP and T5."""

from __future__ import annotations

from typing import Any

from runner.checkpoints.clip import Clip
from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Pipeline, Tensors
from runner.checkpoints.t5 import T5
from runner.checkpoints.tokenizers import clip_files, t5_files
from runner.checkpoints.vae import LATENT, Vae

__all__ = ["FLUX"]

_VERSION = "0.30.0.dev0"
_TEXT, _TEXT_2 = 32, 32
_HEAD, _HEADS = 16, 2
_WIDTH = _HEAD * _HEADS
_PACKED = 4 * LATENT
_TIME = 256


def _transformer() -> Tensors:
    made = Layers("flux/transformer")
    made.linear("time_text_embed.timestep_embedder.linear_1", _TIME, _WIDTH)
    made.linear("time_text_embed.timestep_embedder.linear_2", _WIDTH, _WIDTH)
    made.linear("time_text_embed.text_embedder.linear_1", _TEXT, _WIDTH)
    made.linear("time_text_embed.text_embedder.linear_2", _WIDTH, _WIDTH)
    made.linear("context_embedder", _TEXT_2, _WIDTH)
    made.linear("x_embedder", _PACKED, _WIDTH)
    double, single = "transformer_blocks.0", "single_transformer_blocks.0"
    for norm in ("norm1", "norm1_context"):
        made.linear(f"{double}.{norm}.linear", _WIDTH, 6 * _WIDTH)
    for norm in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
        made.scale(f"{double}.attn.{norm}", _HEAD)
    made.attention(f"{double}.attn", _WIDTH)
    made.attention(f"{double}.attn", _WIDTH, ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"))
    made.feed_forward(f"{double}.ff", _WIDTH)
    made.feed_forward(f"{double}.ff_context", _WIDTH)
    made.linear(f"{single}.norm.linear", _WIDTH, 3 * _WIDTH)
    made.linear(f"{single}.proj_mlp", _WIDTH, 4 * _WIDTH)
    made.linear(f"{single}.proj_out", 5 * _WIDTH, _WIDTH)
    for norm in ("norm_q", "norm_k"):
        made.scale(f"{single}.attn.{norm}", _HEAD)
    made.attention(f"{single}.attn", _WIDTH, ("to_q", "to_k", "to_v"))
    made.linear("norm_out.linear", _WIDTH, 2 * _WIDTH)
    made.linear("proj_out", _WIDTH, _PACKED)
    return made.tensors


def _config() -> dict[str, Any]:
    return {
        "_class_name": "FluxTransformer2DModel",
        "_diffusers_version": _VERSION,
        "attention_head_dim": _HEAD,
        "axes_dims_rope": [4, 4, 8],
        "guidance_embeds": False,
        "in_channels": _PACKED,
        "joint_attention_dim": _TEXT_2,
        "num_attention_heads": _HEADS,
        "num_layers": 1,
        "num_single_layers": 1,
        "patch_size": 1,
        "pooled_projection_dim": _TEXT,
    }


def _parts() -> dict[str, Part]:
    transformer = Part(
        library="diffusers",
        kind="FluxTransformer2DModel",
        config=_config(),
        tensors=_transformer(),
        loses="single_transformer_blocks.0.proj_mlp.weight",
    )
    options = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_post_quant_conv": False, "use_quant_conv": False}
    return {
        "transformer": transformer,
        "vae": Vae("flux/vae", _VERSION, quant=False, options=options).part(published=False),
        "text_encoder": Clip("flux/text_encoder", _TEXT, "quick_gelu").part("", stores_ids=False),
        "text_encoder_2": T5("flux/text_encoder_2", _TEXT_2).part(),
    }


FLUX = Pipeline(
    name="flux",
    class_name="FluxPipeline",
    part_names=("transformer", "vae", "text_encoder", "text_encoder_2"),
    make=_parts,
    others={
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
    },
    files={
        "scheduler/scheduler_config.json": {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "_diffusers_version": _VERSION,
            "base_image_seq_len": 256,
            "base_shift": 0.5,
            "max_image_seq_len": 4096,
            "max_shift": 1.15,
            "num_train_timesteps": 1000,
            "shift": 1.0,
            "use_dynamic_shifting": False,
        },
        **clip_files("tokenizer"),
        **t5_files("tokenizer_2"),
    },
    version=_VERSION,
    call={"guidance_scale": 0.0, "max_sequence_length": 16},
    no_single="the original file holds the transformer alone, and diffusers reads it at its full width (3072) only",
)
