"""What fails, when, and what helps? Failures by signature, with the rule that describes each and what was good instead."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from reports.answers import Answers, bits, is_sound, union
from reports.evidence import Evidence
from reports.rules import Rules, Space

__all__ = ["Cause", "Remedy", "find_causes", "pattern_of"]

_MOST_REMEDIES = 8
_NO_ADVICE = ("pipeline", "runner")
"""Axes that nobody changes to get rid of a failure."""
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Remedy:
    """With `axis` at `value` and all else the same, `good` of `measured` such cells pass.

    To be refused is no remedy, though it is right for a damaged file; nor is another damaged file.
    """

    axis: str
    value: str
    good: int
    measured: int


@dataclass(frozen=True, slots=True)
class Known:
    """What is written down about a failure in the matrix file."""

    reason: str
    link: str
    expires: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One failure.

    `text` is the cause of one of its cells, `pattern` a regular expression for it in a log, or None where it leaves no
    message. `sound` of the cells have a sound checkpoint and a load of the libraries' own. `first` and `last` are runs;
    `newest` says whether the newest run still has it. `examples` are cells as (combination, environment) of the answers.
    """

    id: str
    verdict: str
    stage: str
    text: str
    pattern: str | None
    cells: int
    sound: int
    environments: int
    expected: int
    rules: Rules
    versions: Mapping[str, tuple[str, str]]
    remedies: tuple[Remedy, ...]
    known: tuple[Known, ...]
    first: str
    last: str
    newest: bool
    examples: tuple[tuple[int, int], ...]


def find_causes(evidence: Evidence, answers: Answers) -> tuple[Cause, ...]:
    """Every failure of the cells that count now, the most frequent first."""
    space = Space(answers)
    neighbours = _Neighbours(answers)
    seen = _seen(evidence)
    known = _known(evidence)
    found = []
    numbers = defaultdict(list)
    for number, kind in enumerate(answers.kinds):
        if kind.group == "bad":
            numbers[kind.signature].append(number)
    for signature, own in numbers.items():
        cells = space.of_kinds(own)
        if not cells:
            continue  # of an earlier run only: the cells have another verdict now
        together = union(cells.values())
        expected = [number for number in own if answers.kinds[number].expected]
        kind = answers.kinds[own[0]]
        first, last = seen[signature]
        found.append(
            Cause(
                id=signature,
                verdict=kind.verdict,
                stage=kind.stage,
                text=kind.cause,
                pattern=pattern_of(kind.cause),
                cells=sum(mask.bit_count() for mask in cells.values()),
                sound=sum(
                    mask.bit_count()
                    for place, mask in cells.items()
                    if is_sound(answers.axes, answers.combinations[place])
                ),
                environments=together.bit_count(),
                expected=sum(mask.bit_count() for mask in space.of_kinds(expected).values()),
                rules=space.explain(cells),
                versions=answers.span(answers.ends(together)),
                remedies=neighbours.remedies(cells),
                known=known.get(signature, ()),
                first=first,
                last=last,
                newest=last == evidence.newest.id,
                examples=tuple(
                    islice(((place, bit) for place, mask in cells.items() for bit in bits(mask)), _EXAMPLES)
                ),
            )
        )
    return tuple(sorted(found, key=lambda cause: (-cause.cells, cause.id)))


def _seen(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """The first and the last run that has each signature."""
    found: dict[str, tuple[str, str]] = {}
    for run in evidence.runs:
        for number in set(run.kinds):
            signature = evidence.kinds[number].signature
            found[signature] = (found.get(signature, (run.id, ""))[0], run.id)
    return found


def _known(evidence: Evidence) -> dict[str, tuple[Known, ...]]:
    """What the newest run's expectations say, by signature, where they were right."""
    columns = evidence.newest.columns
    signatures, expectations, expected = columns["signature"], columns["expectation"], columns["expected"]
    found: dict[str, dict[Known, None]] = defaultdict(dict)
    for signature, place, right in set(zip(signatures.rows, expectations.rows, expected.rows, strict=True)):
        entry = expectations.values[place]
        if isinstance(entry, dict) and expected.values[right]:
            known = Known(*(str(entry.get(name) or "") for name in ("reason", "link", "expires")))
            found[signatures.values[signature]][known] = None
    return {signature: tuple(sorted(entries, key=str)) for signature, entries in found.items()}


class _Neighbours:
    """Cells that differ in one axis only."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._good, self._answered = [], []
        for row in answers.combinations:
            passed = answered = 0
            for number, mask in row.kinds.items():
                kind = answers.kinds[number]
                passed |= mask if kind.verdict == "pass" else 0
                answered |= mask if kind.group in ("good", "bad") else 0
            self._good.append(passed)
            self._answered.append(answered)
        self._combinations: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for place, row in enumerate(answers.combinations):
            for axis in range(len(answers.axes)):
                self._combinations[axis, *_but(row.values, axis)].append(place)
        self._packages = [*answers.order, *(["python"] if "python" in answers.packages else [])]
        self._versions = [
            tuple(answers.version(place, package) for package in self._packages)
            for place in range(len(answers.environments))
        ]
        self._environments: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for place, versions in enumerate(self._versions):
            if answers.environments[place].exists:
                for axis in range(len(self._packages)):
                    self._environments[axis, *_but(versions, axis)].append(place)

    def _advises(self, axis: str, value: str, place: int, other: int) -> bool:
        """Whether one would tell somebody to change to that: not to another pipeline, a damaged file, or a load of ours."""
        rebuilt = self._answers.combinations[other].rebuilt is not None
        if axis in _NO_ADVICE or (rebuilt and self._answers.combinations[place].rebuilt is None):
            return False
        return axis != "checkpoint" or value == "canonical"

    def remedies(self, cells: Mapping[int, int]) -> tuple[Remedy, ...]:
        """What passed instead, the surest first: all of the most cells."""
        good, measured = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for place, mask in cells.items():
            values = self._answers.combinations[place].values
            for axis, name in enumerate(self._answers.axes):
                for other in self._combinations[axis, *_but(values, axis)]:
                    value = self._answers.combinations[other].values[axis]
                    if other != place and self._advises(name, value, place, other):
                        key = (name, value)
                        good[key] += (self._good[other] & mask).bit_count()
                        measured[key] += (self._answered[other] & mask).bit_count()
            for environment in bits(mask):
                versions = self._versions[environment]
                for axis, package in enumerate(self._packages):
                    for other in self._environments.get((axis, *_but(versions, axis)), ()):
                        if other != environment and self._answered[place] >> other & 1:
                            key = (package, str(self._versions[other][axis]))
                            good[key] += self._good[place] >> other & 1
                            measured[key] += 1
        found = [Remedy(*key, count, measured[key]) for key, count in good.items() if count]
        found.sort(key=lambda entry: (entry.good < entry.measured, -entry.good, entry.axis, entry.value))
        return tuple(found[:_MOST_REMEDIES])


def _but(values: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return values[:place] + values[place + 1 :]


_MESSAGE = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Iteration)\b: ?(?=\S)")
_VARIES = re.compile(
    r"(?P<address>\b0x[0-9a-fA-F]+\b)"
    r"|(?P<path>(?<![\w.])(?:file:/*)?/(?:[\w.+@~-]+/)*[\w.+@~-]*)"
    r"|(?P<name>\b[A-Za-z_]\w*(?:\.\w+){2,}|\b\w+\.(?:weight|bias)\b)"
    r"|(?P<number>\b\d+(?:\.\d+)*\b)"
    r"|(?P<space>\s+)"
)
_STANDS_FOR = {
    "address": "0x[0-9a-fA-F]+",
    "path": r"""[^\s'",;()\[\]{}]*""",
    "name": r"""[^\s'",;:()\[\]{}]+""",
    "number": r"[0-9]+(?:\.[0-9]+)*",
    "space": r"\s+",
}
_SPECIAL = re.compile(r"[.^$*+?()\[\]{}|\\]")
_LONG = 300
_LEAST = 8
"""Letters that a message must have beside what varies."""


def pattern_of(cause: str) -> str | None:
    """A regular expression that finds this message in a log: what differs from machine to machine may differ.

    None for a cause that is no exception's message, since nothing of it is ever printed, and for a message of which too
    little stays the same. What varies cannot run over what follows it, so that no log makes the search long.
    """
    if not _MESSAGE.match(cause):
        return None
    line = cause.splitlines()[0][:_LONG].strip()
    parts, end = [], 0
    for found in _VARIES.finditer(line):
        parts += [_escaped(line[end : found.start()]), _STANDS_FOR[str(found.lastgroup)]]
        end = found.end()
    constant = _VARIES.sub("", line.partition(":")[2])
    if sum(letter.isalpha() for letter in constant) < _LEAST:
        return None
    return "".join([*parts, _escaped(line[end:])])


def _escaped(text: str) -> str:
    """Only what is special is escaped: JavaScript, where pages look for these, refuses all that `re.escape` adds."""
    return _SPECIAL.sub(r"\\\g<0>", text)
