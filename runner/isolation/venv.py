"""How is an environment entered without containers? As a process of this machine, in its virtual environment.

A convenience and no security boundary: the store is read-only and the network away only where Linux lets us.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from runner.environments.interpreters import find_python
from runner.environments.sandbox import confined
from runner.environments.store import Environment, Store
from runner.environments.tidy import plan_tidying
from runner.isolation.contract import Channel, StartRequest, build_request, cell_variables
from runner.isolation.gpus import Gpus, find_gpus
from runner.isolation.scratch import scratch_parent
from runner.resolve.lock import Lock, Platform
from runner.resolve.uv import Uv

__all__ = ["ProcessChannel", "Venv", "default_store"]

_CHUNK = 1 << 18
_LOG = 8000


def default_store() -> Path:
    """`$METAMATRIX_STORE`, or a folder in the user's cache directory (beside uv's, so that hardlinks work)."""
    chosen = os.environ.get("METAMATRIX_STORE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metamatrix"


class Venv:
    """Environments in a folder of this machine, entered as processes of it."""

    name = "venv"

    def __init__(self, root: Path, uv: Uv) -> None:
        self.platform = Platform.here()
        self._uv = uv
        self._gpus: Gpus | None = None
        self._store = Store(root, self._run_uv)

    def _run_uv(self, arguments: Sequence[str]) -> tuple[int, str]:
        answer = self._uv.run(arguments)
        return answer.status, answer.stderr

    def find(self, identifier: str) -> Environment | None:
        return self._store.find(identifier)

    def make_room(self, budget: int, wanted: Mapping[str, str]) -> None:
        if any(self.find(identifier) is None for identifier in wanted):
            plan_tidying(self._store.root, budget, wanted.keys()).carry_out(self._store.root)

    def build(self, lock: Lock, workers: int) -> Environment:
        built = self._store.build(build_request(lock, find_python(self._uv, lock.python)), workers)
        self._store.check(built)  # an earlier run may have found it changed, and ended
        return built

    def check(self, environment: Environment) -> None:
        self._store.check(environment)

    def give(self, path: Path) -> str:
        return str(path)

    def start(self, environment: Environment, request: StartRequest) -> Channel:
        command, could = confined([str(environment.python)], self._store.root)
        return ProcessChannel(command, str(request.archive), {"confined": could})

    def gpus(self, python: str) -> Gpus:  # noqa: ARG002 - a process sees them whatever its Python
        if self._gpus is None:
            self._gpus = find_gpus(_run_here)
        return self._gpus

    def stop(self) -> None:
        self._uv.stop()

    def close(self) -> None:
        """Nothing to do: processes end with their channels."""


def _run_here(command: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    return done.returncode, done.stdout.decode("utf-8", "backslashreplace")


def _of_this_machine() -> dict[str, str]:
    """Where programs are, and the user's choice of a GPU. (A container has paths and a device of its own.)"""
    found = {"PATH": os.environ.get("PATH", os.defpath)}
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        found["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"]
    return found


class ProcessChannel:
    """One process. `command` starts a Python; the probe's archive and flags are added here."""

    def __init__(self, command: Sequence[str], archive: str, conditions: dict[str, Any]) -> None:
        self.conditions = conditions
        self._folder = tempfile.mkdtemp(prefix="metamatrix-", dir=scratch_parent())
        self.scratch = self._folder
        self._log_path = Path(self._folder) / "zygote.log"
        self._log: IO[bytes] = self._log_path.open("ab")
        # -I: nothing of the host's Python settings; -B: cells write no bytecode.
        self._process = subprocess.Popen(
            [*command, "-I", "-B", archive],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**_of_this_machine(), **cell_variables(os.environ, self._folder)},
            cwd=self._folder,
            start_new_session=True,  # Ctrl-C in the terminal is for the engine, which ends the cells itself
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._in, left) :]

    def read(self, seconds: float) -> bytes | None:
        ready, _, _ = select.select([self._out], [], [], seconds)
        return os.read(self._out, _CHUNK) if ready else None

    def log(self) -> str:
        return self._log_path.read_bytes()[-_LOG:].decode("utf-8", "backslashreplace")

    def status(self) -> str:
        status = self._process.poll()
        return "it still runs" if status is None else f"exit status {status}"

    def close(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._release()

    def kill(self) -> None:
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
        shutil.rmtree(self._folder, ignore_errors=True)
