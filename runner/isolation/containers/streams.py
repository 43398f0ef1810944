"""How does one speak with a program in a container? Over one connection that carries its three streams.

The engine puts eight bytes before each piece of output: the stream (1 or 2), three zeros, the length.
"""

from __future__ import annotations

import socket
import time
from typing import Any

__all__ = ["Streams"]

_CHUNK = 1 << 18
_HEADER = 8
_STDOUT, _STDERR = 1, 2
_LOG = 8000


class Streams:
    """A hijacked connection. `raw` is what the SDK gives for `socket=True` or `attach_socket`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw  # keeps the connection open
        self._socket: socket.socket = getattr(raw, "_sock", raw)
        self._buffer = bytearray()
        self._said = b""
        self._ended = False

    def write(self, data: bytes) -> None:
        """Send all of `data` to standard input. Raises OSError where nobody reads it."""
        self._socket.settimeout(None)
        self._socket.sendall(data)

    def read(self, seconds: float) -> bytes | None:
        """Standard output that arrives within `seconds`; None where there is none, empty at the end."""
        deadline = time.monotonic() + seconds
        while True:
            found = self._next_output()
            if found:
                return found
            if self._ended:
                return b""
            left = deadline - time.monotonic()
            if left <= 0 and seconds > 0:
                return None
            self._socket.settimeout(max(0.001, left))
            try:
                data = self._socket.recv(_CHUNK)
            except (TimeoutError, BlockingIOError):
                return None
            self._buffer += data
            self._ended = not data

    def _next_output(self) -> bytes:
        """The whole pieces of standard output that are here; those of standard error are kept aside."""
        output = b""
        while len(self._buffer) >= _HEADER:
            size = int.from_bytes(self._buffer[4:_HEADER], "big")
            if len(self._buffer) < _HEADER + size:
                break
            piece = bytes(self._buffer[_HEADER : _HEADER + size])
            stream = self._buffer[0]
            del self._buffer[: _HEADER + size]
            if stream == _STDOUT:
                output += piece
            elif stream == _STDERR:
                self._said = (self._said + piece)[-_LOG:]
        return output

    def said(self) -> str:
        """The end of standard error so far."""
        return self._said.decode("utf-8", "backslashreplace")

    def close(self) -> None:
        """Let go of the connection."""
        try:
            self._socket.close()
            self._raw.close()
        except OSError:
            return  # it was gone already
