"""Is there a GPU that a torch backend can use, and if not, why? Asked of `nvidia-smi`, where cells would run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runner.errors import InfrastructureError

__all__ = ["Gpu", "Gpus", "find_gpus"]

Run = Callable[[Sequence[str]], "tuple[int, str]"]
"""Runs a command where cells would run: (exit status, all that it said).

Raises FileNotFoundError where there is no such command, another OSError where there is no device to be had.
"""

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)")
_BACKEND = re.compile(r"cu(\d+)(\d)$")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device: its name, memory in MiB, the driver's release."""

    name: str
    memory_mb: int
    driver: str


@dataclass(frozen=True, slots=True)
class Gpus:
    """The devices that were found, the newest CUDA that their driver knows; or `missing`, why there is none."""

    devices: tuple[Gpu, ...] = ()
    cuda: tuple[int, int] = (0, 0)
    missing: str = ""

    def unavailable(self, backend: str) -> str:
        """Why cells of a torch backend such as cu128 cannot run; empty where they can.

        Within one major version of CUDA an older driver runs a newer toolkit (NVIDIA's minor version
        compatibility), so only the major version is asked for.
        """
        if self.missing:
            return self.missing
        wanted = _BACKEND.match(backend)
        if wanted is None:
            return f"{backend!r} is no CUDA backend of torch; `torch_backend` in the matrix names one, such as cu128"
        if int(wanted[1]) > self.cuda[0]:
            driver = self.devices[0].driver
            return f"the driver {driver} is too old: it knows CUDA {self.cuda[0]}.{self.cuda[1]}, {backend} needs {wanted[1]}"
        return ""

    def at_once(self, memory_mb: int) -> int:
        """How many cells of that many MiB the first device takes at once; at least one."""
        return max(1, self.devices[0].memory_mb // memory_mb) if self.devices else 1


def find_gpus(run: Run) -> Gpus:
    """Ask for devices; never raises: what goes wrong is the reason."""
    try:
        status, said = run(_QUERY)
        if status != 0:
            return Gpus(missing=f"no usable NVIDIA device: {_last_line(said)}")
        devices = tuple(_device(line) for line in said.splitlines() if line.count(",") >= 2)
        if not devices:
            return Gpus(missing="nvidia-smi lists no device")
        found = _CUDA.search(run(("nvidia-smi",))[1])
    except FileNotFoundError:
        return Gpus(missing="no NVIDIA driver: nvidia-smi is not there")
    except (OSError, subprocess.SubprocessError, InfrastructureError) as error:
        return Gpus(missing=_explained(str(error)))
    except ValueError as error:
        return Gpus(missing=f"nvidia-smi says something unknown: {error}")
    if found is None:
        return Gpus(missing="nvidia-smi does not say which CUDA its driver knows")
    return Gpus(devices, (int(found[1]), int(found[2])))


def _explained(said: str) -> str:
    """What an engine means that cannot give a device."""
    if "could not select device driver" in said:
        return "the engine has no NVIDIA container toolkit"
    return f"no usable NVIDIA device: {_last_line(said)}"


def _device(line: str) -> Gpu:
    name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
    return Gpu(name, int(memory), driver)


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nvidia-smi said nothing"
