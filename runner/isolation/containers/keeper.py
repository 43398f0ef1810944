"""Who changes the volume? One container of the build image per run and Python: it installs, checks and takes uploads.

It has the network and the store to write; cells have neither. It lives as long as our connection to its
standard input, so that a killed run leaves nothing. No host variable enters but those that uv needs.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import threading
import tomllib
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from docker.types import Mount

from runner.environments.store import BuildFailed, Environment
from runner.environments.tidy import Tidying
from runner.errors import EnvironmentDamaged, InfrastructureError
from runner.isolation.archive import write_archive
from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.images import PROXIES, build_network, certificates
from runner.isolation.containers.labels import labels, owner
from runner.isolation.containers.lifetime import ULIMITS, attach_and_start, let_go
from runner.isolation.containers.streams import Streams
from runner.isolation.contract import build_request
from runner.resolve.lock import Lock
from runner.resolve.uv import uv_environment

__all__ = ["STORE", "Keeper"]

STORE = "/store"
"""Where the volume is mounted, in every container."""

_TOOLS = "/opt/metamatrix"
_BUILDER = 10001
_SOURCES = (
    "errors.py",
    "whole_files.py",
    "environments/__init__.py",
    "environments/bytecode.py",
    "environments/record.py",
    "environments/seal.py",
    "environments/store.py",
    "environments/tidy.py",
    "isolation/__init__.py",
    "isolation/containers/__init__.py",
    "isolation/containers/builder.py",
)
_MAIN = f"from runner.isolation.containers.builder import main\n\nmain({STORE!r})\n"
_FOR_UV = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST", "UV_HTTP_TIMEOUT")


class Keeper:
    """The container that changes the volume. `close` from any thread ends what it does."""

    def __init__(self, engine: Engine, image: str, volume: str, version: str, tools: Path) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._closed = False
        self._sent: set[str] = set()
        api = engine.client.api
        mount = Mount(target=STORE, source=volume, type="volume")
        with failures("start a container for builds"):
            container = api.create_container(
                image,
                ["sh", "-c", "cat > /dev/null"],
                stdin_open=True,
                user=f"{_BUILDER}:{_BUILDER}",
                environment=_variables(),
                use_config_proxy=False,
                working_dir=STORE,
                labels=labels("keeper", version, owner=owner()),
                host_config=api.create_host_config(
                    auto_remove=True,
                    init=True,
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges"],
                    network_mode=build_network(),
                    mounts=[mount],
                    ulimits=ULIMITS,
                ),
            )
            self._id = str(container["Id"])
            self._stdin = attach_and_start(engine, self._id)
            archive = write_archive(tools, "builder", _SOURCES, _MAIN)
            self._upload(_TOOLS, {"builder.pyz": archive.read_bytes(), "ca.pem": certificates(os.environ)})
        opened = self._ask({"do": "open"})
        self._holds = {folder: set(names) for folder, names in opened["holds"].items()}

    def build(self, lock: Lock, workers: int) -> dict[str, Any]:
        """The record of the environment of `lock`, built unless it is there.

        Raises:
            BuildFailed: a download or the disk was at fault.
            EnvironmentDamaged: it is there, and something has changed it.
        """
        if not self.holds(lock.environment):
            self._send_local_wheels(lock)
        wanted = build_request(lock, "")
        request = {
            "id": wanted.id,
            "lock": wanted.lock,
            "lock_digest": wanted.lock_digest,
            "packages": wanted.packages,
        }
        answer = self._ask({"do": "build", "request": request, "workers": workers})
        if "failed" in answer:
            raise BuildFailed(answer["failed"])
        _raise_damaged(answer)
        self._holds["environments"].add(lock.environment)
        record: dict[str, Any] = answer["record"]
        return record

    def check(self, environment: Environment) -> None:
        """Raises EnvironmentDamaged where the environment is not as it was sealed."""
        _raise_damaged(self._ask({"do": "check", "id": environment.id}))

    def give(self, path: Path) -> str:
        """Upload a file or folder that is named by its content, unless the volume has it; its path there."""
        folder = path.parent.name
        target = f"{folder}/{path.name}"
        with self._lock:
            if path.name not in self._holds[folder]:
                incoming = f".incoming-{uuid.uuid4().hex}"
                with failures(f"take {path.name}"), tempfile.TemporaryFile() as file:
                    _pack(path, incoming, file)
                    self._engine.client.api.put_archive(self._id, f"{STORE}/{folder}", file)
                self._ask({"do": "place", "from": f"{folder}/{incoming}", "to": target})
                self._holds[folder].add(path.name)
        return f"{STORE}/{target}"

    def tidy(self, budget: int, keep: Collection[str], carry_out: bool) -> Tidying:
        """What goes (or would go) so that the volume holds at most `budget` bytes."""
        answer = self._ask({"do": "tidy", "budget": budget, "keep": sorted(keep), "carry_out": carry_out})
        with self._lock:
            for name in answer["names"] if carry_out else ():
                folder, _, entry = name.partition("/")
                self._holds.get(folder, set()).discard(entry)
        return Tidying(answer["total"], tuple(answer["names"]), answer["frees"])

    def holds(self, environment: str) -> bool:
        """Whether the volume has an environment of that id, whole or not."""
        return environment in self._holds["environments"]

    def close(self) -> None:
        """End the container, and with it whatever it does."""
        self._closed = True
        self._stdin.close()
        let_go(self._engine, self._id)

    def _send_local_wheels(self, lock: Lock) -> None:
        """Wheels that the lock takes from a folder of this machine go to the same place in the container."""
        for path in _local_wheels(lock.text):
            if str(path) not in self._sent:
                with failures(f"take {path.name}"), tempfile.TemporaryFile() as file:
                    _pack(path, str(path).lstrip("/"), file)
                    self._engine.client.api.put_archive(self._id, "/", file)
                self._sent.add(str(path))

    def _upload(self, folder: str, files: Mapping[str, bytes]) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in files.items():
                tar.addfile(_owned(tarfile.TarInfo(name), len(content)), io.BytesIO(content))
        self._engine.client.api.put_archive(self._id, folder, buffer.getvalue())

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request to the builder, in a process of its own.

        Raises:
            EngineFailed: the engine went away, or the builder did.
            InfrastructureError: the builder met a fault; or the run was stopped.
        """
        api = self._engine.client.api
        doing = {"build": "build an environment"}.get(request["do"], f"{request['do']} in the store")
        with failures(doing):
            made = api.exec_create(self._id, [f"{_TOOLS}/python", "-I", "-B", f"{_TOOLS}/builder.pyz"], stdin=True)
            streams = Streams(api.exec_start(made["Id"], socket=True))
            try:
                streams.write(json.dumps(request).encode() + b"\n")
                said = b"".join(self._until_end(streams))
                status = api.exec_inspect(made["Id"])["ExitCode"]
            finally:
                streams.close()
        lines = said.splitlines()
        if not lines or status != 0:
            if self._closed:
                raise InfrastructureError("stopped", "Run the same command again to go on.")
            raise EngineFailed(
                f"the builder ended with status {status}: {streams.said()[-2000:]}",
                "Run the command again; `metamatrix clean` makes room where the disk is full.",
            )
        answer: dict[str, Any] = json.loads(lines[-1])
        if "fault" in answer:
            raise InfrastructureError(
                f"the store in the engine's volume: {answer['fault']}",
                "Make room with `metamatrix clean`, or begin anew with `metamatrix clean --everything`.",
            )
        return answer

    def _until_end(self, streams: Streams) -> Iterator[bytes]:
        while not self._closed:
            data = streams.read(0.5)
            if data == b"":
                return
            if data:
                yield data


def _variables() -> dict[str, str]:
    """What uv gets in the container: indexes, certificates and proxies of this machine, and a cache in the volume."""
    host = uv_environment(os.environ)
    kept = {name: value for name, value in host.items() if name in _FOR_UV or name in PROXIES}
    kept |= {name: value for name, value in host.items() if name.startswith("UV_INDEX_")}
    if certificates(os.environ):
        kept["SSL_CERT_FILE"] = f"{_TOOLS}/ca.pem"
    return {
        **kept,
        "HOME": "/tmp",  # noqa: S108 - of the container, not of this machine
        "UV_CACHE_DIR": f"{STORE}/uv-cache",
        "UV_LINK_MODE": "hardlink",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "LANG": "C.UTF-8",
    }


def _local_wheels(lock: str) -> Iterator[Path]:
    for package in tomllib.loads(lock)["packages"]:
        for wheel in package.get("wheels", ()):
            parts = urlsplit(wheel.get("url", ""))
            if parts.scheme == "file":
                yield Path(unquote(parts.path))


def _owned(entry: tarfile.TarInfo, size: int | None = None) -> tarfile.TarInfo:
    """Readable by all, owned by the builder, whoever it was here."""
    if size is not None:
        entry.size = size
    entry.uid = entry.gid = _BUILDER
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def _pack(path: Path, name: str, file: IO[bytes]) -> None:
    """A tar archive with `path` under another name, ready to be read."""
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(path, arcname=str(PurePosixPath(name)), filter=_owned)
    file.seek(0)


def _raise_damaged(answer: Mapping[str, Any]) -> None:
    if "damaged" in answer:
        raise EnvironmentDamaged(
            str(answer["damaged"]),
            "`metamatrix clean --everything` removes the volume with all its environments; then run again.",
        )
