"""What may a container of cells do? Compute, and write into a small tmpfs; nothing else.

No network, nothing of the host, a read-only root and store, no privilege to gain. Its limits are the backstop
of those that each cell puts on itself: the zygote, as many cells as run at once, and the tmpfs.

`use_config_proxy=False` everywhere: else the SDK adds the proxy of the user's Docker settings, with its password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, LogConfig, Mount
from requests.exceptions import RequestException

from runner.environments.store import Environment
from runner.isolation.containers.engine import Engine, failures
from runner.isolation.containers.keeper import STORE
from runner.isolation.containers.labels import labels, owner
from runner.isolation.containers.lifetime import ULIMITS, attach_and_start, let_go, remove, run_to_end
from runner.isolation.containers.streams import Streams
from runner.isolation.contract import StartRequest, cell_variables

__all__ = ["ContainerChannel", "run_once", "start_cells"]

SCRATCH = "/scratch"
_MIB = 1 << 20
_ZYGOTE_MB = 2048
_ZYGOTE_PROCESSES = 16
_GPU = [DeviceRequest(count=1, capabilities=[["gpu", "compute", "utility"]])]
_PATH = "/usr/local/bin:/usr/bin:/bin"


def start_cells(
    engine: Engine,
    image: str,
    volume: str,
    version: str,
    environment: Environment,
    archive: str,
    request: StartRequest,
) -> ContainerChannel:
    """Start a container with the zygote of an environment in it.

    Raises:
        EngineFailed: the engine refused, or went away.
    """
    limits, jobs = request.limits, request.jobs
    scratch_mb = jobs * limits["disk_mb"]
    memory = min(engine.memory, (_ZYGOTE_MB + jobs * limits["memory_mb"] + scratch_mb) * _MIB)
    api = engine.client.api
    with failures("start a container for cells"):
        container = api.create_container(
            image,
            [str(environment.python), "-I", "-B", archive],
            stdin_open=True,
            user="10002:10002",
            working_dir=SCRATCH,
            environment={"PATH": _PATH, **cell_variables(os.environ, SCRATCH)},
            labels=labels("cell", version, owner=owner(), environment=environment.id),
            network_disabled=True,
            use_config_proxy=False,
            host_config=api.create_host_config(
                auto_remove=True,
                init=True,
                network_mode="none",
                read_only=True,
                tmpfs={SCRATCH: f"size={scratch_mb}m,mode=1777"},
                mounts=[Mount(target=STORE, source=volume, type="volume", read_only=True)],
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                ipc_mode="private",
                shm_size=64 * _MIB,
                mem_limit=memory,
                memswap_limit=memory,
                pids_limit=_ZYGOTE_PROCESSES + jobs * limits["processes"],
                nano_cpus=min(jobs, engine.cpus) * 10**9,
                device_requests=_GPU if request.runner == "cuda" else None,
                ulimits=ULIMITS,
                log_config=LogConfig(type="none"),
            ),
        )
        identifier = str(container["Id"])
        streams = attach_and_start(engine, identifier)
    conditions = {"engine": engine.name, "cgroup": engine.cgroup, "image": image, "confined": True}
    return ContainerChannel(engine, identifier, streams, conditions)


def run_once(engine: Engine, image: str, version: str, command: Sequence[str]) -> tuple[int, str]:
    """Run a command in a container that has a GPU and nothing else: (exit status, all that it said).

    Raises:
        FileNotFoundError: the image has no such command (the NVIDIA toolkit puts its own there).
        OSError: the engine has no GPU to give; the text is its own.
    """
    api = engine.client.api
    with failures("start a container"):
        container = api.create_container(
            image,
            list(command),
            labels=labels("cell", version, owner=owner()),
            network_disabled=True,
            use_config_proxy=False,
            host_config=api.create_host_config(network_mode="none", read_only=True, device_requests=_GPU),
        )
    identifier = str(container["Id"])
    try:
        return run_to_end(engine, identifier, seconds=60)
    except APIError as error:
        said = str(error.explanation or error)
        if "executable file not found" in said:
            raise FileNotFoundError(said) from error
        raise OSError(said) from error
    finally:
        remove(engine, identifier)


class ContainerChannel:
    """The streams of a container; when our end closes, the zygote ends, and the engine removes the container."""

    scratch = SCRATCH

    def __init__(self, engine: Engine, identifier: str, streams: Streams, conditions: Mapping[str, Any]) -> None:
        self.conditions = conditions
        self.id = identifier
        self._engine, self._streams = engine, streams

    def write(self, data: bytes) -> None:
        self._streams.write(data)

    def read(self, seconds: float) -> bytes | None:
        return self._streams.read(seconds)

    def log(self) -> str:
        return self._streams.said()

    def status(self) -> str:
        try:
            state = self._engine.client.api.inspect_container(self.id)["State"]
        except NotFound:
            return "its container is gone"
        except (DockerException, RequestException, OSError):
            return "the engine does not answer"
        return "it still runs" if state["Running"] else f"exit status {state['ExitCode']}"

    def close(self, seconds: float) -> None:
        while (data := self._streams.read(seconds)) is not None:
            if not data:
                break  # it has ended
        self.kill()

    def kill(self) -> None:
        self._streams.close()
        let_go(self._engine, self.id)
