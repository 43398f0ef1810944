"""The site in a real browser: the questions it is there for, and what no page may ever do."""

from __future__ import annotations

import random
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from metamatrix.sources import SHIPPED
from reports.answers import Answers
from reports.dataset import FILE, DatasetModel, read_dataset
from reports.evidence import Evidence
from reports.lookup import known_axes, known_packages, look_up
from reports.publication import publish
from reports.query import parse_query
from reports.versions import PACKAGES
from reports.wording import MARKS, harmless
from tests.integration.browsing import PAGES, Watched, a_day_later, chromium, served
from tests.unit.test_publication import HOSTILE, HostileDetails, hostile_dataset

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def nights() -> list[DatasetModel]:
    """The data that come with the program, and a second night."""
    first = read_dataset(max(SHIPPED.glob(f"*/{FILE}")).parent)
    return [first, a_day_later(first)]


@pytest.fixture(scope="module")
def folder(nights: list[DatasetModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of both nights."""
    found = tmp_path_factory.mktemp("published") / "site"
    publish(nights, found, base="https://example.org/matrix/")
    return found


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def _all_pages(folder: Path) -> list[str]:
    """The pages of the menu, and one of each kind that they lead to."""
    cause, environment = min((folder / "causes").iterdir()), max((folder / "environments").iterdir())
    cell = "cell.html#environment={}&pipeline=sd15&load=pretrained&offload=none&checkpoint=canonical&lifecycle=single"
    return [*PAGES, f"causes/{cause.name}", f"environments/{environment.name}", cell.format(environment.stem)]


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_pages_work_from_a_server_and_from_a_disk(page: Page, folder: Path, address: str, scheme: str) -> None:
    """Every page shows what it has, asks nobody else, and has nothing to say to the console."""
    watched = Watched(page, address if scheme == "http" else f"file://{folder}/")
    for path in _all_pages(folder):
        watched.open(path)
        assert page.locator("h1").count() == 1, path
        assert page.title().endswith("metamatrix")
        assert watched.troubles == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_anybody_out(browser: Browser, folder: Path, address: str, scheme: Any) -> None:
    """axe-core finds nothing serious or critical on any page, in light and dark, wide and narrow."""
    context = browser.new_context(bypass_csp=True, color_scheme=scheme, viewport={"width": 320, "height": 640})
    watched = Watched(context.new_page(), address)
    for path in [*_all_pages(folder), "index.html#pipeline=sdxl&offload=sequential&runner=cuda"]:
        page = watched.open(path)
        for details in page.locator("details").all():
            details.evaluate("node => { node.open = true; }")
        found = Axe().run(page).response["violations"]
        assert [entry["id"] for entry in found if entry["impact"] in ("serious", "critical")] == [], path
    context.close()


def test_a_page_fits_a_narrow_screen(browser: Browser, folder: Path, address: str) -> None:
    """At 320 pixels nothing but a table or a chart in its own frame is wider than the screen."""
    context = browser.new_context(viewport={"width": 320, "height": 640})
    watched = Watched(context.new_page(), address)
    for path in _all_pages(folder):
        page = watched.open(path)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 320, path
    context.close()


def test_the_newest_good_set_on_cuda(page: Page, address: str) -> None:
    """Three choices; without data of CUDA the page says so, and shows the CPU and the emulated runner beside it."""
    Watched(page, address).open("index.html")
    page.get_by_label("Pipeline").select_option("sdxl")
    page.get_by_label("Offload").select_option("sequential")
    page.get_by_label("Runner").select_option("cuda")
    expect(page.get_by_role("status")).to_contain_text("Not measured on CUDA")
    expect(page.get_by_role("region", name="cpu", exact=True)).to_contain_text("diffusers==0.42.1")
    expect(page.get_by_role("region", name="emulated", exact=True)).to_contain_text("Not measured on emulated")


def test_since_when_is_it_broken_and_in_what(page: Page, address: str) -> None:
    """Two choices: the versions between which it broke, the words, and when; the cause is one click further."""
    Watched(page, address).open("index.html")
    page.get_by_label("Pipeline").select_option("sd3")
    page.get_by_label("Load", exact=True).select_option("single_file")
    card = page.locator(".card", has=page.locator(".since")).first
    expect(card.locator(".since")).to_contain_text("Broken")
    expect(card).to_contain_text("text_encoder_3")
    expect(card).to_contain_text("load=single_file")
    card.locator("a.cause-link").first.click()
    expect(page.get_by_role("heading", name="When")).to_be_visible()


def test_what_is_new_since_the_last_run(page: Page, address: str) -> None:
    """One click: what became red is there with its cause, and each kind of change is counted."""
    watched = Watched(page, address)
    watched.open("index.html")
    page.get_by_role("link", name="Changes").click()
    watched.settle()
    expect(page.get_by_role("status")).to_contain_text("1 new red")
    expect(page.locator("#rows")).to_contain_text("something new")
    page.get_by_role("button", name="new-green").click()
    expect(page.locator("#rows table")).to_contain_text("load-error")
    assert "change=new-green" in page.url
    assert watched.troubles == []


def test_from_all_cells_to_one(page: Page, address: str) -> None:
    """Squares lead to smaller sets until one cell is left; the address keeps each step, and Back goes back."""
    watched = Watched(page, address)
    watched.open("matrix.html")
    first = page.locator("#summary").inner_text()
    for _ in range(6):
        if "cell.html" in page.url:
            break
        before = page.url
        page.locator("a.square.bad").first.click()
        page.wait_for_url(lambda url, before=before: url != before)
        watched.settle()
    assert "cell.html" in page.url
    expect(page.locator("h1 .tag")).to_have_class("tag bad")
    page.go_back()
    watched.settle()
    kept = page.url
    told = page.locator("#summary").inner_text()
    assert told != first
    page.goto("about:blank")
    page.goto(kept)
    watched.settle()
    assert page.locator("#summary").inner_text() == told
    assert watched.troubles == []


def test_rows_and_columns_are_the_readers_choice(page: Page, address: str) -> None:
    """Whatever axes are chosen, the squares count every cell that the filters leave, once."""
    Watched(page, address).open("matrix.html")
    chance = random.Random(5)
    axes = [
        "pipeline",
        "load",
        "offload",
        "checkpoint",
        "lifecycle",
        "diffusers",
        "transformers",
        "torch",
        "environment",
    ]
    for _ in range(6):
        rows, columns = chance.sample(axes, 2)
        page.get_by_label("Rows").select_option(rows)
        page.locator("#rows2").select_option("")
        page.get_by_label("Columns").select_option(columns)
        page.locator("#columns2").select_option("")
        total = int(page.locator("#summary").inner_text().split()[0])
        counted = page.locator("a.square").evaluate_all(
            "squares => squares.map(s => Number((s.textContent.match(/(\\d+)$/) ?? [0, 1])[1])).reduce((a, b) => a + b, 0)"
        )
        assert counted == total, (rows, columns)


def test_the_keyboard_is_enough(page: Page, address: str) -> None:
    """Tab reaches the choices in their order, arrows walk the matrix, Enter follows a square."""
    watched = Watched(page, address)
    watched.open("index.html")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Pipeline")).to_be_focused()
    page.keyboard.type("sdxl")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Offload")).to_be_focused()
    page.keyboard.type("sequ")
    expect(page.locator("#answer")).to_contain_text("sdxl · ")
    assert "pipeline=sdxl" in page.url
    assert "offload=sequential" in page.url
    watched.open("matrix.html")
    page.locator("#matrix").focus()
    page.keyboard.press("Tab")
    before = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    after = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert before != after
    page.keyboard.press("Enter")
    watched.settle()
    assert "pipeline=" in page.url


def test_the_page_answers_as_the_command_does(page: Page, address: str, nights: list[DatasetModel]) -> None:
    """For questions drawn at random: the same ranges, counts, newest good set and install line as `lookup`."""
    answers = Evidence(nights).answers()
    Watched(page, address).open("index.html")
    chance = random.Random(8)
    for _ in range(60):
        asked = _question(answers, chance)
        theirs = page.evaluate(
            """async (asked) => {
              const cells = await MM.cells.load(), found = MM.lookup.lookUp(cells, new Map(asked));
              return {
                counts: [...found.counts].sort(), lives: found.badLifecycles, loads: [...found.goodByLoad.keys()],
                newest: found.newestGood === null ? null : MM.lookup.installLine(cells.answers, found.newestGood),
                lines: found.lines.map((line) => [line.values, line.spans.map((span) =>
                  [span.kind.verdict, span.kind.signature, span.environments.map((e) => cells.answers.environments[e].id),
                   [...span.versions], span.attempts])])};
            }""",
            list(asked.items()),
        )
        terms = [f"{name}={value}" for name, value in asked.items()]
        ours = look_up(answers, parse_query(terms, known_axes(answers), known_packages(answers)))
        newest = ours.as_json()["newest_good"]
        assert theirs["counts"] == sorted([verdict, count] for verdict, count in ours.counts.items()), asked
        assert theirs["newest"] == (newest and newest["install"]), asked
        assert theirs["lives"] == list(ours.bad_lifecycles), asked
        assert theirs["loads"] == list(ours.good_by_load), asked
        assert theirs["lines"] == [
            [
                list(line.axes.values()),
                [
                    [
                        span.verdict,
                        span.as_json()["signature"],
                        list(span.environments),
                        [[name, list(pair)] for name, pair in span.versions.items()],
                        span.attempts,
                    ]
                    for span in line.spans
                ],
            ]
            for line in ours.lines
        ], asked


def _question(answers: Answers, chance: random.Random) -> dict[str, str]:
    found = {}
    for axis in ("pipeline", "load", "offload", "checkpoint", "lifecycle"):
        if chance.random() < 0.5:
            found[axis] = chance.choice([*answers.values[axis], "any"] if axis != "load" else answers.values[axis])
    for package in answers.telling:
        if chance.random() < 0.15:
            found[package] = str(chance.choice(answers.order[package])[0])
    if chance.random() < 0.2:
        found["runner"] = chance.choice(["cpu", "any"])
    return found


def test_words_and_marks_are_those_of_python(page: Page, address: str) -> None:
    """What both sides know is the same: the packages, the shapes, and which characters are shown as numbers."""
    Watched(page, address).open("index.html")
    assert page.evaluate("MM.PACKAGES") == list(PACKAGES)
    assert dict(page.evaluate("[...MM.SHAPES]")) == MARKS
    letters = [
        chr(number) for number in [*range(0x3000), 0xFEFF, 0xE000, 0x1F600, 0xE0001] if not 0xD800 <= number < 0xE000
    ]
    assigned = [letter for letter in letters if unicodedata.category(letter) != "Cn"]
    shown = page.evaluate("(letters) => letters.map((letter) => MM.plain(letter))", assigned)
    assert [letter for letter, text in zip(assigned, shown, strict=True) if text != harmless(letter)] == []
    for word in ("torch==2.6.0", "a b", "it's", "$(x)", "", "ü"):
        assert shlex.split(page.evaluate("(word) => MM.quoted(word)", word)) == [word]


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_hostile_text_does_nothing(page: Page, tmp_path: Path, scheme: str) -> None:
    """Markup, scripts, escapes and marks of direction in every field: shown as text, and no page does anything else."""
    site = tmp_path / "site"
    publish([hostile_dataset(0), hostile_dataset(1)], site, HostileDetails())
    with served(site) as root:
        watched = Watched(page, root if scheme == "http" else f"file://{site}/")
        inner = [
            f"{kind}/{path.name}" for kind in ("causes", "environments") for path in sorted((site / kind).iterdir())
        ]
        for path in [*PAGES, *inner]:
            watched.open(path)
            _is_inert(page, path)
        watched.open("matrix.html")
        link = page.locator("a.square, #list a").first.get_attribute("href")
        assert link is not None
        watched.open(link)
        expect(page.locator("h1 .tag")).to_be_visible()
        _is_inert(page, link)
        watched.open("diagnose.html")
        page.get_by_label("Log").fill(HOSTILE)
        _is_inert(page, "diagnose.html")
        assert watched.troubles == []


def _is_inert(page: Page, path: str) -> None:
    assert page.evaluate("window.hacked") is None, path
    found = page.evaluate(
        "document.querySelectorAll('main script, main img, main iframe, main style, main object, [onerror]').length"
    )
    assert found == 0, path
    assert page.evaluate("[...document.links].filter(a => !/^(http|https|file):$/.test(a.protocol)).length") == 0, path
    told = page.evaluate(
        """document.title + document.body.textContent + [...document.querySelectorAll("[title], [aria-label]")]
            .map((node) => `${node.title}${node.getAttribute("aria-label")}`).join("")"""
    )
    assert not any(letter in told for letter in "\x1b\u202e\x00"), path


def test_a_log_is_looked_up_on_the_page(page: Page, address: str, nights: list[DatasetModel]) -> None:
    """A message that was measured is found in a log, with its rule; another is not, and nothing is sent."""
    watched = Watched(page, address)
    watched.open("diagnose.html")
    page.get_by_label("Log").fill("Traceback:\nNotImplementedError: Cannot copy out of meta tensor; no data!\n")
    expect(page.locator("#found")).to_contain_text("save-load")
    page.get_by_label("Log").fill("all is well")
    expect(page.locator("#found")).to_contain_text("No message of a measured failure")
    assert watched.troubles == []


def test_a_missing_data_file_is_said_on_the_page(page: Page, tmp_path: Path, nights: list[DatasetModel]) -> None:
    """Not an empty page: which file is not there."""
    publish(nights[:1], tmp_path / "site")
    (tmp_path / "site/data/answers.js").unlink()
    page.goto(f"file://{tmp_path}/site/matrix.html")
    expect(page.get_by_role("alert")).to_contain_text("data/answers.js is not there")
