"""What is read of results of ``vllm bench serve`` and of AIPerf, and what is refused in one line."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.comparison.bench import BenchComparison, BenchRuns, compare_bench
from specdec_exporter.comparison.benchload import BenchLoad, BenchSide
from specdec_exporter.comparison.latency import Outcome
from specdec_exporter.errors import BenchResultError, ComparisonError
from specdec_exporter.predictor.benchresult import parse_results
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.bench import report
from specdec_exporter.terminal.sections import as_json, as_markdown
from support.benchruns import BENCH, aiperf, compared, detailed, parsed, ran, refused, result
from support.builders import FIXTURES, numbers
from support.promtool import REPOSITORY


def real(*files: str | Path) -> dict[str, Any]:
    """The JSON of a comparison of real results; vLLM 0.32.0 served them, the folder names the benchmark's release."""
    found: dict[str, Any] = json.loads(ran(*(BENCH / each for each in files), "--output", "json")[1])
    return found


@pytest.mark.parametrize(
    ("release", "load", "told"),
    [("0.11.2", "c1", None), ("0.14.1", "c4", True), ("0.19.1", "c1", True), ("0.32.0", "c1", True)],
)
def test_results_of_real_benchmarks_are_compared(release: str, load: str, told: bool | None) -> None:
    found = real(*(f"{release}/{side}-{load}.json" for side in ("plain", "spec-k3")))
    (only,) = found["loads"]
    assert (only["clients"], only["request_rate"]) == (int(load[1:]), None)
    assert only["speedup"]["value"] > 1.0
    assert found["candidate"]["speculates"] is told
    assert (only["ceiling"] or 3.64) == pytest.approx(3.64, abs=0.01)


def test_real_results_at_two_loads_and_at_a_rate() -> None:
    fixed = real(*(f"0.32.0/{side}-{load}.json" for load in ("c4", "c1") for side in ("plain", "spec-k3")))
    assert [each["clients"] for each in fixed["loads"]] == [1, 4]
    (rate,) = real("0.32.0/plain-rate1.json", "0.32.0/spec-k3-rate1.json")["loads"]
    assert (rate["clients"], rate["request_rate"], rate["tokens_per_second_ratio"]) == (None, 1.0, None)
    assert rate["outcome"] == "faster"
    assert real("0.32.0/plain-harmful-c4.json", "0.32.0/spec-k3-harmful-c4.json")["decision"]["regression"]


def test_real_details_give_the_mean_that_the_file_has() -> None:
    for side in ("plain", "spec-k3"):
        content = (BENCH / f"0.32.0/{side}-detailed-c1.json").read_bytes()
        (found,) = parse_results(content, side)
        assert len(found.time_per_output_token.requests) == found.completed == 40
        assert fmean(found.time_per_output_token.requests) == pytest.approx(found.time_per_output_token.mean)


def test_real_files_with_two_results_and_with_metadata() -> None:
    appended = real("0.32.0/plain-append.json", "0.32.0/spec-k3-append.json")
    assert [Path(each).name for each in appended["baseline"]["names"]] == [
        "plain-append.json, result 1",
        "plain-append.json, result 2",
    ]
    context = real("0.32.0/plain-metadata-c4.json", "0.32.0/spec-k3-metadata-c4.json")["baseline"]["context"]
    assert context["hardware"] == "2-cpu-cores"


def test_the_folders_of_a_real_sweep_are_told_apart_by_their_drafts() -> None:
    folders = sorted((BENCH / "0.32.0/sweep").iterdir())
    loads = real(*folders)["loads"]
    assert [(each["clients"], each["baseline"]["runs"], each["candidate"]["runs"]) for each in loads] == [
        (1, 2, 2),
        (4, 2, 2),
    ]


def test_a_real_export_of_aiperf_is_read_with_the_drafts_beside_it() -> None:
    (load,) = real("aiperf-0.13.0/plain-c4", "aiperf-0.13.0/spec-k3-c4")["loads"]
    assert load["clients"] == 4
    assert load["candidate"]["acceptance_ratio"] == pytest.approx(1401 / 1587)
    assert load["speedup"]["value"] == pytest.approx(1.59, abs=0.01)


def test_exports_of_aiperf_are_compared_as_results_are() -> None:
    (load,) = compared([aiperf(20.0)], [aiperf(10.0)]).loads
    (same,) = compared([result(20.0)], [result(10.0)]).loads
    assert load.clients == 8
    assert load.speedup is not None
    assert load.speedup.value == pytest.approx(2.0)
    assert load.tokens_per_second_ratio == same.tokens_per_second_ratio
    found = compared([aiperf(20.0)], [aiperf(10.0)])
    assert found.candidate.context.request_parameters == "max_tokens 128, temperature 0"
    assert found.candidate.speculates is None


def test_the_warm_up_of_aiperf_does_not_count(write: Any, tmp_path: Path) -> None:
    for side, tpot in (("plain", 20.0), ("spec", 10.0)):
        write(f"{side}/profile_export_aiperf.json", aiperf(tpot))
        write(f"{side}/phases/warmup/profile_export_aiperf.json", aiperf(99.0))
        write(f"{side}/server_metrics_export.json", {"metrics": {}})
    assert ran(tmp_path / "plain", tmp_path / "spec")[1].startswith("Faster: decoding is 2.00x")


def test_the_file_beside_an_export_of_aiperf_tells_of_drafts(write: Any, tmp_path: Path) -> None:
    counts = {"drafts": 2e4, "draft_tokens": 6e4, "accepted_tokens": 3e4}

    def server_metrics(run: str, **changed: object) -> dict[str, Any]:
        series = {name: [{"stats": {"total": total}}] for name, total in (counts | changed).items()}
        metrics = {f"vllm:spec_decode_num_{name}": {"series": each} for name, each in series.items()}
        return {"benchmark_id": run, "metrics": metrics}

    write("plain/profile_export_aiperf.json", aiperf(20.0, benchmark_id="p"))
    write("spec/profile_export_aiperf.json", aiperf(10.0, benchmark_id="s"))
    for beside, length in (
        (server_metrics("s"), 2.5),
        (server_metrics("other"), None),
        (server_metrics("s", drafts="many"), None),
        ([1], None),
    ):
        write("spec/server_metrics_export.json", beside)
        _, text = ran(tmp_path / "plain", tmp_path / "spec", "--output", "json")
        assert json.loads(text)["loads"][0]["ceiling"] == length
    write("spec/server_metrics_export.json").write_bytes(b"{")
    assert "server_metrics_export.json: expected JSON" in refused(tmp_path / "plain", tmp_path / "spec")


def test_an_export_of_aiperf_that_was_cancelled_is_refused() -> None:
    with pytest.raises(BenchResultError, match="the run failed"):
        parsed(aiperf(was_cancelled=True))


@pytest.mark.parametrize("key", ["model_id", "date", "backend", "hardware", "an\ud800other"])
def test_text_of_a_file_moves_no_cursor(key: str) -> None:
    hostile = {**result(10.0), key: "Qwen3-8B\ud800\x1b[31m\n"}
    try:
        text = as_markdown(report(compared([result(20.0)], [hostile])))
    except ComparisonError as error:
        text = str(error)
    assert all(line.isprintable() for line in text.splitlines())
    assert text.encode()


def test_where_many_requests_failed_nothing_is_decided() -> None:
    (load,) = compared([result(20.0)], [result(5.0, drafts=True, failed=30)]).loads
    assert load.undecided_because == "30 requests failed, so the load was another"
    assert compared([result(20.0)], [result(5.0, drafts=True, failed=3)]).decision.code == "faster"


def test_answers_of_one_token_tell_no_speed() -> None:
    (found,) = parse_results((BENCH / "0.32.0" / "spec-k3-one-token.json").read_bytes(), "one")
    assert found.time_per_output_token.mean is None
    with pytest.raises(BenchResultError, match="the run failed"):
        parse_results((BENCH / "0.32.0" / "failed-all.json").read_bytes(), "failed")


def test_requests_that_failed_or_have_one_token_tell_no_time_per_token() -> None:
    document = detailed([0.02] * 10)
    document["ttfts"][0], document["output_lens"][0], document["itls"][0] = 0.0, 0, []
    document["output_lens"][1] = 1
    (found,) = parsed(document)
    assert found.time_per_output_token.requests == pytest.approx((0.02,) * 8)


def test_without_latencies_a_request_lasts_as_long_as_its_tokens() -> None:
    document = detailed([0.02] * 10)
    del document["latencies"], document["start_times"]  # of 0.14.1
    assert parsed(document)[0].time_per_output_token.requests == pytest.approx((0.02,) * 10)


def test_a_result_without_time_per_token_decides_nothing() -> None:
    document = {key: value for key, value in result(10.0).items() if "tpot" not in key}  # --percentile-metrics ttft
    found = compared([result(20.0)], [document])
    assert "a result has no time per output token" in (found.loads[0].undecided_because or "")
    assert found.decision.code == "undecided"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "found nothing"),
        (b"{", "expected JSON of a benchmark from line 1 on, found none"),
        (b"[1]", "found a list, as in summary.json: give run=*.json or the folder"),
        (b'{"metadata": {}, "metrics": {}}', "another file of AIPerf: give its folder"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"{}", "found an object without model_id"),
        (b'{"model_id": "m", "avg_latency": 1, "latencies": []}', "found that of `vllm bench latency`"),
        (b'{"model_id": "m", "tokens_per_second": 1}', "found that of `vllm bench throughput`"),
        (json.dumps(result(math.nan)).encode(), "expected numbers, found NaN: the run failed"),
        (json.dumps(result(mean_tpot_ms=-1.0)).encode(), "mean_tpot_ms: expected a number of at least 0"),
        (json.dumps(result(mean_tpot_ms=1e300)).encode(), "mean_tpot_ms: expected a number of at most"),
        (json.dumps(result(completed=0)).encode(), "expected requests with answers, found none: the run failed"),
        (json.dumps(result(duration=0)).encode(), "duration: expected a number above 1e-06"),
        (json.dumps(result(duration=1e-300)).encode(), "duration: expected a number above 1e-06"),
        (json.dumps(result(mean_tpot_ms=1e-308)).encode(), "mean_tpot_ms: expected 0 or at least 1e-06"),
        (json.dumps(result(total_output_tokens=399)).encode(), "total_output_tokens: expected one per request"),
        (json.dumps(result(num_prompts=399)).encode(), "num_prompts: expected the completed requests at least"),
        (
            json.dumps(result(drafts=True, spec_decode_num_drafts=9_999)).encode(),
            "spec_decode_num_drafts: expected more",
        ),
        (json.dumps(result(request_rate="fast")).encode(), "request_rate: expected a number or inf"),
        (json.dumps(result(drafts=True, spec_decode_accepted_tokens=10**9)).encode(), "spec_decode_draft_tokens"),
        (json.dumps(result(completed="8")).encode(), "completed: expected a whole number, found text"),
        (json.dumps({**result(), "input_sequence_throughput": 1, "total_output_tokens": None}).encode(), "expected a"),
        (b'{"a":' * 4000, "expected JSON"),
        (b" " * 20_001, "expected at most 20,000 bytes, found more"),
    ],
)
def test_other_files_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.setattr(bounds, "RESULT_BYTES", 20_000)
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert words in (line := refused(path, path))
    assert "a.json" in line


def test_missing_files_and_folders_without_results_are_refused_in_one_line(write: Any, tmp_path: Path) -> None:
    good = write("good.json", result())
    assert "no.json: cannot be read: No such file" in refused(tmp_path / "no.json", good)
    assert "none: cannot be read: No such file" in refused(tmp_path / "none", good)
    (tmp_path / "empty").mkdir()
    assert "found no *.json" in refused(tmp_path / "empty", good)
    write("others/a.json", [1])
    write("others/b.json", {"a": 1})
    assert "found none: " in (line := refused(tmp_path / "others", good))
    assert "and 1 more like this" in line


def test_recordings_and_results_do_not_mix_and_options_of_recordings_do_not_hold(write: Any) -> None:
    good = write("good.json", result())
    recording = FIXTURES / "recordings" / "gain" / "plain.yaml"
    assert "plain.yaml: expected a result of a benchmark like the others, found a recording" in refused(recording, good)
    assert "--paired" in refused(good, good, "--paired")
    assert "--plot" in refused(good, good, "--plot", "a.svg")


scalar = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, 1e300, 1e-308, "inf"])
)
anything = st.recursive(scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner))


USUAL = (detailed([0.02, 0.021, 0.019, 0.02, 0.02]), result(drafts=True), aiperf())


@given(
    st.dictionaries(st.sampled_from(sorted({key for each in USUAL for key in each})), anything, max_size=4),
    st.sampled_from(USUAL),
)
@settings(max_examples=200, deadline=None)
def test_any_object_gives_a_result_with_finite_figures_or_one_error(
    changes: dict[str, Any], usual: dict[str, Any]
) -> None:
    refusals: list[str] = []
    try:
        found = compare_bench(parsed(usual), parsed(usual | changes), load_policy())
    except (BenchResultError, ComparisonError) as error:
        refusals.append(str(error))
    assert all(len(each.splitlines()) == 1 for each in refusals)
    if not refusals:
        json.loads(as_json(found), parse_constant=pytest.fail)
        assert all(map(math.isfinite, numbers(found)))
        assert as_markdown(report(found)).startswith("# ")


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,0e-', max_size=30).map(str.encode))
def test_any_bytes_give_results_or_one_error(content: bytes) -> None:
    with pytest.raises(BenchResultError) as error:
        parse_results(content, "a.json")
    assert len(str(error.value).splitlines()) == 1


def test_every_key_of_the_json_is_documented() -> None:
    page = (REPOSITORY / "docs" / "compare-output.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z0-9_]+)`", page.partition("\n## Results of `vllm bench serve`\n")[2]))
    shapes = (BenchComparison, BenchRuns, BenchLoad, BenchSide)
    assert {key for shape in shapes for key in shape.__struct_fields__} <= named
    assert set(get_args(Outcome)) <= named
