"""What is a tiny autoencoder? Tensors and configuration of an AutoencoderKL, and its names in the CompVis layout."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runner.checkpoints.layers import Layers
from runner.checkpoints.pipeline import Part, Tensors, prefixed, renamed

__all__ = ["LATENT", "Vae"]

LATENT = 4
_WIDTHS = (8, 16)


@dataclass(frozen=True)
class Vae:
    """An autoencoder of two widths; `quant` says whether it has the two convolutions around the latents.

    `options` are further keys of its configuration.
    """

    seed: str
    version: str
    quant: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> Tensors:
        narrow, wide = _WIDTHS
        vae = Layers(self.seed)
        vae.conv("encoder.conv_in", 3, narrow)
        vae.resnet("encoder.down_blocks.0.resnets.0", narrow, narrow)
        vae.conv("encoder.down_blocks.0.downsamplers.0.conv", narrow, narrow)
        vae.resnet("encoder.down_blocks.1.resnets.0", narrow, wide)
        vae.conv("decoder.conv_in", LATENT, wide)
        for side, out in (("encoder", 2 * LATENT), ("decoder", 3)):
            vae.norm(f"{side}.mid_block.attentions.0.group_norm", wide)
            vae.attention(f"{side}.mid_block.attentions.0", wide)
            vae.resnet(f"{side}.mid_block.resnets.0", wide, wide)
            vae.resnet(f"{side}.mid_block.resnets.1", wide, wide)
            last = wide if side == "encoder" else narrow
            vae.norm(f"{side}.conv_norm_out", last)
            vae.conv(f"{side}.conv_out", last, out)
        vae.resnet("decoder.up_blocks.0.resnets.0", wide, wide)
        vae.resnet("decoder.up_blocks.0.resnets.1", wide, wide)
        vae.conv("decoder.up_blocks.0.upsamplers.0.conv", wide, wide)
        vae.resnet("decoder.up_blocks.1.resnets.0", wide, narrow)
        vae.resnet("decoder.up_blocks.1.resnets.1", narrow, narrow)
        if self.quant:
            vae.conv("quant_conv", 2 * LATENT, 2 * LATENT, 1)
            vae.conv("post_quant_conv", LATENT, LATENT, 1)
        return vae.tensors

    def config(self) -> dict[str, Any]:
        return {
            "_class_name": "AutoencoderKL",
            "_diffusers_version": self.version,
            "act_fn": "silu",
            "block_out_channels": list(_WIDTHS),
            "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"],
            "in_channels": 3,
            "latent_channels": LATENT,
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "out_channels": 3,
            "sample_size": 32,
            "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"],
            **self.options,
        }

    def part(self, published: bool = True) -> Part:
        """The part; `published` says whether the pipeline's single file holds it."""
        return Part(
            library="diffusers",
            kind="AutoencoderKL",
            config=self.config(),
            tensors=self.tensors(),
            loses="decoder.mid_block.resnets.0.conv1.weight",
            original=_original if published else None,
        )


_NAMES = (
    (r"\.mid_block\.resnets\.0", ".mid.block_1"),
    (r"\.mid_block\.resnets\.1", ".mid.block_2"),
    (r"\.mid_block\.attentions\.0\.group_norm", ".mid.attn_1.norm"),
    (r"\.mid_block\.attentions\.0\.to_out\.0", ".mid.attn_1.proj_out"),
    (r"\.mid_block\.attentions\.0\.to_([qkv])", r".mid.attn_1.\1"),
    (r"\.down_blocks\.(\d)\.resnets\.(\d)", r".down.\1.block.\2"),
    (r"\.down_blocks\.(\d)\.downsamplers\.0", r".down.\1.downsample"),
    # The decoder of the original counts its blocks from the image, ours from the latents.
    (r"\.up_blocks\.0\.resnets\.(\d)", r".up.1.block.\1"),
    (r"\.up_blocks\.1\.resnets\.(\d)", r".up.0.block.\1"),
    (r"\.up_blocks\.0\.upsamplers\.0", ".up.1.upsample"),
    (r"conv_norm_out", "norm_out"),
    (r"conv_shortcut", "nin_shortcut"),
)


def _original(tensors: Tensors) -> Tensors:
    """The CompVis layout: its attention is a 1x1 convolution."""
    found: Tensors = {}
    for name, tensor in tensors.items():
        there = renamed(name, _NAMES)
        flat = ".attn_1." in there and len(tensor.shape) == 2
        found[there] = tensor.reshaped(*tensor.shape, 1, 1) if flat else tensor
    return prefixed(found, "first_stage_model.")
