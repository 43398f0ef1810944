"""How is a file of a published site fetched? Whole, bounded, and only what is there."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

from runner.errors import InfrastructureError, MetamatrixError

__all__ = ["NotThere", "fetch"]

_SECONDS = 30
_HEADERS = {"User-Agent": "metamatrix", "Accept-Encoding": "gzip"}


class NotThere(MetamatrixError):
    """The server says that there is no such file. A server that does not answer says nothing of the kind."""


def fetch(address: str, most: int) -> bytes:
    """The content of an http or https address, unpacked.

    Args:
        address: where it is.
        most: the largest content that is taken, in bytes.

    Raises:
        NotThere: there is no such file.
        MetamatrixError: it is larger.
        InfrastructureError: the server does not answer.
    """
    request = urllib.request.Request(address, headers=_HEADERS)  # noqa: S310  # callers checked the scheme
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            content: bytes = answer.read(most + 1)
            packed = answer.headers.get("Content-Encoding") == "gzip"
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            raise NotThere(f"there is no {address}", "Give the address of a site that metamatrix made.") from error
        raise InfrastructureError(f"{address} answers {error.code}", "Try again later.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InfrastructureError(
            f"{address} does not answer: {error}", "Check the address and the network."
        ) from error
    if packed:
        content = _unpacked(content, most, address)
    if len(content) > most:
        raise MetamatrixError(f"{address} is larger than {most >> 20} MiB", "It is not what metamatrix publishes.")
    return content


def _unpacked(content: bytes, most: int, address: str) -> bytes:
    """What was gzipped on the way; no more than one byte over `most`, whatever the packed bytes say."""
    import zlib

    unpacker = zlib.decompressobj(wbits=31)
    try:
        return unpacker.decompress(content, most + 1)
    except zlib.error as error:
        raise InfrastructureError(f"{address} was cut on the way: {error}", "Try again.") from error
