"""What does the engine ask of an isolation? Environments, files that cells can read, and programs started in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runner.environments.store import BuildRequest, Environment
from runner.isolation.gpus import Gpus
from runner.resolve.lock import Lock, Platform

__all__ = ["CELL_VARIABLES", "Channel", "Isolation", "StartRequest", "build_request", "cell_variables"]

CELL_VARIABLES = {
    "LANG": "C.UTF-8",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONHASHSEED": "0",
}
"""What every cell gets. `ACCELERATE_INIT_INCLUDE_BUFFERS` and its like are left out: they change verdicts."""

_FROM_HOST = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Set by some hosts where an older OpenBLAS misdetects the processor; without it numpy is wrong there."""


def cell_variables(host: Mapping[str, str], scratch: str) -> dict[str, str]:
    """The variables of a zygote and its cells: a short list, so that no token of the host is among them."""
    kept = {name: host[name] for name in _FROM_HOST if name in host}
    return {**CELL_VARIABLES, **kept, "HOME": scratch, "TMPDIR": scratch, "HF_HOME": f"{scratch}/huggingface"}


def build_request(lock: Lock, python: str) -> BuildRequest:
    """What a store is asked for a lock, with `python` as uv takes it."""
    packages = tuple((package.name, package.version, package.sha256) for package in lock.packages)
    return BuildRequest(lock.environment, lock.text, lock.digest, packages, python)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What is started: the probe's `archive` (a file of this machine), for `jobs` cells at once of these limits.

    `runner` is cpu or cuda: what the cells compute on.
    """

    archive: Path
    limits: Mapping[str, int]
    jobs: int
    runner: str = "cpu"


class Channel(Protocol):
    """A program at work in an environment: bytes in, bytes out, a log. `scratch` is its folder, as it sees it."""

    @property
    def scratch(self) -> str: ...

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What could matter about where it runs, for the columns of an attempt."""

    def write(self, data: bytes) -> None:
        """Send all of `data`. Raises OSError where the program no longer listens."""

    def read(self, seconds: float) -> bytes | None:
        """What it says within `seconds`; None where it says nothing, empty where it has ended."""

    def log(self) -> str:
        """The end of what it wrote to standard error."""

    def status(self) -> str:
        """How it ended, in words; that it runs where it does."""

    def close(self, seconds: float) -> None:
        """Wait for its end, then end it; leave nothing behind."""

    def kill(self) -> None:
        """End it and its cells at once, and leave nothing behind; harmless where that was done before."""


class Isolation(Protocol):
    """A way to enter environments. Methods may be called from several threads."""

    name: str
    platform: Platform

    def make_room(self, budget: int, wanted: Mapping[str, str]) -> None:
        """Before something is built, remove what was used least recently until `budget` bytes are held.

        `wanted` maps the environments that will be used, which stay, to their Python.
        """

    def build(self, lock: Lock, workers: int) -> Environment:
        """The environment of `lock`, built unless it is there. Raises BuildFailed."""

    def check(self, environment: Environment) -> None:
        """Raises EnvironmentDamaged where it is not as it was sealed."""

    def give(self, path: Path) -> str:
        """Make a file or folder, named by its content, readable to cells; its path as they see it.

        Nothing is given before something was built.
        """

    def start(self, environment: Environment, request: StartRequest) -> Channel:
        """Start the probe with the environment's interpreter. Raises InfrastructureError."""

    def gpus(self, python: str) -> Gpus:
        """The GPUs that cells of a Python can use, or why there is none; asked once."""

    def stop(self) -> None:
        """End what is being built; may be called from a signal handler."""

    def close(self) -> None:
        """Leave nothing running."""
