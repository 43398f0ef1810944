"""Causes: a rule covers every failure and no good cell, none is smaller, and a remedy is what was measured."""

from __future__ import annotations

import json
import re
import time
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.answers import Answers, bits
from reports.causes import find_causes, pattern_of
from reports.dataset import Column, DatasetModel
from reports.evidence import Evidence
from reports.lookup import known_axes, known_packages, look_up
from reports.query import parse_query
from reports.rules import Rule, Rules, Space
from tests.made_up import dataset

GOOD, BAD, OTHER = ("pass", "good", ""), ("load-error", "bad", "f" * 12), ("unsupported", "not applicable", "")
COMBINATIONS, ENVIRONMENTS = 8, 6


Versions = tuple[int, int]


def _made(
    verdicts: list[tuple[str, str, str]], number: int = 0, versions: list[Versions] | None = None
) -> DatasetModel:
    """A run of eight combinations in six environments with the verdicts given, and versions of diffusers and torch."""
    found = dataset(number, ENVIRONMENTS, COMBINATIONS)
    columns = dict(found.columns)
    if versions is not None:
        environments = []
        for entry, (diffusers, torch) in zip(found.environments, versions, strict=True):
            installed = {"diffusers": f"0.{diffusers}.0", "torch": f"2.{torch}.0", "transformers": "5.0.0"}
            environments.append(entry.model_copy(update={"installed": installed, "exact": installed}))
        found = found.model_copy(update={"environments": environments})
    columns["verdict"] = Column.of(verdict for verdict, _, _ in verdicts)
    columns["group"] = Column.of(group for _, group, _ in verdicts)
    columns["signature"] = Column.of(signature for _, _, signature in verdicts)
    columns["cause"] = Column.of("ValueError: no" if group == "bad" else "" for _, group, _ in verdicts)
    return found.model_copy(update={"columns": columns})


def _cells(answers: Answers, group: str) -> dict[int, int]:
    return Space(answers).of_kinds(n for n, kind in enumerate(answers.kinds) if kind.group == group)


def _covered(answers: Answers, rule: Rule) -> set[tuple[int, int]]:
    """The cells that a rule's own words mean, asked as a lookup."""
    terms = [str(condition) for condition in rule.conditions]
    named = {term.partition("=")[0] for term in terms}
    terms += [f"{axis}=any" for axis in answers.axes if axis not in named]
    found = look_up(answers, parse_query(terms, known_axes(answers), known_packages(answers)))
    places = {row.values: place for place, row in enumerate(answers.combinations)}
    return {
        (places[tuple(line.axes.values())], bit)
        for line in found.lines
        for span in line.spans
        for bit in bits(span.mask)
    }


anyhow = st.lists(
    st.sampled_from([GOOD, GOOD, BAD, OTHER]),
    min_size=COMBINATIONS * ENVIRONMENTS,
    max_size=COMBINATIONS * ENVIRONMENTS,
)


@st.composite
def by_a_rule(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Bad from an environment on, for some offload modes or lifecycles; some cells do not apply."""
    first = draw(st.integers(0, ENVIRONMENTS - 1))
    modes, lives = draw(st.sets(st.integers(0, 1), min_size=1)), draw(st.sets(st.integers(0, 3), min_size=1))
    none = draw(st.sets(st.integers(0, COMBINATIONS * ENVIRONMENTS - 1), max_size=4))
    return [
        OTHER
        if place * COMBINATIONS + combination in none
        else BAD
        if place >= first and combination // 4 in modes and combination % 4 in lives
        else GOOD
        for place in range(ENVIRONMENTS)
        for combination in range(COMBINATIONS)
    ]


verdicts = anyhow | by_a_rule()
versions = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=ENVIRONMENTS, max_size=ENVIRONMENTS, unique=True
)
"""Versions that have nothing to do with each other: neighbours in one package are far apart in the other."""


@given(verdicts, versions)
def test_rules_cover_each_failure_and_no_good_cell(drawn: list[tuple[str, str, str]], chosen: list[Versions]) -> None:
    """Read as a lookup, the rules mean every failure; an exact rule means no good cell, another says how many."""
    answers = Evidence([_made(drawn, 0, chosen)]).answers()
    bad = _cells(answers, "bad")
    if not bad:
        return
    good = {(place, bit) for place, mask in _cells(answers, "good").items() for bit in bits(mask)}
    found: Rules = Space(answers).explain(bad)
    covered = [_covered(answers, rule) for rule in found.rules]
    assert {(place, bit) for place, mask in bad.items() for bit in bits(mask)} <= set(chain(*covered))
    for rule, cells in zip(found.rules, covered, strict=True):
        assert len(cells & good) == rule.good
    for rule in found.alternatives:
        assert not _covered(answers, rule) & good
        assert len(rule.conditions) == len(found.rules[0].conditions)


@given(verdicts)
def test_no_smaller_set_of_axes_would_do(drawn: list[tuple[str, str, str]]) -> None:
    """Of a single exact rule: with the tightest conditions on fewer axes, some good cell is always covered."""
    answers = Evidence([_made(drawn)]).answers()
    bad = _cells(answers, "bad")
    if not bad:
        return
    found = Space(answers).explain(bad)
    if not found.exact or len(found.rules) > 1:
        return
    size = len(found.rules[0].conditions)
    together = 0
    for mask in bad.values():
        together |= mask
    ranges = {
        package: (min(v for v, m in versions if m & together), max(v for v, m in versions if m & together))
        for package, versions in answers.order.items()
    }
    values = [{answers.combinations[place].values[axis] for place in bad} for axis in range(len(answers.axes))]
    names = [*range(len(answers.axes)), *ranges]
    for chosen in combinations(names, max(0, size - 1)):
        if size == 0:
            break
        assert any(
            all(
                answers.combinations[place].values[name] in values[name]
                if isinstance(name, int)
                else any(ranges[name][0] <= v <= ranges[name][1] for v, m in answers.order[name] if m >> bit & 1)
                for name in chosen
            )
            for place, mask in _cells(answers, "good").items()
            for bit in bits(mask)
        )


@given(verdicts)
def test_a_remedy_was_measured(drawn: list[tuple[str, str, str]]) -> None:
    """Counted again cell by cell: so many failures have a neighbour at that value that passes, of so many that answer."""
    evidence = Evidence([_made(drawn)])
    answers = evidence.answers()
    for cause in find_causes(evidence, answers):
        for remedy in cause.remedies:
            good = measured = 0
            for place, mask in _cells(answers, "bad").items():
                for bit in bits(mask):
                    for other_place, other_bit, group in _neighbours(answers, place, bit, remedy.axis, remedy.value):
                        assert (other_place, other_bit) != (place, bit)
                        good += group == "good"
                        measured += group in ("good", "bad")
            assert (remedy.good, remedy.measured) == (good, measured)


def test_two_ends_that_could_each_be_dropped_are_not_both() -> None:
    """Bad at (2, 2), good at (3, 2), (2, 3) and (1, 1): neither lower end is needed alone, and one is with the other."""
    places = [(2, 2), (3, 2), (2, 3), (1, 1), (3, 3), (0, 3)]
    drawn = [BAD if place == 0 else GOOD for place in range(ENVIRONMENTS) for _ in range(COMBINATIONS)]
    answers = Evidence([_made(drawn, 0, places)]).answers()
    found = Space(answers).explain(_cells(answers, "bad"))
    assert found.exact
    good = {(place, bit) for place, mask in _cells(answers, "good").items() for bit in bits(mask)}
    assert not _covered(answers, found.rules[0]) & good


def _neighbours(answers: Answers, place: int, bit: int, axis: str, value: str) -> list[tuple[int, int, str]]:
    found = []
    own = answers.combinations[place]
    packages = [*answers.order, "python"]
    for other_place, row in enumerate(answers.combinations):
        for kind, mask in row.kinds.items():
            for other_bit in bits(mask):
                differing = [a for a, x, y in zip(answers.axes, own.values, row.values, strict=True) if x != y]
                differing += [p for p in packages if answers.version(bit, p) != answers.version(other_bit, p)]
                there = (
                    row.values[answers.axes.index(axis)] if axis in answers.axes else answers.version(other_bit, axis)
                )
                if differing == [axis] and there == value:
                    found.append((other_place, other_bit, answers.kinds[kind].group))
    return found


def test_causes_know_when_they_were_seen() -> None:
    """First and last by run; one that the newest run does not have any more is no cause now."""
    whole = COMBINATIONS * ENVIRONMENTS
    first, second = [BAD] + [GOOD] * (whole - 1), [GOOD] * whole
    evidence = Evidence([_made(first, 0), _made(first, 1)])
    (cause,) = find_causes(evidence, evidence.answers())
    assert (cause.first, cause.last, cause.newest, cause.cells) == ("run0", "run1", True, 1)
    mended = Evidence([_made(first, 0), _made(second, 1)])
    assert find_causes(mended, mended.answers()) == ()


def test_what_nobody_would_change_to_is_no_remedy() -> None:
    """Neither a load that is our reconstruction, nor to be refused, nor another pipeline."""
    found = dataset(0, 1, 500)
    good = [("pass", "good", "")] * 500
    places = [place for place in range(500) if found.columns["axes.load"][place] == "pretrained"]
    for place in places:
        good[place] = BAD
    columns = {
        name: Column.of(column)
        for name, column in zip(("verdict", "group", "signature"), zip(*good, strict=True), strict=True)
    }
    evidence = Evidence([found.model_copy(update={"columns": {**found.columns, **columns}})])
    (cause,) = find_causes(evidence, evidence.answers())
    assert {(remedy.axis, remedy.value) for remedy in cause.remedies} == {
        ("load", "components"),
        ("load", "single_file"),
    }
    assert cause.sound == cause.cells


@pytest.mark.parametrize(
    ("cause", "log"),
    [
        ("a.b.cError: once more " + "1.." * 12 + "!", "a.b.cError: once more " + "." * 20_000),
        (
            f"FileNotFoundError: no such file in ({','.join(['/a'] * 6)})",
            "FileNotFoundError: no such file in (" + "','" * 20_000,
        ),
        ("ValueError: many words of " + "a.b.c " * 20, "ValueError: many words of " + "a.b." * 20_000),
    ],
)
def test_no_log_makes_the_search_long(cause: str, log: str) -> None:
    """What varies cannot run over what follows it: the search ends at once, where it took minutes."""
    pattern = pattern_of(cause)
    assert pattern is not None
    started = time.monotonic()
    assert re.search(pattern, cause)
    assert not re.search(pattern, log)
    assert time.monotonic() - started < 5  # against a hang, not a measurement


def test_a_message_that_could_be_any_is_not_looked_for() -> None:
    """With its numbers, names and paths left out too little stays."""
    for cause in ("KeyError: 'down_blocks.0.x'", "FileNotFoundError: /a/b", "ValueError: 3"):
        assert pattern_of(cause) is None


@pytest.mark.parametrize(
    ("cause", "log"),
    [
        (
            "ValueError: 3 of 4 keys of /tmp/a/model.safetensors at 0x7f",
            "x\nValueError: 12 of 999 keys of /home/u/b at 0x1a2b\n",
        ),
        (
            "AttributeError: 'CLIPTextModel' object has no attribute 'text_model'",
            "AttributeError: 'CLIPTextModel' object has no attribute 'text_model'",
        ),
        ("torch.OutOfMemoryError: no (memory) [a+b]", "torch.OutOfMemoryError: no (memory) [a+b]"),
        (r"ValueError: all of a\b-c#d ^$ {x|y}*?", r"ValueError: all of a\b-c#d ^$ {x|y}*?"),
    ],
)
def test_a_pattern_finds_its_message_elsewhere(cause: str, log: str) -> None:
    """With other numbers, paths and addresses."""
    pattern = pattern_of(cause)
    assert pattern is not None
    assert re.search(pattern, log)
    assert not re.search(pattern, "all is well")


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_a_pattern_finds_the_message_it_was_made_of(text: str) -> None:
    """Whatever the message holds; a cause that is no message has none."""
    cause = "ValueError: something is wrong: " + text
    pattern = pattern_of(cause)
    assert pattern is not None
    assert re.search(pattern, cause)
    assert pattern_of("3 tensor(s): a.weight (on meta)") is None
    assert json.loads(json.dumps(pattern)) == pattern
