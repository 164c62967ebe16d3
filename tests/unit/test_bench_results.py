"""``compare`` with results of ``vllm bench serve``: what is read, what is decided, what is refused in one line."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import random
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
from click import UsageError
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from builders import FIXTURES, numbers
from promtool import REPOSITORY
from specdec_exporter import bounds
from specdec_exporter.commands.cli import cli
from specdec_exporter.comparison.bench import BenchComparison, BenchRuns, compare_bench
from specdec_exporter.comparison.benchload import BenchLoad, BenchSide
from specdec_exporter.comparison.decision import DecisionCode
from specdec_exporter.errors import BenchResultError, ComparisonError, SpecdecError
from specdec_exporter.predictor.benchresult import BenchResult, parse_results
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.bench import as_markdown, print_bench
from specdec_exporter.terminal.sections import as_json

BENCH = FIXTURES / "bench"
runs = itertools.count()


def result(tpot: float = 20.0, *, clients: int | None = 8, drafts: bool = False, **changes: Any) -> dict[str, Any]:
    """A result of 0.33.0 without details: 400 requests of 128 tokens, TPOT in ms; ``drafts``: k = 3, length 2.5.

    Each has a date of its own.
    """
    seconds = 400 / (clients or 400) * (0.06 + 127 * tpot / 1000)
    made: dict[str, Any] = {
        "date": f"20261129-{next(runs):06}",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "Qwen/Qwen3-8B",
        "tokenizer_id": "Qwen/Qwen3-8B",
        "num_prompts": 400,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": clients,
        "duration": seconds,
        "completed": 400,
        "failed": 0,
        "total_input_tokens": 40_000,
        "total_output_tokens": 51_200,
        "request_throughput": 400 / seconds,
        "request_goodput": None,
        "output_throughput": 51_200 / seconds,
        "total_token_throughput": 91_200 / seconds,
        "latencies": [1.0],
        "max_output_tokens_per_s": 900.0,
        "max_concurrent_requests": 9,
        "rtfx": 0.0,
        "mean_ttft_ms": 60.0,
        "median_ttft_ms": 58.0,
        "std_ttft_ms": 9.0,
        "p99_ttft_ms": 90.0,
        "mean_tpot_ms": tpot,
        "median_tpot_ms": tpot,
        "std_tpot_ms": tpot * (0.2 if drafts else 0.04),
        "p99_tpot_ms": tpot * 1.4,
    }
    if drafts:
        made |= {
            "spec_decode_acceptance_rate": 50.0,
            "spec_decode_acceptance_length": 2.5,
            "spec_decode_num_drafts": 20_000,
            "spec_decode_draft_tokens": 60_000,
            "spec_decode_accepted_tokens": 30_000,
            "spec_decode_per_position_acceptance_rates": [0.7, 0.5, 0.3],
        }
    return made | changes


def detailed(tpots: Sequence[float], **changes: Any) -> dict[str, Any]:
    """A result with these seconds per output token of its requests, in the order of their start."""
    number = len(tpots)
    details = {
        "completed": number,
        "num_prompts": number,
        "input_lens": [100] * number,
        "output_lens": [128] * number,
        "ttfts": [0.06] * number,
        "itls": [[each] * 127 for each in tpots],
        "start_times": [float(i) for i in range(number)],
        "latencies": [0.06 + 127 * each for each in tpots],
        "errors": [""] * number,
        "generated_texts": ["text"] * number,
        "total_input_tokens": 100 * number,
        "total_output_tokens": 128 * number,
    }
    return result(1000 * sum(tpots) / number) | details | changes


def parsed(*documents: Mapping[str, Any], name: str = "a.json") -> list[BenchResult]:
    return [each for i, one in enumerate(documents) for each in parse_results(json.dumps(one).encode(), f"{i}{name}")]


def compared(baseline: Sequence[Mapping[str, Any]], candidate: Sequence[Mapping[str, Any]]) -> BenchComparison:
    return compare_bench(parsed(*baseline), parsed(*candidate), load_policy())


def codes(found: BenchComparison) -> list[str]:
    return [flag.code for flag in found.flags]


def ran(*arguments: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(cli, ["compare", *map(str, arguments)], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.return_value, found.output


def refused(*arguments: str | Path) -> str:
    """The one line that the command ends with."""
    with pytest.raises((SpecdecError, UsageError)) as error:
        ran(*arguments)
    (line,) = str(error.value).splitlines()
    assert line.isprintable()
    return line


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write results into a file, as ``--append-result`` does, and return its path."""

    def to(name: str, *documents: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, documents)))
        return path

    return to


# --- What is decided --------------------------------------------------------------------------------------------------


def test_the_first_lines_say_what_was_found_at_which_load_and_what_to_do(write: Any) -> None:
    plain = write("plain.json", result(20.0, clients=1), result(30.0, clients=32))
    spec = write("spec.json", result(10.0, clients=1, drafts=True), result(26.0, clients=32, drafts=True))
    code, text = ran(plain, spec)
    head = " ".join(text.split("\n\n")[0].split())
    assert max(map(len, ran(plain, spec, "--verbose")[1].splitlines())) <= 80
    assert code == 0
    assert head.startswith("Faster: decoding is 2.00x (1.")
    assert " as fast at 1 client, 1.15x (1." in head
    assert "at 32 clients. Keep speculation on." in head
    assert max(map(len, text.splitlines())) <= 80


def test_each_load_has_both_speedups_ceiling_and_break_even() -> None:
    (load,) = compared([result(20.0)], [result(10.0, drafts=True, mean_ttft_ms=120.0)]).loads
    assert load.speedup is not None
    assert load.speedup.value == pytest.approx(2.0)
    assert load.tokens_per_second_ratio is not None
    assert load.tokens_per_second_ratio.value == pytest.approx((0.06 + 2.54) / (0.06 + 1.27))
    assert load.tokens_per_second_ratio.low is None  # one run does not tell how its tokens per second scatter
    assert load.ceiling == 2.5
    assert load.reached_ratio == pytest.approx(0.8)
    assert load.break_even_acceptance_length is not None
    assert load.break_even_acceptance_length.value == pytest.approx(1.25)
    assert load.candidate.acceptance_ratio == 0.5  # vLLM writes percent
    assert load.time_to_first_token_ratio == pytest.approx(2.0)


def test_a_load_that_loses_is_a_regression_whatever_others_gain(write: Any) -> None:
    plain = write("plain.json", result(20.0, clients=1), result(30.0, clients=128, duration=200.0))
    slower = result(36.0, clients=128, drafts=True, duration=200.0)
    spec = write("spec.json", result(10.0, clients=1, drafts=True), slower)
    code, text = ran(plain, spec, "--fail-on-regression")
    head = " ".join(text.split())
    assert code == 1
    assert head.startswith("Mixed by load: decoding is slower, 0.83x (")
    assert "; faster, 2.00x (" in head
    assert (
        "Drop speculation at 128 clients; keep it at 1 client. It stops paying between 1 and 128 clients, about 64 by"
        in head
    )
    assert ran(plain, spec)[0] == 0


@pytest.mark.parametrize(
    ("tpot", "outcome"), [(18.0, "faster"), (19.4, "inconclusive"), (20.6, "inconclusive"), (22.5, "slower")]
)
def test_one_run_cannot_tell_five_percent_apart(tpot: float, outcome: str) -> None:
    found = compared([result(20.0, duration=400.0)], [result(tpot, drafts=True, duration=400.0)])
    assert found.loads[0].outcome == found.decision.code == outcome
    assert "short_recording" in codes(found)
    assert found.decision.regression is (outcome == "slower")


def test_an_interval_is_never_narrower_than_two_runs_of_one_setting_differ() -> None:
    calm = [result(each, std_tpot_ms=0.001, duration=600.0) for each in (20.0, 20.001, 20.0, 19.999, 20.0)]
    (load,) = compared(calm, [{**each, **result(10.0, drafts=True, duration=600.0)} for each in calm]).loads
    assert load.speedup is not None
    assert load.speedup.low is not None
    assert load.speedup.value / load.speedup.low >= math.exp(1.95 * load_policy().chance.runs_differ)


def test_repeats_give_medians_and_their_scatter_the_interval() -> None:
    plain = [result(each) for each in (20.0, 20.4, 19.8, 20.1, 60.0)]
    spec = [result(each, drafts=True) for each in (10.0, 10.2, 9.9, 10.1, 10.0)]
    (load,) = compared(plain, spec).loads
    assert (load.baseline.runs, load.candidate.runs) == (5, 5)
    assert load.baseline.time_per_output_token_seconds == pytest.approx(0.0201)
    assert load.speedup is not None
    assert load.speedup.low is None or load.speedup.low < 1.2  # one run of five was far off
    (calm,) = compared(plain[:4], spec[:4]).loads
    assert calm.outcome == "faster"
    assert calm.tokens_per_second_ratio is not None
    assert calm.tokens_per_second_ratio.low is not None
    assert "few runs" not in str(compared(plain, spec).flags)


def test_two_runs_that_differ_widen_the_interval() -> None:
    def width(*baseline: float) -> float:
        found = compared([result(each) for each in baseline], [result(10.0, drafts=True)]).loads[0].speedup
        assert found is not None
        assert found.low is not None
        return found.value / found.low

    assert width(18.0, 22.0) > width(20.0, 20.0) + 0.05


def test_details_give_the_interval_by_batches_of_requests_in_the_order_of_their_start() -> None:
    source = random.Random(1)
    steady = [0.02 * source.lognormvariate(0.0, 0.1) for _ in range(240)]
    drifting = [each * (1.0 + i / 240) for i, each in enumerate(steady)]
    shuffled = source.sample(list(enumerate(drifting)), 240)
    mixed = detailed([each for _, each in shuffled], start_times=[float(i) for i, _ in shuffled])
    widths = []
    for document in (detailed(steady), detailed(drifting), mixed):
        found = compared([document], [detailed([each / 2 for each in steady])]).loads[0].speedup
        assert found is not None
        assert found.low is not None
        widths.append(found.value / found.low)
    assert widths[1] > widths[0] * 1.1
    assert widths[2] == pytest.approx(widths[1])


def test_a_slow_tail_behind_a_faster_mean_is_found_with_details() -> None:
    plain = detailed([0.02] * 400)
    spec = detailed([0.01] * 340 + [0.03] * 60) | {"start_times": [float(i * 7 % 400) for i in range(400)]}
    found = compared([plain], [spec])
    assert found.decision.code == "tail_worse"
    assert found.decision.regression
    assert "15.0% more requests than the baseline explains are slower than 26 ms" in " ".join(found.decision.reasons)
    for harmless in ([0.01] * 400, [0.01] * 340 + [0.024] * 60):  # texts with few accepted drafts gain less
        assert compared([plain], [detailed(harmless)]).decision.code != "tail_worse"


def test_at_a_fixed_rate_tokens_per_second_say_nothing() -> None:
    sides = [[result(tpot, clients=None, request_rate=4.0, drafts=tpot < 20)] for tpot in (20.0, 14.0)]
    found = compared(*sides)
    assert found.loads[0].tokens_per_second_ratio is None
    assert found.decision.headline.endswith("at 4 requests/s")
    assert "| same rate |" not in as_markdown(found)


def test_a_ramp_of_request_rates_is_a_load_of_its_own() -> None:
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 8, "max_concurrency": None}
    (load,) = compared([result(20.0) | ramp], [result(10.0, drafts=True) | ramp, result(10.0, drafts=True)]).loads
    assert (load.request_rate, load.tokens_per_second_ratio) == (8.0, None)


def test_where_tokens_per_second_contradict_decoding_a_reason_says_so() -> None:
    found = compared([result(20.0)], [result(15.0, drafts=True, output_throughput=300.0, mean_ttft_ms=1500.0)])
    assert found.decision.code == "faster"
    throughput, first_token = found.decision.reasons
    assert "tokens per second are 0.76x" in throughput
    assert "time to first token is 25.00x" in first_token
    assert "prompts_differ" in codes(found)  # vllm#50722: a prefix cache on one side


def test_a_candidate_that_accepts_half_as_often_can_be_faster() -> None:
    """vllm#48892: MTP with 1 and with 8 draft tokens, 64 clients."""
    one = result(
        37.18,
        clients=64,
        output_throughput=1646.15,
        spec_decode_num_drafts=246_348,
        spec_decode_draft_tokens=246_348,
        spec_decode_accepted_tokens=205_916,
    )
    eight = result(
        27.48,
        clients=64,
        output_throughput=2148.42,
        spec_decode_num_drafts=104_880,
        spec_decode_draft_tokens=839_040,
        spec_decode_accepted_tokens=356_839,
    )
    found = compared([one], [eight])
    assert found.decision.code == "faster"
    assert found.loads[0].candidate.acceptance_ratio == pytest.approx(0.4253, abs=1e-4)
    assert found.loads[0].candidate.mean_acceptance_length == pytest.approx(4.40, abs=0.01)


def test_without_a_limit_all_prompts_are_the_load() -> None:
    (load,) = compared([result(20.0, clients=None)], [result(10.0, clients=None, drafts=True)]).loads
    assert (load.clients, load.request_rate) == (400, None)


# --- Which side a result is on, and what is not alike -----------------------------------------------------------------


def test_more_than_two_files_are_told_apart_by_their_figures_of_speculation(write: Any) -> None:
    files = [
        write(f"{drafts}{clients}.json", result(10.0 if drafts else 20.0, clients=clients, drafts=drafts))
        for drafts in (True, False)
        for clients in (1, 8)
    ]
    assert ran(*files)[1].startswith("Faster: decoding is 2.00x")
    for unclear, words in ((files[:2] * 2, "all have them"), (files[2:] * 2, "none has them")):
        assert words in (line := refused(*unclear))
        assert "give two folders" in line


def test_a_folder_has_one_result_per_load_and_the_other_files_of_a_sweep_do_not_count(
    write: Any, tmp_path: Path
) -> None:
    for side, tpot in (("plain", 20.0), ("spec", 10.0)):
        for clients in (1, 8):
            run = result(tpot, clients=clients, drafts=side == "spec") | {"run_number": 0, "speculative_config": {}}
            folder = f"{side}/SERVE-{side}-BENCH-{clients}"
            write(f"{folder}/run=0.json", run)
            write(f"{folder}/summary.json", [run])
            write(f"{folder}/warmup.json", result(99.0, clients=clients))
            write(f"{folder}/run=1.failure.json", {"error": "x"})
        write(f"{side}/config.json", [1])
        write(f"{side}/notes.json", {"a": 1})
    _, text = ran(tmp_path / "plain", tmp_path / "spec", "--output", "json")
    loads = json.loads(text)["loads"]
    assert [(each["clients"], each["baseline"]["runs"]) for each in loads] == [(1, 1), (8, 1)]


def test_a_load_of_one_side_is_named_and_not_compared() -> None:
    found = compared([result(20.0, clients=1), result(20.0, clients=8)], [result(10.0, clients=1, drafts=True)])
    assert [each.clients for each in found.loads] == [1]
    assert "only the baseline ran at 8 clients: not compared" in [flag.message for flag in found.flags]


def test_two_files_at_other_loads_decide_nothing(write: Any) -> None:
    plain, spec = write("p.json", result(20.0, clients=1)), write("s.json", result(2.0, clients=8, drafts=True))
    code, text = ran(plain, spec, "--fail-on-regression")
    assert code == 1
    assert " ".join(text.split()).startswith(
        "Nothing is decided: no load is in both, the baseline at 1 client and the candidate at 8 clients."
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hardware": "1x H100"}, "settings_differ"),
        ({"rtfx": None}, None),
        ({"backend": "openai-chat"}, "settings_differ"),
        ({"burstiness": 0.5}, "settings_differ"),
        ({"total_input_tokens": 44_000}, "prompts_differ"),
        ({"num_prompts": 500}, "prompts_differ"),
        ({"total_output_tokens": 60_000}, "answers_differ"),
        ({"failed": 3}, "requests_failed"),
        ({"mean_tpot_ms": 4.0, "std_tpot_ms": 0.1}, "settings_differ"),
        ({"completed": 50, "total_input_tokens": 5000, "total_output_tokens": 6400}, "short_recording"),
        ({"spec_decode_draft_tokens": 0, "spec_decode_accepted_tokens": 0, "spec_decode_num_drafts": 0}, None),
    ],
)
def test_what_is_not_alike_is_flagged(changes: dict[str, Any], code: str | None) -> None:
    plain = [result(20.0, hardware="1x L4") for _ in range(3)]
    usual = [result(12.0, drafts=True, hardware="1x L4") | changes for _ in range(3)]
    found = codes(compared(plain, usual))
    expected = {"context_missing", code} if code else {"context_missing"}
    assert expected <= {*found}


def test_a_result_of_another_release_is_flagged_and_tells_nothing_of_drafts() -> None:
    old = {key: value for key, value in result(10.0).items() if key not in ("latencies", "rtfx")}
    found = compared([result(20.0)], [old])
    assert found.candidate.speculates is None
    assert {"settings_differ", "drafts_not_known"} <= {*codes(found)}
    assert found.loads[0].ceiling is None
    slow = without(result(10.0, mean_ttft_ms=90.0), "rtfx")
    assert compared([result(20.0)], [slow]).decision.reasons == (
        "8 clients: the time to first token is 1.50x the baseline's",
    )
    assert found.decision.action == (
        "Use the candidate's settings. These results do not tell whether speculation itself pays."
    )


def test_against_a_baseline_that_drafts_there_is_no_ceiling() -> None:
    found = compared([result(20.0, drafts=True)], [result(10.0, drafts=True)])
    assert found.loads[0].ceiling is None
    assert "baseline_speculates" in codes(found)


def test_other_prompts_decide_nothing() -> None:
    found = compared([result(20.0)], [result(5.0, drafts=True, total_input_tokens=400_000)])
    assert found.decision.code == "undecided"
    assert found.decision.headline.startswith("Not known at 8 clients: prompts are 10.0 times as long")


def test_metadata_gives_the_five_fields_of_a_report() -> None:
    given: dict[str, Any] = {
        "hardware": "1x L4",
        "runtime": "vLLM 0.33.0",
        "request_parameters": "greedy",
        "command": "vllm serve x",
    }
    found = compared([result(20.0, **given)], [result(10.0, drafts=True, **given)])
    assert "context_missing" not in codes(found)
    text = as_markdown(found)
    assert text.count("```\nvllm serve x\n```") == 2
    assert "| hardware | 1x L4 | 1x L4 |" in text
    assert "| 8 clients | 60 ms | 60 ms |" in text
    (flag,) = [each for each in compared([result(20.0)], [result(10.0)]).flags if each.code == "context_missing"]
    assert "hardware, runtime, request parameters, command" in flag.message
    assert '--metadata hardware="1x L4"' in flag.action


def test_two_models_are_not_compared_and_two_quantisations_are_one_model() -> None:
    assert compared([result(20.0)], [result(10.0, model_id="Qwen3-8B-AWQ")]).loads
    with pytest.raises(ComparisonError, match=r"one model, found model_id 'Qwen/Qwen3-8B' in .* and 'gpt-oss-20b'"):
        compared([result(20.0)], [result(10.0, model_id="gpt-oss-20b")])


def folders(write: Any, **sides: Sequence[Mapping[str, Any]]) -> list[Path]:
    """A folder for each side, a file for each result."""
    return [[write(f"{name}/{i}.json", run) for i, run in enumerate(side)].pop().parent for name, side in sides.items()]


def headline(*arguments: str | Path) -> str:
    """The text of a comparison on one line."""
    return " ".join(ran(*arguments)[1].split())


def test_one_folder_or_file_that_holds_both_sides_is_split_by_drafts(write: Any) -> None:
    both = [result(20.0), result(10.0, drafts=True)]
    (folder,) = folders(write, both=both)
    assert ran(folder)[1].startswith("Faster: decoding is 2.00x")
    assert ran(write("appended.json", *both))[1].startswith("Faster: decoding is 2.00x")
    more = folders(
        write, one=[result(20.0), result(10.0, drafts=True)], other=[result(20.1), result(10.1, drafts=True)]
    )
    assert "2 runs" in headline(*more)
    assert "none has them" in refused(write("one.json", result(20.0)))


def test_a_side_that_mixes_is_refused_and_names_both_files(write: Any) -> None:
    (mixed,) = folders(write, mixed=[result(20.0), result(10.0, drafts=True)])
    line = refused(write("plain.json", result(20.1)), mixed)
    assert f"found {mixed}/0.json without drafts beside {mixed}/1.json with them" in line


def test_one_recording_is_not_enough() -> None:
    recording = FIXTURES / "recordings" / "gain" / "plain.yaml"
    assert refused(recording).startswith(f"expected two recordings or more, found one: {recording}")


def test_swapped_sides_are_put_in_order(write: Any) -> None:
    spec, plain = write("spec.json", result(36.0, drafts=True)), write("plain.json", result(20.0))
    code, text = ran(spec, plain, "--fail-on-regression")
    assert code == 1
    assert text.startswith("Slower: decoding is 0.56x")
    assert "Flags: order_swapped" in text
    old = without(result(20.0), "latencies", "rtfx")
    found = compared([result(36.0, drafts=True)], [old])  # it may have drafted
    assert {"baseline_speculates", "drafts_not_known"} <= {*codes(found)}
    assert "order" not in f"{found.decision} {found.flags}"


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def test_a_baseline_older_than_the_counts_of_drafts_is_not_one_without_drafts() -> None:
    old = without(result(16.0), "latencies", "rtfx")
    found = compared([old], [result(20.0, drafts=True)])
    (load,) = found.loads
    assert "drafts_not_known" in codes(found)
    assert load.break_even_acceptance_length is not None  # 3.1 of k + 1 = 4
    found = compared([old], [result(20.0, drafts=True, spec_decode_accepted_tokens=50_000)])
    assert found.decision.action.startswith("Use the baseline's settings. These results do not tell whether")
    (load,) = found.loads
    assert (load.reached_ratio, load.break_even_acceptance_length) == (None, None)  # 4.4
    assert "drafts_not_known" not in codes(compared([result(16.0)], [result(20.0, drafts=True)]))


@pytest.mark.parametrize("changes", [{"mean_tpot_ms": 4.0}, {"failed": 30}])
def test_impossible_figures_and_undecided_loads_have_no_break_even(changes: dict[str, Any]) -> None:
    found = compared([result(20.0)], [result(10.0, drafts=True) | changes])
    assert (found.loads[0].reached_ratio, found.loads[0].break_even_acceptance_length) == (None, None)
    assert "| 50.0% | 2.50 | - | - |" in as_markdown(found)


def test_the_next_step_says_at_which_loads_nothing_is_known(write: Any) -> None:
    plain = write("plain.json", *(result(20.0, clients=clients) for clients in (1, 4, 8)))
    tpots = {1: 10.0, 4: 19.8, 8: 9.0}
    spec = [result(tpot, clients=clients, drafts=True) for clients, tpot in tpots.items()]
    spec[2]["failed"] = 40
    found = compare_bench(parse_results(plain.read_bytes(), "plain"), parsed(*spec), load_policy())
    assert found.decision.code == "faster"
    head = re.sub(r" \([^)]*\)", "", found.decision.headline)
    assert head == (
        "Mixed by load: decoding is faster, 2.00x as fast at 1 client; not shown to differ, 1.01x as fast at 4 "
        "clients. Not known at 8 clients: 40 requests failed, so the load was another"
    )
    assert found.decision.action == (
        "Keep speculation at 1 client; at 4 clients and 8 clients it is not known whether it pays: repeat the runs."
    )
    stream = io.StringIO()
    print_bench(Console(file=stream, force_terminal=True, color_system="standard"), found)
    assert "\x1b[1;33mMixed" in stream.getvalue()  # not green


def test_no_difference_is_said_without_an_order_of_time() -> None:
    plain, spec = (
        [result(each, drafts=drafts) for each in (20.0, 20.01, 19.99, 20.0, 20.02)] for drafts in (False, True)
    )
    assert compared(plain, spec).decision.headline.startswith("No faster, no slower: decoding is 1.00x")


def test_a_run_counts_once(write: Any) -> None:
    one = result(20.0)
    spec = write("spec.json", result(10.0, drafts=True))
    line = refused(write("a.json", one), write("b.json", one), spec)
    assert re.fullmatch(r"expected each run once, found one run twice: \S+/a.json and \S+/b.json", line)
    assert "found one run twice" in refused(spec, spec)


def test_acceptance_that_differs_by_load_is_flagged() -> None:
    plain = [result(20.0, clients=clients) for clients in (1, 4)]
    found = compared(
        plain,
        [
            result(10.0, clients=1, drafts=True),
            result(10.0, clients=4, drafts=True, spec_decode_accepted_tokens=8_000),
        ],
    )
    (flag,) = [each for each in found.flags if each.code == "prompts_differ"]
    assert flag.message.startswith("acceptance differs by load (50.0% at 1 client, 13.3% at 4 clients)")


def test_a_sound_answer_has_short_flags_that_fit_any_benchmark(write: Any) -> None:
    for plain, spec in ((result(20.0), result(10.0, drafts=True)), (aiperf(20.0), aiperf(10.0))):
        text = ran(write("plain.json", plain), write("spec.json", spec))[1]
        flags = text.partition("Read the result with care\n")[2].split("WARN")[1:]
        assert max(each.count("\n") for each in flags) <= 3
        assert "--save-detailed" not in text
    few = compared([result(20.0, completed=50)], [result(10.0, completed=60, drafts=True)])
    (flag,) = [each for each in few.flags if each.code == "short_recording"]
    assert flag.message.startswith("as few as 1 run and 50 requests a side")


def test_pipes_are_read_once_and_other_files_are_named(write: Any, tmp_path: Path) -> None:
    good = write("good.json", result(10.0, drafts=True))
    assert "/dev/null: expected a result of" in refused("/dev/null", good)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(json.dumps(result(20.0)),))
    writer.start()
    assert ran(pipe, good)[1].startswith("Faster")
    writer.join()
    (tmp_path / "a.csv").write_text("Metric,avg\nx,1\n")
    assert "a.csv: expected JSON of a benchmark from line 1 on" in refused(tmp_path / "a.csv", good)


# --- What is read and what is refused ---------------------------------------------------------------------------------


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


def aiperf(tpot: float = 20.0, **changes: Any) -> dict[str, Any]:
    """An export of AIPerf 0.13.0: the same run as :func:`result` has, with fixed clients."""
    run = result(tpot)
    scalar = {name: {"unit": "", "avg": float(run[key])} for name, key in AIPERF.items()}
    phases = [{"name": kind, "kind": kind, "type": "concurrency", "concurrency": 8} for kind in ("warmup", "profiling")]
    made: dict[str, Any] = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "time_to_first_token": {"unit": "ms", "avg": 60.0, "p99": 90.0, "std": 9.0, "count": 400},
        "inter_token_latency": {"unit": "ms", "avg": tpot, "p99": tpot * 1.4, "std": tpot / 5, "count": 400},
        "input_config": {
            "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
            "endpoint": {"type": "completions", "extra": {"max_tokens": 128, "temperature": 0}},
            "phases": phases,
        },
        "was_cancelled": False,
        "is_complete": True,
    }
    return made | scalar | changes


AIPERF = {
    "request_count": "completed",
    "benchmark_duration": "duration",
    "total_isl": "total_input_tokens",
    "total_osl": "total_output_tokens",
    "output_token_throughput": "output_throughput",
}


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
        text = as_markdown(compared([result(20.0)], [hostile]))
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
        assert as_markdown(found).startswith("# ")


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
    assert set(get_args(DecisionCode)) <= named
