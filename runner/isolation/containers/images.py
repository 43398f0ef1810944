"""Which images are there for a Python? `run`, in which cells live, and `build`, which adds uv, git and a network.

Both are made from `docker/Dockerfile` and made again only when what they are made from changes. Their base is
python:X.Y-slim-bookworm, or a Debian made from packages where no registry can be reached.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from runner.identifiers import digest
from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.labels import labels
from runner.resolve.uv import Uv, uv_environment

__all__ = ["PROXIES", "Images", "build_network", "certificates"]

SUITES = {"3.9": "bullseye", "3.11": "bookworm", "3.13": "trixie"}
"""Python -> the Debian suite that has it."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_EPOCH = "1735689600"
_LOG_LINES = 30
_REGISTRY = "python:{python}-slim-bookworm"
_MODE = 0o755


@dataclass(frozen=True, slots=True)
class _Base:
    """Where images start from: a reference, and the id that it had."""

    reference: str
    id: str


def certificates(environment: Mapping[str, str]) -> bytes:
    """The bundle of authorities that this machine was told to trust; empty for the usual ones.

    Raises:
        EngineFailed: the file that a variable names cannot be read.
    """
    path = uv_environment(environment).get("SSL_CERT_FILE")
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EngineFailed(
            f"the certificates {path} cannot be read: {error.strerror}", "Correct SSL_CERT_FILE, or unset it."
        ) from error


class Images:
    """The images of one engine, made when they are asked for."""

    def __init__(self, engine: Engine, uv: Uv, version: str, say: Callable[[str], None]) -> None:
        self._engine, self._uv, self._version, self._say = engine, uv, version, say

    def run(self, python: str) -> str:
        """The id of the image that cells of that Python live in."""
        return self._image("run", python, {})

    def build(self, python: str) -> str:
        """The id of the image that environments of that Python are installed in."""
        return self._image("build", python, {"uv": self._uv.version(), "ca": _sha256(certificates(os.environ))})

    def _image(self, target: str, python: str, more: Mapping[str, str]) -> str:
        base = self._base(python)
        dockerfile = _dockerfile()
        inputs = digest([_sha256(dockerfile), base.id, python, target, dict(more), self._version])[:16]
        tag = f"localhost/metamatrix-{target}:{python}-{inputs}"
        with failures(f"look for the image {tag}"):
            try:
                return str(self._engine.client.images.get(tag).id)
            except ImageNotFound:
                self._say(f"building the image {tag}")
        return self._make(target, python, base, tag, inputs, dockerfile)

    def _make(self, target: str, python: str, base: _Base, tag: str, inputs: str, dockerfile: bytes) -> str:
        files = {"Dockerfile": dockerfile, "ca.pem": certificates(os.environ)}
        if target == "build":
            files["uv"] = self._uv_program()
        arguments = {"BASE": base.reference, "PYTHON": python}
        arguments |= {name: os.environ[name] for name in PROXIES if name in os.environ}
        marks = labels(target, self._version, inputs=inputs, python=python)
        if self._engine.buildkit and _cli_has_buildkit():
            self._make_with_cli(_context(files), target, tag, arguments, marks)
        else:
            self._make_with_api(_context(files), target, tag, arguments, marks)
        with failures(f"look for the image {tag}"):
            return str(self._engine.client.images.get(tag).id)

    def _make_with_api(
        self, context: bytes, target: str, tag: str, arguments: dict[str, str], marks: dict[str, str]
    ) -> None:
        with failures(f"build the image {tag}"):
            try:
                self._engine.client.images.build(
                    fileobj=io.BytesIO(context),
                    custom_context=True,
                    target=target,
                    tag=tag,
                    buildargs=arguments,
                    labels=marks,
                    network_mode=build_network(),
                    rm=True,
                    forcerm=True,
                )
            except BuildError as error:
                lines = [str(part.get("stream") or part.get("error") or "") for part in error.build_log]
                raise _build_failed(tag, "".join(lines)) from error

    def _make_with_cli(
        self, context: bytes, target: str, tag: str, arguments: dict[str, str], marks: dict[str, str]
    ) -> None:
        command = ["docker", "build", "--target", target, "--tag", tag, "--progress", "plain"]
        for name in arguments:
            command += ["--build-arg", name]  # the value comes from the environment: a proxy may hold a password
        for name, value in marks.items():
            command += ["--label", f"{name}={value}"]
        if build_network():
            command += ["--network", str(build_network())]
        environment = {**os.environ, **arguments, "DOCKER_BUILDKIT": "1", "DOCKER_HOST": self._engine.address}
        done = subprocess.run([*command, "-"], input=context, capture_output=True, env=environment, check=False)
        if done.returncode != 0:
            raise _build_failed(tag, done.stderr.decode("utf-8", "backslashreplace"))

    # --- the base

    def _base(self, python: str) -> _Base:
        """`METAMATRIX_BASE_IMAGE` where it is set; else the usual image, pulled; else a Debian from packages."""
        chosen = os.environ.get("METAMATRIX_BASE_IMAGE", "")
        if chosen == "debian":
            return self._debian(python)
        reference = (chosen or _REGISTRY).format(python=python)
        with failures(f"look for {reference}"):
            try:
                return _Base(reference, str(self._engine.client.images.get(reference).id))
            except ImageNotFound:
                pass
        if not chosen and (known := self._known_debian(python)):
            return known
        self._say(f"pulling {reference}")
        try:
            return _Base(reference, str(self._engine.client.images.pull(reference).id))
        except (APIError, DockerException, OSError) as error:
            reason = str(getattr(error, "explanation", None) or error)[-300:]
            if chosen:
                raise EngineFailed(
                    f"the base image {reference} cannot be had: {reason}", "Correct METAMATRIX_BASE_IMAGE."
                ) from error
        self._say(f"no registry gives {reference} ({reason}); making a Debian from packages instead")
        return self._debian(python)

    def _known_debian(self, python: str) -> _Base | None:
        suite = SUITES.get(python)
        if suite is None:
            return None
        reference = _debian_tag(python, suite)
        with failures(f"look for {reference}"):
            try:
                return _Base(reference, str(self._engine.client.images.get(reference).id))
            except ImageNotFound:
                return None

    def _debian(self, python: str) -> _Base:
        """A Debian that has this Python, made here by mmdebstrap and imported into the engine."""
        known = self._known_debian(python)
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
        self._say(f"making {reference} from Debian's packages")
        with tempfile.TemporaryFile() as tar:
            _debootstrap(suite, python, tar)
            tar.seek(0)
            marks = labels("base", self._version, python=python, suite=suite)
            changes = [f'LABEL {name}="{value}"' for name, value in marks.items()]
            repository, _, tag = reference.rpartition(":")
            with failures("import a base image"):
                api = self._engine.client.api
                said = api.import_image_from_data(tar, repository=repository, tag=tag, changes=changes)
                imported = str(json.loads(said.splitlines()[-1])["status"])
                api.tag(imported, repository, tag)  # Podman imports under `latest`
                return _Base(reference, imported)

    def _uv_program(self) -> bytes:
        """uv for the engine's machine, of the release that is used here, fetched as any package is."""
        release = self._uv.version()
        with tempfile.TemporaryDirectory(prefix="metamatrix-uv-") as folder:
            arguments = ["pip", "install", "--quiet", "--target", folder, "--no-deps", "--only-binary", ":all:"]
            arguments += ["--python-platform", f"{self._engine.machine}-manylinux_2_28", f"uv=={release}"]
            answer = self._uv.run(arguments)
            program = Path(folder) / "bin" / "uv"
            if answer.status != 0 or not program.exists():
                raise EngineFailed(
                    f"uv {release} for {self._engine.machine} could not be fetched: {answer.stderr.strip()[-600:]}",
                    "Check the network and the index settings, then run the command again.",
                )
            return program.read_bytes()


def _debian_tag(python: str, suite: str) -> str:
    return f"localhost/metamatrix-base:{python}-{suite}"


def _debootstrap(suite: str, python: str, target: Any) -> None:
    """Write the root filesystem of a minimal Debian with Python as a tar archive."""
    packages = ["python3", *(["python3-distutils"] if python in ("3.9", "3.11") else [])]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
    for left_out in ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"):
        command.append(f"--dpkgopt=path-exclude={left_out}")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _EPOCH}
    done = subprocess.run([*command, suite, "-"], stdout=target, stderr=subprocess.PIPE, env=environment, check=False)
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "backslashreplace").strip()[-2000:]
        raise EngineFailed(
            f"a Debian {suite} could not be made (mmdebstrap ended with status {done.returncode}):\n{said}",
            "Check the network and Debian's package sources, then run the command again.",
        )


def _dockerfile() -> bytes:
    """An installed package has it beside this module, a checkout in `docker/`."""
    installed = Path(__file__).with_name("Dockerfile")
    checkout = Path(__file__).resolve().parents[3] / "docker" / "Dockerfile"
    return (installed if installed.exists() else checkout).read_bytes()


def _context(files: Mapping[str, bytes]) -> bytes:
    """A build context, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), _MODE, int(_EPOCH)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def build_network() -> str | None:
    """The network of builds: the engine's own choice, or `METAMATRIX_BUILD_NETWORK` (`host` for a local index)."""
    return os.environ.get("METAMATRIX_BUILD_NETWORK") or None


def _cli_has_buildkit() -> bool:
    """Whether a docker command is here that builds with BuildKit; the API alone has no way to it."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0


def _build_failed(tag: str, log: str) -> EngineFailed:
    end = "\n".join(log.strip().splitlines()[-_LOG_LINES:])
    return EngineFailed(
        f"the image {tag} could not be built; its log ends:\n{end}",
        "Check the network, the proxy and the certificates that builds use, then run the command again.",
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
