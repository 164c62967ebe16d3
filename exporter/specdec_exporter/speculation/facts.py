"""What is known of a predictor before it is judged, and what is known of its release and of the warnings it logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from specdec_exporter.predictor.versions import WARNINGS, Facts, KnownPitfall, parse_release, releases_in_words
from specdec_exporter.predictor.versions import pitfalls_of as _pitfalls_of
from specdec_exporter.speculation.figures import Figures

StateName = Literal["unreachable", "stats_disabled", "speculation_off", "idle", "not_drafting", "drafting"]
# Why a log has no spec-decode line, where it is not one of the states above.
SilenceName = Literal["api_servers", "no_engine_config", "no_stats_lines", "nothing_known"]

# Whether a state says that drafts accompany generated tokens.
_DRAFTING: Mapping[str, bool] = {"drafting": True, "not_drafting": False}


class DecodingBaseline(msgspec.Struct, frozen=True):
    """Mean time per output token, seconds, of so many requests at baseline; ``speculative``: recorded with drafts."""

    mean_seconds: float
    requests: float
    speculative: bool


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a judgement of one predictor rests on, whether it was seen in its metrics or in its log.

    ``figures`` are those of the span to judge. ``log_windows`` counts spec-decode lines; ``None``: no log is read.
    """

    state: StateName | SilenceName
    figures: Figures | None = None
    vllm_version: str | None = None
    engine_generation: str | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None
    engines: int = 1
    log_windows: int | None = None
    warnings: frozenset[str] = frozenset()
    baseline: DecodingBaseline | None = None

    def pitfalls(self) -> tuple[KnownPitfall, ...]:
        """Return the known pitfalls of the release that this evidence shows, those that cost requests first."""
        return _pitfalls_of(
            Facts(
                release=parse_release(self.vllm_version or ""),
                engine_generation=self.engine_generation,
                method=self.method,
                engines=self.engines,
                drafting=_DRAFTING.get(self.state),
                log_windows=self.log_windows,
                warnings=self.warnings,
            )
        )


class WarningCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a known warning stood in the log, what it means, which releases log it and what to do."""

    code: str
    count: int
    meaning: str
    releases: str = ""
    action: str = ""


def warning_counts(warnings: Mapping[str, int]) -> tuple[WarningCount, ...]:
    """Return what was counted by code, in the codes' order, with what each means."""
    return tuple(
        WarningCount(
            code=code,
            count=count,
            meaning=WARNINGS[code].meaning,
            releases=releases_in_words(WARNINGS[code].since, WARNINGS[code].until),
            action=WARNINGS[code].action,
        )
        for code, count in sorted(warnings.items())
    )
