"""Do the cells of an image still pass, with nothing but the image? Its own program, which needs no engine.

Reads `cells.json` beside the probe's archive, runs every cell that passed when the image was made, and prints a
line for each. Exit status 0 if all pass again, 1 if one does not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

from runner.probe.frames import Frames, write
from runner.probe.words import STAGES

__all__ = ["main"]

_CHUNK = 1 << 16


class _Zygote:
    """The probe in a process of its own, with the engine's end of its channel."""

    def __init__(self, folder: str, scratch: str, variables: Dict[str, str]) -> None:
        environment = {"PATH": os.environ.get("PATH", os.defpath), **variables}
        environment.update({"HOME": scratch, "TMPDIR": scratch, "HF_HOME": os.path.join(scratch, "huggingface")})
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", os.path.join(folder, "probe.pyz")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._frames = Frames()
        self._waiting: List[Dict[str, Any]] = []

    def send(self, message: Dict[str, Any]) -> None:
        write(self._in, message)

    def receive(self) -> Dict[str, Any]:
        """The next message; ends the program where there is none, since nothing can be said then."""
        while not self._waiting:
            data = os.read(self._out, _CHUNK)
            if not data:
                sys.exit("the probe ended; its own words are above")
            self._waiting += self._frames.feed(data)
        return self._waiting.pop(0)


def _run(zygote: _Zygote, cell: Dict[str, Any], limits: Dict[str, int]) -> str:
    """Why a cell does not pass; empty where it does."""
    zygote.send({"kind": "cell", "cell": cell["id"], "request": cell["request"], "limits": limits})
    reached = ""
    findings: List[str] = []
    while True:
        message = zygote.receive()
        if message["kind"] == "stage":
            reached = message["stage"]
            findings += ["{}: {}".format(reached, finding["text"]) for finding in message["findings"]]
        elif message["kind"] == "ended":
            break
    if findings:
        return findings[0]
    if message["how"] != "exited":
        return "ended by {} after {}".format(message["how"], reached or "nothing")
    return "" if reached == STAGES[-1] else "ended after {}".format(reached or "nothing")


def main(folder: str) -> None:
    """Run the cells of the image in `folder`."""
    with open(os.path.join(folder, "cells.json"), encoding="utf-8") as file:
        work = json.load(file)
    scratch = tempfile.mkdtemp(prefix="metamatrix-")
    zygote = _Zygote(folder, scratch, work["variables"])
    zygote.send({**work["open"], "scratch": scratch})
    zygote.send({"kind": "share", "values": work["shared"]})
    ready = zygote.receive()
    if ready["kind"] != "ready":
        sys.exit("the libraries of this image cannot be imported: {}".format(ready["error"]["message"]))
    failed = 0
    for cell in work["cells"]:
        why = _run(zygote, cell, work["limits"])
        failed += bool(why)
        print("{}  {}{}".format("FAIL" if why else "pass", cell["name"], "  " + why if why else ""), flush=True)
    print("{} of {} cells pass".format(len(work["cells"]) - failed, len(work["cells"])))
    sys.exit(1 if failed else 0)
