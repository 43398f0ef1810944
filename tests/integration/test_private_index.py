"""A company's network: packages from its own index, which only its proxy reaches."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from metamatrix import __version__
from runner.isolation.containers.docker import Docker
from runner.isolation.containers.engine import connect
from runner.isolation.contract import StartRequest
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv
from tests.integration.engines import EngineProcess
from tests.integration.programs import LIMITS, NO_INDEX, all_of, program, small_lock

pytestmark = [pytest.mark.slow, pytest.mark.docker]

HOST = "index.invalid"
"""No name server knows it: what comes from there has come through the proxy."""


def _wheel(folder: Path) -> Path:
    """The smallest wheel there is."""
    files = {
        "secretsauce.py": "taste = 'good'\n",
        "secretsauce-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: secretsauce\nVersion: 1.0\n",
        "secretsauce-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}")
    files["secretsauce-1.0.dist-info/RECORD"] = "\n".join([*rows, "secretsauce-1.0.dist-info/RECORD,,"]) + "\n"
    path = folder / "secretsauce-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@contextmanager
def _proxy(address: str, wheel: Path) -> Iterator[tuple[str, list[str]]]:
    """A proxy that alone knows the index; its address, and the requests that it has seen."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    page = f'<a href="http://{HOST}/{wheel.name}#sha256={digest}">{wheel.name}</a>'.encode()
    pages = {"/simple/secretsauce/": page, f"/{wheel.name}": wheel.read_bytes()}
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.client_address[0]} {self.path}")
            url = urlsplit(self.path)
            body = pages.get(url.path) if url.netloc == HOST else None
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", "text/html" if url.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_builds_use_the_private_index_and_the_proxy_and_cells_hear_of_neither(
    engine: EngineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolved here, installed in a container, both through the proxy; a cell imports it and has no proxy variable."""
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    before = Docker(connect(), Uv(), __version__, tmp_path / "probe", lambda text: None)
    try:
        ready = before.build(small_lock(), 1)  # makes the images: they need Debian, which this proxy does not have
        before.start(ready, StartRequest(program(tmp_path, "nothing", ""), LIMITS, 1)).kill()
    finally:
        before.close()
    with _proxy(engine.gateway, _wheel(tmp_path)) as (proxy, seen):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://{HOST}/simple/")
        resolution = Resolver(Uv(), NO_INDEX, None).resolve({"python": "3.11", "secretsauce": "1.0"}, "cpu")
        assert resolution.lock is not None, resolution
        isolation = Docker(connect(), Uv(), __version__, tmp_path / "probe", lambda text: None)
        try:
            environment = isolation.build(resolution.lock, 1)
            source = "import os, secretsauce\nprint(secretsauce.taste, sorted(os.environ))\n"
            channel = isolation.start(environment, StartRequest(program(tmp_path, "taste", source), LIMITS, 1))
            said = all_of(channel).decode()
            channel.kill()
        finally:
            isolation.close()
    assert environment.record["installed"] == {"secretsauce": "1.0"}
    callers = {line.split()[0] for line in seen if line.endswith(".whl")}
    assert callers - {engine.gateway}, "the container itself has asked"
    assert said.startswith("good ")
    assert "proxy" not in said.lower() and "UV_" not in said
