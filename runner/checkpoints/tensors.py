"""What numbers does a checkpoint hold? Seeded tensors, and the safetensors file they are kept in.

No torch and no numpy: the program that makes checkpoints must not be the library under test, and the
bytes must be the same on every machine. Values come from SHAKE-256 and exact IEEE operations only
(add, multiply, divide, square root), never from a maths library whose last digit differs per machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from array import array
from dataclasses import dataclass

__all__ = ["Tensor", "identity", "joined", "read_safetensors", "seeded", "write_safetensors"]

_SIZES = {"F32": 4, "I64": 8}


@dataclass(frozen=True)
class Tensor:
    """One stored tensor: `dtype` as safetensors names it (F32, I64), `shape`, little-endian `data`."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def reshaped(self, *shape: int) -> Tensor:
        """The same numbers under another shape of the same size."""
        if math.prod(shape) != math.prod(self.shape):
            raise ValueError(f"cannot reshape {self.shape} to {shape}")
        return Tensor(self.dtype, shape, self.data)

    def without_last_row(self) -> Tensor:
        """The same numbers but those of the last index of the first dimension."""
        rows = self.shape[0]
        return Tensor(self.dtype, (rows - 1, *self.shape[1:]), self.data[: len(self.data) // rows * (rows - 1)])

    def transposed(self) -> Tensor:
        """A matrix with rows and columns exchanged."""
        rows, columns = self.shape
        size = _SIZES[self.dtype]
        cells = [self.data[at : at + size] for at in range(0, len(self.data), size)]
        data = b"".join(cells[row * columns + column] for column in range(columns) for row in range(rows))
        return Tensor(self.dtype, (columns, rows), data)

    @classmethod
    def counting(cls, count: int) -> Tensor:
        """0 … count-1 as int64, in the shape (1, count)."""
        return cls("I64", (1, count), struct.pack(f"<{count}q", *range(count)))


def seeded(seed: str, shape: tuple[int, ...], centre: float = 0.0, spread: float = 1.0) -> Tensor:
    """float32 numbers spread evenly over `centre` ± `spread`, fixed by `seed` (any text)."""
    count = math.prod(shape)
    raw = array("I")
    raw.frombytes(hashlib.shake_256(seed.encode()).digest(4 * count))
    if sys.byteorder == "big":
        raw.byteswap()
    # The upper 24 bits give an exact dyadic fraction in [-1, 1).
    values = array("f", (centre + spread * ((bits >> 8) / 8388608.0 - 1.0) for bits in raw))
    if sys.byteorder == "big":
        values.byteswap()
    return Tensor("F32", shape, values.tobytes())


def identity(width: int) -> Tensor:
    """The float32 identity matrix."""
    numbers = [float(row == column) for row in range(width) for column in range(width)]
    return Tensor("F32", (width, width), struct.pack(f"<{len(numbers)}f", *numbers))


def joined(tensors: list[Tensor]) -> Tensor:
    """Tensors that differ in their first dimension only, one after the other along it."""
    first = tensors[0]
    rows = sum(tensor.shape[0] for tensor in tensors)
    return Tensor(first.dtype, (rows, *first.shape[1:]), b"".join(tensor.data for tensor in tensors))


def write_safetensors(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a safetensors file: names sorted, offsets without gaps, header padded to 8 bytes."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        end = offset + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[name].data for name in sorted(tensors))


def read_safetensors(content: bytes) -> dict[str, Tensor]:
    """The tensors of a file that `write_safetensors` made.

    Raises:
        ValueError: the content is no whole safetensors file of a known dtype.
    """
    if len(content) < 8:
        raise ValueError("shorter than a safetensors header")
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError("the header is longer than the file")
    header = json.loads(content[8 : 8 + length])
    body = content[8 + length :]
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if entry["dtype"] not in _SIZES or end > len(body):
            raise ValueError(f"{name}: unknown dtype or data beyond the end of the file")
        if end - start != math.prod(shape) * _SIZES[entry["dtype"]]:
            raise ValueError(f"{name}: shape and data differ in size")
        tensors[name] = Tensor(entry["dtype"], shape, body[start:end])
    return tensors
