"""Which pages are there? Those that only show are made here; those that ask are shells for a script and the same data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports.answers import install_line, is_sound
from reports.api import Details
from reports.charts import draw_charts
from reports.files import cause_page, compare_name, environment_page, lock_path, run_path
from reports.findings import Findings
from reports.names import file_name
from reports.site import POLICY
from reports.tree import Tree
from reports.versions import PACKAGES, in_order, without_build
from reports.wording import AXES, CAVEATS, CLASSES, LETTERS, MARKS, MEANINGS, RUNNERS, harmless, shown_class

__all__ = ["PAGES", "write_site"]

PAGES = (
    ("index.html", "Answer"),
    ("matrix.html", "Matrix"),
    ("causes.html", "Causes"),
    ("compare.html", "Changes"),
    ("environments.html", "Environments"),
    ("history.html", "History"),
    ("charts.html", "Charts"),
    ("profiles.html", "Profiles"),
    ("diagnose.html", "Diagnose"),
    ("about.html", "About"),
)


def write_site(tree: Tree, found: Findings, details: Details | None, live: bool) -> list[str]:
    """Write all pages and what they are made with; their paths, for a sitemap.

    With `live` there is a page that watches a run, for a server that knows of one.
    """
    assets = Path(__file__).parent / "assets"
    for path in sorted(assets.iterdir()):
        tree.write(f"assets/{path.name}", path.read_bytes())
    return _Pages(tree, found, live).write(details)


def _finalize(value: object) -> object:
    """What any expression of a template gives: text without control characters; HTML is escaped after this."""
    return value if isinstance(value, Markup) else harmless(str(value))


class _Pages:
    def __init__(self, tree: Tree, found: Findings, live: bool) -> None:
        evidence, answers = found.evidence, found.answers
        self._tree, self._found, self._evidence, self._answers, self._live = tree, found, evidence, answers, live
        self._paths: list[str] = []
        self._jinja = Environment(
            loader=PackageLoader("reports.site"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._jinja.globals.update(
            pages=(*PAGES, *([("live.html", "Live")] if live else [])),
            meanings=MEANINGS,
            classes=CLASSES,
            policy=Markup(POLICY),  # noqa: S704  # it is ours
            file_name=file_name,
            cause_page=cause_page,
            environment_page=environment_page,
            lock_path=lock_path,
            is_link=_is_link,
            shape=lambda group: MARKS.get(group, "?"),
            cell_address=self._cell_address,
            cell_words=lambda combination: " ".join(answers.combinations[combination].values),
            environment_words=self._environment_words,
            newest={
                "started": evidence.newest.started,
                "cells": len(evidence.newest.data),
                "no_answer_share": evidence.newest.data.run.no_answer_share,
            },
        )

    def write(self, details: Details | None) -> list[str]:
        probe = [(axis, axis) for axis in self._answers.axes]
        packages = [
            (package, package) for package in (*self._answers.order, "python") if package in self._answers.packages
        ]
        self._page("index.html", **self._question())
        axes = [*probe, *packages, ("environment", "environment")]
        self._page(
            "matrix.html",
            axes=axes,
            groups=list(MARKS)[:4],
            letters=list(LETTERS.items()),
            letters_json=json.dumps(list(LETTERS.items())),
        )
        self._page("causes.html", causes=self._found.causes)
        dates = {run.id: run.started[:10] for run in self._evidence.runs}
        for cause in self._found.causes:
            self._page("cause.html", cause_page(cause.id), cause=cause, dates=dates)
        self._environments(details)
        self._page("cell.html")
        self._page("compare.html", pairs=self._compared())
        self._page("history.html", axes=[*probe, *[(name, name) for name in PACKAGES]], groups=list(MARKS)[:4])
        self._page("charts.html", charts=draw_charts(self._evidence), groups=list(MARKS)[:4])
        self._page("profiles.html")
        self._page("diagnose.html")
        if self._live:
            self._page("live.html")
        self._page(
            "about.html",
            axes=AXES,
            caveats=CAVEATS,
            runs=[self._run(place) for place in reversed(range(len(self._evidence.runs)))],
        )
        return self._paths

    def _page(self, template: str, path: str | None = None, **values: Any) -> None:
        place = path or template
        up = "../" * place.count("/")
        self._tree.text(place, self._jinja.get_template(template).render(up=up, page=place, **values))
        self._paths.append(place)

    def _question(self) -> dict[str, Any]:
        """The choices of the first page: what was measured, and `any`."""
        values = self._answers.values
        own = [row for row in self._answers.combinations if row.rebuilt is None]
        loads = list(dict.fromkeys(row.values[self._answers.axes.index("load")] for row in own))
        others = [load for load in values.get("load", []) if load not in loads]
        runners = [*RUNNERS, *[name for name in values.get("runner", []) if name not in RUNNERS]]
        return {
            "pipelines": [*_options(values.get("pipeline", [])), ("any", "any")],
            "offloads": [("", "any"), *_options(values.get("offload", []))],
            "runners": _options(runners),
            "loads": [
                ("", "the libraries' own"),
                *_options(loads),
                *[(load, f"{load} (our reconstruction)") for load in others],
            ],
            "checkpoints": _first("canonical", values.get("checkpoint", []), "sound"),
            "lifecycles": _first("single", values.get("lifecycle", []), "one image"),
            "packages": [
                (name, [("", "any"), *_options(self._versions(name))])
                for name in (*PACKAGES, "python")
                if name in self._answers.packages
            ],
        }

    def _versions(self, package: str) -> list[str]:
        """The versions of environments that exist, newest first, without builds."""
        found = set()
        for place, environment in enumerate(self._answers.environments):
            version = self._answers.version(place, package)
            if environment.exists and version is not None:
                found.add(without_build(version))
        return sorted(found, key=in_order, reverse=True)

    def _environments(self, details: Details | None) -> None:
        groups: list[Counter[str]] = [Counter() for _ in self._evidence.environments]
        sound: list[Counter[str]] = [Counter() for _ in self._evidence.environments]
        kinds: list[Counter[int]] = [Counter() for _ in self._evidence.environments]
        instances: dict[tuple[int, int], int] = {}
        for cell in self._evidence.cells:
            group = shown_class(self._evidence.kinds[cell.kind].group)
            groups[cell.environment][group] += 1
            if is_sound(self._evidence.axes, self._evidence.combinations[cell.combination]):
                sound[cell.environment][group] += 1
            kinds[cell.environment][cell.kind] += 1
            instances.setdefault((cell.environment, cell.kind), cell.combination)
        listed = list(enumerate(self._evidence.environments))
        self._page("environments.html", environments=listed[::-1], groups=groups, sound=sound)
        known = self._evidence.kinds
        for place, entry in listed:
            verdicts: Counter[tuple[str, str]] = Counter()
            for kind, count in kinds[place].items():
                verdicts[known[kind].verdict, known[kind].group] += count
            self._page(
                "environment.html",
                environment_page(entry.id),
                place=place,
                sound=sound[place],
                environment=entry,
                verdicts=[(verdict, group, count) for (verdict, group), count in verdicts.most_common()],
                kinds=known,
                causes=[
                    (kind, count, instances[place, kind])
                    for kind, count in kinds[place].most_common()
                    if known[kind].group == "bad"
                ],
                install=install_line(self._answers, place),
                more=_MORE | (details.environment(entry.id) if details is not None else {}),
            )

    def _compared(self) -> list[tuple[str, str]]:
        """The newest run against the one before it first."""
        found = sorted(
            self._found.changes.values(), key=lambda pair: (pair.after.started, pair.before.started), reverse=True
        )
        return [
            (
                compare_name(pair.before.id, pair.after.id),
                f"{pair.before.started[:16]} → {pair.after.started[:16]}",
            )
            for pair in found
        ]

    def _run(self, place: int) -> dict[str, Any]:
        run = self._evidence.runs[place]
        known = run.data.run
        return {
            "id": run.id,
            "started": run.started[:16],
            "select": known.select,
            "cells": len(run.data),
            "no_answer_share": known.no_answer_share,
            "data": run_path(run.id),
        }

    def _environment_words(self, place: int) -> str:
        found = [(name, self._answers.version(place, name)) for name in self._answers.telling]
        words = ", ".join(f"{name} {without_build(version)}" for name, version in found if version is not None)
        return words or self._answers.environments[place].id

    def _cell_address(self, combination: int, environment: int) -> str:
        values = dict(zip(self._answers.axes, self._answers.combinations[combination].values, strict=True))
        return urlencode({"environment": self._answers.environments[environment].id, **values}, errors="replace")


_MORE: dict[str, Any] = {"each_control": [], "direct_url": {}, "torch_build": "", "lock": ""}
"""What only the folder of a run knows of an environment."""


def _options(values: Sequence[str]) -> list[tuple[str, str]]:
    return [(value, value) for value in values]


def _first(value: str, values: Sequence[str], words: str) -> list[tuple[str, str]]:
    """One value, in words, then the others, then any."""
    return [(value, f"{value} ({words})"), *_options([other for other in values if other != value]), ("any", "any")]


def _is_link(text: str) -> bool:
    """Whether an address may be followed: nothing but https, without anything that is no part of an address."""
    return text.startswith("https://") and text.isascii() and text.isprintable() and not set(text) & set("\"'<>\\ `")
