"""How is a plan made from a matrix file? The steps that `plan` and `run` share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from runner.errors import NoSelection
from runner.matrix.axes import PROBE_VALUES
from runner.matrix.expand import expand
from runner.matrix.expressions import ExpressionError, Row, parse
from runner.matrix.load import load_matrix
from runner.plan import Plan, PlannedCell, make_plan
from runner.resolve.lock import Platform
from runner.resolve.releases import releases_from
from runner.resolve.resolver import Resolver
from runner.resolve.uv import Uv

__all__ = ["narrowed", "plan_matrix"]


def plan_matrix(
    matrix_file: Path, select: str | None, uv: Uv, console: Console, target: Platform | None = None
) -> Plan:
    """Read, expand and resolve for a platform (this machine's by default), with a word on `console` while it lasts.

    Raises what its parts raise.
    """
    target = target or Platform.here()
    matrix = load_matrix(matrix_file)
    python = matrix.axes["python"][0] if matrix.axes["python"][0][:1].isdigit() else "3.11"
    with console.status("resolving") as status:
        cells = expand(matrix, select, releases_from(uv, python, matrix.as_of))
        resolver = Resolver(uv, matrix.torch_index, matrix.as_of, target)
        plan = make_plan(
            matrix, select, cells, resolver.resolve, lambda done, total: status.update(f"resolving {done}/{total}")
        )
    return replace(plan, warnings=tuple(resolver.warnings), platform=target)


def narrowed(plan: Plan, select: str) -> Plan:
    """The cells of a plan file that an expression fits.

    Raises:
        NoSelection: it is no expression, or nothing fits.
    """
    packages = {axis for cell in plan.cells for axis in cell.asked}
    exact = {environment.key: environment.exact for environment in plan.environments}
    try:
        expression = parse(select, PROBE_VALUES, packages)
    except ExpressionError as error:
        raise NoSelection(f"{select!r}: {error}", "A plan file is narrowed by an expression over its axes.") from error

    def keep(cell: PlannedCell) -> bool:
        ids = {"subject": cell.subject, "cell": cell.id, "environment": cell.environment}
        return expression.matches(Row({**exact[cell.environment], **cell.probe, **ids}, cell.asked))

    smaller = plan.only(keep)
    if not smaller.cells:
        raise NoSelection(f"no cell of the plan fits {select!r}", "Look the names up with `metamatrix plan --json`.")
    return replace(smaller, select=select)
