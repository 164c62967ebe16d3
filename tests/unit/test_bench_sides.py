"""Which side a result of a benchmark is on, and what is not alike."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specdec_exporter.comparison.bench import compare_bench
from specdec_exporter.errors import ComparisonError
from specdec_exporter.predictor.benchresult import parse_results
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.bench import report
from specdec_exporter.terminal.sections import as_markdown, print_report
from support.benchruns import aiperf, codes, compared, parsed, ran, refused, result
from support.builders import FIXTURES


def test_more_than_two_files_are_told_apart_by_their_figures_of_speculation(write: Any) -> None:
    files = [
        write(f"{drafts}{clients}.json", result(10.0 if drafts else 20.0, clients=clients, drafts=drafts))
        for drafts in (True, False)
        for clients in (1, 8, 16)
    ]
    assert ran(*files)[1].startswith("Faster: decoding is 2.00x")
    for unclear, words in ((files[:3], "all have them"), (files[3:], "none has them")):
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
    text = as_markdown(report(found))
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
    assert "| 50.0% | 2.50 | - | - |" in as_markdown(report(found))


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
    print_report(Console(file=stream, force_terminal=True, color_system="standard"), report(found), verbose=False)
    assert "\x1b[1;33mMixed" in stream.getvalue()  # not green


def test_no_difference_is_said_without_an_order_of_time() -> None:
    plain, spec = (
        [result(each, drafts=drafts) for each in (20.0, 20.01, 19.99, 20.0, 20.02)] for drafts in (False, True)
    )
    assert compared(plain, spec).decision.headline.startswith("No faster, no slower: decoding is 1.00x")


def test_a_run_counts_once(write: Any) -> None:
    one = result(20.0)
    spec = write("spec.json", result(10.0, drafts=True))
    line = refused(write("a.json", one), write("b.json", one, result(21.0)), spec)
    assert re.fullmatch(r"expected each run once, found one run twice: \S+/a.json and \S+/b.json, result 1", line)
    assert f"expected different files, found {spec} twice" in refused(spec, spec)


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
