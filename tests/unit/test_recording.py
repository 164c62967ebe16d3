"""Recording a baseline beside a predictor: what is kept of it, and when nothing is."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from collections.abc import AsyncIterator, Callable
from functools import reduce
from operator import add
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo.simulator.server import serving
from demo.simulator.settings import SimulatorSettings
from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.intervals import MOST_ROWS, thinned
from specdec_exporter.baseline.live import logged_start, record
from specdec_exporter.baseline.reading import parse_baseline, read_baseline
from specdec_exporter.baseline.recording import Increases, Recorder, consistent_counts, total_of, with_increases
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.errors import BaselineError, FetchError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.blocks import Blocks
from specdec_exporter.speculation.load import Load
from support.builders import CAPTURES, engine, known, latency, snapshot
from support.processes import EXPORTER, child, exporter_ran
from support.recordings import CURVE, loaded
from support.running import Predictor, predictor

INF = float("inf")
BEFORE = (CAPTURES / "0.25.1-draft_model-k3/metrics-0-before-any-request.txt").read_bytes()
AFTER = (CAPTURES / "0.25.1-draft_model-k3/metrics-1-p90.txt").read_bytes()
LOG = CAPTURES / "0.25.1-draft_model-k3/server.log"


def recorded(*snapshots: Snapshot, model: str | None = None, interval_seconds: float = 0.0) -> Baseline:
    recorder = Recorder(snapshots[0], 100.0, model, interval_seconds=interval_seconds)
    for at, each in enumerate(snapshots[1:], start=101):
        recorder.observe(each, float(at))
    shell = Baseline(name="x", recorded_at="2026-01-01T00:00:00Z", duration_seconds=1.0, model_name=recorder.model_name)
    return with_increases(shell, recorder.increases())


def totals(baseline: Baseline) -> Baseline:
    return msgspec.structs.replace(baseline, intervals=(), blocks=())


# --- differences ---


def test_the_difference_of_two_real_dumps_is_what_happened_between_them() -> None:
    found = recorded(parse_exposition(BEFORE), parse_exposition(AFTER))
    counts = Counts(464.0, 1392.0, 1136.0, (418.0, 375.0, 343.0), 1600.0, 8.0, 464.0)
    more = {"step_seconds": 15.138548, "prompt_tokens": 64.0, "cached_prompt_tokens": 0.0, "preemptions": 0.0}
    counts = msgspec.structs.replace(counts, **more)
    assert found.counts == counts
    assert found.requests_finished == 8.0
    assert found.model_name == "tiny"
    assert [sli for sli, _ in found.histograms()] == [
        "time_to_first_token_seconds",
        "time_per_output_token_seconds",
        "request_latency_seconds",
    ]
    assert all(histogram.count == 8 for _, histogram in found.histograms())


def test_several_engines_are_summed_without_what_was_before() -> None:
    first = snapshot(engine(100, (90.0, 80.0, 70.0), requests=5, name="0"), engine(name="1"))
    last = snapshot(
        engine(110, (99.0, 88.0, 77.0), requests=7, name="0"), engine(20, (1.0, 0.0, 0.0), requests=3, name="1")
    )
    found = recorded(first, last)
    assert found.counts.drafts == 30
    assert found.counts.accepted_per_position == (10.0, 8.0, 7.0)
    assert found.requests_finished == 5


def traffic(steps: list[tuple[int, int]], *, name: str = "0") -> list[EngineSnapshot]:
    """An engine that takes so many steps, and finishes so many requests, between two polls."""
    drafts = list(itertools.accumulate((step for step, _ in steps), initial=0))
    requests = list(itertools.accumulate((count for _, count in steps), initial=0))
    return [
        msgspec.structs.replace(
            engine(d, (float(d), d / 2, 0.0), requests=r, name=name),
            prompt_length=latency(r),
            generation_length=latency(r),
        )
        for d, r in zip(drafts, requests, strict=True)
    ]


steps = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=6)


@given(steps)
def test_looking_in_between_changes_nothing(increments: list[tuple[int, int]]) -> None:
    shots = [snapshot(each) for each in traffic(increments)]
    if not any(requests for _, requests in increments):
        with pytest.raises(BaselineError, match="no request finished"):
            recorded(*shots)
        return
    assert totals(recorded(*shots)) == totals(recorded(shots[0], shots[-1]))


def test_without_speculation_no_acceptance_is_recorded() -> None:
    path = CAPTURES / "0.32.0-baseline-nospec/metrics-1-after.txt"
    found = recorded(snapshot(), parse_exposition(path.read_bytes()))
    assert (found.counts.drafts, found.counts.draft_tokens, found.counts.accepted_per_position) == (None, None, ())
    assert found.counts.generation_tokens
    assert "acceptance: null" in to_yaml(found)


def test_of_a_v0_engine_only_latency_is_recorded_since_its_counters_count_no_tokens() -> None:
    dumps = [CAPTURES / "0.9.2-v0-ngram-k5" / name for name in ("metrics-1-high.txt", "metrics-2-mid.txt")]
    found = recorded(*(parse_exposition(dump.read_bytes()) for dump in dumps))
    assert (found.counts.draft_tokens, found.counts.generation_tokens) == (None, None)
    (block,) = found.blocks
    assert block.counts == found.counts
    assert block.request_latency_seconds == found.request_latency_seconds is not None
    assert found.intervals == ()


# --- intervals ---


def busy(
    steps: float, concurrency: float, seconds: float, *, name: str = "0", preemptions: float = 0.0
) -> EngineSnapshot:
    """An engine after so many seconds at a concurrency; one half of its drafts is accepted as a whole."""
    positions = (steps / 2,) * 3
    return msgspec.structs.replace(
        engine(steps, positions, requests=steps / 50, name=name),
        preemptions=preemptions,
        step_latency=latency(steps, concurrency * seconds / steps if steps else 0.0),
    )


def test_an_interval_sums_the_polls_of_one_engine_in_the_order_of_time() -> None:
    """Nine polls of 1 s make three moments of 3 s; engine 0 preempts a request in the second one."""
    shots = [
        snapshot(busy(100.0 * i, 3.0, i, preemptions=float(i > 4)), busy(400.0 * i, 12.0, i, name="1"))
        for i in range(10)
    ]
    found = recorded(*shots, interval_seconds=3.0).intervals
    assert [load.seconds for load in found] == [3.0] * 6
    assert [load.ends for load in found] == [3.0, 3.0, 6.0, 6.0, 9.0, 9.0]
    assert [load.steps for load in found] == [300.0, 1200.0] * 3
    assert [load.concurrency for load in found] == pytest.approx([3.0, 12.0] * 3)
    assert [load.counts.preemptions for load in found] == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert [load.counts.draft_tokens for load in found] == [900.0, 3600.0] * 3


def test_prompt_tokens_that_a_cache_held_are_not_computed() -> None:
    """The cache holds three quarters of the prompt tokens in the first interval, and more than were counted next."""
    shots = [
        snapshot(msgspec.structs.replace(busy(100.0 * i, 2.0, i), prompt_tokens=200.0 * i, cached_prompt_tokens=held))
        for i, held in enumerate((0.0, 150.0, 400.0))
    ]
    found = recorded(*shots)
    assert [load.prompt_rate for load in found.intervals] == [50.0, 0.0]
    assert found.counts.cached_prompt_ratio == 1.0
    assert parse_baseline(to_yaml(found).encode()) == found


@pytest.mark.parametrize(("polls", "seconds"), [(4.98, 14.94), (5.02, 15.06), (8.0, 16.0), (20.0, 20.0)])
def test_an_interval_ends_with_the_poll_nearest_to_its_length(polls: float, seconds: float) -> None:
    recorder = Recorder(snapshot(busy(0.0, 3.0, 0.0)), 0.0, interval_seconds=15.0)
    for i in range(1, 13):
        recorder.observe(snapshot(busy(100.0 * i, 3.0, i * polls)), i * polls)
    assert {round(load.seconds, 6) for (load,) in recorder.increases().moments} == {seconds}


def test_intervals_without_a_step_are_left_out() -> None:
    steps = [0, 0, 100, 100, 300]
    other = [busy(50.0 * i, 3.0, float(i), name="1") for i in range(len(steps))]
    each = (busy(float(done), 2.0, done / 100) for done in steps)
    found = recorded(*(snapshot(*both) for both in zip(each, other, strict=True))).intervals
    assert [(load.ends, load.steps) for load in found if load.steps != 50.0] == [(2.0, 100.0), (4.0, 200.0)]
    assert sum(load.steps == 50.0 for load in found) == 4


def test_a_long_recording_keeps_120_intervals_evenly_and_as_they_were() -> None:
    """Each interval has as many steps as its number."""
    done = list(itertools.accumulate(range(1001)))
    found = recorded(*(snapshot(busy(float(steps), 3.0, i)) for i, steps in enumerate(done))).intervals
    numbers = [round(load.steps) for load in found]
    assert len(numbers) == 120
    assert {later - earlier for earlier, later in itertools.pairwise(numbers)} == {8, 9}
    assert (numbers[0], numbers[-1] > 990) == (1, True)
    assert {load.seconds for load in found} == {1.0}


def moments(number: int, engines: int) -> list[list[Load]]:
    """Moments whose rows have the number of the engine for seconds."""
    return [[Load(engine + 1.0, Counts(), float(at)) for engine in range(engines)] for at in range(number)]


@settings(max_examples=60)
@given(st.integers(0, 400), st.integers(1, 300))
def test_a_file_keeps_moments_evenly_and_all_engines_in_turn(number: int, engines: int) -> None:
    rows = thinned(moments(number, engines), 120)
    ends = [known(load.ends) for load in rows]
    kept = sorted(set(ends))
    assert ends == sorted(ends)
    assert len(rows) <= MOST_ROWS
    assert min(24, number) <= len(kept) <= 120
    if engines <= 8:
        assert len(kept) == min(number, 120)
    gaps = {later - earlier for earlier, later in itertools.pairwise(kept)}
    assert not gaps or max(gaps) - min(gaps) <= 1.0
    rows_at = {at: ends.count(at) for at in kept}
    assert set(rows_at.values()) <= {min(engines, MOST_ROWS // max(len(kept), 1))}
    if number >= 24:
        assert {load.seconds for load in rows} == {engine + 1.0 for engine in range(engines)}


def test_a_count_that_has_not_counted_yet_is_0() -> None:
    """The predictor shows some counters only from their first event on. A file has a list per count, without gaps."""
    silent = msgspec.structs.replace(busy(100.0, 2.0, 1.0), draft_tokens=None, drafts=None, accepted_tokens=None)
    found = recorded(snapshot(busy(0.0, 2.0, 0.0)), snapshot(silent), snapshot(busy(200.0, 2.0, 2.0)))
    assert [load.counts.draft_tokens for load in found.intervals] == [0.0, 600.0]
    assert parse_baseline(to_yaml(found).encode()) == found


def test_what_rounds_to_nothing_leaves_a_file_that_can_be_read() -> None:
    counts = Counts(steps=101.0, step_seconds=5.0)
    tiny = Load(1e-9, Counts(steps=1.0, step_seconds=1e-9), 1e-9)
    some = Load(5.0, Counts(steps=100.0, step_seconds=5.0), 5.0)
    measured = Increases({"request_latency_seconds": latency(2)}, counts, 2.0, ((tiny,), (some,)))
    found = with_increases(Baseline(name="x", recorded_at="2026-01-01T00:00:00Z", duration_seconds=1.0), measured)
    assert found.intervals == (some,)
    assert parse_baseline(to_yaml(found).encode()) == found


# --- blocks of time and lengths ---


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=60))
def test_the_blocks_of_a_recording_add_up_to_it(polls: list[tuple[int, int]]) -> None:
    shots = [snapshot(*each) for each in zip(traffic(polls), traffic(polls[::-1], name="1"), strict=True)]
    if not any(requests for _, requests in polls):
        return
    found = recorded(*shots)
    total = reduce(add, found.blocks)
    for name in SCALARS:
        assert getattr(total.counts, name) == pytest.approx(getattr(found.counts, name))
    assert total.seconds == len(polls)
    for sli, whole in found.histograms():
        of_blocks = getattr(total, sli)
        assert (of_blocks.bounds, of_blocks.counts) == (whole.bounds, whole.counts)
        assert of_blocks.sum == pytest.approx(whole.sum)
    assert len(found.blocks) == len(polls) if len(polls) <= 24 else 12 < len(found.blocks) <= 24
    assert parse_baseline(to_yaml(found).encode()) == found


def test_a_recording_of_a_busy_day_is_a_small_file() -> None:
    """24 blocks and 120 intervals, in vLLM's buckets."""
    busy = loaded("busy", {2.0**power: 0.02 * 1.3**power for power in range(8)}, CURVE, intervals=15, blocks=24)
    assert (len(busy.intervals), len(busy.blocks)) == (120, 24)
    assert len(to_yaml(busy)) < 40_000


def test_the_blocks_of_a_day_are_as_few_and_of_one_length() -> None:
    blocks: Blocks[float] = Blocks(24)
    for _ in range(24 * 720):
        blocks.add(5.0)
    assert 12 <= len(blocks.sums) <= 24
    assert len(set(blocks.sums[:-1])) == 1
    assert sum(blocks.sums) == 86_400.0


@pytest.mark.parametrize(
    ("capture", "requests", "prompts", "generated"),
    [
        ("0.25.1-draft_model-k3/metrics-1-p90.txt", 8, 64, 1600),
        ("0.9.2-v0-ngram-k5/metrics-5-idle.txt", 15, 1836, 1620),
    ],
)
def test_the_lengths_of_requests_are_recorded(capture: str, requests: int, prompts: int, generated: int) -> None:
    shown = parse_exposition((CAPTURES / capture).read_bytes(), lengths=True)
    found = recorded(msgspec.structs.replace(shown, engines=()), shown)
    for length, total in ((found.prompt_length, prompts), (found.generation_length, generated)):
        assert known(length).count == requests
        assert known(length).sum == total


# --- what is refused ---


def changed(base: Snapshot, **fields: object) -> Snapshot:
    return msgspec.structs.replace(base, engines=(msgspec.structs.replace(base.engines[0], **fields),))


RUNNING = msgspec.structs.replace(
    snapshot(engine(100, (90.0, 80.0, 70.0), requests=5)), process_start_time_seconds=1_790_000_000.5
)


LATER = msgspec.structs.replace(RUNNING, process_start_time_seconds=1_790_000_900.0)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (LATER, "another process"),
        (changed(LATER, drafts=99.0), "another process"),
        (msgspec.structs.replace(changed(RUNNING, drafts=99.0), process_start_time_seconds=None), "another process"),
        (changed(RUNNING, engine="1"), "other engines"),
    ],
)
def test_a_restart_in_between_is_refused(after: Snapshot, said: str) -> None:
    with pytest.raises(BaselineError, match=rf"{said} answered 1 s into the recording"):
        recorded(RUNNING, after)


def test_one_of_several_served_models_has_to_be_chosen() -> None:
    first = snapshot(engine(model="large"), engine(model="small"))
    last = snapshot(engine(10, requests=2, model="large"), engine(10, requests=7, model="small"))
    with pytest.raises(BaselineError, match="serves 2 models: choose one with --model from large, small"):
        recorded(first, last)
    assert recorded(first, last, model="small").requests_finished == 7


def test_engines_with_different_buckets_cannot_be_summed() -> None:
    other = msgspec.structs.replace(
        engine(10, requests=2, name="1"), request_latency=Histogram((1.0, INF), (2.0, 2.0), 1.0)
    )
    with pytest.raises(BaselineError, match="different buckets for request_latency_seconds"):
        recorded(snapshot(), snapshot(engine(10, requests=2), other))


def test_metrics_without_statistics_cannot_be_recorded() -> None:
    dump = CAPTURES / "0.32.0-draft_model-disable-log-stats/metrics-1-after.txt"
    with pytest.raises(BaselineError, match="--disable-log-stats"):
        recorded(parse_exposition(dump.read_bytes()))


# --- what was read at slightly different moments is made consistent, or refused ---

amounts = st.none() | st.floats(0, 1e9)


@given(st.builds(Counts, amounts, amounts, amounts, st.lists(st.floats(-1, 1e9), max_size=5).map(tuple), amounts))
def test_counts_never_say_more_accepted_than_drafted(counts: Counts) -> None:
    found = consistent_counts(counts)
    if found.draft_tokens is not None:
        assert found.accepted_tokens is not None
        assert found.accepted_tokens <= found.draft_tokens
    curve = (found.drafts or 0.0, *found.accepted_per_position)
    assert list(curve) == sorted(curve, reverse=True)
    assert consistent_counts(found) == found


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), st.floats(0, 1e6))
def test_a_histogram_is_one_that_samples_can_give_or_refused(counts: list[float], total: float) -> None:
    torn = Histogram((0.5, 1.0, INF), tuple(counts), total)
    try:
        found = total_of("latency", [torn])
    except BaselineError:
        return
    if found is not None:
        low, high = found.sum_bounds()
        assert low <= found.sum <= high
        assert list(found.counts) == sorted(found.counts)


@pytest.mark.parametrize(
    ("finished", "said"),
    [
        (0.0, "no request finished in the recorded 1 s"),
        (1.0, "requests finished in the recorded 1 s, and the predictor told no latency of theirs"),
    ],
)
def test_a_recording_without_a_latency_says_whether_requests_finished(finished: float, said: str) -> None:
    measured = Increases({}, Counts(), requests_finished=finished)
    with pytest.raises(BaselineError, match=f"^{said}"):
        with_increases(Baseline(name="x", recorded_at="", duration_seconds=1.0), measured)


def test_a_sum_far_outside_its_buckets_is_refused() -> None:
    with pytest.raises(BaselineError, match=r"the sum of latency, 2, contradicts the buckets of its 1 requests"):
        total_of("latency", [Histogram((0.5, 1.0, INF), (0.0, 1.0, 1.0), 2.0)])


# --- against real servers ---


@contextlib.asynccontextmanager
async def playing(*bodies: bytes) -> AsyncIterator[Predictor]:
    """A predictor that gives ``bodies`` one after the other, the last one for ever."""
    async with predictor() as server:
        server.bodies = [*bodies]
        yield server


async def test_a_recording_holds_what_the_predictor_says_of_itself() -> None:
    async with playing(BEFORE, AFTER) as server:
        server.version = "0.25.1"
        found = await record(server.url, duration_seconds=0.3, log_paths=[str(LOG)])
    assert (found.vllm_version, found.method, found.num_speculative_tokens) == ("0.25.1", "draft_model", 3)
    assert (found.context.runtime, found.context.hardware, found.context.command) == ("vLLM 0.25.1", None, None)
    assert found.context.model == "/models/target"
    assert found.duration_seconds >= 0.3
    assert not found.interrupted


async def test_what_is_given_beats_what_the_predictor_says_and_without_a_log_the_curve_tells_k_but_no_method() -> None:
    given = Context(model="org/model", runtime="vLLM, patched", hardware="1x L4")
    async with playing(BEFORE, AFTER) as server:
        found = await record(server.url, duration_seconds=0.1, context=given)
    assert (found.context, found.method, found.num_speculative_tokens) == (given, None, 3)


async def test_without_an_engine_init_line_the_arguments_tell_the_method(tmp_path: Path) -> None:
    log = LOG.read_bytes().splitlines(keepends=True)
    (tmp_path / "log").write_bytes(b"".join(line for line in log if b"LLM engine" not in line))
    async with playing(BEFORE, AFTER) as server:
        found = await record(server.url, duration_seconds=0.1, log_paths=[str(tmp_path / "log")])
    assert (found.method, found.num_speculative_tokens) == ("draft_model", 3)


@pytest.mark.parametrize("between", [(b"", b""), (AFTER, BEFORE)], ids=["missed", "old"])
async def test_an_answer_in_between_that_is_missed_or_old_does_no_harm(between: tuple[bytes, bytes]) -> None:
    async with playing(BEFORE, *between, AFTER) as server:
        assert (await record(server.url, duration_seconds=1.0)).requests_finished == 8


async def test_a_restart_is_seen_though_both_ends_alone_would_not_show_it() -> None:
    ended = AFTER.replace(b"process_start_time_seconds ", b"# ")
    begun = BEFORE.replace(b"process_start_time_seconds ", b"# ")
    async with playing(begun, ended, begun, ended) as server:
        with pytest.raises(BaselineError, match="restarted"):
            await record(server.url, duration_seconds=1.0)


async def test_a_predictor_that_goes_away_leaves_what_was_measured_until_then() -> None:
    async with playing(BEFORE, AFTER, b"") as server:
        found = await record(server.url, duration_seconds=0.5)
    assert found.interrupted
    assert found.duration_seconds < 0.5


async def test_a_predictor_that_cannot_be_read_at_all_is_an_error_at_once() -> None:
    async with playing(b"") as server:
        with pytest.raises(FetchError, match="found nothing"):
            await record(server.url, duration_seconds=60)


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["/nowhere/vllm.log"], "no log at /nowhere/vllm.log: expected the predictor's log"),
        (["/"], "it is a directory"),
        ([str(LOG)], "the predictor's own log"),
    ],
)
async def test_a_log_that_tells_nothing_of_this_predictor_is_refused_at_once(paths: list[str], said: str) -> None:
    async with playing(BEFORE, AFTER) as server:
        with pytest.raises(BaselineError, match=said):
            await record(server.url, duration_seconds=60, log_paths=paths)


def test_of_a_glob_and_of_several_paths_the_logs_are_read(tmp_path: Path) -> None:
    """Rotation packs old files, a directory may have others beside the log, and a path may have no log yet."""
    (tmp_path / "vllm.log").write_bytes(LOG.read_bytes())
    (tmp_path / "vllm.log.1.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (tmp_path / "vllm.log.d").mkdir()
    (tmp_path / "vllm.log.old").symlink_to("nowhere")
    assert logged_start([f"{tmp_path}/vllm.log*", "/nowhere/vllm.log"]) == logged_start([str(LOG)])


def test_a_pipe_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(b"\x1f\x8b\0")
    with packed.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(BaselineError, match="it is gzip"):
            logged_start(["-"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_live_traffic_of_a_simulated_predictor_is_recorded_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    settings = SimulatorSettings(
        load=8, speed=20.0, listen_address="127.0.0.1:0", log_path=str(tmp_path / "vllm.log"), engines=2
    )
    async with serving(settings) as url:
        log = f"--predictor.log-path={tmp_path}/*.log"
        record = ("baseline", "record", "--predictor.url", url, "--duration=2s", log, "-o", path, "--hardware=none")
        done = await asyncio.to_thread(exporter_ran, *record)
    assert done.returncode == 0, done.stderr
    assert "note: command not given (--command)" in done.stderr
    found = read_baseline(str(path))
    assert found.name == "base"
    assert found.method == "eagle3"
    assert found.context.hardware == "none"
    assert found.counts.drafts
    assert found.counts.accepted_tokens == sum(found.counts.accepted_per_position)
    assert 2 <= found.duration_seconds < 4
    assert sum(block.seconds for block in found.blocks) == pytest.approx(found.duration_seconds, abs=1e-3)
    assert known(found.prompt_length).count == known(found.generation_length).count == found.requests_finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_keeps_what_was_measured_and_says_so(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    async with playing(BEFORE, AFTER) as server:
        command = ("baseline", "record", f"--predictor.url={server.url}", "--duration=30m", "-o", path)
        with child(*EXPORTER, *command) as record:
            await until(lambda: server.requests == 1)
            await asyncio.sleep(1)  # /version and /v1/models
            record.send_signal(number)
            _, told = await asyncio.to_thread(record.communicate)
    assert (record.returncode, b"interrupted after" in told) == (0, True), told
    found = read_baseline(str(path))
    assert found.interrupted
    assert found.duration_seconds < 10
    assert sum(block.seconds for block in found.blocks) == pytest.approx(found.duration_seconds, abs=1e-3)
    assert found.requests_finished == 8
