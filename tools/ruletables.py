"""Reference tables and numbers that ``tools/render.py`` writes into the documentation.

A table stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A number stands in parentheses behind its key
in the configuration of the rules: `` `min_requests` (200)``, `` `tail.page` (0.1)``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import breakeventables
from generated import filled, table
from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.speculation.verdict import WORDS, VerdictCode

# Verdict -> when it holds. The rows stand in the order in which the verdict asks them.
_VERDICTS: dict[VerdictCode, str] = {
    "harmful": (
        "[two readings in a row](#chance-and-memory): the measured speed-up is below {latency[speedup_harmful]:g}, "
        "beyond chance. [Without step times](#without-step-times-the-speed-up-of-requests): time per output token is "
        "above {latency[harmful_ratio]:g} times the baseline's, beyond chance"
    ),
    "not_paying": "the measured speed-up is below {latency[speedup_min]:g}, beyond chance",
    "broken": "no measurement tells, and acceptance is below {acceptance_ratio_broken:g}, and below break-even",
    "watch": (
        "the measured speed-up does not tell yet, or is not known; one reading finds harm; nothing is measured, and "
        "acceptance is below the [watch level](#acceptance-an-estimate) of its load; or tokens are generated, nothing "
        "is drafted, and no loss is measured"
    ),
    "slower": (
        "it would be `watch`, `not_measured` or `healthy`, but time per output token is slower than at baseline, "
        "beyond chance: the mean above {latency[slower_ratio]:g} times, or {latency[tail_shift_critical]:.0%} more of "
        "the requests than expected above a limit that the baseline kept. A baseline without speculation must show "
        "that drafts pay"
    ),
    "healthy": "the measured speed-up is at least {latency[speedup_min]:g}, beyond chance, whatever is accepted",
    "not_measured": "a guess: nothing is measured, and acceptance is at least the watch level",
    "idle": "speculation is on, and nothing is generated",
    "unknown": (
        "fewer than {min_drafts} drafts, [those of a single request](#chance-and-memory), or a log that does not tell"
    ),
    "off": "speculation is off",
    "no_metrics": "the predictor does not answer, or without statistics",
}


def sample(template: str) -> str:
    """Return a text of an alert, with N for its numbers and names for its labels, without those that may be missing."""
    said, shown = "", [1]  # of each block that is open: 1 if it is shown, 0 if not yet, -1 if not any more
    for text, action in re.findall(r"(.*?)(?:\{\{ (.*?) \}\}|$)", template):
        said += text if min(shown) == 1 else ""
        label = re.search(r'(?:\$labels\.|label ")(\w+)', action)
        match action.split(" ", 1)[0]:
            case "if" | "with":
                shown.append(0 if label and " eq " not in action else 1)
            case "else":
                shown[-1] = 1 if shown[-1] == 0 else -1
            case "end":
                shown.pop()
            case _ if action and ":=" not in action and min(shown) == 1:
                said += f"`{label[1]}`" if label else "N%" if "Percentage" in action else "N"
    return said


def alerts(group: Mapping[str, Any]) -> str:
    """Return the table of a group's alerts, by reason, with links, severities and what they say."""
    rows = []
    for rule in group["rules"]:
        reason = f" `{rule['labels']['reason']}`" if "reason" in rule["labels"] else ""
        alert = f"[{rule['alert']}]({rule['alert']}.md){reason}"
        rows.append((alert, rule["labels"]["severity"], sample(rule["annotations"]["summary"])))
    return table(("Alert", "Severity", "It says"), rows)


def verdicts(policy: Mapping[str, Any]) -> str:
    """Return the table of verdicts with the policy's thresholds."""
    rows = [
        (f"`{code}`", f"{word.title}, {word.colour}", str(EXIT_CODES[word.level]), when.format(**policy))
        for code, when in _VERDICTS.items()
        for word in [WORDS[code]]
    ]
    return table(("Verdict", "Shown as", "Exit code", "When"), rows)


def numbers(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of the configuration by key, with dots between the keys of objects."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{before}{key}.")
        elif isinstance(value, int | float):
            yield before + key, value


def with_numbers(text: str, values: Mapping[str, float]) -> str:
    """Return the text with the current value behind each key. Raises ``ValueError`` for an unknown key."""

    def current(found: re.Match[str]) -> str:
        if found["key"] not in values:
            raise ValueError(f"`{found['key']}` is no key of the configuration")
        return f"{found['before']}{values[found['key']]:g}"

    return re.sub(r"(?P<before>`(?P<key>[\w.]+)`\s\()\d+(?:\.\d+)?(?=[);])", current, text)


def documents(root: Path, config: Mapping[str, Any], groups: Sequence[Any]) -> dict[Path, str]:
    """Return the text of every document with rendered parts, by file."""
    runbooks, values = root / "rules" / "runbooks", dict(numbers(config))
    files = {path: with_numbers(path.read_text(encoding="utf-8"), values) for path in sorted(runbooks.glob("*.md"))}
    catalogue = {
        group["name"].removeprefix("specdec-"): alerts(group) for group in groups if "alert" in group["rules"][0]
    }
    files[runbooks / "README.md"] = filled(files[runbooks / "README.md"], catalogue)
    verdict = root / "docs" / "verdict.md"
    policy = json.loads((root / "exporter/specdec_exporter/speculation/policy.json").read_text(encoding="utf-8"))
    tables = {"verdicts": verdicts(policy), "assumed": breakeventables.assumed()}
    files[verdict] = filled(verdict.read_text(encoding="utf-8"), tables)
    return files
