"""How does the engine speak with a zygote? Sends frames over a channel, collects what it answers.

A zygote that dies, or that speaks nonsense, ends as `ZygoteLost` with the end of its own log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from runner.errors import InfrastructureError
from runner.isolation.contract import Channel
from runner.probe.frames import FrameError, Frames, encode

__all__ = ["ZygoteClient", "ZygoteLost"]


class ZygoteLost(InfrastructureError):
    """The zygote ended or broke the protocol; the text holds what its log says."""


class ZygoteClient:
    """One zygote at the other end of a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames = Frames()

    @property
    def scratch(self) -> str:
        """The folder of the zygote, as it sees it."""
        return self._channel.scratch

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What could matter about where it runs."""
        return self._channel.conditions

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            ZygoteLost: it no longer listens.
        """
        try:
            self._channel.write(encode(message))
        except OSError as error:
            raise self.lost(f"it no longer listens ({error.strerror or error})") from error

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """The messages that arrive within `seconds`; as soon as there is one, no more waiting.

        Raises:
            ZygoteLost: the channel ended or holds nonsense.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                data = self._channel.read(max(0.0, deadline - time.monotonic()))
            except OSError as error:
                raise self.lost(f"its channel broke ({error.strerror or error})") from error
            if data is None:
                return []
            if not data:
                raise self.lost("it ended")
            try:
                messages = list(self._frames.feed(data))
            except FrameError as error:
                raise self.lost(str(error)) from error
            if messages:
                return messages

    def close(self, seconds: float = 5.0) -> None:
        """Ask it to end, and end it where it does not."""
        try:
            self.send({"kind": "close"})
        except ZygoteLost:
            return  # and so it is gone already
        self._channel.close(seconds)

    def kill(self) -> None:
        """End it and its cells at once; nothing happens where that was done before."""
        self._channel.kill()

    def lost(self, why: str) -> ZygoteLost:
        """What is lost is also ended: whoever catches this has nothing left to clean up."""
        status, log = self._channel.status(), self._channel.log()
        self._channel.kill()
        return ZygoteLost(
            f"the zygote is lost: {why}; {status}; its log ends:\n{log}",
            "Run the same command again; if it happens again, the log above says what the interpreter met.",
        )
