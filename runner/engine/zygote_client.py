"""How does the engine speak with a zygote? Starts it, sends frames, collects what it answers.

A zygote that dies, or that speaks nonsense, ends as `ZygoteLost` with the end of its own log.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from runner.errors import InfrastructureError
from runner.probe.frames import FrameError, Frames, encode

__all__ = ["ZygoteClient", "ZygoteLost", "cell_environment"]

_CHUNK = 1 << 18
_LOG = 8000


class ZygoteLost(InfrastructureError):
    """The zygote ended or broke the protocol; the text holds what its log says."""


def cell_environment(scratch: Path) -> dict[str, str]:
    """The variables of a zygote and its cells: a short list, none inherited but what locates programs.

    `ACCELERATE_INIT_INCLUDE_BUFFERS` and its like are left out on purpose: they change verdicts.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(scratch / "huggingface"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "PYTHONHASHSEED": "0",
    }
    # Set by some hosts where an older OpenBLAS misdetects the processor; without it numpy is wrong there.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return environment


class ZygoteClient:
    """One zygote process. `command` starts a Python; the probe's archive and flags are added here."""

    def __init__(self, command: Sequence[str], archive: Path, scratch: Path, log: Path) -> None:
        self._log_path = log
        self._log: IO[bytes] = log.open("ab")
        # -I: nothing of the host's Python settings; -B: cells write no bytecode.
        self._process = subprocess.Popen(
            [*command, "-I", "-B", str(archive)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=cell_environment(scratch),
            cwd=scratch,
            start_new_session=True,  # Ctrl-C in the terminal is for the engine, which ends the cells itself
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._frames = Frames()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            ZygoteLost: it no longer listens.
        """
        data = memoryview(encode(message))
        try:
            while data:
                data = data[os.write(self._in, data) :]
        except OSError as error:
            raise self.lost(f"it no longer listens ({error.strerror})") from error

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """The messages that arrive within `seconds`; as soon as there is one, no more waiting.

        Raises:
            ZygoteLost: the channel ended or holds nonsense.
        """
        deadline = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return []
            data = os.read(self._out, _CHUNK)
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
            self._process.wait(seconds)
        except (ZygoteLost, subprocess.TimeoutExpired):
            self.kill()
        self._release()

    def kill(self) -> None:
        """End it and its cells at once; nothing happens where that was done before."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._release()

    def _release(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def lost(self, why: str) -> ZygoteLost:
        """What is lost is also ended: whoever catches this has nothing left to clean up."""
        status = self._process.poll()
        self.kill()
        text = self._log_path.read_bytes()[-_LOG:].decode("utf-8", "backslashreplace")
        return ZygoteLost(
            f"the zygote is lost: {why}; exit status {status}; its log ends:\n{text}",
            "Run the same command again; if it happens again, the log above says what the interpreter met.",
        )
