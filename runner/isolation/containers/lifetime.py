"""How does a container begin and end? With our streams in hand before it starts, and never left behind."""

from __future__ import annotations

import time

from docker.errors import APIError, NotFound
from docker.types import Ulimit

from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.streams import Streams

__all__ = ["ULIMITS", "attach_and_start", "let_go", "remove", "run_to_end"]

ULIMITS = [Ulimit(name=name, soft=4096, hard=4096) for name in ("nofile", "nproc")]
"""Said, because an engine's own choice (Podman's) may be more than a container without privileges can have."""


def attach_and_start(engine: Engine, container: str) -> Streams:
    """Start a container that was made, its streams in hand first; one that cannot start is not left behind."""
    api = engine.client.api
    try:
        streams = Streams(api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}))
        api.start(container)
    except BaseException:
        let_go(engine, container)
        raise
    return streams


def run_to_end(engine: Engine, container: str, seconds: int | None = None) -> tuple[int, str]:
    """Start a container that was made and wait for it: (exit status, all that it said). Removing it is the caller's.

    Raises what the SDK raises; `seconds` None waits as long as it takes.
    """
    api = engine.client.api
    api.start(container)
    status = int(api.wait(container, timeout=seconds)["StatusCode"])
    return status, api.logs(container).decode("utf-8", "backslashreplace")


def remove(engine: Engine, container: str, seconds: float = 20.0) -> None:
    """End a container and wait until it is gone; one that is gone already is fine.

    Raises:
        EngineFailed: it is still there after `seconds`.
    """
    deadline = time.monotonic() + seconds
    with failures(f"remove the container {container[:12]}"):
        while True:
            try:
                engine.client.api.remove_container(container, force=True, v=False)
                return
            except NotFound:
                return
            except APIError as error:  # 409: the engine is removing it by itself
                if error.status_code != 409 or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def let_go(engine: Engine, container: str) -> None:
    """Remove a container whose streams are closed; an engine that is away removes it itself, or the next run does."""
    try:
        remove(engine, container)
    except EngineFailed:
        return
