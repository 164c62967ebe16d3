"""What a run saw, as tables: with ``--record`` the run writes them to docs/cluster.md."""

from __future__ import annotations

from pathlib import Path

HEAD = """# On a real cluster

Written by `make test-cluster ARGS=--record`; do not edit. The run starts etcd, an API server, Kubernetes' controllers,
KServe, the Prometheus operator, Prometheus and Alertmanager as processes. It applies what this repository ships, and
writes down what they said. There is no node, so no container runs: the test gives each pod an address, and processes
stand in for its containers.
"""


class Transcript:
    """Rows of tables, by the title of the table, in the order in which they come."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[str, list[dict[str, str]]]] = {}

    def about(self, title: str, text: str) -> None:
        """Begin a table with some words about it."""
        self._tables.setdefault(title, (text, []))

    def row(self, title: str, row: dict[str, str]) -> None:
        """Add a row, by the title of the column."""
        self._tables.setdefault(title, ("", []))[1].append(row)

    def text(self) -> str:
        """The document."""
        parts = [HEAD]
        for title, (text, rows) in self._tables.items():
            parts.append(f"## {title}\n")
            if text:
                parts.append(f"{text}\n")
            if rows:
                lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
                parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n")
        return "\n".join(parts)

    def write(self, file: Path) -> None:
        """Write the document."""
        file.write_text(self.text(), encoding="utf-8")
