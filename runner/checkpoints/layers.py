"""Which tensors does a layer have? Builders of the layers that all tiny models are made of.

Every weight is spread so that signals keep their size: an image then feels each of them.
"""

from __future__ import annotations

from runner.checkpoints.tensors import Tensor, seeded

__all__ = ["Layers"]


class Layers:
    """Collects the tensors of one component under the names of the hub's layout.

    `seed` begins the seed of every tensor, so that no two components hold the same numbers.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.tensors: dict[str, Tensor] = {}

    def add(self, name: str, shape: tuple[int, ...], centre: float = 0.0, spread: float = 1.0) -> None:
        self.tensors[name] = seeded(f"{self._seed}/{name}", shape, centre, spread)

    def scale(self, name: str, width: int) -> None:
        """The one weight of an RMS norm."""
        self.add(f"{name}.weight", (width,), 1.0, 0.25)

    def norm(self, name: str, width: int) -> None:
        self.scale(name, width)
        self.add(f"{name}.bias", (width,), 0.0, 0.25)

    def linear(self, name: str, into: int, out: int, bias: bool = True) -> None:
        self.add(f"{name}.weight", (out, into), 0.0, (3.0 / into) ** 0.5)
        if bias:
            self.add(f"{name}.bias", (out,), 0.0, 0.1)

    def conv(self, name: str, into: int, out: int, size: int = 3) -> None:
        self.add(f"{name}.weight", (out, into, size, size), 0.0, (3.0 / (into * size * size)) ** 0.5)
        self.add(f"{name}.bias", (out,), 0.0, 0.1)

    def table(self, name: str, rows: int, width: int) -> None:
        self.add(f"{name}.weight", (rows, width))

    def resnet(self, name: str, into: int, out: int, time: int | None = None) -> None:
        self.norm(f"{name}.norm1", into)
        self.conv(f"{name}.conv1", into, out)
        if time is not None:
            self.linear(f"{name}.time_emb_proj", time, out)
        self.norm(f"{name}.norm2", out)
        self.conv(f"{name}.conv2", out, out)
        if into != out:
            self.conv(f"{name}.conv_shortcut", into, out, 1)

    def attention(self, name: str, width: int, parts: tuple[str, ...] = ("to_q", "to_k", "to_v", "to_out.0")) -> None:
        for part in parts:
            self.linear(f"{name}.{part}", width, width)

    def feed_forward(self, name: str, width: int, gated: bool = False) -> None:
        self.linear(f"{name}.net.0.proj", width, (8 if gated else 4) * width)
        self.linear(f"{name}.net.2", 4 * width, width)
