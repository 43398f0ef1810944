"""What do images start from? The usual Python image, or a Debian made from packages where no registry can be reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound

from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.labels import labels

__all__ = ["EPOCH", "SUITES", "Base", "find_base"]

SUITES = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
"""Python -> the Debian suite that has it."""

EPOCH = 1735689600
"""The time that files of images bear, in seconds: that of their making would only make them differ."""

_REGISTRY = "python:{python}-slim-bookworm"


@dataclass(frozen=True, slots=True)
class Base:
    """Where images start from: a reference, and the id that it has."""

    reference: str
    id: str


def find_base(engine: Engine, version: str, python: str, say: Callable[[str], None]) -> Base:
    """`METAMATRIX_BASE_IMAGE` where it is set; else the usual image, pulled; else a Debian from packages.

    Raises:
        EngineFailed: there is none of these for this Python.
    """
    chosen = os.environ.get("METAMATRIX_BASE_IMAGE", "")
    if chosen == "debian":
        return _debian(engine, version, python, say)
    reference = (chosen or _REGISTRY).replace("{python}", python)
    known = _known(engine, reference) or (None if chosen else _known_debian(engine, python))
    if known is not None:
        return known
    say(f"pulling {reference}")
    try:
        return Base(reference, str(engine.client.images.pull(reference).id))
    except (APIError, DockerException, OSError) as error:
        reason = str(getattr(error, "explanation", None) or error)[-300:]
        if chosen:
            raise EngineFailed(
                f"the base image {reference} cannot be had: {reason}", "Correct METAMATRIX_BASE_IMAGE."
            ) from error
    say(f"no registry gives {reference} ({reason}); making a Debian from packages instead")
    return _debian(engine, version, python, say)


def _known(engine: Engine, reference: str) -> Base | None:
    with failures(f"look for {reference}"):
        try:
            return Base(reference, str(engine.client.images.get(reference).id))
        except ImageNotFound:
            return None


def _known_debian(engine: Engine, python: str) -> Base | None:
    suite = SUITES.get(python)
    return _known(engine, _debian_tag(python, suite)) if suite is not None else None


def _debian(engine: Engine, version: str, python: str, say: Callable[[str], None]) -> Base:
    """A Debian that has this Python, made here by mmdebstrap and imported into the engine, unless it is there."""
    known = _known_debian(engine, python)
    if known is not None:
        return known
    suite = SUITES.get(python)
    if suite is None or shutil.which("mmdebstrap") is None:
        why = f"no Debian suite has Python {python}" if suite is None else "mmdebstrap is not installed"
        raise EngineFailed(
            f"there is no base image for Python {python}: no registry gives one, and {why}",
            "Install mmdebstrap, set METAMATRIX_BASE_IMAGE to an image that has this Python, "
            "or choose `--isolation venv`.",
        )
    reference = _debian_tag(python, suite)
    say(f"making {reference} from Debian's packages")
    with tempfile.TemporaryFile() as tar:
        _debootstrap(suite, python, tar)
        tar.seek(0)
        marks = labels("base", version, python=python, suite=suite)
        changes = [f'LABEL {name}="{value}"' for name, value in marks.items()]
        repository, _, tag = reference.rpartition(":")
        with failures("import a base image"):
            api = engine.client.api
            said = api.import_image_from_data(tar, repository=repository, tag=tag, changes=changes)
            imported = str(json.loads(said.splitlines()[-1])["status"])
            api.tag(imported, repository, tag)  # Podman imports under `latest`
            return Base(reference, imported)


def _debian_tag(python: str, suite: str) -> str:
    return f"localhost/metamatrix-base:{python}-{suite}"


def _debootstrap(suite: str, python: str, target: Any) -> None:
    """Write the root filesystem of a minimal Debian with Python as a tar archive."""
    packages = ["python3", *(["python3-distutils"] if python in ("3.9", "3.11") else [])]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
    for left_out in ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"):
        command.append(f"--dpkgopt=path-exclude={left_out}")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    done = subprocess.run([*command, suite, "-"], stdout=target, stderr=subprocess.PIPE, env=environment, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "backslashreplace").strip()[-2000:]
        raise EngineFailed(
            f"a Debian {suite} could not be made (mmdebstrap ended with status {done.returncode}):\n{said}",
            "Check the network and Debian's package sources, then run the command again.",
        )
