"""How does one environment become an image of its own? Copied out of the volume, with the cells that it passed."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import Mount

from runner.isolation.archive import write_archive, write_probe
from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.keeper import STORE
from runner.isolation.containers.labels import labels, owner
from runner.isolation.containers.lifetime import remove, run_to_end

__all__ = ["HOME", "Contents", "export", "push", "system_packages"]

HOME = "/opt/metamatrix"
_ENVIRONMENT = f"{HOME}/environment"
_CHECK = f"from runner.probe.alone import main\n\nmain({HOME!r})\n"
_PATH = f"{_ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Contents:
    """What goes into the image beside the environment: its lock, its cells, the checkpoints that they need."""

    environment: str
    lock: str
    cells: Mapping[str, Any]
    checkpoints: tuple[Path, ...]
    bill: str


def system_packages(engine: Engine, image: str, version: str) -> list[tuple[str, str, str]]:
    """The Debian packages of an image: (name, version, architecture), sorted."""
    api = engine.client.api
    with failures("list the packages of an image"):
        container = api.create_container(
            image,
            ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\n"],
            labels=labels("cell", version, owner=owner()),
            network_disabled=True,
            use_config_proxy=False,
        )
        try:
            status, said = run_to_end(engine, container["Id"])
        finally:
            remove(engine, container["Id"])
    if status != 0:
        raise EngineFailed(f"the image's packages cannot be listed: {said.strip()[-300:]}")
    rows = [line.split("\t") for line in said.splitlines() if line.count("\t") == 2]
    return sorted((name, release, architecture) for name, release, architecture in rows)


def export(engine: Engine, image: str, volume: str, version: str, contents: Contents, tag: str, work: Path) -> str:
    """Make the image `tag`; its id.

    Args:
        engine: where it is made.
        image: the run image that it starts from.
        volume: the store, with the environment built.
        version: metamatrix's release.
        contents: what goes in.
        tag: repository:tag.
        work: a folder for archives.
    """
    api = engine.client.api
    with failures("copy an environment into an image"):
        container = api.create_container(
            image,
            ["cp", "-a", f"{STORE}/environments/{contents.environment}", _ENVIRONMENT],
            user="0:0",
            labels=labels("cell", version, owner=owner(), environment=contents.environment),
            network_disabled=True,
            use_config_proxy=False,
            host_config=api.create_host_config(
                mounts=[Mount(target=STORE, source=volume, type="volume", read_only=True)]
            ),
        )
        identifier = str(container["Id"])
        try:
            status, said = run_to_end(engine, identifier)
            if status != 0:
                raise EngineFailed(f"the environment could not be copied into the image: {said.strip()[-600:]}")
            api.put_archive(identifier, "/", _archive(contents, work))
            repository, _, name = tag.rpartition(":")
            made = api.commit(identifier, repository=repository, tag=name, conf=_configuration(contents, version))
        finally:
            remove(engine, identifier)
    return str(made["Id"])


def _configuration(contents: Contents, version: str) -> dict[str, Any]:
    """What the image does when it is run: check itself, as a user without privileges."""
    return {
        "User": "10002:10002",
        "Env": [f"PATH={_PATH}", "LANG=C.UTF-8"],
        "Cmd": ["python", "-I", "-B", f"{HOME}/check.pyz"],
        "Entrypoint": [],
        "WorkingDir": "/scratch",
        "Labels": labels("image", version, environment=contents.environment, owner=""),
    }


def _archive(contents: Contents, work: Path) -> bytes:
    """The image's own files, as a tar archive from the root."""
    probe = write_probe(work)
    check = write_archive(work, "check", _check_sources(), _CHECK)
    texts = {"pylock.toml": contents.lock, "sbom.cdx.json": contents.bill, "cells.json": json.dumps(contents.cells)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in texts.items():
            _add(tar, name, text.encode())
        _add(tar, "probe.pyz", probe.read_bytes())
        _add(tar, "check.pyz", check.read_bytes())
        for checkpoint in contents.checkpoints:
            for path in sorted(checkpoint.rglob("*")):
                if path.is_file():
                    _add(tar, f"checkpoints/{checkpoint.name}/{path.relative_to(checkpoint)}", path.read_bytes())
    return buffer.getvalue()


def _check_sources() -> Iterable[str]:
    return ("probe/__init__.py", "probe/alone.py", "probe/frames.py", "probe/words.py")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(f"{HOME.lstrip('/')}/{name}")
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def push(engine: Engine, tag: str) -> str:
    """Push an image to the registry that its name says; the digest it has there.

    Raises:
        EngineFailed: the registry refused; the text is its own.
    """
    repository, _, name = tag.rpartition(":")
    digest = ""
    with failures(f"push {tag}", "Log in with `docker login`, and check the name."):
        for line in engine.client.api.push(repository, tag=name, stream=True, decode=True):
            if "error" in line:
                raise EngineFailed(
                    f"{tag} was not pushed: {line['error']}", "Log in with `docker login`, and check the name."
                )
            digest = line.get("aux", {}).get("Digest", digest)
    return digest
