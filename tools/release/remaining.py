"""Print what ``make release`` built and what a person must do: what is not ready, then docs/releasing.md's steps."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from release.notes import notes

ROOT = Path(__file__).resolve().parents[2]
REGISTERED = re.compile(r"(?m)^repositoryID: [0-9a-f-]{36}$")


def checksums(folder: Path) -> str:
    """Each file of ``folder`` with its SHA-256, as ``sha256sum --check`` reads it."""
    files = sorted(file for file in folder.iterdir() if file.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def unready(root: Path, version: str) -> list[str]:
    """What of the checkout itself keeps it from being released as ``version``."""
    found = []
    try:
        notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ValueError as error:
        found.append(f"CHANGELOG.md {error}")
    if not REGISTERED.search((root / "deploy/helm/artifacthub-repo.yml").read_text(encoding="utf-8")):
        found.append("deploy/helm/artifacthub-repo.yml has no repositoryID: Artifact Hub gives it")
    if changed := _git(root, "status", "--porcelain"):
        found.append(f"not committed: {', '.join(line.split()[-1] for line in changed.splitlines())}")
    if not _git(root, "tag", "--list", f"v{version}"):
        found.append(f"there is no tag v{version}: links to runbooks lead nowhere before it is pushed")
    return found


def steps(page: str) -> dict[str, list[str]]:
    """The numbered steps under each heading of docs/releasing.md that has some, each as one line."""
    found = {}
    for section in re.split(r"(?m)^## ", page)[1:]:
        heading, _, text = section.partition("\n")
        if numbered := re.findall(r"(?m)^\d+\. ((?:.|\n(?!\d+\. |\n))+)", text):
            found[heading] = [re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(step.split())) for step in numbered]
    return found


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


def main(version: str) -> int:
    """Write dist/SHA256SUMS and print it, then what remains."""
    dist = ROOT / "dist"
    sums = checksums(dist)
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    blocks = {"Built into dist/": sums.splitlines(), "Not ready": unready(ROOT, version)}
    by_hand = steps((ROOT / "docs/releasing.md").read_text(encoding="utf-8"))
    blocks |= {f"By hand, {heading[0].lower()}{heading[1:]}": listed for heading, listed in by_hand.items()}
    for heading, lines in blocks.items():
        if lines:
            sys.stdout.write(f"\n{heading}:\n" + "".join(f"  {line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
