"""What can be concluded? The verdicts, their classes, the stages, and which finding decides."""

from __future__ import annotations

import enum

__all__ = ["CLASSES", "FINDING_ORDER", "STAGES", "Class", "Verdict", "class_of"]

STAGES = ("resolve", "build", "import", "load", "offload", "step", "lifecycle")
"""In order; the earliest stage with a finding decides."""

FINDING_ORDER = (
    "harness",
    "orphan",
    "unexpected-meta",
    "corrupt",
    "out-of-memory",
    "exception",
    "bad-output",
    "unsupported",
)
"""Within a stage the first of these decides; all findings are kept."""


class Class(enum.StrEnum):
    """What a verdict means for a reader."""

    GOOD = "good"
    BAD = "bad"
    NOT_APPLICABLE = "not applicable"
    NO_ANSWER = "no answer"


class Verdict(enum.StrEnum):
    """The one conclusion on a cell."""

    PASS = "pass"
    REFUSED = "refused"
    ORPHAN_META = "orphan-meta"
    UNEXPECTED_META = "unexpected-meta"
    CORRUPT_WEIGHTS = "corrupt-weights"
    BAD_OUTPUT = "bad-output"
    LOAD_ERROR = "load-error"
    OFFLOAD_ERROR = "offload-error"
    STEP_ERROR = "step-error"
    IMPORT_ERROR = "import-error"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out-of-memory"
    FLAKY = "flaky"
    UNRESOLVABLE = "unresolvable"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not-run"
    INSTALL_ERROR = "install-error"
    HARNESS_ERROR = "harness-error"


CLASSES: dict[Class, frozenset[Verdict]] = {
    Class.GOOD: frozenset({Verdict.PASS, Verdict.REFUSED}),
    Class.BAD: frozenset(
        {
            Verdict.ORPHAN_META,
            Verdict.UNEXPECTED_META,
            Verdict.CORRUPT_WEIGHTS,
            Verdict.BAD_OUTPUT,
            Verdict.LOAD_ERROR,
            Verdict.OFFLOAD_ERROR,
            Verdict.STEP_ERROR,
            Verdict.IMPORT_ERROR,
            Verdict.CRASH,
            Verdict.TIMEOUT,
            Verdict.OUT_OF_MEMORY,
            Verdict.FLAKY,
        }
    ),
    Class.NOT_APPLICABLE: frozenset({Verdict.UNRESOLVABLE, Verdict.UNSUPPORTED}),
    Class.NO_ANSWER: frozenset({Verdict.NOT_RUN, Verdict.INSTALL_ERROR, Verdict.HARNESS_ERROR}),
}


def class_of(verdict: Verdict) -> Class:
    """The one class that a verdict belongs to."""
    return next(name for name, members in CLASSES.items() if verdict in members)
