"""What does a feed tell? What has become red, green or flaky since the last answer; one entry for each kind of failure.

Ids depend on content only, so a reader shows no entry twice, whatever the site's address is.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from reports.changes import News, Seen
from reports.compare import Change, Row
from reports.evidence import Evidence
from reports.files import compare_name
from reports.findings import Findings
from reports.names import file_name, version_name
from reports.tree import Tree
from reports.versions import PACKAGES, without_build
from reports.wording import harmless

__all__ = ["write_feeds"]

_ATOM = "http://www.w3.org/2005/Atom"
_SPACE = uuid.UUID("6e0f0a52-6f5c-5f0e-9d0c-2b7b9a1c4e11")
_MOST = 100
_NAMED = 5
_TOLD = {Change.NEW_RED: "new red", Change.NEW_GREEN: "new green", Change.FLAKY: "new flaky"}


def write_feeds(tree: Tree, findings: Findings, base: str | None) -> None:
    """Write feed.xml, and a feed for each value of each probe axis and each version of each package, newest first."""
    evidence = findings.evidence
    entries = [entry for news in findings.news for entry in _entries(evidence, news)]
    entries.reverse()
    updated = evidence.newest.started
    tree.write("feed.xml", _feed("metamatrix: new red and new green", "all", entries, updated, base, "feed.xml"))
    for axis, values in _values(evidence).items():
        for value in values:
            own = [entry for entry in entries if value in entry.values[axis]]
            path = f"feeds/{file_name(axis)}/{version_name(value)}.xml"
            title = f"metamatrix: {axis} {value}"
            tree.write(path, _feed(title, f"{axis} {value}", own, updated, base, path))


def _values(evidence: Evidence) -> dict[str, list[str]]:
    """What one may want to hear about: the values of the probe axes, and the versions that were installed."""
    found = {
        axis: list(dict.fromkeys(row.values[place] for row in evidence.combinations))
        for place, axis in enumerate(evidence.axes)
    }
    for package in PACKAGES:
        versions = (entry.installed.get(package) for entry in evidence.environments)
        found[package] = list(dict.fromkeys(without_build(version) for version in versions if version is not None))
    return found


class _Entry:
    """Rows of one comparison that became the same, for the same reason."""

    def __init__(
        self, evidence: Evidence, news: News, change: Change, key: tuple[str, str], rows: list[Row[Seen]]
    ) -> None:
        verdict, signature = key
        self.id = uuid.uuid5(_SPACE, repr((news.run.id, change.value, verdict, signature))).urn
        self.updated = news.run.started
        cells = [row.cell for row in rows]
        combinations = list(dict.fromkeys(cell.combination for cell in cells))
        self.values = {
            axis: {evidence.combinations[number].values[place] for number in combinations}
            for place, axis in enumerate(evidence.axes)
        }
        environments = [evidence.environments[number] for number in {cell.environment for cell in cells}]
        for package in PACKAGES:
            versions = (entry.installed.get(package) for entry in environments)
            self.values[package] = {without_build(version) for version in versions if version is not None}
        bad = [row.before if change is Change.NEW_GREEN else row.after for row in rows]
        cause = evidence.kinds[bad[0].kind].cause if bad[0] is not None else ""
        self.title = f"{_TOLD[change]}: {verdict} in {len(cells)} cell{'s' if len(cells) > 1 else ''}"
        named = [" ".join(evidence.combinations[number].values) for number in combinations[:_NAMED]]
        more = f" and {len(combinations) - _NAMED} more" if len(combinations) > _NAMED else ""
        self.summary = f"{cause}\n{'; '.join(named)}{more}"
        pair = compare_name(news.since.id, news.run.id)
        self.link = f"compare.html#pair={pair}&change={change}"


def _entries(evidence: Evidence, news: News) -> Iterable[_Entry]:
    for change in _TOLD:
        groups: dict[tuple[str, str], list[Row[Seen]]] = defaultdict(list)
        for row in news.rows:
            bad = row.before if change is Change.NEW_GREEN else row.after
            if row.change is change and bad is not None:
                groups[bad.verdict, bad.signature].append(row)
        for key, rows in sorted(groups.items()):
            yield _Entry(evidence, news, change, key, rows)


def _feed(title: str, name: str, entries: Sequence[_Entry], updated: str, base: str | None, path: str) -> bytes:
    up = "../" * path.count("/")
    root = ElementTree.Element("feed", {"xmlns": _ATOM})
    if base is not None:
        root.set("xml:base", base + path)
    _add(root, "title", title)
    _add(root, "id", uuid.uuid5(_SPACE, "feed\0" + name).urn)
    _add(root, "updated", updated)
    ElementTree.SubElement(root, "link", {"rel": "self", "href": path.rsplit("/", 1)[-1]})
    ElementTree.SubElement(root, "link", {"rel": "alternate", "href": up + "index.html"})
    author = ElementTree.SubElement(root, "author")
    _add(author, "name", "metamatrix")
    for entry in entries[:_MOST]:
        node = ElementTree.SubElement(root, "entry")
        _add(node, "title", entry.title)
        _add(node, "id", entry.id)
        _add(node, "updated", entry.updated)
        ElementTree.SubElement(node, "link", {"href": up + entry.link})
        _add(node, "summary", entry.summary)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _add(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, name).text = harmless(text)[:4000]
