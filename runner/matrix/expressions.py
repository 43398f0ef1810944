"""Which cells does an expression mean? `diffusers>=0.36,<0.40 and offload in (sequential, disk)`.

    expression := and ("or" and)*
    and        := not ("and" not)*
    not        := "not" not | "(" expression ")" | comparison
    comparison := AXIS ["not"] "in" "(" value ("," value)* ")" | AXIS OP value ("," OP value)*
    OP         := "==" | "!=" | "<" | "<=" | ">" | ">=" | "~="

Environment axes compare as versions, all others as text (`==` and `!=` only). `latest` and its like
compare with what was asked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

__all__ = ["Expression", "ExpressionError", "Row", "parse"]

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|<=|>=|~=|<|>)|(?P<mark>[(),])|(?P<word>[\w.+*!-]+)|(?P<quoted>'[^']*'|\"[^\"]*\"))"
)
_WORDS = ("and", "or", "not", "in")
_KEYS = ("subject", "environment", "cell")
_MAX = 4000
_MAX_DEPTH = 50


class ExpressionError(ValueError):
    """The expression cannot be read; the text says where and what was expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """What an expression is asked about: every axis with its exact value, and what was asked for it."""

    exact: Mapping[str, str]
    asked: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: its text, the axes that it names, and the test."""

    text: str
    axes: frozenset[str]
    test: Callable[[Row], bool]

    def matches(self, row: Row) -> bool:
        return self.test(row)


def parse(text: str, probe: Mapping[str, Collection[str]], packages: Collection[str]) -> Expression:
    """Read an expression over the axes `probe` (with their values) and `packages` (versions).

    Raises:
        ExpressionError: it is no expression, or names an axis or a value that does not exist.
    """
    return _Parser(text, probe, packages).whole()


class _Parser:
    def __init__(self, text: str, probe: Mapping[str, Collection[str]], packages: Collection[str]) -> None:
        if len(text) > _MAX:
            raise ExpressionError(f"longer than {_MAX} characters")
        self.text, self.probe, self.packages = text, probe, packages
        self.tokens: list[tuple[str, int]] = []
        self.axes: set[str] = set()
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ExpressionError(f"cannot read {text[at:].strip()[:20]!r} in {text!r}")
            self.tokens.append((match.group().strip(), match.start()))
            at = match.end()
        self.at = 0
        self.depth = 0

    def whole(self) -> Expression:
        test = self.either()
        if self.peek():
            raise ExpressionError(f"{self.peek()!r} is unexpected in {self.text!r}; join comparisons with and / or")
        return Expression(self.text, frozenset(self.axes), test)

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        if not token:
            raise ExpressionError(f"{self.text!r} ends too early")
        self.at += 1
        return token

    def expect(self, wanted: str) -> None:
        token = self.take()
        if token != wanted:
            raise ExpressionError(f"{wanted!r} expected, not {token!r}, in {self.text!r}")

    def either(self) -> Callable[[Row], bool]:
        return self.joined("or", self.both, any)

    def both(self) -> Callable[[Row], bool]:
        return self.joined("and", self.negated, all)

    def joined(
        self, word: str, part: Callable[[], Callable[[Row], bool]], combine: Callable[[Iterable[bool]], bool]
    ) -> Callable[[Row], bool]:
        """One part, or several with `word` between them."""
        tests = [part()]
        while self.peek() == word:
            self.take()
            tests.append(part())
        return tests[0] if len(tests) == 1 else lambda row: combine(test(row) for test in tests)

    def negated(self) -> Callable[[Row], bool]:
        if self.peek() not in ("not", "("):
            return self.comparison()
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ExpressionError(f"more than {_MAX_DEPTH} levels of `not` and brackets")
        if self.take() == "not":
            inner = self.negated()
            self.depth -= 1
            return lambda row: not inner(row)
        test = self.either()
        self.expect(")")
        self.depth -= 1
        return test

    def comparison(self) -> Callable[[Row], bool]:
        axis = self.axis()
        if self.peek() in ("in", "not"):
            wanted = self.take() == "in"
            if not wanted:
                self.expect("in")
            self.expect("(")
            tests = [self.test(axis, "==", self.value(axis))]
            while self.peek() == ",":
                self.take()
                tests.append(self.test(axis, "==", self.value(axis)))
            self.expect(")")
            return lambda row: any(test(row) for test in tests) == wanted
        tests = [self.operation(axis)]
        while self.peek() == ",":
            self.take()
            tests.append(self.operation(axis))
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def axis(self) -> str:
        token = self.take()
        axis = token.replace("-", "_").lower()
        known = [*self.probe, *self.packages, *_KEYS]
        if axis not in known or token in _WORDS:
            near = difflib.get_close_matches(axis, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; axes are {', '.join(known)}"
            raise ExpressionError(f"{token!r} is no axis in {self.text!r}{hint}")
        self.axes.add(axis)
        return axis

    def operation(self, axis: str) -> Callable[[Row], bool]:
        operator = self.take()
        if operator not in ("==", "!=", "<", "<=", ">", ">=", "~="):
            raise ExpressionError(f"a comparison such as == is expected after {axis!r}, not {operator!r}")
        return self.test(axis, operator, self.value(axis))

    def value(self, axis: str) -> str:
        token = self.take()
        value = token[1:-1] if token[:1] in "'\"" else token
        if token in ("(", ")", ",") or token in _WORDS:
            raise ExpressionError(f"a value is expected for {axis!r}, not {token!r}, in {self.text!r}")
        if axis in self.probe and value not in self.probe[axis]:
            near = difflib.get_close_matches(value, self.probe[axis], 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(self.probe[axis])}"
            raise ExpressionError(f"{axis} has no value {value!r}{hint}")
        return value

    def test(self, axis: str, operator: str, value: str) -> Callable[[Row], bool]:
        if axis in self.probe or axis in _KEYS:
            if operator not in ("==", "!="):
                raise ExpressionError(f"{axis} knows only == and !=, not {operator}")
            if axis in _KEYS:
                return lambda row: row.exact.get(axis, "").startswith(value) == (operator == "==")
            return lambda row: (row.exact.get(axis) == value) == (operator == "==")
        if re.fullmatch(r"latest(-\d+)?|pre", value):
            return lambda row: (row.asked.get(axis) == value) == (operator == "==")
        try:
            specifiers = SpecifierSet(operator + value)
        except (InvalidSpecifier, InvalidVersion) as error:
            raise ExpressionError(f"{value!r} is no version for {axis!r}") from error
        return lambda row: _within(row.exact.get(axis), specifiers)


def _within(value: str | None, specifiers: SpecifierSet) -> bool:
    """Whether a version fits; an axis that a cell does not have fits nothing."""
    if value is None:
        return False
    try:
        return specifiers.contains(Version(value), prereleases=True)
    except InvalidVersion:
        return False
