"""What is ours in an engine? All that we make carries labels, and nothing without them is ever touched."""

from __future__ import annotations

import os
import socket
from pathlib import Path

__all__ = ["ENVIRONMENT", "OWNER", "ROLE", "labels", "owner", "owner_lives"]

ROLE = "metamatrix.role"
"""base, run, build, image (images), cell, keeper (containers) or store (the volume)."""

OWNER = "metamatrix.owner"
"""The process that made a container, as `owner` writes it."""

ENVIRONMENT = "metamatrix.environment"
"""The id of the environment that a container of cells uses, or that an image holds."""


def labels(role: str, version: str, **more: str) -> dict[str, str]:
    """The labels of a thing with that role, made by that release; `inputs` is a digest of what it was made from."""
    return {ROLE: role, "metamatrix.version": version, **{f"metamatrix.{name}": value for name, value in more.items()}}


def _started(pid: int) -> str:
    """When a process of this machine started, in ticks since boot; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def owner() -> str:
    """This process, so that another one can see whether it still lives: machine, boot, pid, start."""
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}"


def _machine() -> str:
    """A name for where pids mean the same: host, boot, and the namespace of pids (we may be in a container)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = space = "-"
    return f"{socket.gethostname()}:{boot}:{space}"


def owner_lives(value: str) -> bool | None:
    """Whether the owner of that label still runs; None where it is of another machine, or cannot be read."""
    parts = value.rsplit(":", 2)
    if len(parts) != 3 or parts[0] != _machine() or not parts[1].isdigit():
        return None
    return _started(int(parts[1])) == parts[2]
