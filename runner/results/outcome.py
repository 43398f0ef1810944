"""What does one attempt say? The earliest stage with a finding, and there the weightiest finding."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.probe.words import STAGES as PROBE_STAGES
from runner.results.attempt import Attempt
from runner.results.signature import signature
from runner.verdicts import FINDING_ORDER, Class, Verdict, class_of

__all__ = ["Outcome", "decided", "judge", "weighed"]

_VERDICTS = {
    "harness": Verdict.HARNESS_ERROR,
    "orphan": Verdict.ORPHAN_META,
    "unexpected-meta": Verdict.UNEXPECTED_META,
    "corrupt": Verdict.CORRUPT_WEIGHTS,
    "out-of-memory": Verdict.OUT_OF_MEMORY,
    "bad-output": Verdict.BAD_OUTPUT,
    "unsupported": Verdict.UNSUPPORTED,
}
_EXCEPTIONS = {
    "import": Verdict.IMPORT_ERROR,
    "load": Verdict.LOAD_ERROR,
    "offload": Verdict.OFFLOAD_ERROR,
    "step": Verdict.STEP_ERROR,
    "lifecycle": Verdict.OFFLOAD_ERROR,  # to release is the other half of offloading
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with its stage, a cause in words, the signature of a bad one, and the tensors named."""

    verdict: Verdict
    stage: str
    cause: str
    signature: str = ""
    tensors: tuple[dict[str, Any], ...] = ()

    @property
    def group(self) -> Class:
        return class_of(self.verdict)


def judge(attempt: Attempt) -> Outcome:
    """The outcome of one attempt by itself."""
    if attempt.how == "crowded":
        reached = attempt.stages[-1]["stage"] if attempt.stages else None
        text = "other cells of its container left it too little; it is run again alone"
        return Outcome(Verdict.HARNESS_ERROR, _after(reached), text)
    for report in attempt.stages:
        found = sorted(report["findings"], key=lambda finding: FINDING_ORDER.index(finding["kind"]))
        if found:
            return _from_finding(report["stage"], found[0])
    reached = attempt.stages[-1]["stage"] if attempt.stages else None
    after = _after(reached)
    if attempt.how == "timeout":
        seconds = attempt.conditions.get("limits", {}).get("seconds")
        return _bad(Verdict.TIMEOUT, after, f"no end within {seconds} s", "timeout")
    if attempt.how == "oom":
        return _bad(Verdict.OUT_OF_MEMORY, after, "the memory limit of its container ended it", "container limit")
    if attempt.how == "signal":
        return _bad(Verdict.CRASH, after, f"ended by signal {attempt.signal}", f"signal {attempt.signal}")
    if attempt.how == "died":
        return _bad(Verdict.CRASH, after, "a library ended the process; its log says more", "died")
    if attempt.how != "exited":
        return Outcome(Verdict.HARNESS_ERROR, after, attempt.text or "the probe itself failed; its log says more")
    said = tuple(report["stage"] for report in attempt.stages)
    controls = said == PROBE_STAGES[-1:] and "controls" in attempt.stages[-1]["facts"]
    if said != PROBE_STAGES and not controls:
        return Outcome(Verdict.HARNESS_ERROR, after, f"the cell ended without a word after {reached}")
    return Outcome(Verdict.PASS, said[-1], "")


def decided(*kinds: str) -> str:
    """The verdict that findings of these kinds come to at one stage; `pass` where there is none."""
    found = sorted(kinds, key=FINDING_ORDER.index)
    return _VERDICTS[found[0]].value if found else Verdict.PASS.value


def weighed(attempt: Attempt, alone: bool) -> Attempt:
    """The attempt with what its container ran out of meanwhile taken into account.

    A bad answer counts only if no other cell ran at that time (`alone`): a container's memory, processes and
    scratch folder are shared. A kill is the memory limit's doing if its counter rose and nobody else was there.
    """
    pressure = attempt.conditions.get("pressure")
    if not pressure or judge(attempt).group is Class.GOOD:
        return attempt
    if not alone:
        return replace(attempt, how="crowded")
    if attempt.how == "signal" and attempt.signal == signal.SIGKILL and pressure.get("oom_kills"):
        return replace(attempt, how="oom")
    return attempt


def _after(stage: str | None) -> str:
    """The stage that was under way when the last word came after `stage`."""
    if stage is None:
        return PROBE_STAGES[0]
    index = PROBE_STAGES.index(stage) + 1
    return PROBE_STAGES[min(index, len(PROBE_STAGES) - 1)]


def _from_finding(stage: str, finding: dict[str, Any]) -> Outcome:
    kind = finding["kind"]
    # A lifecycle loads, offloads and steps again: it says what it was doing.
    verdict = _EXCEPTIONS[finding.get("during", stage)] if kind == "exception" else _VERDICTS[kind]
    tensors = tuple(finding.get("tensors", ()))
    cause = finding["text"]
    if class_of(verdict) is not Class.BAD:
        return Outcome(verdict, stage, cause, "", tensors)
    exception = finding.get("exception")
    if exception:
        doing = finding.get("doing", "") if stage == PROBE_STAGES[-1] else ""
        what = f"{exception['cause_type']}: {exception['cause_message']} {doing}"
    elif tensors:
        what = " ".join(sorted(_of_tensors(tensors, finding.get("whole", ()))))
    else:
        what = cause
    return Outcome(verdict, stage, cause, signature(verdict, stage, what), tensors)


def _of_tensors(rows: Sequence[dict[str, Any]], whole: Sequence[str]) -> set[str]:
    """What is wrong with tensors, without their names: a component without any data is another failure than a lost key.

    Whether a buffer is persistent changes from version to version, and is not the failure; nor is it that a hook holds
    another copy of what is wrong itself.
    """
    wrong = {(row["module"], row["state"]) for row in rows if row["kind"] != "hook"}
    return {
        f"{row['module']} {'all' if row['module'] in whole else 'some'} "
        f"{row['kind'].removeprefix('non-persistent-')} {row['state']} {row['detail']}"
        for row in rows
        if row["kind"] != "hook" or (row["module"], row["state"]) not in wrong
    }


def _bad(verdict: Verdict, stage: str, cause: str, what: str) -> Outcome:
    return Outcome(verdict, stage, cause, signature(verdict, stage, what))
