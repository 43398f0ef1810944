"""Runs in a container of cells as a hostile probe would: tries to get out or to use it up, and says what happened."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable

GATEWAY = sys.stdin.readline().strip()
"""An address of the machine that runs the engine, where something listens."""


def outcome(attempt: Callable[[], object]) -> str:
    """The name of the error that stopped it, or that nothing did."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "succeeded"


def call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def connect() -> None:
    host, _, port = GATEWAY.partition(":")
    socket.create_connection((host, int(port)), 3).close()


def fork_bomb() -> dict[str, object]:
    """Children that stay, until there can be no more."""
    children: list[int] = []
    stopped = ""
    while len(children) < 5000:
        try:
            pid = os.fork()
        except OSError as error:
            stopped = errno.errorcode[error.errno or 0]
            break
        if pid == 0:
            signal.pause()
        children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return {"children": len(children), "stopped": stopped}


def memory_bomb() -> dict[str, object]:
    """A child that takes shared memory, which no limit of the process counts, until something ends it."""
    pid = os.fork()
    if pid == 0:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("900")
        held = []
        while True:
            block = mmap.mmap(-1, 64 << 20)
            for offset in range(0, 64 << 20, 4096):
                block[offset] = 1
            held.append(block)
    _, status = os.waitpid(pid, 0)
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


def fill_scratch() -> dict[str, object]:
    written = 0
    stopped = ""
    with open("/scratch/full", "wb", buffering=0) as file:
        while written < 4 << 30:
            try:
                written += file.write(b"x" * (1 << 20))
            except OSError as error:
                stopped = errno.errorcode[error.errno or 0]
                break
    os.unlink("/scratch/full")
    return {"mib": written >> 20, "stopped": stopped}


def status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)


MS_REMOUNT, MS_BIND, CLONE_NEWUSER, CLONE_NEWNET = 32, 4096, 0x10000000, 0x40000000
found = {
    "write_store": outcome(lambda: os.mkdir("/store/environments/x")),
    "write_root": outcome(lambda: os.mkdir("/etc/x")),
    "remount": outcome(lambda: call("mount", b"none", b"/store", None, MS_REMOUNT | MS_BIND, None)),
    "user_namespace": outcome(lambda: call("unshare", CLONE_NEWUSER)),
    "network_namespace": outcome(lambda: call("unshare", CLONE_NEWNET)),
    "become_root": outcome(lambda: os.setuid(0)),
    "device": outcome(lambda: os.mknod("/scratch/disk", 0o060600, os.makedev(8, 0))),
    "network": outcome(connect),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "environment": dict(os.environ),
    "sockets": [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)],
    "status": {name: status()[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid")},
    "fork_bomb": fork_bomb(),
    "memory_bomb": memory_bomb(),
    "fill_scratch": fill_scratch(),
    "alive": os.fork() == 0 or "after all",
}
if found["alive"] is True:
    os._exit(0)
print(json.dumps(found))
