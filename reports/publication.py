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
from reports.site.build import write_site
from reports.tree import Tree

__all__ = ["publish"]


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
    """
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


def _sitemap(base: str, pages: Iterable[str]) -> str:
    places = "".join(f"<url><loc>{escape(base + page)}</loc></url>\n" for page in pages if page != "cell.html")
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n'
    )
