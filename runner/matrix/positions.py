"""Where in the file does a value stand? YAML read into plain data, with the line and column of each value.

The file is hostile: size, depth and the number of values that aliases expand to are limited, tags are
refused, and so are keys given twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from runner.errors import MatrixError, Problem

__all__ = ["MAX_BYTES", "Document", "Unquoted", "dotted", "read_yaml"]

MAX_BYTES = 1_000_000
MAX_VALUES = 50_000
MAX_DEPTH = 20

Path = tuple[str | int, ...]


@dataclass(slots=True)
class Document:
    """Plain data of a file, and (line, column), 1-based, of each value and of each key by its path."""

    file: str
    data: Any = None
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def position(self, path: Path, key: bool = False) -> tuple[int, int]:
        """Where `path` stands; the nearest thing around it where it does not."""
        table = self.keys if key else self.values
        while path and path not in table:
            path, table = path[:-1], self.values
        return table.get(path, (1, 1))


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.count = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            text = f"more than {MAX_VALUES} values or {MAX_DEPTH} levels, counting what aliases repeat"
            raise MatrixError(self.document.file, [Problem(line, column, "", text, "a YAML bomb?")])
        self.document.values[path] = (line, column)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(line, column, path, "a key must be plain text")
                continue
            key = str(key_node.value)
            if key in result:
                self._problem(line, column, (*path, key), "given twice", "keep one of them")
            self.document.keys[(*path, key)] = (line, column)
            result[key] = self.read(value_node, (*path, key))
        return result

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        """Text, whole numbers, true, false and null. A number with a point is kept as text, marked."""
        value = str(node.value)
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        kind = node.tag.rpartition(":")[2]
        if kind == "str":
            return value
        if kind == "null":
            return None
        if kind == "bool":
            return value.lower() in ("true", "yes", "on")
        if kind == "int" and value.lstrip("+-").isdigit():
            return int(value)
        if kind == "timestamp":
            return value
        if kind in ("float", "int"):
            return Unquoted(value)
        self._problem(line, column, path, f"the tag {node.tag} is not allowed here", "write plain text")
        return value

    def _problem(self, line: int, column: int, path: Path, what: str, hint: str = "") -> None:
        self.problems.append(Problem(line, column, dotted(path), what, hint))


class Unquoted(str):
    """A scalar that YAML takes for a number with a point: kept as written, to be refused with a reason."""

    __slots__ = ()


def dotted(path: Path) -> str:
    """`axes.torch[0]` for ("axes", "torch", 0)."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def read_yaml(content: bytes, file: str) -> Document:
    """Read `content`, which came from `file`.

    Raises:
        MatrixError: too large, no UTF-8, no YAML, a bomb, a tag, a key given twice.
    """
    if len(content) > MAX_BYTES:
        text = f"the file has {len(content)} bytes; at most {MAX_BYTES} are read"
        raise MatrixError(file, [Problem(1, 1, "", text)])
    document = Document(file)
    reader = _Reader(document)
    try:
        text = content.decode("utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise MatrixError(file, [Problem(line, 1, "", "not UTF-8", "save the file as UTF-8")]) from error
    except RecursionError as error:
        raise MatrixError(file, [Problem(1, 1, "", "nested too deeply", "a YAML bomb?")]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        what = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
        raise MatrixError(file, [Problem(line, column, "", f"not YAML: {what}")]) from error
    document.data = {} if node is None else reader.read(node, ())
    if reader.problems:
        raise MatrixError(file, reader.problems)
    return document
