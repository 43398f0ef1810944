"""Real engines for tests: dockerd of Debian's docker.io, started by hand with a folder of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import docker

__all__ = ["EngineProcess", "answers", "needed", "running_engine", "running_podman"]

_SECONDS = 60


def needed(program: str, package: str = "") -> None:
    """Skip where there is no such program to start; in CI that is a failure."""
    if os.geteuid() == 0 and shutil.which(program):
        return
    reason = f"needs root and {program} (Debian: {package or program})"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class EngineProcess:
    """A dockerd that can be stopped and started again; `address` is what DOCKER_HOST takes."""

    folder: Path
    address: str
    number: int
    flags: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def bridge(self) -> str:
        return f"mmtest{self.number}"

    @property
    def gateway(self) -> str:
        """This machine's address on the engine's bridge."""
        return f"10.213.{self.number}.1"

    def start(self) -> None:
        """Start it and wait until it answers. Its bridge is its own: engines that share `docker0` break each other."""
        self._remove_bridge()
        _ip("link", "add", "name", self.bridge, "type", "bridge")
        _ip("address", "add", f"{self.gateway}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        command = [*self.prefix, "dockerd", "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "--pidfile", str(self.folder / "pid")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--bridge", self.bridge, "-H", self.address, *self.flags],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _SECONDS
        while not answers(self.address):
            if self.process.poll() is not None or time.monotonic() > deadline:
                end = (self.folder / "log").read_text(errors="replace")[-3000:]
                pytest.fail(f"dockerd does not answer at {self.address}; its log ends:\n{end}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it as an administrator does; its containers end with it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(_SECONDS)
            self.process = None
        self._remove_bridge()

    def _remove_bridge(self) -> None:
        if Path(f"/sys/class/net/{self.bridge}").exists():
            _ip("link", "delete", self.bridge)

    def client(self) -> docker.DockerClient:
        client = docker.DockerClient(base_url=self.address, version="auto", timeout=30)
        client.ping()
        return client

    def variables(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.address, "METAMATRIX_ISOLATION": "docker"}

    def containers(self) -> list[str]:
        """All containers there are, dead or alive."""
        client = self.client()
        try:
            return [str(container.name) for container in client.containers.list(all=True)]
        finally:
            client.close()


def answers(address: str) -> bool:
    """Whether an engine answers there; asked without the SDK, which leaves sockets open where none does."""
    scheme, _, place = address.partition("://")
    try:
        with socket.socket(socket.AF_UNIX if scheme == "unix" else socket.AF_INET) as connection:
            host, _, port = place.partition(":")
            connection.settimeout(5)
            connection.connect(place if scheme == "unix" else (host, int(port)))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b"200" in connection.recv(64)
    except OSError:
        return False


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


_numbers = itertools.count(os.getpid() % 50 * 4)


@contextmanager
def running_podman() -> Iterator[str]:
    """Podman's Docker-compatible service with a store of its own; what DOCKER_HOST takes."""
    needed("podman")
    folder = _short_folder()
    runtime = shutil.which("runc") or "crun"  # crun refuses machines that mix both versions of cgroups
    common = ["podman", "--root", str(folder / "root"), "--runroot", str(folder / "run"), "--runtime", runtime]
    address = f"unix://{folder}/socket"
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*common, "system", "service", "--time", "0", address],
            stdout=log,
            stderr=log,
            env={**os.environ, "BUILDAH_RUNTIME": runtime},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _SECONDS
        while not answers(address):
            assert time.monotonic() < deadline, (folder / "log").read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(_SECONDS)
        subprocess.run([*common, "system", "reset", "--force"], check=False, capture_output=True)
        _remove(folder)


@contextmanager
def running_engine(address: str = "", *flags: str, prefix: tuple[str, ...] = ()) -> Iterator[EngineProcess]:
    """An engine of our own, ended with all it holds. By default it listens on a socket in its folder."""
    needed("dockerd", "docker.io")
    folder = _short_folder()
    engine = EngineProcess(folder, address or f"unix://{folder}/socket", next(_numbers), flags, prefix)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()
        _remove(folder)


def _short_folder() -> Path:
    """Sockets have at most 107 characters in their names; pytest's folders leave too few."""
    return Path(tempfile.mkdtemp(prefix="mm-"))


def _remove(folder: Path) -> None:
    """Engines leave mounts in their folders even when they end well."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=True)
    shutil.rmtree(folder)
