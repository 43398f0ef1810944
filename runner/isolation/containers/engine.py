"""Is there an engine, which, and what is wrong with it? The single place that finds and asks it.

Any Docker-compatible engine: what `DOCKER_HOST` names, else the sockets that Docker and Podman make.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
import urllib3
from docker.errors import APIError, DockerException, TLSParameterError

import docker
from runner.errors import InfrastructureError

__all__ = ["Engine", "EngineFailed", "connect", "failures"]

MINIMUM_API = (1, 40)
"""Docker Engine 19.03: the first with device requests."""

_SECONDS = 120
_SKEW_SECONDS = 300
_AGAIN = "Start the engine again if it has stopped, then run the same command: it goes on where it was."
_CHOOSE = "Choose virtual environments with `--isolation venv`, or "


class EngineFailed(InfrastructureError):
    """No engine answers, or it refused something; the text is its own where it said one."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered: its client and what it says of itself.

    `machine` as `platform.machine` names it; `buildkit` whether it builds with BuildKit unless told otherwise.
    """

    client: docker.DockerClient
    name: str
    address: str
    machine: str
    cgroup: str
    cpus: int
    memory: int
    buildkit: bool
    warning: str = ""

    def close(self) -> None:
        self.client.close()


def _addresses() -> list[str]:
    """Where an engine may listen, in order."""
    chosen = os.environ.get("DOCKER_HOST")
    if chosen:
        return [chosen]
    places = ["/var/run/docker.sock"]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places += [f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock"]
    places.append("/run/podman/podman.sock")
    found = [f"unix://{place}" for place in places if Path(place).exists()]
    return found or ["unix:///var/run/docker.sock"]


def connect() -> Engine:
    """The first engine that answers.

    Raises:
        EngineFailed: none does; the text says why, for each place that was tried.
    """
    said = []
    remedy = ""
    for address in _addresses():
        try:
            return _ask(address)
        except EngineFailed as error:
            said.append(str(error))
            remedy = remedy or error.remedy
    raise EngineFailed("; ".join(said), remedy)


def _ask(address: str) -> Engine:
    try:
        _knock(address)
        # from_env reads the certificates of DOCKER_CERT_PATH; "auto" speaks the newest language that both know.
        variables = {**os.environ, "DOCKER_HOST": address}
        client = docker.from_env(version="auto", timeout=_SECONDS, environment=variables)
        version = client.version()
        info = client.info()
        ping = client.api.get(f"{client.api.base_url}/_ping", timeout=_SECONDS)
    except (DockerException, TLSParameterError, OSError) as error:
        raise _explained(address, error) from error
    api = tuple(int(part) for part in version["ApiVersion"].split(".")[:2])
    release = version.get("Version", "?")
    name = f"{'Podman' if _is_podman(version) else 'Docker Engine'} {release}"
    if api < MINIMUM_API:
        client.close()
        raise EngineFailed(
            f"{name} at {address} is too old: it speaks API {version['ApiVersion']}, "
            f"and {'.'.join(map(str, MINIMUM_API))} is needed (Docker Engine 19.03)",
            _CHOOSE + "install a newer engine.",
        )
    return Engine(
        client=client,
        name=name,
        address=address,
        machine={"arm64": "aarch64", "amd64": "x86_64"}.get(info["Architecture"], info["Architecture"]),
        cgroup=str(info.get("CgroupVersion", "1")),
        cpus=int(info["NCPU"]),
        memory=int(info["MemTotal"]),
        buildkit=ping.headers.get("Builder-Version") == "2",
        warning=_skew(info.get("SystemTime", "")),
    )


def _knock(address: str) -> None:
    """Raise the operating system's own error where nobody opens a local socket; the SDK would bury it."""
    scheme, _, place = address.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(place)


def _is_podman(version: dict[str, Any]) -> bool:
    return any("podman" in str(part.get("Name", "")).lower() for part in version.get("Components") or ())


def _skew(there: str) -> str:
    """A warning where the engine's clock is far from ours: certificates look expired then, or not valid yet."""
    try:
        seconds = (datetime.fromisoformat(there) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return ""
    if abs(seconds) < _SKEW_SECONDS:
        return ""
    return f"the engine's clock is {seconds:+.0f} s from this machine's; downloads may fail over certificates"


def _explained(address: str, error: BaseException) -> EngineFailed:
    """What a failed connection means, from the operating system's error inside it."""
    number = next((number for number in map(_errno, _chain(error)) if number), 0)
    if number in (errno.ENOENT, errno.ECONNREFUSED):
        return EngineFailed(
            f"no engine listens at {address}", _CHOOSE + "start the engine, or set DOCKER_HOST to where it listens."
        )
    if number in (errno.EACCES, errno.EPERM):
        return EngineFailed(
            f"you may not use the engine at {address} (no permission on its socket)",
            _CHOOSE + "add your user to the group that owns the socket (`docker`), and log in again.",
        )
    if "API versions below" in str(error) or "API version" in str(error):
        return EngineFailed(f"the engine at {address} is too old: {error}", _CHOOSE + "install a newer engine.")
    return EngineFailed(
        f"the engine at {address} does not answer: {_short(error)}", _CHOOSE + "check it with `docker info`."
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it holds and what it came from."""
    seen: set[int] = set()
    pending = [error]
    while pending:
        current = pending.pop(0)
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            yield current
            pending += [current.__cause__, current.__context__, *(a for a in current.args if isinstance(a, Exception))]


def _errno(error: BaseException) -> int:
    return (error.errno or 0) if isinstance(error, OSError) else 0


def _short(error: BaseException) -> str:
    return str(error)[-600:] or type(error).__name__


@contextmanager
def failures(doing: str, remedy: str = _AGAIN) -> Iterator[None]:
    """Tell what an engine refused, or that it went away, as an EngineFailed that says what was being done."""
    try:
        yield
    except APIError as error:
        said = str(error.explanation or error)
        hint = remedy
        if "no space left" in said.lower():
            hint = "Free some disk where the engine keeps its data (`metamatrix clean --dry-run` shows what we hold)."
        raise EngineFailed(f"the engine could not {doing}: {said}", hint) from error
    except (DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise EngineFailed(f"the engine went away while it should {doing}: {_short(error)}", _AGAIN) from error
