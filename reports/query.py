"""Which cells does a question mean? `torch=2.9.1 pipeline=sdxl 'diffusers>=0.36,<0.40' verdict=bad`.

    term  := NAME "=" value ("," value)*      any of these values
           | NAME OP value ("," OP value)*    all of these bounds; OP is one of == != < <= > >= ~=

NAME is a package (its installed version is compared), a probe axis, or `verdict` (a verdict, or a class such as `bad`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from reports.versions import PACKAGES

__all__ = ["ANY", "Query", "QueryError", "parse_query"]

_TERM = re.compile(r"\s*([A-Za-z][\w-]*)\s*(==|!=|<=|>=|~=|=|<|>)\s*(.+?)\s*", re.DOTALL)
_MOST = 50
ANY = "any"
"""The value of an axis that may be any."""


class QueryError(ValueError):
    """The question cannot be read; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed question: each term by the name that it is about.

    `versions` are packages with the ranges of which any must hold, `names` probe axes with the values that are meant,
    `verdicts` the verdicts and classes, `not_verdicts` those that are not meant; a name that is missing may have any
    value.
    """

    versions: Mapping[str, tuple[SpecifierSet, ...]] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    verdicts: frozenset[str] = frozenset()
    not_verdicts: frozenset[str] = frozenset()

    def fits_verdict(self, verdict: str, group: str) -> bool:
        """Whether a cell with this verdict and class is meant."""
        if self.not_verdicts & {verdict, group}:
            return False
        return not self.verdicts or bool(self.verdicts & {verdict, group})

    def without(self, name: str) -> Query:
        """The same question without what it says about a name."""
        return Query(
            {package: ranges for package, ranges in self.versions.items() if package != name},
            {axis: values for axis, values in self.names.items() if axis != name},
            *((frozenset(), frozenset()) if name == "verdict" else (self.verdicts, self.not_verdicts)),
        )

    @property
    def about(self) -> tuple[str, ...]:
        """The names that it says something about."""
        return (*self.versions, *self.names, *(("verdict",) if self.verdicts or self.not_verdicts else ()))


def parse_query(terms: Sequence[str], axes: Mapping[str, Collection[str]], packages: Collection[str]) -> Query:
    """Read a question about `axes` (probe axes with the values that were measured) and `packages` by `normal` name.

    Raises:
        QueryError: a term cannot be read, or names what is not known here.
    """
    if len(terms) > _MOST:
        raise QueryError(f"{len(terms)} terms are more than {_MOST}")
    versions: dict[str, tuple[SpecifierSet, ...]] = {}
    names: dict[str, frozenset[str]] = {}
    verdicts: dict[bool, frozenset[str]] = {True: frozenset(), False: frozenset()}
    for term in terms:
        matched = _TERM.fullmatch(term)
        if matched is None:
            raise QueryError(
                f"{term!r} is no term; write NAME=VALUE, such as pipeline=sdxl or 'diffusers>=0.36'. The text of an "
                "error is looked up on the page Diagnose of `metamatrix serve`"
            )
        name, operator, value = matched.group(1).replace("-", "_"), matched.group(2), matched.group(3)
        if name in versions or name in names or (name == "verdict" and any(verdicts.values())):
            how = f"'{name}>=A,<B'" if name in versions else f"{name}=A,B"
            raise QueryError(f"{name} is asked about twice; say it once: {how}")
        if name == "verdict":
            verdicts[operator != "!="] = _values(name, "=" if operator == "!=" else operator, value, axes[name])
        elif name in axes:
            names[name] = _values(name, operator, value, axes[name])
        elif name in packages:
            versions[name] = _ranges(name, operator, value)
        else:
            hint = _meant(name, [*axes, *packages]) or f"known: {', '.join([*axes, *PACKAGES])}, and what is installed"
            raise QueryError(f"nothing was measured about {name!r}; {hint}")
    return Query(versions, names, verdicts[True], verdicts[False])


def _meant(text: str, known: Collection[str]) -> str:
    """What could have been meant, in words; empty where nothing is near."""
    small = {name.lower(): name for name in known}
    near = difflib.get_close_matches(text.lower(), small, 1)
    return f"did you mean {small[near[0]]!r}?" if near else ""


def _values(name: str, operator: str, text: str, known: Collection[str]) -> frozenset[str]:
    values = frozenset(part.strip() for part in text.split(","))
    if operator not in ("=", "==", "!="):
        raise QueryError(f"{name} has names, not numbers: {operator} cannot be asked; write {name}=VALUE")
    unknown = sorted(values - set(known))
    if unknown:
        hint = _meant(unknown[0], known) or f"measured: {', '.join(sorted(known))}"
        raise QueryError(f"{name}={unknown[0]} was never measured; {hint}")
    return frozenset(known) - values - {ANY} if operator == "!=" else values


def _ranges(name: str, operator: str, text: str) -> tuple[SpecifierSet, ...]:
    try:
        if operator == "=":
            versions = [Version(part.strip()).public for part in text.split(",")]  # 2.13.0+cpu is 2.13.0 here
            return tuple(SpecifierSet(f"=={version}", prereleases=True) for version in versions)
        return (SpecifierSet(operator + text, prereleases=True),)
    except ValueError as error:  # neither a version nor a range, or one with thousands of digits
        raise QueryError(
            f"{name}{operator}{text} is no version or range; write {name}=2.9.1 or '{name}>=2.6,<3'"
        ) from error
