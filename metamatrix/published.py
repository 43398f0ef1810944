"""What was published before? The data sets of earlier runs, from a site's folder or address, checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from metamatrix.fetch import NotThere, fetch
from metamatrix.sources import is_address
from reports.dataset import DatasetModel, parse_dataset
from reports.names import API
from runner.errors import MetamatrixError

__all__ = ["published_before"]

_INDEX = f"{API}/index.json"
_MOST_INDEX = 64 * 1024 * 1024
_MOST = 1024 * 1024 * 1024
_SECONDS = 600


def published_before(source: str, first: bool = False) -> list[DatasetModel]:
    """The data sets that a published site holds. All of them: history that is not whole is refused, not shortened.

    Args:
        source: the site's folder or address.
        first: nothing was published there yet, and nothing that was may be forgotten.

    Raises:
        MetamatrixError: there is no such site, or one of its data sets is not what its index says; with `first`,
            there is one.
        InfrastructureError: it does not answer.
    """
    root = source if source.endswith("/") else source + "/"
    if first:
        try:
            _read(root, _INDEX, _MOST_INDEX)
        except NotThere:
            return []
        raise MetamatrixError(f"{root} has published runs already", "Leave --first out, to keep them.")
    try:
        index: dict[str, Any] = json.loads(_read(root, _INDEX, _MOST_INDEX))
        runs = [(str(run["id"]), str(run["data"]), str(run["sha256"])) for run in index["runs"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise MetamatrixError(
            f"{root}{_INDEX} is no index of a site: {error}", "Give the site's own address."
        ) from error
    if not runs:
        raise MetamatrixError(f"{root}{_INDEX} names no run", "A site has one at least; say --first for a new one.")
    if len({identifier for identifier, _, _ in runs}) != len(runs):
        raise MetamatrixError(f"{root}{_INDEX} names a run twice")
    return [_dataset(root, *run) for run in runs]


def _dataset(root: str, identifier: str, path: str, digest: str) -> DatasetModel:
    if path.startswith("/") or ".." in path.split("/") or ":" in path:
        raise MetamatrixError(f"{root}{_INDEX} names a file outside the site: {path!r}")
    place = f"{API}/{path}"
    content = _read(root, place, _MOST)
    if hashlib.sha256(content).hexdigest() != digest:
        raise MetamatrixError(f"{root}{place} is not what the index says: it was cut or changed", "Fetch it again.")
    try:
        found = parse_dataset(content, root + place)
    except ValueError as error:
        raise MetamatrixError(str(error)) from error
    if found.run.id != identifier:
        raise MetamatrixError(f"{root}{place} is of another run than the index says")
    return found


def _read(root: str, path: str, most: int) -> bytes:
    if is_address(root):
        return fetch(urljoin(root, path), most, _SECONDS)
    try:
        return Path(root, path).read_bytes()
    except FileNotFoundError as error:
        raise NotThere(f"there is no {Path(root, path)}", "Give the folder of a site that metamatrix made.") from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise MetamatrixError(
            f"{Path(root, path)} cannot be read: {error}", "Give the folder or address of a published site."
        ) from error
