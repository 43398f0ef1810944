"""How is uv asked? The single seam to the resolver and installer; tests that need no network replace it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import UvFailed

__all__ = ["Answer", "Uv", "uv_environment"]

_PIP_TO_UV = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_CERT": "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE": "SSL_CERT_FILE",
}
_TRANSIENT = (
    "error sending request",
    "connection",
    "timed out",
    "dns error",
    "failed to fetch",
    "request failed",
    "no space left",
    "http status server error",
    "failed to download",
)


def uv_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that uv gets: the host's, with pip's settings in uv's words where uv has none of its own."""
    result = {name: value for name, value in environment.items() if name not in ("VIRTUAL_ENV", "UV_PROJECT")}
    old_names = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    for pip_name, uv_name in _PIP_TO_UV.items():
        if environment.get(pip_name) and uv_name not in result and old_names.get(uv_name, uv_name) not in result:
            result[uv_name] = environment[pip_name]
    links = [*environment.get("UV_FIND_LINKS", "").split(","), *environment.get("PIP_FIND_LINKS", "").split()]
    joined = ",".join(dict.fromkeys(link for link in links if link))
    if joined:
        result["UV_FIND_LINKS"] = joined
    return result


def _die_with_us() -> list[str]:
    """A prefix that ends uv with the thread that waits for it: a killed run must not go on installing."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


@dataclass(frozen=True, slots=True)
class Answer:
    """What uv said: exit status and both outputs."""

    status: int
    stdout: str
    stderr: str

    @property
    def transient(self) -> bool:
        """Whether the network or the disk was at fault, not the request."""
        text = self.stderr.lower()
        return any(sign in text for sign in _TRANSIENT)


@dataclass(slots=True)
class Uv:
    """Runs uv. `stop` ends what is running and refuses new calls, for Ctrl-C."""

    path: str = ""
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: bool = False

    def __post_init__(self) -> None:
        beside = Path(sys.executable).parent / "uv"
        found = self.path or shutil.which("uv") or (str(beside) if beside.exists() else "")
        if not found:
            raise UvFailed("uv was not found", "Install it with `pip install uv`, or put it on PATH.")
        self.path = found

    def version(self) -> str:
        """Its release, such as 0.13.9."""
        return self.run(["--version"]).stdout.split()[1]

    def run(self, arguments: Sequence[str], cwd: Path | None = None, given: str = "") -> Answer:
        """Run uv to its end, with `given` on its standard input.

        Raises:
            UvFailed: it cannot be started, or `stop` was called.
        """
        with self._lock:
            if self._stopped:
                raise UvFailed("stopped", "Run the same command again to go on.")
            try:
                process = subprocess.Popen(
                    [*_die_with_us(), self.path, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="backslashreplace",
                    cwd=cwd,
                    env=uv_environment(os.environ),
                    start_new_session=True,
                )
            except OSError as error:
                raise UvFailed(f"uv cannot be started: {error}", "Check that `uv --version` works.") from error
            self._running.add(process)
        try:
            stdout, stderr = process.communicate(given)
        finally:
            with self._lock:
                self._running.discard(process)
        if self._stopped:
            raise UvFailed("stopped", "Run the same command again to go on.")
        return Answer(process.returncode, stdout, stderr)

    def stop(self) -> None:
        """End all that runs now, and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()
