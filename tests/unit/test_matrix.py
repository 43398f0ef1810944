"""The matrix file: hostile or wrong input gives words with a position, right input gives cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import MatrixError, NoSelection
from runner.matrix.expand import asked_environments, expand
from runner.matrix.expressions import ExpressionError, Row, parse
from runner.matrix.load import parse_matrix
from runner.matrix.positions import read_yaml
from tests.strategies import SMALL, matrix, releases

GOOD = 'axes: {torch: "2.13.0", diffusers: latest, transformers: latest, accelerate: latest}\n'


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8))


def problems(text: str) -> str:
    """What is said of a wrong matrix."""
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text.encode(), "matrix.yaml")
    return str(caught.value)


def test_an_unquoted_version_is_refused_with_the_reason() -> None:
    """2.10 without quotes is the number 2.1; the message has the place and the right spelling."""
    said = problems("axes:\n  torch: [2.10]\n  diffusers: latest\n  transformers: latest\n  accelerate: latest\n")
    assert "matrix.yaml:2:11: axes.torch[0]: " in said
    assert 'write "2.10"' in said


def test_several_faults_are_told_at_once_and_in_order() -> None:
    """Each fault has its line; an unknown key names the nearest known one."""
    said = problems(GOOD + "limitz: {}\nlimits: {secnds: 3}\nexpect:\n  - {when: torch == 1, verdict: bad}\n")
    lines = said.splitlines()
    assert lines[0].startswith("matrix.yaml:2:1: limitz: unknown key")
    assert "did you mean 'limits'?" in lines[0]
    assert any("did you mean 'seconds'?" in line for line in lines)
    assert any("'expires' is missing" in line for line in lines)
    assert [int(line.split(":")[1]) for line in lines] == sorted(int(line.split(":")[1]) for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, "bomb"),
        ("axes: &a\n  b: *a\n", "bomb"),
        ("axes: {}\naxes: {}\n", "given twice"),
        ("a: !!python/object:os.system 1\n", "tag"),
        ("a: [\n", "not YAML"),
        ("[" * 5000, "YAML"),
        ("x" * 1_000_001, "bytes"),
        (GOOD.replace("2.13.0", "newest"), "is no version"),
        (GOOD + "include: [{load: singel_file}]\n", "did you mean 'single_file'?"),
        (GOOD + "exclude: [{when: 'offload == dsik', reason: x}]\n", "did you mean 'disk'?"),
        (GOOD + "selections: {a: 'offlod == disk'}\n", "did you mean 'offload'?"),
        (GOOD + "coverage: {a: {strength: pairwise}}\n", "coverage.a: no such selection"),
        (GOOD + "selections: {a: offload == disk}\ncoverage: {a: {strength: some}}\n", "pairwise"),
        (GOOD + "selections: {a: offload == disk}\ncoverage: {a: {strenght: pairwise}}\n", "did you mean 'strength'?"),
        (GOOD + "selections: {a: offload == disk}\ncoverage: {a: {strength: pairwise, anchors: [x]}}\n", "anchors"),
        ("axes: {torch: latest}\n", "'diffusers' is missing"),
    ],
)
def test_wrong_files_are_refused_in_words(text: str, expected: str) -> None:
    """Bombs, duplicates, tags, wrong YAML, wrong values: each gives a message, none a traceback."""
    assert expected in problems(text)


@given(st.binary(max_size=300) | st.text(alphabet="{}[]&*:,-ab \n\"'!#|>?", max_size=60).map(str.encode))
def test_any_bytes_give_a_document_or_a_matrix_error(content: bytes) -> None:
    """Whatever a file holds, reading it ends in plain data or in MatrixError."""
    try:
        document = read_yaml(content, "f")
    except MatrixError as error:
        assert error.problems
    else:
        assert document.file == "f"


def test_expand_counts_every_cell_once() -> None:
    """Kept and excluded cells add up, subjects are unique, ranges are their members, latest keeps its word."""
    cells = expand(matrix(), None, releases)
    assert len({asked.subject for asked in cells.asked}) == len(cells.asked)
    assert cells.total == len(cells.asked) + sum(rule.count for rule in cells.excluded)
    assert {asked.asked["transformers"] for asked in cells.asked} == {"5.6.0", "5.7.0", "5.8.0", "latest"}
    latest = [asked for asked in cells.asked if asked.asked["diffusers"] == "latest"]
    assert {asked.exact["diffusers"] for asked in latest} == {"0.42.1"}
    assert not [a for a in cells.asked if a.exact["diffusers"] == "0.38.0" and a.probe["load"] == "single_file"]


def test_a_subject_does_not_depend_on_todays_releases() -> None:
    """`latest` is the same subject when it becomes another version; the word joins runs."""
    older = expand(matrix(), "few", lambda *arguments: releases(*arguments)[-1:])
    newer = expand(matrix(), "few", releases)
    of = lambda cells: {a.subject for a in cells.asked if set(a.asked.values()) >= {"latest"}}  # noqa: E731
    assert of(older) & of(newer)


def test_a_selection_is_a_name_or_an_expression() -> None:
    """Both narrow; an unknown one lists what there is; one that fits nothing is an error."""
    assert {a.probe["offload"] for a in expand(matrix(), "few", releases).asked} == {"none"}
    assert {a.probe["load"] for a in expand(matrix(), "load != pretrained", releases).asked} == {"single_file"}
    both = expand(matrix(), "few and load == single_file", releases).asked
    assert {(a.probe["offload"], a.probe["load"]) for a in both} == {("none", "single_file")}
    with pytest.raises(NoSelection, match="neither"):
        expand(matrix(), "fwe", releases)
    with pytest.raises(NoSelection, match="neither"):
        expand(matrix(), "few and laod == single_file", releases)
    with pytest.raises(NoSelection, match="no cell"):
        expand(matrix(), "few and offload == sequential", releases)
    with pytest.raises(NoSelection, match="no cell"):
        expand(matrix(), "offload == disk", releases)


def test_environments_are_named_without_an_index() -> None:
    """What is asked can be listed before any index is."""
    assert {
        "torch": "2.13.0",
        "diffusers": "latest",
        "transformers": ">=5.6,<5.9",
        "accelerate": "latest",
        "python": "3.11",
    } in asked_environments(matrix())


PROBE = {"offload": ("none", "disk", "sequential"), "load": ("pretrained",)}
ROW = Row({"torch": "2.10.0", "diffusers": "0.36.0", "offload": "disk"}, {"torch": "2.10.0", "diffusers": "latest"})


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("torch == 2.10", True),
        ("torch < 2.9", False),
        ("torch>=2.9,<2.11 and offload==disk", True),
        ("diffusers == latest", True),
        ("torch == latest", False),
        ("offload in (none, sequential)", False),
        ("offload not in (none, sequential)", True),
        ("not (offload == disk or torch == 1)", False),
        ("offload == none or torch ~= 2.10", True),
    ],
)
def test_expressions_mean_what_they_say(text: str, truth: bool) -> None:
    """Versions compare as versions (2.10 is later than 2.9), names as text, latest with what was asked."""
    assert parse(text, PROBE, ("torch", "diffusers")).matches(ROW) is truth


@given(st.text(max_size=40) | st.text(alphabet="()<>=!, andortchflisk'\"2.10", max_size=40))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    """No text makes the parser raise anything else."""
    try:
        parsed = parse(text, PROBE, ("torch",))
    except ExpressionError as error:
        assert str(error)
    else:
        assert parsed.matches(ROW) in (True, False)


@pytest.mark.parametrize("text", ["not " * 900 + "torch == 1", "(" * 1500 + "torch == 1" + ")" * 1500])
def test_deep_expressions_are_refused_in_words(text: str) -> None:
    """Nesting that would exhaust the interpreter is an error of the expression, not of the program."""
    with pytest.raises(ExpressionError, match="levels"):
        parse(text, PROBE, ("torch",))


def test_the_example_is_a_matrix() -> None:
    """The builder of these tests parses."""
    assert parse_matrix(SMALL, "f").selections.keys() == {"few"}
