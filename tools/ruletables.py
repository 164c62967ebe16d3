"""Reference tables and numbers that ``tools/render.py`` writes into the documentation.

A table stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A number stands in parentheses behind its key
in the configuration or the policy: `` `min_requests` (200)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import breakeventables
from markdown import filled, table

# Verdict -> when it holds, and the next step. The rows stand in the order in which the verdict asks them.
_VERDICTS: dict[str, tuple[str, str]] = {
    "harmful": (
        (
            "[two looks in a row](#chance-and-memory): the measured speed-up is below {latency[speedup_harmful]:g}, "
            "beyond chance. [Without step times](#without-step-times-the-speed-up-of-requests): time per output token "
            "is above {latency[harmful_ratio]:g} times the baseline's, beyond chance"
        ),
        "roll back",
    ),
    "not_paying": (
        "the measured speed-up is below {latency[speedup_min]:g}, beyond chance",
        "switch speculation off at this load, or run a k that recordings show to pay",
    ),
    "broken": (
        "no measurement tells, and acceptance is below {acceptance_ratio_broken:g}, and below break-even",
        "check that draft and target belong together; then measure",
    ),
    "watch": (
        (
            "the measured speed-up does not tell yet, or is not known; one look finds harm; nothing is measured, and "
            "acceptance is below the [watch level](#acceptance-an-estimate) of its load; or tokens are generated, "
            "nothing is drafted, and no loss is measured"
        ),
        "measure",
    ),
    "slower": (
        (
            "it would be `watch` or `healthy`, but time per output token is slower than at baseline, beyond chance: "
            "the mean above {latency[slower_ratio]:g} times, or {latency[tail_shift_critical]:.0%} more of the "
            "requests than expected above a limit that the baseline kept. A baseline without speculation must show "
            "that drafts pay"
        ),
        "look at deployments, load, neighbours and prompts",
    ),
    "healthy": (
        (
            "the measured speed-up is at least {latency[speedup_min]:g}, beyond chance, whatever is accepted. Where "
            "nothing is measured: acceptance is at least the watch level, which does not tell whether it pays"
        ),
        "nothing; if it is not measured, measure",
    ),
    "idle": ("speculation is on, and nothing is generated", "wait for traffic"),
    "unknown": (
        (
            "there are fewer than {min_drafts} drafts, or [those of a single request](#chance-and-memory), or no "
            "answer, or no statistics"
        ),
        "read the headline: it says which",
    ),
    "off": ("speculation is off", "do nothing"),
}


def alerts(group: Mapping[str, Any]) -> str:
    """Return the table of a group's alerts, by reason, with links, severities and what they say, the worst first."""
    order = ("critical", "warning", "info")
    by_name: dict[tuple[str, ...], dict[str, str]] = {}
    for rule in group["rules"]:
        labels = rule["labels"]
        reason = [labels[label] for label in ("reason", "container") if label in labels]
        by_name.setdefault((rule["alert"], *reason), {}).setdefault(labels["severity"], rule["annotations"]["summary"])
    rows = []
    for (name, *reason), summaries in by_name.items():
        severities = sorted(summaries, key=order.index)
        said = dict.fromkeys(summaries[severity] for severity in severities)
        rows.append(
            (" ".join([f"[{name}]({name}.md)", *(f"`{one}`" for one in reason)]), ", ".join(severities), " ".join(said))
        )
    return table(("Alert", "Severity", "It says"), rows)


def verdicts(policy: Mapping[str, Any], numbers: Mapping[str, int]) -> str:
    """Return the table of verdicts with the policy's thresholds and the numbers that the rules record."""
    rows = [
        (f"`{code}`", str(numbers.get(code, "absent")), when.format(**policy), step)
        for code, (when, step) in _VERDICTS.items()
    ]
    return table(("Verdict", "Enum", "When", "Next step"), rows)


def with_numbers(text: str, config: Mapping[str, Any]) -> str:
    """Return the text with the current value behind each key. Raises ``ValueError`` for an unknown key."""

    def current(found: re.Match[str]) -> str:
        values = config["policy"] | config
        if found["key"] not in values:
            raise ValueError(f"`{found['key']}` is no key of the configuration or the policy")
        return f"{found['before']}{values[found['key']]:g}"

    return re.sub(r"(?P<before>`(?P<key>\w+)`\s\()\d+(?:\.\d+)?(?=[);])", current, text)


def documents(
    root: Path, config: Mapping[str, Any], groups: Sequence[Any], numbers: Mapping[str, int]
) -> dict[Path, str]:
    """Return the text of every document with rendered parts, by file."""
    runbooks = root / "rules" / "runbooks"
    files = {path: with_numbers(path.read_text(encoding="utf-8"), config) for path in sorted(runbooks.glob("*.md"))}
    catalogue = {
        group["name"].removeprefix("specdec-"): alerts(group) for group in groups if "alert" in group["rules"][0]
    }
    files[runbooks / "README.md"] = filled(files[runbooks / "README.md"], catalogue)
    verdict = root / "docs" / "verdict.md"
    tables = {"verdicts": verdicts(config["policy"], numbers), "assumed": breakeventables.assumed()}
    files[verdict] = filled(verdict.read_text(encoding="utf-8"), tables)
    return files
