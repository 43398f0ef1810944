"""How do engine, zygote and child speak? Frames: four bytes of length (big endian), then JSON in UTF-8."""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Dict, Iterator

__all__ = ["LIMIT", "FrameError", "Frames", "encode", "write"]

LIMIT = 32 * 1024 * 1024
"""The longest frame in bytes. Whatever claims to be longer is noise, or hostile."""


class FrameError(ValueError):
    """What came over the channel is no frame."""


def encode(message: Dict[str, Any]) -> bytes:
    """The frame of `message`.

    Raises:
        FrameError: the message is longer than LIMIT.
    """
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("utf-8", "backslashreplace")
    if len(body) > LIMIT:
        raise FrameError(f"a frame of {len(body)} bytes is over the limit of {LIMIT}")
    return struct.pack(">I", len(body)) + body


def write(descriptor: int, message: Dict[str, Any]) -> None:
    """Write one frame whole to a blocking descriptor."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(descriptor, data) :]


class Frames:
    """Collects bytes as they arrive and gives the messages that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        """Add `data`; yield every message that is whole now.

        Raises:
            FrameError: a length over LIMIT, a body that is no JSON object.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">I", self._buffer)
            if length > LIMIT:
                raise FrameError(f"a frame claims {length} bytes, over the limit of {LIMIT}")
            if len(self._buffer) < 4 + length:
                return
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                message = json.loads(body)
            except ValueError as error:
                raise FrameError(f"a frame holds no JSON: {error}") from error
            if not isinstance(message, dict):
                raise FrameError(f"a frame holds a {type(message).__name__}, not an object")
            yield message

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._buffer)
