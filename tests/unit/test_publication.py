"""What is published: hostile text is inert in all of it, its schemas hold, and readers of the last version still read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from metamatrix.commands.lookup import run_lookup
from reports.answers import Answers, bits
from reports.api import lock_lines
from reports.api_schema import SCHEMAS, api_schemas
from reports.badges import Badge, find_badges
from reports.charts import draw_charts
from reports.dataset import Column, DatasetModel, read_dataset
from reports.evidence import Evidence
from reports.publication import NotASite, publish
from tests.made_up import dataset, nights

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>\"';--></style>"
    "\x1b[31m\u202eevil\x00 ]]> =1+1 __proto__ ${window.hacked=1} {{ 7 * 7 }} %2e%2e/../../etc"
)
WORSE = HOSTILE + "\ud800"
"""With half a character, which no data set can hold."""
TEXTS = ("cause", "signature", "stage", "verdict", "axes.load", "axes.pipeline", "rebuilt")


def hostile_dataset(number: int) -> DatasetModel:
    """A run with hostile text wherever text may stand, and one message of ten megabytes."""
    found = dataset(number, 3, 6)
    columns = dict(found.columns)
    rows = list(range(len(found)))
    for name in TEXTS:
        whole = [columns[name][row] for row in rows]
        whole[:4] = [HOSTILE, "=" + HOSTILE, "constructor", "__proto__"]
        columns[name] = Column.of(whole)
    columns["cause"] = Column.of(["x" * 10_000_000, *[f"ValueError: {HOSTILE}"] * (len(rows) - 1)])
    columns["group"] = Column.of(["bad"] * 5 + ["good"] * (len(rows) - 5))
    columns["subject"] = Column.of([f"{HOSTILE}{row}" for row in rows])
    columns["requested"] = Column.of([{"torch": HOSTILE, HOSTILE: "1"}] * len(rows))
    columns["expectation"] = Column.of(
        [{"verdict": HOSTILE, "expires": HOSTILE, "reason": HOSTILE, "link": "javascript:window.hacked=1"}] * len(rows)
    )
    columns["expected"] = Column.of([True] * len(rows))
    columns["tensors"] = Column.of([[{"name": HOSTILE, "module": HOSTILE, "shape": [1], HOSTILE: HOSTILE}]] * len(rows))
    names = {entry.id: f"{HOSTILE}{place}" for place, entry in enumerate(found.environments)}
    columns["environment"] = Column.of([names[columns["environment"][row]] for row in rows])
    environments = [
        entry.model_copy(
            update={
                "id": names[entry.id],
                "python": HOSTILE,
                "platform": HOSTILE,
                "installed": {**entry.installed, HOSTILE: HOSTILE},
                "exact": {**entry.exact, HOSTILE: HOSTILE},
                "packages": [(HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
                "missed": [{"id": HOSTILE}],
                "drift": HOSTILE,
                "proof": HOSTILE,
                "fault": HOSTILE,
            }
        )
        for entry in found.environments
    ]
    run = found.run.model_copy(update={"id": f"{HOSTILE}{number}", "tool": HOSTILE, "select": HOSTILE})
    return found.model_copy(update={"run": run, "environments": environments, "columns": columns})


class HostileDetails:
    """What a hostile run's folder would say."""

    def cell(self, subject: str) -> dict[str, Any]:
        finding = {"kind": WORSE, "text": WORSE, "exception": {"traceback": WORSE}}
        stage = {"stage": WORSE, "seconds": 0.1, "facts": {WORSE: [WORSE]}, "findings": [finding]}
        attempt = {"mode": WORSE, "alone": True, "verdict": WORSE, "stage": WORSE, "started": WORSE}
        attempt |= {"id": WORSE, "seconds": 0.1, "peak_rss_kb": 1, "stages": [stage], "text": WORSE}
        attempt |= {"how": WORSE, "log": WORSE, "conditions": {WORSE: WORSE}}
        return {"executions": [attempt], "rerun": WORSE}

    def environment(self, identifier: str) -> dict[str, Any]:
        control = dict.fromkeys(("pipeline", "id", "expected_verdict", "verdict"), WORSE)
        return {
            "each_control": [{**control, "caught": False}],
            "direct_url": {WORSE: WORSE},
            "torch_build": WORSE,
            "lock": WORSE,
        }


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of two hostile runs."""
    folder = tmp_path_factory.mktemp("hostile") / "site"
    publish([hostile_dataset(0), hostile_dataset(1)], folder, HostileDetails(), "https://example.org/")
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of three ordinary runs."""
    folder = tmp_path_factory.mktemp("plain") / "site"
    publish(nights(3, 12, 40), folder, base="https://example.org/m/")
    return folder


def test_no_page_has_foreign_markup(hostile: Path) -> None:
    """Every page has a strict policy and no script or style but our files; foreign text is text, and no link."""
    pages = list(hostile.rglob("*.html"))
    assert len(pages) > 14
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in text
        assert text.count("<script") == text.count('<script defer src="assets/')
        assert not any(
            word in text for word in ("<img", "<style", "style=", "onerror='", 'javascript:window.hacked=1"')
        )
        assert not any(letter in text for letter in "\x1b\u202e\x00"), page


def test_no_file_is_named_by_somebody_else(hostile: Path) -> None:
    """Names are harmless, whatever the things are called."""
    for path in hostile.rglob("*"):
        assert all(letter.isascii() and (letter.isalnum() or letter in "-_.") for letter in path.name), path
    assert not (hostile.parent / "etc").exists()


def test_data_are_ascii_and_small_whatever_they_hold(hostile: Path) -> None:
    """Scripts and JSON hold no character but ASCII, and no message of ten megabytes is carried by a page."""
    for path in [*hostile.rglob("*.js"), *hostile.rglob("*.json")]:
        if path.name == "dataset.json":
            continue  # the store keeps what it was given
        content = path.read_bytes()
        assert path.parent.name == "assets" or content.isascii(), path
        assert len(content) < 1_000_000, path


def test_feeds_and_badges_are_xml_and_inert(hostile: Path) -> None:
    """They can be parsed, hold no control character, and no markup of a message."""
    found = [*hostile.rglob("*.svg"), *hostile.rglob("*.xml")]
    assert {path.name for path in found} >= {"feed.xml", "sitemap.xml"}
    for path in found:
        root = ElementTree.parse(path).getroot()
        tags = {node.tag.rpartition("}")[2] for node in root.iter()}
        assert not tags & {"script", "img"}, path
        assert not any(letter in path.read_text(encoding="utf-8") for letter in "\x1b\u202e\x00")


def test_a_spreadsheet_runs_nothing(hostile: Path) -> None:
    """No field of the CSV begins as a formula does; every row has all fields, on one line."""
    text = (hostile / "api/v1/results.csv").read_text(encoding="utf-8")
    header, *rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 18
    assert {len(row) for row in rows} == {len(header)}
    assert not [field for row in rows for field in row if field[:1] in ("=", "+", "-", "@")]


def test_the_csv_has_what_the_columns_have(site: Path) -> None:
    """The same cells with the same verdicts as results.json, in the same order."""
    columns = json.loads((site / "api/v1/results.json").read_bytes())["columns"]
    rows = list(csv.DictReader(io.StringIO((site / "api/v1/results.csv").read_text())))
    for name in ("subject", "verdict", "class", "axes.offload", "run"):
        column = [columns[name]["values"][place] for place in columns[name]["rows"]]
        assert [row[name.removeprefix("axes.")] for row in rows] == column


def test_each_cell_has_its_file_with_all_its_runs(site: Path) -> None:
    """One file a subject; its history has each run once, oldest first, and ends with its verdict."""
    files = list((site / "api/v1/cells").iterdir())
    assert len(files) == 12 * 40
    cell = json.loads(files[0].read_bytes())
    assert [entry["run"] for entry in cell["history"]] == ["run0", "run1", "run2"]
    assert cell["history"][-1]["verdict"] == cell["verdict"]


@pytest.mark.parametrize("moved", [False, True])
def test_every_cell_of_the_answers_has_its_page(moved: bool, tmp_path: Path) -> None:
    """What a page links to is there, with the same verdict: also when a request has become another environment since."""
    first, second = dataset(0, 3, 6), dataset(1, 3, 6)
    if moved:
        names = {entry.id: "new" + entry.id for entry in second.environments}
        environments = [entry.model_copy(update={"id": names[entry.id]}) for entry in second.environments]
        column = second.columns["environment"]
        columns = {**second.columns, "environment": Column(values=[names[v] for v in column.values], rows=column.rows)}
        second = second.model_copy(update={"environments": environments, "columns": columns})
    silent = _with(second, verdict=["unfinished"] * len(second), group=["unfinished"] * len(second))
    publish([first, silent], tmp_path / "site")
    answers = Evidence([first, silent]).answers()
    seen = 0
    for row in answers.combinations:
        axes = dict(zip(answers.axes, row.values, strict=True))
        for kind, mask in row.kinds.items():
            for place in bits(mask):
                path = tmp_path / "site/data/cells" / answers.environments[place].id / f"{axes['pipeline']}.js"
                cells = json.loads(json.loads(path.read_text().partition(",")[2][:-3]))
                (cell,) = [cell for cell in cells if cell["axes"] == axes]
                assert cell["verdict"] == answers.kinds[kind].verdict
                seen += 1
    assert seen == (36 if moved else 18)


def test_a_change_is_told_through_a_night_without_an_answer(tmp_path: Path) -> None:
    """Good, then no answer, then bad: the feed of the third night has it, though the night before says nothing."""
    good, silent, bad = (dataset(number, 1, 1) for number in range(3))
    silent = _with(silent, verdict=["harness-error"], group=["no answer"])
    bad = _with(bad, verdict=["load-error"], group=["bad"], signature=["f" * 12], cause=["ValueError: no"])
    publish([good, silent, bad], tmp_path / "site")
    root = ElementTree.parse(tmp_path / "site" / "feed.xml").getroot()
    space = {"a": "http://www.w3.org/2005/Atom"}
    assert [entry.findtext("a:title", "", space) for entry in root.findall("a:entry", space)] == [
        "new red: load-error in 1 cell"
    ]


def test_links_of_feeds_lead_somewhere(site: Path) -> None:
    """Every file that an entry links to is there."""
    links = [
        node.get("href", "")
        for node in ElementTree.parse(site / "feed.xml").getroot().iter("{http://www.w3.org/2005/Atom}link")
    ]
    assert links
    for link in links:
        assert (site / link.partition("#")[0]).is_file(), link


@pytest.mark.parametrize("content", [".git", "results.sqlite", "CNAME"])
def test_a_site_replaces_nothing_but_a_site(tmp_path: Path, content: str) -> None:
    """A checkout, a run's folder, any folder with something else in it: nothing is touched, and the error says what."""
    target = tmp_path / "there"
    for with_site in (False, True):
        if with_site:
            (target / content).unlink()
            target.rmdir()
            publish(nights(1, 2, 4), target)
        target.mkdir(exist_ok=True)
        (target / content).write_text("precious")
        with pytest.raises(NotASite, match=content):
            publish(nights(1, 2, 4), target)
        assert (target / content).read_text() == "precious"
    other = tmp_path / "other"
    (other / "api").mkdir(parents=True)
    with pytest.raises(NotASite, match="is no site"):
        publish(nights(1, 2, 4), other)


def test_a_link_to_a_folder_stays_one(tmp_path: Path) -> None:
    """The folder that it leads to is the site."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        publish(nights(1, 2, 4), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "index.html").is_file()


def test_a_lock_names_the_index_of_its_build() -> None:
    """pip and uv look for a build of torch where it is; no line holds more than one requirement."""
    entry = dataset(0, 1, 1).environments[0]
    packages = [("torch", "2.13.0+cpu", "x.whl", "a" * 64), ("diffusers", "0.30.0\nevil==1", "y.whl", "b" * 64)]
    lines = lock_lines(entry.model_copy(update={"packages": packages})).splitlines()
    assert lines[1].startswith("--extra-index-url https://") and lines[1].endswith("/whl/cpu")
    assert lines[2:] == [
        f"diffusers==0.30.0 evil==1 --hash=sha256:{'b' * 64}",
        f"torch==2.13.0+cpu --hash=sha256:{'a' * 64}",
    ]


def test_answers_of_the_site_are_those_of_the_evidence(site: Path) -> None:
    """What a lookup reads at an address is what it would make of the data sets."""
    read = Answers.from_json((site / "api/v1/answers.json").read_bytes())
    assert read == Evidence(nights(3, 12, 40)).answers()


def test_the_feed_tells_of_changes_once(site: Path) -> None:
    """One entry for a failure that is new since the run before; ids are different, and the same when built again."""
    space = {"a": "http://www.w3.org/2005/Atom"}
    root = ElementTree.parse(site / "feed.xml").getroot()
    entries = root.findall("a:entry", space)
    titles = [entry.findtext("a:title", "", space) for entry in entries]
    assert [title.split(" in ")[0] for title in titles] == ["new red: step-error"]
    ids = [entry.findtext("a:id", "", space) for entry in entries]
    assert len(set(ids)) == len(ids)
    for path, count in (("offload/none", 0), ("offload/split", 1), ("torch/2.13.0", 1), ("torch/2.12.0", 0)):
        own = ElementTree.parse(site / "feeds" / f"{path}.xml").getroot()
        assert len(own.findall("a:entry", space)) == count, path


def test_published_again_nothing_is_written(tmp_path: Path) -> None:
    """The same runs make the same bytes."""
    assert publish(nights(2, 4, 10), tmp_path / "site") > 0
    assert publish(nights(2, 4, 10), tmp_path / "site") == 0


def _with(found: DatasetModel, **columns: list[Any]) -> DatasetModel:
    changed = {name.replace("__", "."): Column.of(values) for name, values in columns.items()}
    return found.model_copy(update={"columns": {**found.columns, **changed}})


def _badge(found: DatasetModel, axis: str, value: str) -> Badge:
    return next(b for b in find_badges(Evidence([found]).answers()) if (b.axis, b.value) == (axis, value))


def test_badges_count_sound_loads_only() -> None:
    """A load that is our reconstruction has none, and other lives than one image feed those of lifecycles only."""
    found = find_badges(Evidence([dataset(0, 6, 500)]).answers())
    assert ("load", "empty_init-raw") not in {(badge.axis, badge.value) for badge in found}
    by_name = {(badge.axis, badge.value): badge for badge in found}
    assert (by_name["offload", "none"].message, by_name["offload", "none"].state) == (
        "15 good (diffusers 0.27.2)",
        "good",
    )
    assert by_name["lifecycle", "move"].message == "30 of 75 bad (diffusers 0.27.2)"
    assert by_name["lifecycle", "move"].state == "bad"


def test_a_badge_of_what_has_no_answer_is_not_green() -> None:
    """Nothing measured, no answer, unsupported and unfinished are words of their own; good with a silent cell is grey."""
    two = dataset(0, 1, 2)
    silent = _with(two, verdict=["harness-error"] * 2, group=["no answer"] * 2)
    assert _badge(silent, "pipeline", "sd15").message == "no answer"
    unsupported = _with(two, verdict=["unsupported"] * 2, group=["not applicable"] * 2)
    assert _badge(unsupported, "pipeline", "sd15").message == "unsupported"
    half = _with(
        two,
        verdict=["pass", "unfinished"],
        group=["good", "unfinished"],
        axes__lifecycle=["single"] * 2,
        axes__offload=["none", "model"],
    )
    badge = _badge(half, "pipeline", "sd15")
    assert (badge.message, badge.state) == ("1 good, 1 no answer (diffusers 0.27.0)", "silent")


def test_what_was_emulated_is_never_told_as_measured() -> None:
    """Beside real cells it does not count; alone it says so."""
    two = _with(
        dataset(0, 1, 2), axes__runner=["cpu", "emulated"], emulated=[False, True], axes__lifecycle=["single"] * 2
    )
    bad = _with(two, verdict=["unsupported", "pass"], group=["not applicable", "good"])
    assert _badge(bad, "pipeline", "sd15").message == "unsupported"
    assert _badge(bad, "runner", "emulated").message == "1 good (diffusers 0.27.0), emulated"
    rows = [row for chart in draw_charts(Evidence([bad])) for row in chart.rows if chart.title.endswith("diffusers")]
    assert rows == [("0.27.0", "0", "0", "1", "0")]


def test_a_cut_night_does_not_look_good() -> None:
    """Cells without a verdict are in the charts and the history, as no answer."""
    half = _with(dataset(0, 1, 2), verdict=["pass", "unfinished"], group=["good", "unfinished"])
    (chart,) = [chart for chart in draw_charts(Evidence([half])) if chart.title.endswith("diffusers")]
    assert chart.rows == (("0.27.0", "1", "0", "0", "1"),)


def test_one_badge_for_what_is_asked(site: Path) -> None:
    """A version's badge has its own name, dots and all; shields' endpoint says the same."""
    badge = json.loads((site / "badges/diffusers/0.27.0.json").read_bytes())
    assert badge["schemaVersion"] == 1
    assert badge["label"] == "diffusers 0.27.0"
    assert badge["message"] in (site / "badges/diffusers/0.27.0.svg").read_text()


KINDS = {
    "index.json": "index",
    "answers.json": "answers",
    "results.json": "results",
    "errors.json": "errors",
    "history.json": "history",
    "badges.json": "badges",
    "profiles.json": "profiles",
    "environments/*.json": "environment",
    "cells/*.json": "cell",
    "errors/*.json": "error",
    "compare/*.json": "compare",
    "runs/*/dataset.json": "dataset",
}
"""Which files have which schema; data sets have the one that they have everywhere."""


@pytest.mark.parametrize("which", ["site", "hostile"])
def test_every_file_is_as_its_schema_says(which: str, request: pytest.FixtureRequest) -> None:
    """No file below api/v1/ is without a schema, and none has a field that it does not know; they lie beside the files."""
    folder: Path = request.getfixturevalue(which) / "api" / "v1"
    seen = set()
    for pattern, name in KINDS.items():
        schema = json.loads((folder / "schemas" / f"{name}.schema.json").read_bytes())
        checker = jsonschema.Draft202012Validator(_strict(schema))
        files = sorted(folder.glob(pattern))
        assert files, pattern
        for path in files[:40]:
            checker.validate(json.loads(path.read_bytes()))
        seen |= set(files)
    rest = {path for path in folder.rglob("*.json") if path not in seen and path.parent.name != "schemas"}
    assert not rest


def _strict(schema: Any) -> Any:
    """The same schema, of objects that have no other fields."""
    if isinstance(schema, list):
        return [_strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _strict(entry) for name, entry in schema.items()}
    return {**found, "additionalProperties": False} if "properties" in found else found


RELEASED = Path(__file__).parent / "released"
"""Files as the first release wrote them. They are never changed; a later version gets a folder of its own."""


@pytest.mark.parametrize("name", ["answers", "dataset"])
def test_what_the_first_version_wrote_is_still_read(name: str, tmp_path: Path) -> None:
    """Answers and data sets of schema version 1, as they were written then, say the same today."""
    content = (RELEASED / f"{name}-1.json").read_bytes()
    if name == "answers":
        found = Answers.from_json(content)
        assert [run.id for run in found.runs] == ["run0", "run1"]
        assert sum(mask.bit_count() for row in found.combinations for mask in row.kinds.values()) == 3 * 8
    else:
        (tmp_path / "dataset.json").write_bytes(content)
        assert len(read_dataset(tmp_path)) == 3 * 8


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_only_grow(name: str) -> None:
    """A reader of the first version finds every field where it was: none is gone, renamed or of another type."""
    first = json.loads((RELEASED / "schemas-1.json").read_bytes())[name]
    _grows(first, api_schemas()[name], name)


def _grows(old: Any, new: Any, where: str) -> None:
    for key, value in old.get("properties", {}).items():
        assert key in new.get("properties", {}), f"{where}.{key} is gone"
        for kind in ("type", "$ref", "anyOf", "items", "additionalProperties", "prefixItems"):
            assert value.get(kind) == new["properties"][key].get(kind), f"{where}.{key} is another {kind}"
    assert set(old.get("required", ())) <= set(new.get("required", ())), where
    for key, value in old.get("$defs", {}).items():
        assert key in new.get("$defs", {}), f"{where}: {key} is gone"
        _grows(value, new["$defs"][key], f"{where}.{key}")


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["combinations"][0]["kinds"].update({"99": "1"}),
        lambda data: data["combinations"][0]["kinds"].update({"0": "-1"}),
        lambda data: data["combinations"][0]["kinds"].update({"0": "f" * 99}),
        lambda data: data["combinations"][0].update(values=[]),
        lambda data: data["packages"]["torch"]["rows"].append(0),
        lambda data: data["packages"]["torch"].update(rows=[99] * 3),
        lambda data: data.update(schema_version=2),
        lambda data: data.update(schema_version="x"),
        lambda data: data.update(runs=[]),
        lambda data: data["kinds"][0].update(verdict={}),
        lambda data: data.pop("axes"),
    ],
)
def test_damaged_answers_are_refused(change: Any) -> None:
    """Numbers that lead nowhere, fields that are gone, a later version: an error in words, never another answer."""
    data = json.loads((RELEASED / "answers-1.json").read_bytes())
    change(data)
    with pytest.raises(ValueError, match=r"."):
        Answers.from_json(json.dumps(data))


@pytest.mark.parametrize("terms", [[], ["load=any", "lifecycle=any"], ["verdict=bad", "load=any"], ["torch=1.0"]])
def test_a_terminal_is_told_text_only(hostile: Path, terms: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A lookup in hostile data prints no escape, no mark of direction and no other control character."""
    assert run_lookup(terms, "", "cpu", str(hostile), as_json=False) == 0
    told = capsys.readouterr().out
    assert told
    assert not [letter for letter in told if not letter.isprintable() and letter != "\n"]


def test_what_an_older_probe_found_is_history_only() -> None:
    """A newer probe may see what the older one overlooked: its word alone counts, and the runs are still told."""
    old, new = dataset(0, 3, 8), dataset(1, 2, 8)
    evidence = Evidence([old.model_copy(update={"probe_version": "1"}), new])
    answers = evidence.answers()
    runs = {number for row in answers.combinations for number in row.runs}
    assert runs == {1}
    assert sum(mask.bit_count() for row in answers.combinations for mask in row.kinds.values()) == 2 * 8
    assert len(evidence.subjects()) == 3 * 8


def test_no_answer_never_takes_the_place_of_an_answer() -> None:
    """A night without an answer leaves the answer of the night before, with its run; an answer replaces it."""
    first, second = dataset(0, 1, 2), dataset(1, 1, 2)
    silent = {"verdict": "harness-error", "group": "no answer", "stage": "build", "signature": "", "cause": "no disk"}
    columns = {**second.columns, **{name: Column.of([value, value]) for name, value in silent.items()}}
    night = second.model_copy(update={"columns": columns})
    answers = Evidence([first, night]).answers()
    assert {number for row in answers.combinations for number in row.runs} == {0}
    assert {answers.kinds[number].verdict for row in answers.combinations for number in row.kinds} == {"pass"}
    alone = Evidence([night]).answers()
    assert {alone.kinds[number].group for row in alone.combinations for number in row.kinds} == {"no answer"}
