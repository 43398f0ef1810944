"""Which environments does a shard run? Whole ones, the same on every machine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace

from runner.errors import WrongShard
from runner.identifiers import digest
from runner.plan import Plan

__all__ = ["Shard", "plan_digest", "share", "shares"]

_WRITTEN = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", re.ASCII)
_NOT_RUN = ("created", "matrix", "warnings", "shard", "whole")
"""What may differ between plans of the same work: when and from which path it was made, what was said meanwhile."""


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Part `number` (from 1) of `count`; written 2/8."""

    count: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `K/N`.

        Raises:
            WrongShard: it is none.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None or int(found[1]) > int(found[2]):
            raise WrongShard(
                f"{text!r} is no shard", "Write K/N, the K-th of N parts, such as 2/8: K from 1 to N, N up to 9999."
            )
        return cls(int(found[2]), int(found[1]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def plan_digest(plan: Plan) -> str:
    """sha256 of what a plan would run. Two machines that plan the same get the same."""
    data = {name: value for name, value in asdict(plan).items() if name not in _NOT_RUN}
    return digest({**data, "locks": sorted(plan.locks)})


def shares(plan: Plan, count: int) -> list[set[str]]:
    """The keys of the environments of each of `count` shards; every environment is in one.

    The heaviest goes first, into the lightest shard; ties go by key and by number. An environment that does
    not exist has nothing to run: it weighs nothing.
    """
    cells: dict[str, set[str]] = {environment.key: set() for environment in plan.environments}
    for cell in plan.cells:
        cells[cell.environment].add(cell.id)
    weights = {entry.key: len(cells[entry.key]) if entry.lock is not None else 0 for entry in plan.environments}
    parts: list[set[str]] = [set() for _ in range(count)]
    loads = [0] * count
    for key, weight in sorted(weights.items(), key=lambda pair: (-pair[1], pair[0])):
        lightest = loads.index(min(loads))
        parts[lightest].add(key)
        loads[lightest] += weight
    return parts


def share(plan: Plan, shard: Shard) -> Plan:
    """The part of a whole plan that a shard runs; it says which part of which plan it is."""
    keys = shares(plan, shard.count)[shard.number - 1]
    environments = tuple(entry for entry in plan.environments if entry.key in keys)
    return replace(
        plan,
        environments=environments,
        cells=tuple(cell for cell in plan.cells if cell.environment in keys),
        locks={entry.lock: plan.locks[entry.lock] for entry in environments if entry.lock is not None},
        shard=str(shard),
        whole=plan_digest(plan),
    )
