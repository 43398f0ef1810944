"""Who runs the cells? One process per environment that imports once and forks a child per cell.

The engine speaks with it in frames over stdin and stdout, which are moved to close-on-exec descriptors
first, so that nothing that a library prints gets into the channel. Nothing here touches a tensor or
CUDA; one thread before the fork is asserted. When the engine dies the channel ends, and with it this
process and, through the death signal, every child.

Engine to zygote: open, cell (with its limits), close. Zygote to engine: ready or failed, stage, ended.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from runner.probe import failure, limits
from runner.probe.child import Cell, import_libraries
from runner.probe.expected import Weights
from runner.probe.frames import Frames, write
from runner.probe.loads import pipeline_class
from runner.probe.pressure import Pressure

__all__ = ["main"]

_LOG_HEAD = 64 * 1024
_LOG_TAIL = 192 * 1024
_CHUNK = 65536
_PROBE_FAILED = 70
"""Exit status of a child whose own code failed; any other is the doing of a library."""


class _Running:
    """A child at work: its pipes, its clock, what it printed."""

    def __init__(self, cell: str, nonce: str, pid: int, results: int, log: int, folder: str, seconds: float) -> None:
        self.cell, self.nonce, self.pid = cell, nonce, pid
        self.log = log
        self.folder = folder
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.frames = Frames()
        self.head = b""
        self.tail = b""
        self.dropped = 0
        self.timed_out = False
        self.alone = True
        self.counts: Dict[str, int] = {}
        self.scratch_was_full = False
        self.noise = ""
        self.open = {results, log}

    def heard(self, data: bytes) -> None:
        """Keep the beginning and the end of the log; count what falls out between."""
        room = _LOG_HEAD - len(self.head)
        self.head += data[:room]
        rest = self.tail + data[room:] if room < len(data) else self.tail
        self.tail = rest[-_LOG_TAIL:]
        self.dropped += len(rest) - len(self.tail)

    def text(self) -> str:
        gap = b"\n[... %d bytes left out ...]\n" % self.dropped if self.dropped else b""
        return (self.head + gap + self.tail).decode("utf-8", "backslashreplace")


class Zygote:
    def __init__(self, channel_in: int, channel_out: int) -> None:
        self._in, self._out = channel_in, channel_out
        self._frames = Frames()
        self._running: Dict[int, _Running] = {}
        self._weights: Dict[str, Weights] = {}
        self._open: Dict[str, Any] = {}
        self._shared: Dict[str, Any] = {}
        self._pressure = Pressure("", False)
        self._closing = False

    def serve(self) -> None:
        """Answer the engine until it closes the channel, or asks to close and no child is left."""
        while not (self._closing and not self._running):
            timeout = self._next_deadline()
            watched = [self._in] if not self._closing else []
            for child in self._running.values():
                watched += sorted(child.open)
            ready, _, _ = select.select(watched, [], [], timeout)
            for descriptor in ready:
                if descriptor == self._in:
                    data = os.read(self._in, _CHUNK)
                    if not data:
                        self._kill_all()
                        return
                    for message in self._frames.feed(data):
                        self._answer(message)
                else:
                    self._read_child(descriptor)
            self._watch_children()

    def _next_deadline(self) -> Optional[float]:
        if not self._running:
            return None
        if any(not child.open for child in self._running.values()):
            return 0.002  # its pipes are closed: it is about to end, and nothing else would wake us
        soonest = min(child.deadline for child in self._running.values())
        return max(0.0, min(0.5, soonest - time.monotonic()))

    def _send(self, message: Dict[str, Any]) -> None:
        write(self._out, message)

    def _answer(self, message: Dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "open":
            self._prepare(message)
        elif kind == "share":
            # Arrays that many cells compare with: sent once, inherited by each child.
            self._shared.update(message["values"])
        elif kind == "cell":
            self._fork(message)
        elif kind == "close":
            self._closing = True
        else:
            raise ValueError("the engine sent {!r}".format(kind))

    def _prepare(self, message: Dict[str, Any]) -> None:
        """Import (unless every cell is to be cold), look for what a cell imports later, import that too."""
        self._open = message
        # Before any library could be blamed for it: a scratch folder that cannot be written is our fault.
        os.rmdir(tempfile.mkdtemp(prefix="check-", dir=message["scratch"]))
        self._pressure = Pressure(message["scratch"], message["container"])
        self._weights = {name: Weights(entry["weights"]) for name, entry in message["pipelines"].items()}
        versions: Dict[str, str] = {}
        failures: Dict[str, Any] = {}
        started = time.monotonic()
        if message["warm"]:
            _silence_tqdm()
            try:
                versions = import_libraries()
            except Exception as error:
                self._send({"kind": "failed", "error": failure.describe(error)})
                self._closing = True
                return
            failures = _import_failures({name: entry["class"] for name, entry in message["pipelines"].items()})
            for rehearsal in message["rehearsals"]:
                if rehearsal["pipeline"] not in failures:
                    self._preload(rehearsal)
            _build_tables()
        # What is imported stays: the collector of a child must not touch, and so copy, pages of the parent.
        gc.freeze()
        threads = len(os.listdir("/proc/self/task"))
        seconds = round(time.monotonic() - started, 3)
        ready = {"kind": "ready", "versions": versions, "failures": failures, "threads": threads, "seconds": seconds}
        self._send(ready)

    def _preload(self, rehearsal: Dict[str, Any]) -> None:
        for name in self._modules_of_a_cell(rehearsal):
            try:
                importlib.import_module(name)
            except Exception as error:  # the cell itself will show what this is worth
                print("preloading", name, "failed:", repr(error)[:200], file=sys.stderr)

    def _modules_of_a_cell(self, rehearsal: Dict[str, Any]) -> List[str]:
        """Which modules a throwaway child imports while it runs a cell, in its order."""
        before = set(sys.modules)
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(receive)
            try:
                self._rehearse(rehearsal, send, before)
            finally:
                os._exit(0)
        os.close(send)
        data = b""
        while True:
            part = os.read(receive, _CHUNK)
            if not part:
                break
            data += part
        os.close(receive)
        os.waitpid(pid, 0)
        messages = list(Frames().feed(data))
        return [str(name) for name in messages[0]["modules"]] if messages else []

    def _rehearse(self, rehearsal: Dict[str, Any], send: int, before: set) -> None:  # type: ignore[type-arg]
        signal.alarm(60)
        limits.apply({"memory_mb": 65536, "disk_mb": 1024}, os.getppid())
        folder = tempfile.mkdtemp(prefix="rehearsal-", dir=self._open["scratch"])
        try:
            Cell(rehearsal, self._weights[rehearsal["pipeline"]], folder, lambda _report: None).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        names = [name for name in list(sys.modules) if name not in before and not name.startswith("torch._C")]
        write(send, {"modules": names})

    def _fork(self, message: Dict[str, Any]) -> None:
        threads = os.listdir("/proc/self/task")
        text = ""
        if len(threads) != 1:
            text = "the zygote has {} threads; a fork would not be safe".format(len(threads))
        elif _cuda_is_open():
            text = "an import has initialised CUDA, which no child of a fork can use"
        if text:
            self._send({"kind": "ended", "cell": message["cell"], "how": "harness", "text": text, "log": ""})
            return
        nonce = os.urandom(16).hex()
        folder = tempfile.mkdtemp(prefix="cell-", dir=self._open["scratch"])
        results_read, results_write = os.pipe()
        log_read, log_write = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            status = _PROBE_FAILED
            try:
                os.close(results_read)
                os.close(log_read)
                self._be_child(message, nonce, folder, results_write, log_write, parent)
                status = 0
            except BaseException as error:
                print("the probe failed:", failure.describe(error)["traceback"], file=sys.stderr)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(results_write)
        os.close(log_write)
        seconds = float(message["limits"]["seconds"])
        child = _Running(message["cell"], nonce, pid, results_read, log_read, folder, seconds)
        child.counts = self._pressure.counts()
        for other in self._running.values():
            other.alone = child.alone = False
        self._running[pid] = child

    def _be_child(self, message: Dict[str, Any], nonce: str, folder: str, results: int, log: int, parent: int) -> None:
        os.close(self._in)
        os.close(self._out)
        for other in self._running.values():
            for descriptor in other.open:
                os.close(descriptor)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        limits.apply(message["limits"], parent)
        import faulthandler

        faulthandler.enable()
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None
        os.chdir(folder)
        request = {**self._shared, **message["request"]}
        Cell(
            request,
            self._weights[request["pipeline"]],
            folder,
            lambda report: write(results, {"nonce": nonce, **report}),
        ).run()

    def _read_child(self, descriptor: int) -> None:
        child = next((child for child in self._running.values() if descriptor in child.open), None)
        if child is None:
            return
        data = os.read(descriptor, _CHUNK)
        if not data:
            child.open.discard(descriptor)
            os.close(descriptor)
        else:
            self._hear(child, descriptor, data)

    def _hear(self, child: _Running, descriptor: int, data: bytes) -> None:
        if descriptor == child.log:
            child.heard(data)
        else:
            self._hear_results(child, data)

    def _hear_results(self, child: _Running, data: bytes) -> None:
        try:
            for report in child.frames.feed(data):
                if report.pop("nonce", None) == child.nonce:
                    self._send({"kind": "stage", "cell": child.cell, **report})
                else:
                    child.noise = "a report without the right nonce"
        except ValueError as error:
            child.noise = str(error)

    def _watch_children(self) -> None:
        now = time.monotonic()
        if self._running and self._pressure.scratch_full():
            for child in self._running.values():
                child.scratch_was_full = True
        for child in list(self._running.values()):
            if now > child.deadline and not child.timed_out:
                child.timed_out = True
                _kill_group(child.pid)
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                # Grandchildren that outlive their parent go while its pid still stands for the group.
                _kill_group(child.pid)
                _, status, usage = os.wait4(child.pid, 0)
                self._end(child, status, usage)

    def _end(self, child: _Running, status: int, usage: Any) -> None:
        self._drain(child)
        del self._running[child.pid]
        shutil.rmtree(child.folder, ignore_errors=True)
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        how = "exited" if not killed else "signal"
        if child.timed_out:
            how = "timeout"
        elif how == "exited" and (child.noise or os.WEXITSTATUS(status) == _PROBE_FAILED):
            how = "harness"
        elif how == "exited" and os.WEXITSTATUS(status) != 0:
            how = "died"  # a library ended the process itself, as OpenBLAS does when it gets no memory
        self._send(
            {
                "kind": "ended",
                "cell": child.cell,
                "how": how,
                "signal": killed,
                "status": os.WEXITSTATUS(status) if not killed else 0,
                "text": child.noise,
                "log": child.text(),
                "seconds": round(time.monotonic() - child.started, 4),
                "peak_rss_kb": int(usage.ru_maxrss),
                "alone": child.alone,
                "pressure": self._pressure_on(child),
            }
        )

    def _pressure_on(self, child: _Running) -> Dict[str, int]:
        """What ran out while the child ran, by it or by another: name -> how often; empty where nothing did."""
        risen = {name: count - child.counts[name] for name, count in self._pressure.counts().items()}
        risen["scratch_full"] = int(child.scratch_was_full)
        return {name: count for name, count in risen.items() if count > 0}

    def _drain(self, child: _Running) -> None:
        """Read what is left in the pipes without waiting for a grandchild that still holds them."""
        for descriptor in sorted(child.open):
            os.set_blocking(descriptor, False)
            while True:
                try:
                    data = os.read(descriptor, _CHUNK)
                except OSError as error:
                    if error.errno == errno.EAGAIN:
                        break
                    raise
                if not data:
                    break
                self._hear(child, descriptor, data)
            os.close(descriptor)
        child.open.clear()

    def _kill_all(self) -> None:
        for child in list(self._running.values()):
            _kill_group(child.pid)
            os.waitpid(child.pid, 0)
            for descriptor in child.open:
                os.close(descriptor)
            shutil.rmtree(child.folder, ignore_errors=True)
        self._running.clear()


def _import_failures(classes: Dict[str, str]) -> Dict[str, Any]:
    """The pipelines whose class cannot be imported, or is not there, with the error: `import diffusers` is lazy."""
    failures = {}
    for name, kind in classes.items():
        try:
            pipeline_class(kind)
        except Exception as error:
            failures[name] = failure.describe(error)
    return failures


def _build_tables() -> None:
    """Let transformers 5 compile the thousand regular expressions of its key renaming once, for all children.

    It does so at the first load and keeps the table: plain data, without a tensor, a third of a cell's time.
    """
    module = sys.modules.get("transformers.conversion_mapping")
    build = getattr(module, "get_checkpoint_conversion_mapping", None)
    if build is not None:
        try:
            build("clip_text_model")
        except Exception as error:  # a cell that needs the table will show what this is worth
            print("building the key renaming failed:", repr(error)[:200], file=sys.stderr)


def _cuda_is_open() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _silence_tqdm() -> None:
    """The first progress bar would start a monitor thread, and a fork needs a single thread.

    transformers 4 draws one at import where its cache folder is new.
    """
    try:
        import tqdm
    except ImportError:
        return
    tqdm.tqdm.monitor_interval = 0


def _kill_group(pid: int) -> None:
    """End a child that was not waited for yet, and its group, which it may not have founded yet."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Move the channel away from stdin and stdout, then serve."""
    channel_in, channel_out = os.dup(0), os.dup(1)
    os.set_inheritable(channel_in, False)
    os.set_inheritable(channel_out, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        Zygote(channel_in, channel_out).serve()
    except BrokenPipeError:
        print("the engine is gone", file=sys.stderr)
