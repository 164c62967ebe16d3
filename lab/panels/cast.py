"""Who is on the dashboards: one service for each thing that can be seen on them."""

from __future__ import annotations

from msgspec.structs import replace

from demo.simulator.scenario import BreakMetrics, ChangeLoad, Collapse, Latency, Restart, StopDrafting
from demo.simulator.settings import LatencyModel, SimulatorSettings
from panels.traces import END, HOUR, START, Replica

# A draft costs something here: a token takes 20 ms without speculation and about 13 ms with it.
BUSY = SimulatorSettings(
    load="0.35/s",
    output_tokens=64,
    prompt_tokens=64,
    served_model_name="llama-8b",
    kv_cache_tokens=2000,
    latency=LatencyModel(step_seconds=0.02, draft_token_seconds=0.007),
)
OFF = replace(BUSY, method=None, draft_model=None, k=0, seed=7)


def ago(minutes: float) -> float:
    """So many minutes before the end, in simulated seconds."""
    return END - START - 60 * minutes


# Verifying drafts competes in full batches, so these services gain at small loads and lose at large ones.
LOADED = replace(
    BUSY,
    kv_cache_tokens=8000,
    latency=LatencyModel(step_seconds=0.02, draft_token_seconds=0.004, batched_token_seconds=0.0008),
)


def loads(engines: int = 1) -> tuple[ChangeLoad, ...]:
    """A busy quarter of an hour, and then a few requests at a time."""
    running = {170: 3, 164: 7, 160: 15, 157: 29, 155: 5}  # per engine, by minutes before the end
    busy = tuple(ChangeLoad(at=ago(minutes), load=engines * load) for minutes, load in running.items())
    return (*busy, ChangeLoad(at=ago(150), load=f"{0.7 * engines}/s"))


REPLICAS = (
    # Healthy, with a live control; one of its two replicas was restarted.
    Replica(
        service="chat",
        pod="chat-0",
        settings=replace(BUSY, incidents=(Restart(at=ago(100), duration=90),)),
    ),
    Replica(service="chat", pod="chat-1", settings=replace(BUSY, seed=2)),
    Replica(service="chat-control", pod="chat-control-0", settings=OFF),
    # The draft head stops fitting; slower since than its baseline from a file.
    *(
        Replica(
            service="assistant",
            pod=f"assistant-{number}",
            settings=replace(
                LOADED,
                seed=10 + number,
                incidents=(
                    *loads(),
                    ChangeLoad(at=ago(72), load=2),
                    Collapse(at=ago(70), acceptance=(0.3, 0.09, 0.02)),
                ),
            ),
            baseline=replace(OFF, seed=12),
        )
        for number in range(2)
    ),
    # Slower than its own past, while its acceptance is as ever.
    Replica(
        service="summarize",
        pod="summarize-0",
        history=True,
        settings=replace(
            BUSY, seed=20, incidents=(Latency(at=ago(80), factor=1.35, tail_share=0.08, tail_factor=2.5),)
        ),
    ),
    # A canary whose drafts do not fit.
    *(
        Replica(service="mail", pod=f"mail-{number}", revision="mail-5d9f", settings=replace(BUSY, seed=15 + number))
        for number in range(2)
    ),
    Replica(
        service="mail",
        pod="mail-canary",
        revision="mail-7c4b",
        settings=replace(BUSY, seed=17, load="0.15/s", acceptance=(0.12, 0.03, 0.01)),
    ),
    # Too young for a baseline, drafts from the prompt.
    Replica(
        service="translate",
        pod="translate-0",
        settings=replace(
            BUSY,
            seed=30,
            method="ngram",
            draft_model=None,
            k=5,
            acceptance=0.42,
            short_draft_share=0.2,
            no_draft_share=0.2,
        ),
    ),
    # Two engines where there is but one cluster, and namespaces are not scraped.
    Replica(
        service="search",
        pod="search-0",
        cluster="",
        namespace="",
        settings=replace(
            LOADED,
            seed=40,
            engines=2,
            method="mtp",
            acceptance=0.82,
            served_model_name="qwen-30b",
            incidents=loads(engines=2),
        ),
        baseline=replace(OFF, seed=41, served_model_name="qwen-30b"),
    ),
    # Not drafting, unreachable, idle (its baseline is of another release), and without speculation.
    Replica(
        service="code",
        pod="code-0",
        namespace="dev",
        settings=replace(BUSY, seed=50, incidents=(StopDrafting(at=ago(45)),)),
    ),
    Replica(
        service="notes",
        pod="notes-0",
        namespace="dev",
        settings=replace(BUSY, seed=60, incidents=(BreakMetrics(at=ago(25)),)),
    ),
    Replica(
        service="batch",
        pod="batch-0",
        namespace="dev",
        settings=replace(BUSY, seed=70, incidents=(ChangeLoad(at=ago(90), load=0),)),
        baseline=replace(OFF, seed=72, vllm_version="0.31.0"),
    ),
    Replica(service="plain", pod="plain-0", namespace="dev", reads_log=False, settings=replace(OFF, seed=80)),
    # In the middle of an update, so that buckets differ.
    Replica(
        service="batch",
        pod="batch-1",
        namespace="dev",
        settings=replace(
            BUSY, seed=71, vllm_version="0.8.3", engine_generation="v1", incidents=(ChangeLoad(at=ago(90), load=0),)
        ),
    ),
    # An old engine, whose counters mean nothing; its log has warnings.
    Replica(
        service="legacy",
        pod="legacy-0",
        namespace="dev",
        warnings={"async_scheduling_disabled": int(ago(60))},
        settings=replace(BUSY, seed=90, vllm_version="0.9.2", engine_generation="v0", method="ngram", draft_model=None),
    ),
)

# What is looked at, by service.
VIEWS = {
    "healthy": "chat",
    "collapse": "assistant",
    "regression": "summarize",
    "canary": "mail",
    "no baseline, one replica": "translate",
    "single cluster": "search",
    "not drafting": "code",
    "unreachable": "notes",
    "idle": "batch",
    "speculation off": "plain",
    "v0": "legacy",
}
SHOWN_SECONDS = 3 * HOUR  # in pictures: it has records from its beginning on
