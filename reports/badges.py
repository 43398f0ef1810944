"""What does a badge say? One value of an axis in the newest environments where it was measured, in a few words.

Only sound checkpoints, loaded as the libraries do it, and one image, as an answer assumes: our own reconstructions feed
no badge.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from markupsafe import escape

from reports.answers import Answers, Combination, is_sound, union
from reports.files import compact, write_json
from reports.names import file_name, version_name
from reports.tree import Tree
from reports.versions import PACKAGES, without_build
from reports.wording import SILENT, harmless

__all__ = ["Badge", "find_badges", "write_badges"]

_COLOURS = {"good": "#2a7f4f", "expected": "#8a6d00", "bad": "#b3382c", "silent": "#5f6875"}
_SHIELDS = {"good": "brightgreen", "expected": "yellow", "bad": "red", "silent": "lightgrey"}
_LONG = 40


@dataclass(frozen=True, slots=True)
class Badge:
    """`state` is good, bad, expected (bad, and all of it known) or silent (nothing was measured, or no answer)."""

    axis: str
    value: str
    message: str
    state: str

    @property
    def label(self) -> str:
        return harmless(f"{self.axis} {self.value}")[:_LONG]


def find_badges(answers: Answers) -> list[Badge]:
    """A badge for each value of each probe axis, in the newest environment that answers, and for each version."""
    sound = [row for row in answers.combinations if is_sound(answers.axes, row)]
    life = answers.axes.index("lifecycle") if "lifecycle" in answers.axes else None
    rows = [row for row in sound if life is None or row.values[life] == "single"]
    found = []
    for place, axis in enumerate(answers.axes):
        if axis in ("checkpoint", "dtype"):
            continue  # only sound checkpoints count, and there is one dtype
        for value in answers.values[axis]:
            own = _real([row for row in (sound if place == life else rows) if row.values[place] == value])
            if not own and not any(row.values[place] == value for row in sound):
                continue  # our reconstructions feed no badge
            newest = max((_newest(answers, row) for row in own), default=-1)
            found.append(_badge(answers, axis, value, own, 1 << newest if newest >= 0 else answers.exist))
    for package in PACKAGES:
        for version, mask in answers.order.get(package, []):
            if mask & answers.exist:
                found.append(_badge(answers, package, str(version), _real(rows), mask & answers.exist))
    return found


def _real(rows: list[Combination]) -> list[Combination]:
    """What was measured on real runners; what was emulated only where there is nothing else, and then it is said."""
    return [row for row in rows if not row.emulated] or rows


def _newest(answers: Answers, row: Combination) -> int:
    """The newest environment with an answer, or -1."""
    answered = union(mask for number, mask in row.kinds.items() if answers.kinds[number].group in ("good", "bad"))
    return (answered & answers.exist).bit_length() - 1


def _badge(answers: Answers, axis: str, value: str, rows: list[Combination], environments: int) -> Badge:
    counts: Counter[str] = Counter()
    emulated = ", emulated" if rows and rows[0].emulated else ""
    for row in rows:
        for number, mask in row.kinds.items():
            kind = answers.kinds[number]
            name = "expected" if kind.group == "bad" and kind.expected else kind.group
            counts[name] += (mask & environments).bit_count()
    good, bad, expected = counts["good"], counts["bad"], counts["expected"]
    silent = sum(counts[group] for group in SILENT)
    answered = good + bad + expected
    if not answered:
        words = "no answer" if silent else "unsupported" if counts["not applicable"] else "not measured"
        return Badge(axis, value, words + emulated, "silent")
    if bad or expected:
        message, state = f"{bad + expected} of {answered} bad", "bad" if bad else "expected"
    else:
        message, state = f"{good} good", "good"
    if silent:
        message, state = f"{message}, {silent} no answer", "silent" if state == "good" else state
    version = answers.version(environments.bit_length() - 1, "diffusers") if axis not in PACKAGES else None
    where = f" (diffusers {without_build(version)})" if version else ""
    return Badge(axis, value, message + where + emulated, state)


def write_badges(tree: Tree, badges: list[Badge]) -> None:
    """Write badges/AXIS/VALUE.svg and .json (what shields.io calls an endpoint), and a list of them."""
    listed = []
    for badge in badges:
        path = f"badges/{file_name(badge.axis)}/{version_name(badge.value)}"
        tree.text(path + ".svg", _svg(badge))
        tree.text(path + ".json", _shields(badge))
        listed.append({"axis": badge.axis, "value": badge.value, "message": badge.message, "path": path})
    write_json(tree, "badges", {"schema_version": 1, "badges": listed})


def _shields(badge: Badge) -> str:
    content: dict[str, Any] = {
        "schemaVersion": 1,
        "label": badge.label,
        "message": badge.message,
        "color": _SHIELDS[badge.state],
    }
    return compact(content)


def _svg(badge: Badge) -> str:
    left, right = (len(text) * 6.8 + 12 for text in (badge.label, badge.message))
    label, message = escape(badge.label), escape(badge.message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right:.0f}" height="20" role="img" '
        f'aria-label="{label}: {message}"><title>{label}: {message}</title>'
        f'<rect width="{left:.0f}" height="20" fill="#444b55"/>'
        f'<rect x="{left:.0f}" width="{right:.0f}" height="20" fill="{_COLOURS[badge.state]}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:.0f}" y="14">{label}</text>'
        f'<text x="{left + right / 2:.0f}" y="14">{message}</text></g></svg>\n'
    )
