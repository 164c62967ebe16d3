"""What a run saw, as tables: with ``--record`` the run writes them to docs/cluster.md."""

from __future__ import annotations

from pathlib import Path

HEAD = """# On a real cluster

Written by `make test-cluster ARGS=--record`; do not edit. The run starts etcd, an API server, Kubernetes' controllers,
KServe, the Prometheus operator, Prometheus and Alertmanager as processes. It applies what this repository ships, and
writes down what they said. There is no node, so no container runs: the test gives each pod an address, and processes
stand in for its containers.
"""


# Title and words of each table, in the order of the document.
TABLES = {
    "Processes": "Ready after: from the start of the process, on the machine that wrote this.",
    "The API server takes": (
        "Every manifest in the repository, with `--dry-run=server --validate=strict`: that refuses unknown fields and "
        "invalid values, and asks KServe's validator. Nothing was refused."
    ),
    "KServe deploys": (
        "KServe's defaulter and controller, with the configuration of its release, made a Deployment, a Service and a "
        "pod of each example. The namespace enforced the Pod Security standard in the table."
    ),
    "KServe deploys an LLMInferenceService": "Its other controller made these, with the presets of its release.",
    "KServe refuses": "What it says about a mistake, and about what it adds to a pod itself.",
    "From a pod to a message": "The operator's configuration, in a real Prometheus and a real Alertmanager.",
    "Removed without a trace": (
        "An upgrade of the image replaced the pod. After `kubectl delete`, nothing of this was left in any namespace."
    ),
    "The chart": (
        "Installed with every part on, upgraded with another interval, rolled back, and uninstalled: then the cluster "
        "held what it held before."
    ),
}


class Transcript:
    """Rows of the tables."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, str]]] = {title: [] for title in TABLES}

    def row(self, title: str, **row: str) -> None:
        """Add a row to a table. Keywords name its columns; an underscore is a space."""
        self._rows[title].append(row)

    def text(self) -> str:
        """The document; tables without rows are left out."""
        parts = [HEAD]
        for title, rows in self._rows.items():
            if rows:
                names = [name.replace("_", " ") for name in rows[0]]
                lines = [names, ["---"] * len(names), *(list(row.values()) for row in rows)]
                table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
                parts.append(f"## {title}\n\n{TABLES[title]}\n\n{table}\n")
        return "\n".join(parts)

    def write(self, file: Path) -> None:
        """Write the document."""
        file.write_text(self.text(), encoding="utf-8")
