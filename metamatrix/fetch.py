"""How is a file of a published site fetched? Whole, bounded, and only what is there."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import Any

from runner.errors import InfrastructureError, MetamatrixError

__all__ = ["NotThere", "fetch"]

_SECONDS = 30
"""For a server to say something."""
_PART = 1 << 20
_HEADERS = {"User-Agent": "metamatrix", "Accept-Encoding": "gzip"}


class NotThere(MetamatrixError):
    """The server says that there is no such file. A server that does not answer says nothing of the kind."""


def fetch(address: str, most: int, seconds: float = 60) -> bytes:
    """The content of an http or https address, unpacked.

    Args:
        address: where it is.
        most: the largest content that is taken, in bytes.
        seconds: for the server to say all.

    Raises:
        NotThere: there is no such file.
        MetamatrixError: it is larger.
        InfrastructureError: the server does not answer.
    """
    try:
        request = urllib.request.Request(address, headers=_HEADERS)  # noqa: S310  # callers checked the scheme
        with _OPENER.open(request, timeout=_SECONDS) as answer:
            content = _read(answer, most, seconds)
            packed = answer.headers.get("Content-Encoding") == "gzip"
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            raise NotThere(f"there is no {address}", "Give the address of a site that metamatrix made.") from error
        raise InfrastructureError(f"{address} answers {error.code}", "Try again later.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InfrastructureError(
            f"{address} does not answer: {error}", "Check the address and the network."
        ) from error
    if packed and len(content) <= most:
        content = _unpacked(content, most, address)
    if len(content) > most:
        raise MetamatrixError(f"{address} is larger than {most >> 20} MiB", "It is not what metamatrix publishes.")
    return content


def _read(answer: http.client.HTTPResponse, most: int, seconds: float) -> bytes:
    """The body, at most one byte over `most`, whole and in time."""
    deadline = time.monotonic() + seconds
    promised = answer.headers.get("Content-Length")
    parts, size = [], 0
    while size <= most and (part := answer.read1(min(_PART, most + 1 - size))):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise OSError(f"no end after {seconds:g} s")
    if size <= most and promised is not None and promised != str(size):
        raise OSError(f"{size} of {promised} bytes came")
    return b"".join(parts)


def _unpacked(content: bytes, most: int, address: str) -> bytes:
    """What was gzipped on the way; no more than one byte over `most`, whatever the packed bytes say."""
    import zlib

    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(content, most + 1)
    except zlib.error as error:
        raise InfrastructureError(f"{address} was damaged on the way: {error}", "Try again.") from error
    if len(found) <= most and not unpacker.eof:
        raise InfrastructureError(f"{address} was cut on the way", "Try again.")
    return found


class _SameKind(urllib.request.HTTPRedirectHandler):
    """Follows an address to another of its kind: never from the web to a file, never from https to http."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        allowed = ("https://",) if req.full_url.startswith("https://") else ("https://", "http://")
        if not newurl.startswith(allowed):
            raise OSError(f"it leads to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameKind)
