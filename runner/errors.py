"""What can go wrong for a user? One class per thing, each with its exit code and what to do next."""

from __future__ import annotations

__all__ = [
    "EnvironmentDamaged",
    "InfrastructureError",
    "MatrixError",
    "MetamatrixError",
    "NoSelection",
    "Problem",
    "RunFolderError",
    "UvFailed",
    "WrongShard",
]

from dataclasses import dataclass


class MetamatrixError(Exception):
    """Base of all errors that a user sees. `remedy` says what to do next.

    Exit codes: 1 a regression or an unexpected bad verdict, 2 wrong usage or file, 3 infrastructure,
    4 incomplete, 5 too many no-answers.
    """

    exit_code = 2

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True)
class Problem:
    """One fault of a file: where (1-based line and column), in which key, what, and a hint."""

    line: int
    column: int
    where: str
    what: str
    hint: str = ""

    def text(self, file: str) -> str:
        place = f"{file}:{self.line}:{self.column}: "
        key = f"{self.where}: " if self.where else ""
        return place + key + self.what + (f" ({self.hint})" if self.hint else "")


class MatrixError(MetamatrixError):
    """The matrix file cannot be used; all its faults at once."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.problems = problems
        lines = [problem.text(file) for problem in problems]
        super().__init__("\n".join(lines), "Correct the lines above and run the command again.")


class NoSelection(MetamatrixError):
    """A selection names nothing, or nothing fits it."""


class RunFolderError(MetamatrixError):
    """The output folder is in use, or is no run's folder, or is of a newer release."""


class WrongShard(MetamatrixError):
    """What was given as a shard is none, or is not the one that the folder or the plan holds."""


class InfrastructureError(MetamatrixError):
    """The network, the disk or a tool that we need is at fault."""

    exit_code = 3


class UvFailed(InfrastructureError):
    """uv cannot be run, or failed for a reason that is not the request's."""


class EnvironmentDamaged(InfrastructureError):
    """A sealed environment is not as it was sealed."""
