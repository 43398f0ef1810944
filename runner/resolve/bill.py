"""What is in an environment, for an auditor? A software bill of materials in CycloneDX, from the lock."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from runner.resolve.lock import Lock

__all__ = ["bill_of_materials"]

_NAMESPACE = uuid.UUID("6f1f5d0e-93c5-4a56-8d8f-52b0c5c1c0de")


def bill_of_materials(lock: Lock, system: Iterable[tuple[str, str, str]], made: datetime, tool: str) -> str:
    """CycloneDX 1.6 as JSON, the same text for the same arguments.

    Args:
        lock: the Python packages; each with its wheel's sha256.
        system: the image's Debian packages: (name, version, architecture).
        made: the time that the document bears.
        tool: metamatrix and its release.
    """
    name, _, version = tool.partition(" ")
    bom = Bom(serial_number=uuid.uuid5(_NAMESPACE, f"{lock.environment}{lock.digest}"))
    bom.metadata.timestamp = made
    bom.metadata.tools.components.add(Component(name=name, version=version, type=ComponentType.APPLICATION))
    bom.metadata.component = Component(
        name=f"metamatrix-environment-{lock.environment}",
        version=lock.digest[:16],
        type=ComponentType.CONTAINER,
        bom_ref=lock.environment,
    )
    for package in lock.packages:
        purl = PackageURL("pypi", None, package.name, package.version)
        bom.components.add(
            Component(
                name=package.name,
                version=package.version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=str(purl),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
            )
        )
    for package_name, package_version, architecture in system:
        purl = PackageURL("deb", "debian", package_name, package_version, {"arch": architecture})
        bom.components.add(
            Component(
                name=package_name,
                version=package_version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=str(purl),
            )
        )
    bom.register_dependency(bom.metadata.component, list(bom.components))
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n"
