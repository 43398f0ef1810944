"""What would people rather see than read? Bars drawn as SVG, each with the table that it shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup, escape

from reports.answers import is_sound
from reports.evidence import Evidence
from reports.versions import PACKAGES, in_order, without_build
from reports.wording import harmless, shown_class

__all__ = ["Chart", "draw_charts"]

_GROUPS = ("good", "bad", "not applicable", "no answer")
_WIDE, _LABEL, _SAID, _ROW = 900, 110, 160, 26
_LEFT = _LABEL + _SAID
_BARS = _WIDE - _LEFT


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing (`svg` has markup of our own only) and what it shows, as a table."""

    title: str
    svg: Markup
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def draw_charts(evidence: Evidence) -> list[Chart]:
    """Verdicts over the versions of each package, and time and memory by offload mode."""
    charts = [_verdicts(evidence, package) for package in PACKAGES]
    charts += [
        _costs(evidence, "seconds", "Seconds a cell by offload mode", "s"),
        _costs(evidence, "peak_rss_mb", "Peak memory by offload mode", "MiB"),
    ]
    return [chart for chart in charts if chart.rows]


def _sound(evidence: Evidence) -> set[int]:
    """The combinations whose verdicts speak of the libraries, on real runners."""
    return {
        number for number, row in enumerate(evidence.combinations) if is_sound(evidence.axes, row) and not row.emulated
    }


def _verdicts(evidence: Evidence, package: str) -> Chart:
    sound = _sound(evidence)
    versions = [entry.installed.get(package) for entry in evidence.environments]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for cell in evidence.cells:
        version = versions[cell.environment]
        if cell.combination in sound and version is not None:
            counts[without_build(version)][shown_class(evidence.kinds[cell.kind].group)] += 1
    ordered = sorted(counts, key=in_order)
    bars = [(version, [(group, counts[version][group]) for group in _GROUPS]) for version in ordered]
    rows = tuple((version, *(str(counts[version][group]) for group in _GROUPS)) for version in ordered)
    title = f"Verdicts by version of {package}"
    return Chart(title, _stacked(title, bars), (package, *_GROUPS), rows)


def _stacked(title: str, bars: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> Markup:
    """Bars of one length, each cut by its shares: versions were not measured equally often."""
    parts = []
    for number, (label, shares) in enumerate(bars):
        top, total, left = number * _ROW, sum(count for _, count in shares) or 1, float(_LEFT)
        parts.append(_text(label, 0, top))
        for group, count in shares:
            if count:
                size = count / total * _BARS
                words = f"{label}: {count} of {total} {group}"
                parts.append(_bar(left, top, size, "bar-" + group.replace(" ", "-"), words))
                left += size
        said = " · ".join(f"{count} {group}" for group, count in shares if count and group != "not applicable")
        parts.append(_text(said, _LABEL, top, 40))
    return _drawing(title, len(bars), parts)


def _costs(evidence: Evidence, column: str, title: str, unit: str) -> Chart:
    run = evidence.newest
    found = run.columns.get(column)
    if found is None:
        return Chart(title, Markup(), (), ())
    sound, place = _sound(evidence), evidence.axes.index("offload")
    values: dict[str, list[float]] = defaultdict(list)
    for number, (combination, kind) in enumerate(zip(run.combinations, run.kinds, strict=True)):
        value = found[number]
        if combination in sound and evidence.kinds[kind].verdict == "pass" and isinstance(value, int | float):
            values[evidence.combinations[combination].values[place]].append(value)
    rows = [(mode, median(own), _high(own), len(own)) for mode, own in sorted(values.items())]
    most = max((high for _, _, high, _ in rows), default=1) or 1
    parts = []
    for number, (mode, middle, high, _) in enumerate(rows):
        top, scale = number * _ROW, _BARS / most
        words = f"{mode}: median {middle:g} {unit}, nine of ten at most {high:g} {unit}"
        parts += [_text(mode, 0, top), _bar(_LEFT, top, middle * scale, "bar-plain", words)]
        parts.append(_text(f"{middle:g} {unit} · {high:g} {unit}", _LABEL, top, 40))
        left = _LEFT + high * scale - 1
        parts.append(f'<line class="bar-most" x1="{left:.1f}" x2="{left:.1f}" y1="{top + 2}" y2="{top + _ROW - 4}"/>')
    table = tuple((mode, f"{middle:g} {unit}", f"{high:g} {unit}", str(count)) for mode, middle, high, count in rows)
    header = ("offload", "median", "nine of ten at most", "cells that pass")
    return Chart(title, _drawing(title, len(rows), parts), header, table)


def _high(values: Sequence[float]) -> float:
    """The value that nine of ten do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]


def _text(label: str, left: float, top: float, most: int = 20) -> str:
    words = escape(harmless(label)[:most])
    return f'<text class="label" x="{left}" y="{top + _ROW - 9}">{words}</text>'


def _bar(left: float, top: float, size: float, style: str, words: str) -> str:
    title = escape(harmless(words))
    return f'<rect class="{style}" x="{left:.1f}" y="{top + 2}" width="{size:.1f}" height="{_ROW - 6}"><title>{title}</title></rect>'


def _drawing(title: str, rows: int, parts: Sequence[str]) -> Markup:
    height = max(1, rows) * _ROW
    words = f"{title}; the table below has the numbers"
    head = f'<svg class="chart" role="img" viewBox="0 0 {_WIDE} {height}" aria-label="{escape(words)}">'
    return Markup(head + "".join(parts) + "</svg>")  # noqa: S704  # every text in it was escaped above
