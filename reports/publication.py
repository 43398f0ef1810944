"""What is published of runs? Pages, data, badges and feeds, in one folder that changes at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from reports.api import Details, write_api
from reports.badges import find_badges, write_badges
from reports.dataset import DatasetModel
from reports.feed import write_feeds
from reports.findings import conclude
from reports.names import API
from reports.site.build import PAGES, write_site
from reports.tree import Tree

__all__ = ["NotASite", "publish"]

_FOLDERS = ("api", "assets", "badges", "causes", "data", "environments", "feeds", "locks")
_OWN = {*_FOLDERS, *(page for page, _ in PAGES), "cell.html", "live.html", "feed.xml", "robots.txt", "sitemap.xml"}
"""Everything that a site has at its top."""


class NotASite(Exception):
    """The target is something else, which would be lost."""


def publish(
    datasets: Iterable[DatasetModel],
    target: Path,
    details: Details | None = None,
    base: str | None = None,
    live: bool = False,
) -> int:
    """Write everything that is published to `target`, replacing what is there at once.

    Args:
        datasets: the runs, in any order.
        target: the folder.
        details: what the folder of the newest run knows beyond its data set.
        base: the address that the folder will have, ending with a slash; without it there is no sitemap.
        live: whether a server tells of a run under way; there is a page that watches it.

    Returns:
        How many files are new or other than before.

    Raises:
        ValueError: there is no run, or one is given twice.
        NotASite: there is something else at `target`, which would be lost.
        OSError: it cannot be written.
    """
    target = target.resolve()
    _check_target(target)
    found = conclude(datasets)
    with Tree(target) as tree:
        write_api(tree, found, details)
        write_badges(tree, find_badges(found.answers))
        write_feeds(tree, found, base)
        pages = write_site(tree, found, details, live)
        if base is not None:
            tree.text("sitemap.xml", _sitemap(base, pages))
            tree.text("robots.txt", f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n")
    return tree.written


def _check_target(target: Path) -> None:
    """What is there is replaced, and goes: so it must be a site, and nothing else beside it, such as a checkout's .git."""
    if not target.exists():
        return
    if not target.is_dir():
        raise NotASite(f"{target} is a file")
    there = {path.name for path in target.iterdir()}
    if foreign := sorted(there - _OWN):
        raise NotASite(f"{target} holds what is no part of a site: {', '.join(foreign[:5])}")
    if there and not (target / API / "index.json").is_file():
        raise NotASite(f"{target} is no site of metamatrix")


def _sitemap(base: str, pages: Iterable[str]) -> str:
    places = "".join(f"<url><loc>{escape(base + page)}</loc></url>\n" for page in pages if page != "cell.html")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
    )
