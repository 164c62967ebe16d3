"""What runs, and in which state."""

from __future__ import annotations

from typing import get_args

from specdec_exporter.serving.families.family import ENGINE, MODEL, Group, gauge
from specdec_exporter.speculation.evidence import StateName
from specdec_exporter.speculation.verdict import VerdictCode
from specdec_exporter.state.record import PredictorState

STATES: dict[StateName, str] = {
    "unreachable": "the last fetch failed, or there was none",
    "stats_disabled": "it answers without a single metric of an engine: `--disable-log-stats`, or the wrong port",
    "speculation_off": "neither log nor metrics show speculation",
    "idle": "no decoding in the last {policy.state_window_seconds:g} s",
    "not_drafting": "decoding without drafts",
    "drafting": "drafts in the last {policy.state_window_seconds:g} s",
}

_VERIFICATION = {True: "adaptive", False: "full", None: ""}


def _facts(known: PredictorState) -> dict[object, float]:
    running = known.running
    verification = _VERIFICATION[running.deployment.adaptive_verification]
    engine = known.inference_engine.code if known.inference_engine else ""
    facts = (running.vllm_version, known.engine_generation, known.method, known.draft_model, verification, engine)
    return {tuple(fact or "" for fact in facts): 1} if any(facts) else {}


PREDICTOR: Group[tuple[PredictorState, StateName]] = Group(  # and the state of the engine that the labels name
    ENGINE,
    (
        gauge(
            "specdec_predictor_info",
            "1, with what the predictor runs as labels. Unknown facts are empty labels. `verification`: adaptive if "
            "vLLM verifies only part of each draft (it does not count which), full if all. `inference_engine`: vllm, "
            "or another one.",
            lambda s: _facts(s[0]),
            labels=(
                "vllm_version",
                "engine_generation",
                "method",
                "draft_model",
                "verification",
                "inference_engine",
            ),
        ),
        gauge(
            "specdec_num_speculative_tokens",
            "k: the most draft tokens that one draft can have.",
            lambda s: s[0].num_speculative_tokens,
        ),
        gauge(
            "specdec_predictor_state",
            "1 for the state the predictor is in, 0 for the others.",
            lambda s: {state: float(state == s[1]) for state in STATES},
            labels=("state",),
        ),
    ),
)

VERDICT: Group[VerdictCode] = Group(
    MODEL,
    (
        gauge(
            "specdec_verdict",
            f"1 for the verdict that page and API show, of {', '.join(get_args(VerdictCode))}.",
            lambda code: {code: 1.0},
            labels=("verdict",),
        ),
    ),
)
