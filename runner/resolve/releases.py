"""Which releases does a package have? Asked of uv, one step down at a time.

uv knows the user's indexes, proxies, certificates, links and yanked files; a client of our own would
have to learn them again. Resolving one name without its dependencies gives its newest release; asking
for less than that gives the one before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from packaging.version import Version

from runner.errors import UvFailed
from runner.resolve.uv import Uv

__all__ = ["releases_from"]


def releases_from(uv: Uv, python: str, as_of: date | None) -> Callable[[str, str, bool, int], list[str]]:
    """A function (package, range, pre-releases allowed, at most n) -> releases, newest first.

    Args:
        uv: the resolver.
        python: the Python minor version that a release must support.
        as_of: releases after this day do not count.
    """

    def newest(package: str, specifier: str, pre: bool) -> str | None:
        arguments = ["pip", "compile", "-", "--no-deps", "--quiet", "--no-header", "--no-annotate"]
        arguments += ["--python-version", python, "--only-binary", ":all:"]
        if pre:
            arguments += ["--prerelease", "allow"]
        if as_of is not None:
            arguments += ["--exclude-newer", as_of.isoformat()]
        answer = uv.run(arguments, given=f"{package}{specifier}\n")
        match = re.search(rf"^{re.escape(package)}==(\S+)", answer.stdout, re.MULTILINE | re.IGNORECASE)
        if match:
            return Version(match.group(1)).public
        if answer.transient:
            raise UvFailed(
                f"the package index did not answer for {package}: {answer.stderr.strip()[-400:]}",
                "Check the network, the index settings and the proxy, then run the command again.",
            )
        return None

    def releases(package: str, specifier: str, pre: bool, count: int) -> list[str]:
        name = package.replace("_", "-")
        found: list[str] = []
        while len(found) < count:
            below = f"<{found[-1]}" if found else ""
            version = newest(name, ",".join(part for part in (specifier, below) if part), pre)
            if version is None or version in found:
                break
            found.append(version)
        return found

    return releases
