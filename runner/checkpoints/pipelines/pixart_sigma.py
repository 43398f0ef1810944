"""What is a tiny PixArt-Sigma? A transformer with tensors of its own at the root, a computed table, and a T5."""

from __future__ import annotations

from typing import Any

from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Pipeline, Tensors
from runner.checkpoints.t5 import T5
from runner.checkpoints.tokenizers import t5_files
from runner.checkpoints.vae import LATENT, Vae

__all__ = ["PIXART_SIGMA"]

_VERSION = "0.28.0.dev0"
_TEXT, _WIDTH, _HEADS, _LAYERS, _PATCH = 32, 24, 3, 2, 2
_TIME = 256


def _transformer() -> Tensors:
    made = Layers("pixart-sigma/transformer")
    made.add("scale_shift_table", (2, _WIDTH), 0.0, 0.5)
    made.conv("pos_embed.proj", LATENT, _WIDTH, _PATCH)
    for layer in range(_LAYERS):
        block = f"transformer_blocks.{layer}"
        made.add(f"{block}.scale_shift_table", (6, _WIDTH), 0.0, 0.5)
        made.attention(f"{block}.attn1", _WIDTH)
        made.attention(f"{block}.attn2", _WIDTH)
        made.feed_forward(f"{block}.ff", _WIDTH)
    made.linear("adaln_single.emb.timestep_embedder.linear_1", _TIME, _WIDTH)
    made.linear("adaln_single.emb.timestep_embedder.linear_2", _WIDTH, _WIDTH)
    made.linear("adaln_single.linear", _WIDTH, 6 * _WIDTH)
    made.linear("caption_projection.linear_1", _TEXT, _WIDTH)
    made.linear("caption_projection.linear_2", _WIDTH, _WIDTH)
    made.linear("proj_out", _WIDTH, 2 * LATENT * _PATCH * _PATCH)
    return made.tensors


def _config() -> dict[str, Any]:
    return {
        "_class_name": "Transformer2DModel",
        "_diffusers_version": _VERSION,
        "activation_fn": "gelu-approximate",
        "attention_bias": True,
        "attention_head_dim": _WIDTH // _HEADS,
        "attention_type": "default",
        "caption_channels": _TEXT,
        "cross_attention_dim": _WIDTH,
        "double_self_attention": False,
        "dropout": 0.0,
        "in_channels": LATENT,
        "interpolation_scale": 1,
        "norm_elementwise_affine": False,
        "norm_eps": 1e-06,
        "norm_num_groups": 32,
        "norm_type": "ada_norm_single",
        "num_attention_heads": _HEADS,
        "num_embeds_ada_norm": 1000,
        "num_layers": _LAYERS,
        "num_vector_embeds": None,
        "only_cross_attention": False,
        "out_channels": 2 * LATENT,
        "patch_size": _PATCH,
        "sample_size": 8,
        "upcast_attention": False,
        "use_additional_conditions": False,
        "use_linear_projection": False,
    }


def _parts() -> dict[str, Part]:
    transformer = Part(
        library="diffusers",
        kind="Transformer2DModel",
        config=_config(),
        tensors=_transformer(),
        loses="transformer_blocks.1.ff.net.2.weight",
    )
    vae = Vae("pixart-sigma/vae", _VERSION, options={"force_upcast": True, "scaling_factor": 0.13025})
    return {
        "transformer": transformer,
        "vae": vae.part(published=False),
        "text_encoder": T5("pixart-sigma/text_encoder", _TEXT).part(),
    }


PIXART_SIGMA = Pipeline(
    name="pixart-sigma",
    class_name="PixArtSigmaPipeline",
    part_names=("transformer", "vae", "text_encoder"),
    make=_parts,
    others={
        "scheduler": ["diffusers", "DPMSolverMultistepScheduler"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
    },
    files={
        "scheduler/scheduler_config.json": {
            "_class_name": "DPMSolverMultistepScheduler",
            "_diffusers_version": _VERSION,
            "algorithm_type": "dpmsolver++",
            "beta_end": 0.02,
            "beta_schedule": "linear",
            "beta_start": 0.0001,
            "dynamic_thresholding_ratio": 0.995,
            "euler_at_final": False,
            "lambda_min_clipped": -1e9,
            "lower_order_final": True,
            "num_train_timesteps": 1000,
            "prediction_type": "epsilon",
            "sample_max_value": 1.0,
            "solver_order": 2,
            "solver_type": "midpoint",
            "steps_offset": 0,
            "thresholding": False,
            "timestep_spacing": "linspace",
            "trained_betas": None,
            "use_karras_sigmas": False,
            "use_lu_lambdas": False,
            "variance_type": None,
        },
        **t5_files("tokenizer"),
    },
    version=_VERSION,
    call={"guidance_scale": 4.5, "max_sequence_length": 16, "use_resolution_binning": False, "clean_caption": False},
    no_single="the original project publishes a pickle, which is never read",
)
