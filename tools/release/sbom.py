#!/usr/bin/env python3
"""Print a CycloneDX 1.6 bill of materials of requirements.lock: version, hashes, licence and needs of each package.

Hashes and versions are those of the lock. Licences and dependencies come from the installed packages, which must be the
locked ones. The same lock gives the same bytes: there is no time and no random serial number.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOT_NAME = "specdec-exporter"
# The wording of packages that give no SPDX expression -> SPDX's.
_SPDX = {
    "Apache 2.0": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
}


def locked(lock: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and SHA-256 digests of each package of a lock."""
    for name, version, rest in re.findall(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=.*\n)+)", lock, re.MULTILINE):
        yield name, version, re.findall(r"sha256:([0-9a-f]{64})", rest)


def licence(package: str, said: dict[str, list[str]]) -> str:
    """A package's licence as an SPDX expression, from its metadata; ``ValueError`` if that does not say."""
    if expression := said.get("License-Expression"):
        return expression[0]
    classifiers = [one for one in said.get("Classifier", []) if one.startswith("License :: ")]
    for words in (*said.get("License", []), *classifiers):
        if words in _SPDX or re.fullmatch(r"[A-Za-z0-9.-]+", words):
            return _SPDX.get(words, words)
    raise ValueError(f"{package} names no licence that tools/release/sbom.py knows: {classifiers}")


def _said(distribution: importlib.metadata.Distribution) -> dict[str, list[str]]:
    names = ("License-Expression", "License", "Classifier")
    return {name: distribution.metadata.get_all(name) or [] for name in names}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{_normal(name)}@{version}"


def bill(lock: str) -> dict[str, Any]:
    """The document; ``ValueError`` if an installed package is not the locked one."""
    packages = list(locked(lock))
    versions = {_normal(name): version for name, version, _ in packages}
    refs = {name: _purl(name, version) for name, version in versions.items()}
    components, dependencies = [], []
    for name, version, hashes in packages:
        installed = importlib.metadata.distribution(name)
        if installed.version != version:
            raise ValueError(f"{name} {installed.version} is installed, and {version} locked: run make test")
        components.append(
            {
                "type": "library",
                "bom-ref": refs[_normal(name)],
                "name": name,
                "version": version,
                "licenses": [{"expression": licence(name, _said(installed))}],
                "purl": refs[_normal(name)],
                "externalReferences": [
                    {
                        "type": "distribution",
                        "url": refs[_normal(name)],
                        "comment": "pip installs the one of these files that fits Python and machine",
                        "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
                    }
                ],
            }
        )
        dependencies.append(_needs(refs[_normal(name)], installed.requires, refs))
    own = importlib.metadata.distribution(ROOT_NAME)
    ref = _purl(ROOT_NAME, own.version)
    subject = {
        "type": "application",
        "bom-ref": ref,
        "name": ROOT_NAME,
        "version": own.version,
        "licenses": [{"expression": licence(ROOT_NAME, _said(own))}],
        "purl": ref,
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [_needs(ref, own.requires, refs), *dependencies],
    }


def _needs(ref: str, requires: list[str] | None, refs: dict[str, str]) -> dict[str, Any]:
    """What one package needs of the locked ones. Extras are left out: the lock decides what else is installed."""
    wanted = (re.match(r"[\w.-]+", one) for one in requires or [] if "extra ==" not in one)
    names = {_normal(found[0]) for found in wanted if found is not None}
    return {"ref": ref, "dependsOn": sorted(refs[name] for name in names & refs.keys())}


if __name__ == "__main__":
    json.dump(bill((ROOT / "requirements.lock").read_text(encoding="utf-8")), sys.stdout, indent=2)
    sys.stdout.write("\n")
