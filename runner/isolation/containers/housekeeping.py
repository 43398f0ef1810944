"""What of ours is in an engine, and what of it may go? Only what carries our labels is ever looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from docker.errors import APIError, NotFound

from runner.isolation.containers.engine import Engine, failures
from runner.isolation.containers.labels import ENVIRONMENT, OWNER, ROLE, owner_lives
from runner.isolation.containers.lifetime import remove

__all__ = [
    "Thing",
    "dead_containers",
    "environments_in_use",
    "images",
    "living_containers",
    "remove_thing",
    "superseded",
    "tagged",
    "volumes",
]

_OURS = "localhost/metamatrix-"


@dataclass(frozen=True, slots=True)
class Thing:
    """A container, image or volume: its `kind`, its role, its id, a name for people.

    `bytes` where the engine tells; the `environment` that a container of cells uses.
    """

    kind: str
    role: str
    id: str
    name: str
    bytes: int = 0
    environment: str = ""


def _containers(engine: Engine) -> list[Any]:
    """Ours; a container that somebody starts from an image of ours inherits its label, and has the image's role."""
    with failures("list containers"):
        rows = engine.client.api.containers(all=True, filters={"label": [ROLE]})
    return [row for row in rows if row["Labels"][ROLE] in ("cell", "keeper")]


def _container(row: dict[str, Any]) -> Thing:
    name, environment = row["Names"][0].lstrip("/"), row["Labels"].get(ENVIRONMENT, "")
    return Thing("container", row["Labels"][ROLE], row["Id"], name, environment=environment)


def _is_dead(row: dict[str, Any]) -> bool:
    lives = owner_lives(row["Labels"].get(OWNER, ""))
    return lives is False or (lives is None and row["State"] not in ("running", "created"))


def dead_containers(engine: Engine) -> list[Thing]:
    """What killed runs have left: the owner is gone, or is of another machine and the container does not run."""
    return [_container(row) for row in _containers(engine) if _is_dead(row)]


def living_containers(engine: Engine) -> list[Thing]:
    """Those of runs that go on."""
    return [_container(row) for row in _containers(engine) if not _is_dead(row)]


def environments_in_use(engine: Engine) -> set[str]:
    """The environments that containers of cells use now, of whatever run."""
    return {thing.environment for thing in living_containers(engine) if thing.environment}


def images(engine: Engine) -> list[Thing]:
    """Our images, the newest first: labelled, and under a name of ours.

    The name matters because what others build upon our images inherits the label.
    """
    with failures("list images"):
        rows = engine.client.api.images(filters={"label": [ROLE]})
    rows.sort(key=lambda row: row["Created"], reverse=True)
    return [
        Thing("image", row["Labels"][ROLE], row["Id"], row["RepoTags"][0], row["Size"])
        for row in rows
        if row.get("RepoTags") and all(tag.startswith(_OURS) for tag in row["RepoTags"])
    ]


def tagged(engine: Engine, tag: str) -> Thing | None:
    """Our image of that name, if there is one."""
    return next((thing for thing in images(engine) if thing.name == tag), None)


def superseded(engine: Engine) -> list[Thing]:
    """Images of a role and a Python of which there is a newer one."""
    seen = set()
    old = []
    for thing in images(engine):
        key = thing.role, thing.name.rpartition("-")[0]
        if thing.role in ("run", "build") and key in seen:
            old.append(thing)
        seen.add(key)
    return old


def volumes(engine: Engine) -> list[Thing]:
    """Our volumes."""
    with failures("list volumes"):
        rows = engine.client.api.volumes(filters={"label": [ROLE]})["Volumes"] or []
    return [Thing("volume", row["Labels"][ROLE], row["Name"], row["Name"]) for row in rows]


def remove_thing(engine: Engine, thing: Thing) -> str:
    """Remove it; why it stays, where something still uses it."""
    with failures(f"remove the {thing.kind} {thing.name}"):
        try:
            if thing.kind == "container":
                remove(engine, thing.id)
            elif thing.kind == "image":
                engine.client.api.remove_image(thing.name)  # by name: what others built upon it stays whole
            else:
                engine.client.api.remove_volume(thing.id)
        except NotFound:
            return ""
        except APIError as error:
            if error.status_code == 409:
                return str(error.explanation or error)
            raise
    return ""
