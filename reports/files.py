"""Where does each published file lie, and what is in it? JSON for programs, and the same as a script for pages."""

from __future__ import annotations

import json
from typing import Any

from reports.names import API, DATASET, file_name
from reports.tree import Tree

__all__ = [
    "cause_page",
    "compact",
    "compare_name",
    "environment_page",
    "lock_path",
    "run_path",
    "write_both",
    "write_json",
    "write_script",
]

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def cause_page(signature: str) -> str:
    return f"causes/{file_name(signature)}.html"


def environment_page(identifier: str) -> str:
    return f"environments/{file_name(identifier)}.html"


def lock_path(identifier: str) -> str:
    return f"locks/{file_name(identifier)}.txt"


def run_path(identifier: str) -> str:
    """Of a run's data set, from the API's folder."""
    return f"runs/{file_name(identifier)}/{DATASET}"


def compare_name(before: str, after: str) -> str:
    """Of the comparison of two runs, as pages name it in their addresses."""
    return f"{file_name(before)}..{file_name(after)}"


def compact(value: Any) -> str:
    """JSON of one line, in ASCII: no character of it means anything to a page, a terminal or a reader's direction."""
    return _ENCODER.encode(value)


def write_json(tree: Tree, name: str, value: Any) -> None:
    """Plain data for programs, in the API's folder."""
    tree.write(f"{API}/{name}.json", compact(value).encode())


def write_script(tree: Tree, name: str, value: Any) -> None:
    """Plain data for pages, as data/NAME.js.

    JSON in a string, not an object of JavaScript: there a key such as `__proto__` would be more than a key.
    """
    text = compact(value)
    tree.write(f"data/{name}.js", f"MM.put({json.dumps(name)},{json.dumps(text)});\n".encode())


def write_both(tree: Tree, name: str, value: Any) -> None:
    """The file for programs and the script for pages."""
    write_json(tree, name, value)
    write_script(tree, name, value)
