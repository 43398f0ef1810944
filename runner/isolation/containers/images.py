"""Which images are there for a Python? `run`, in which cells live, and `build`, which adds uv, git and a network.

Both are made from `docker/Dockerfile`, and made again only when what they are made from changes.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from docker.errors import BuildError, ImageNotFound

from runner.identifiers import digest
from runner.isolation.containers.base import EPOCH, Base, find_base
from runner.isolation.containers.engine import Engine, EngineFailed, failures
from runner.isolation.containers.labels import labels
from runner.resolve.uv import Uv, uv_environment

__all__ = ["PROXIES", "Images", "build_network", "certificates"]

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_LOG_LINES = 30
_MODE = 0o755


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
        base = find_base(self._engine, self._version, python, self._say)
        dockerfile = _dockerfile()
        inputs = digest([_sha256(dockerfile), base.id, python, target, dict(more), self._version])[:16]
        tag = f"localhost/metamatrix-{target}:{python}-{inputs}"
        with failures(f"look for the image {tag}"):
            try:
                return str(self._engine.client.images.get(tag).id)
            except ImageNotFound:
                self._say(f"building the image {tag}")
        return self._make(target, python, base, tag, inputs, dockerfile)

    def _make(self, target: str, python: str, base: Base, tag: str, inputs: str, dockerfile: bytes) -> str:
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
            entry.size, entry.mode, entry.mtime = len(content), _MODE, EPOCH
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
