"""What is a tiny Stable Diffusion 3? Three text encoders, and Stability's single file that holds them all."""

from __future__ import annotations

from typing import Any

from runner.checkpoints.clip import Clip
from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Pipeline, Tensors, prefixed
from runner.checkpoints.t5 import T5
from runner.checkpoints.tensors import Tensor, joined
from runner.checkpoints.tokenizers import clip_files, t5_files
from runner.checkpoints.vae import LATENT, Vae

__all__ = ["SD3"]

_VERSION = "0.29.0.dev0"
_TEXT, _TEXT_2, _TEXT_3 = 32, 36, 68
_WIDTH, _HEADS, _LAYERS, _PATCH, _POSITIONS = 32, 4, 2, 2, 8
_TIME = 256
"""Width of the sinusoid that a time step becomes; written into the classes."""


def _transformer() -> Tensors:
    made = Layers("sd3/transformer")
    made.add("pos_embed.pos_embed", (1, _POSITIONS * _POSITIONS, _WIDTH))
    made.conv("pos_embed.proj", LATENT, _WIDTH, _PATCH)
    made.linear("time_text_embed.timestep_embedder.linear_1", _TIME, _WIDTH)
    made.linear("time_text_embed.timestep_embedder.linear_2", _WIDTH, _WIDTH)
    made.linear("time_text_embed.text_embedder.linear_1", _TEXT + _TEXT_2, _WIDTH)
    made.linear("time_text_embed.text_embedder.linear_2", _WIDTH, _WIDTH)
    made.linear("context_embedder", _TEXT_3, _WIDTH)
    for layer in range(_LAYERS):
        block, last = f"transformer_blocks.{layer}", layer == _LAYERS - 1
        made.linear(f"{block}.norm1.linear", _WIDTH, 6 * _WIDTH)
        made.linear(f"{block}.norm1_context.linear", _WIDTH, (2 if last else 6) * _WIDTH)
        made.attention(f"{block}.attn", _WIDTH)
        made.attention(f"{block}.attn", _WIDTH, ("add_q_proj", "add_k_proj", "add_v_proj"))
        made.feed_forward(f"{block}.ff", _WIDTH)
        if not last:
            made.linear(f"{block}.attn.to_add_out", _WIDTH, _WIDTH)
            made.feed_forward(f"{block}.ff_context", _WIDTH)
    made.linear("norm_out.linear", _WIDTH, 2 * _WIDTH)
    made.linear("proj_out", _WIDTH, LATENT * _PATCH * _PATCH)
    return made.tensors


_NAMES = {
    "pos_embed.proj": "x_embedder.proj",
    "time_text_embed.timestep_embedder.linear_1": "t_embedder.mlp.0",
    "time_text_embed.timestep_embedder.linear_2": "t_embedder.mlp.2",
    "time_text_embed.text_embedder.linear_1": "y_embedder.mlp.0",
    "time_text_embed.text_embedder.linear_2": "y_embedder.mlp.2",
    "context_embedder": "context_embedder",
    "proj_out": "final_layer.linear",
}
_BLOCK = {
    "norm1.linear": "x_block.adaLN_modulation.1",
    "norm1_context.linear": "context_block.adaLN_modulation.1",
    "attn.to_out.0": "x_block.attn.proj",
    "attn.to_add_out": "context_block.attn.proj",
    "ff.net.0.proj": "x_block.mlp.fc1",
    "ff.net.2": "x_block.mlp.fc2",
    "ff_context.net.0.proj": "context_block.mlp.fc1",
    "ff_context.net.2": "context_block.mlp.fc2",
}
_SWAPPED = ("norm_out.linear", f"transformer_blocks.{_LAYERS - 1}.norm1_context.linear")
"""Here the original keeps shift before scale, and diffusers scale before shift."""


def _original(tensors: Tensors) -> Tensors:
    names = {**_NAMES, "norm_out.linear": "final_layer.adaLN_modulation.1"}
    for layer in range(_LAYERS):
        names |= {f"transformer_blocks.{layer}.{old}": f"joint_blocks.{layer}.{new}" for old, new in _BLOCK.items()}
    found: Tensors = {"pos_embed": tensors["pos_embed.pos_embed"]}
    for end in ("weight", "bias"):
        for old, new in names.items():
            if f"{old}.{end}" in tensors:
                tensor = tensors[f"{old}.{end}"]
                found[f"{new}.{end}"] = _halves_swapped(tensor) if old in _SWAPPED else tensor
        for layer in range(_LAYERS):
            here, there = f"transformer_blocks.{layer}.attn", f"joint_blocks.{layer}"
            found[f"{there}.x_block.attn.qkv.{end}"] = joined([tensors[f"{here}.to_{p}.{end}"] for p in "qkv"])
            added = [tensors[f"{here}.add_{p}_proj.{end}"] for p in "qkv"]
            found[f"{there}.context_block.attn.qkv.{end}"] = joined(added)
    return prefixed(found, "model.diffusion_model.")


def _halves_swapped(tensor: Tensor) -> Tensor:
    """Its first and second half of rows in the other order."""
    half = len(tensor.data) // 2
    return Tensor(tensor.dtype, tensor.shape, tensor.data[half:] + tensor.data[:half])


def _config() -> dict[str, Any]:
    return {
        "_class_name": "SD3Transformer2DModel",
        "_diffusers_version": _VERSION,
        "attention_head_dim": _WIDTH // _HEADS,
        "caption_projection_dim": _WIDTH,
        "in_channels": LATENT,
        "joint_attention_dim": _TEXT_3,
        "num_attention_heads": _HEADS,
        "num_layers": _LAYERS,
        "out_channels": LATENT,
        "patch_size": _PATCH,
        "pooled_projection_dim": _TEXT + _TEXT_2,
        "pos_embed_max_size": _POSITIONS,
        "sample_size": 16,
    }


def _parts() -> dict[str, Part]:
    transformer = Part(
        library="diffusers",
        kind="SD3Transformer2DModel",
        config=_config(),
        tensors=_transformer(),
        loses="transformer_blocks.1.ff.net.2.weight",
        original=_original,
    )
    options = {"scaling_factor": 1.5305, "shift_factor": 0.0609, "use_post_quant_conv": False, "use_quant_conv": False}
    # The single file stores no projection of the first encoder; who reads it takes the identity.
    first = Clip("sd3/text_encoder", _TEXT, "quick_gelu", projection=True, identity=True)
    second = Clip("sd3/text_encoder_2", _TEXT_2, "gelu", projection=True)
    return {
        "transformer": transformer,
        "vae": Vae("sd3/vae", _VERSION, quant=False, options=options).part(),
        "text_encoder": first.part("text_encoders.clip_l.transformer.", stores_ids=False),
        "text_encoder_2": second.part("text_encoders.clip_g.transformer.", stores_ids=False),
        "text_encoder_3": T5("sd3/text_encoder_3", _TEXT_3).part("text_encoders.t5xxl.transformer."),
    }


SD3 = Pipeline(
    name="sd3",
    class_name="StableDiffusion3Pipeline",
    part_names=("transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3"),
    make=_parts,
    others={
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "tokenizer_3": ["transformers", "T5TokenizerFast"],
    },
    files={
        "scheduler/scheduler_config.json": {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "_diffusers_version": _VERSION,
            "num_train_timesteps": 1000,
            "shift": 3.0,
        },
        **clip_files("tokenizer"),
        **clip_files("tokenizer_2", pad="!"),
        **t5_files("tokenizer_3"),
    },
    version=_VERSION,
    call={"guidance_scale": 7.0, "max_sequence_length": 16},
)
