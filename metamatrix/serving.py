"""How are pages shown to a browser on this machine? Files of one folder, read-only, and what is live."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reports.site import POLICY

__all__ = ["is_loopback", "make_server"]

_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_server(folder: Path, host: str, port: int, live: Callable[[], dict[str, Any]] | None) -> ThreadingHTTPServer:
    """A server of a folder, bound and not yet serving; `live` answers for /live.json.

    Where it listens on this machine only, it answers only requests that name this machine: else a page of somebody
    else, whose name was made to point here, could read the results.

    Raises:
        OSError: the address cannot be had.
    """
    handler = partial(_Handler, directory=str(folder), live=live, local=is_loopback(host))
    server = _Server6 if ":" in host else ThreadingHTTPServer
    return server((host, port), handler)


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class _Handler(SimpleHTTPRequestHandler):
    server_version = "metamatrix"
    sys_version = ""

    def __init__(self, *args: Any, live: Callable[[], dict[str, Any]] | None, local: bool, **more: Any) -> None:
        self._live, self._local = live, local
        super().__init__(*args, **more)

    def do_GET(self) -> None:  # http.server's name
        if not self._allowed():
            return
        if self._live is not None and self.path.partition("?")[0] == "/live.json":
            self._send_live(self._live)
            return
        super().do_GET()

    def do_HEAD(self) -> None:  # http.server's name
        if self._allowed():
            super().do_HEAD()

    def _allowed(self) -> bool:
        name = self.headers.get("Host", "")
        host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if self._local and not is_loopback(host):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to this machine's own names only")
            return False
        if "\0" in unquote(self.path):
            self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")
            return False
        return True

    def _send_live(self, live: Callable[[], dict[str, Any]]) -> None:
        try:
            body = json.dumps(live()).encode()
        except Exception as error:  # the folder may be in any state: the page says so and asks again
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "The run's folder cannot be read now", str(error)[:500])
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def list_directory(self, path: Any) -> None:  # noqa: ARG002
        self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nobody asked for a line a file."""
