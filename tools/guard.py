#!/usr/bin/env python3
"""Show that a change of the package's insides leaves its numbers as they are.

``tools/guard.py [REVISION]`` runs the exporter of REVISION (old) and of this tree (new), both with this Python and its
packages, over all fixtures, and compares what they give out: snapshots of all dumps, events of all logs, expositions
and status documents of ``serve``, ``check``, ``analyze``, ``compare``, and the expressions of all rules.

``serve`` follows two predictors per dump of ``/metrics``: one without a baseline, one with. They are looked at three
times: while nothing can be fetched, with the dump before this one and half of the log, and with this dump and the rest.

These are left out: HELP lines, order, times, the release, the families of the process, and what was removed on purpose
(``GONE_*``, each a line of the changelog). Sentences of the status documents and the report of ``analyze`` may be
reworded: they are counted, and ``--words`` shows them.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FIRST = "49fca592"
BASELINE_MODEL = "simulated/target-8b"
FORMATS = {"text": "text/plain;version=0.0.4", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}
SHORT_WINDOW_SECONDS = 61.0  # history begins after the policy's short_window_seconds
INTERVAL_SECONDS = 20.0  # long enough to be kept as a sample of its own, and as an interval of a load
READ_SECONDS = 60.0

LEFT_OUT = re.compile(r"# HELP |(# TYPE )?(process|python)_")
LEFT_OUT_QUICKLY = re.compile(LEFT_OUT.pattern + "|(# TYPE )?specdec_load_")  # an interval may be too short for a load
TIMES = re.compile(
    r"(specdec_(?:scrape_collector_duration|log_reader_last\w+|exporter_config\w+|load\w*)_seconds\w*(?:{.*})?) \S+"
)
RELEASE = re.compile(r'(specdec_exporter_build_info{.*?version)="[^"]*"')
# With what comes from the seconds between two looks, which differ by some milliseconds.
TIME_KEYS = {"generated_at", "age_seconds", "last_line_timestamp", "seconds", "timestamp", "exporter_version"}
TIME_KEYS |= {"verdict_since", "since", "history", "requests", "high", "low", "concurrency", "by_load"}
CONCURRENCY = re.compile(r'concurrency="\d+"')
# Removed on purpose: from the old side these are left out before both are compared: keys of the status documents,
# families of /metrics, alerts and records.
GONE_KEYS: set[str] = set()
GONE_FAMILIES = re.compile("specdec_log_reader_gaps")
GONE_RULES: set[str] = set()
SENTENCE_KEYS = {"action", "headline", "meaning", "problem", "reasons", "refusal", "releases", "remarks", "up_reason"}

Documents = dict[str, list[str]]  # what it is -> its lines


@dataclass
class Side:
    """One of the two exporters, and what it gave out."""

    name: str
    package: Path
    scratch: Path
    quick: bool
    seen: defaultdict[str, Documents] = field(default_factory=lambda: defaultdict(dict))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SPECDEC_")}
        return subprocess.Popen(  # noqa: S603  our own package
            [sys.executable, "-m", "specdec_exporter", *arguments],
            env=environment | {"PYTHONPATH": str(self.package)},
            cwd=self.scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, kind: str, name: str, *arguments: str) -> None:
        """Run a command to its end and note its exit code and output; of ``check`` the exit code alone."""
        with self.start(*arguments) as process:
            output, _ = process.communicate()
        self.seen[kind][name] = [f"exit code {process.returncode}", *(output.splitlines() if kind != "checks" else ())]

    @contextmanager
    def serving(self, config: Path) -> Iterator[str]:
        """Run ``serve``; gives its URL."""
        with self.start("serve", f"--config.file={config}", "--web.listen-address=127.0.0.1:0") as process:
            assert process.stderr is not None  # noqa: S101  start() asks for it
            try:
                said = ""
                while "msg=ready" not in said and (line := process.stderr.readline()):
                    said += line
                address = re.search(r"msg=listening address=(\S+)", said)
                if address is None:
                    sys.exit(f"the {self.name} exporter did not start:\n{said}")
                threading.Thread(target=process.stderr.read, daemon=True).start()
                yield f"http://{address[1]}"
            finally:
                process.terminate()

    def look(self, url: str, stage: str) -> None:
        """Note what ``serve`` shows of each predictor; what is said of none is the exporter's."""
        for name, accept in FORMATS.items():
            for line in get(f"{url}/metrics", accept).splitlines():
                family = line.removeprefix("# TYPE ")
                left_out = LEFT_OUT_QUICKLY if self.quick else LEFT_OUT
                if not left_out.match(line) and not GONE_FAMILIES.match(family):
                    predictor = re.search(r'inference_service="(.*?)"', line)
                    title = f"{predictor[1] if predictor else 'the exporter'}: {stage}, {name}"
                    shown = TIMES.sub(r"\1 *", CONCURRENCY.sub('concurrency="*"', line))
                    shown = RELEASE.sub(r'\1="*"', shown)
                    self.seen["expositions"].setdefault(title, []).append(shown)
        for lines in self.seen["expositions"].values():
            lines.sort()
        status = json.loads(get(f"{url}/api/v1/status"))
        for part in (*status.pop("predictors"), status):
            title = f"{part.get('inference_service', 'the exporter')}: {stage}, status"
            self.seen["status documents"][title] = listed(part, sentences=False)
            self.seen["sentences"][title] = listed(part, sentences=True)


def listed(document: Any, *, sentences: bool) -> list[str]:
    """The document's lines without times, and with either its sentences or all else left out."""

    def chosen(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: chosen(each, name) for name, each in value.items() if name not in GONE_KEYS}
        if isinstance(value, list) and key not in SENTENCE_KEYS | TIME_KEYS:
            return [chosen(each, key) for each in value]
        wanted = key not in TIME_KEYS and (key in SENTENCE_KEYS) is sentences
        return value if wanted or value is None else "*"

    return json.dumps(chosen(document), indent=1, sort_keys=True).splitlines()


@dataclass(frozen=True)
class Dump:
    """One saved answer of ``/metrics``, the one saved before it (or itself), and what lies beside it."""

    name: str
    path: Path
    before: Path
    log: Path | None
    version: Path | None


def find_dumps(fixtures: Path) -> list[Dump]:
    """Every dump among the fixtures. Those of one folder follow each other, V0's and V1's apart."""
    last: dict[tuple[Path, bool], Path] = {}
    dumps = []
    for path in sorted(fixtures.rglob("metrics*.txt")):
        place = (path.parent, "-v0-" in path.name)
        log, version = (each if each.exists() else None for each in map(path.with_name, ("server.log", "version.txt")))
        dumps.append(Dump(str(path.relative_to(fixtures)), path, last.get(place, path), log, version))
        last[place] = path
    return dumps


SNAPSHOTS = """
import asyncio, sys
import msgspec
from specdec_exporter.predictor.metrics.fetch import FetchError, MetricsFetcher, open_session

async def main(urls):
    async with open_session() as session:
        for url in urls:
            for lengths in (False, True):
                try:
                    found = await MetricsFetcher(session, url, lengths=lengths).fetch(60.0)
                    print(msgspec.json.encode(found).decode())
                except FetchError as error:
                    print("refused:", error.reason)

asyncio.run(main(sys.argv[1:]))
"""


class Player(ThreadingHTTPServer):
    """Plays the dumps at ``/WHO/NUMBER/metrics``: to ``serve`` by stage, to each ``check`` the one before it first."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, dumps: list[Dump]) -> None:
        super().__init__(("127.0.0.1", 0), PlayerRequest)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.dumps = dumps
        self.stage = "unreachable"
        self.fetches: Counter[str] = Counter()

    def body(self, path: str) -> bytes | None:
        """Return what is at ``path`` now."""
        who, number, endpoint = path.strip("/").split("/", 2)
        dump = self.dumps[int(number)]
        if endpoint == "version":
            return dump.version.read_bytes() if dump.version else None
        if endpoint != "metrics" or (who == "serve" and self.stage == "unreachable"):
            return None
        self.fetches[path] += 1
        before = self.stage == "before" if who == "serve" else who == "check" and self.fetches[path] == 1
        return (dump.before if before else dump.path).read_bytes()


class PlayerRequest(BaseHTTPRequestHandler):
    """One request to the player."""

    server: Player

    def do_GET(self) -> None:
        """Answer with the body, or that there is none."""
        body = self.server.body(self.path)
        self.send_response(503 if body is None else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def get(url: str, accept: str = "*/*") -> str:
    """Return what is at ``url``."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as response:  # noqa: S310
        return str(response.read().decode())


def wait_for_logs(url: str, predictors: list[dict[str, Any]]) -> None:
    """Return once every log has been read to its end."""
    sizes = {
        predictor["name"]: Path(path).stat().st_size for predictor in predictors for path in predictor["log_paths"]
    }
    deadline = time.monotonic() + READ_SECONDS
    read: dict[str, int] = {}
    while read != sizes:
        if time.monotonic() > deadline:
            sys.exit(f"{url} did not read its logs within {READ_SECONDS:g} s")
        time.sleep(0.1)
        samples = re.findall(r'specdec_log_reader_bytes_total{inference_service="(.*?)"} (\S+)', get(f"{url}/metrics"))
        read = {name: int(float(value)) for name, value in samples}


def look_at_serve(old: Side, new: Side, player: Player, folder: Path, *, quick: bool) -> None:
    """Follow the predictors with both exporters at the same time."""
    recording = (folder / "old/deploy/demo/baseline.yaml").read_text()
    logs = {dump.log: folder / dump.log.parent.name for dump in player.dumps if dump.log}
    for log, copy in logs.items():
        content = log.read_bytes()
        copy.write_bytes(content[: content.find(b"\n", len(content) // 2) + 1])
    predictors = []
    for number, dump in enumerate(player.dumps):
        plain: dict[str, Any] = {
            "name": dump.name,
            "url": f"{player.url}/serve/{number}",
            "timeout": "60s",
            "log_from": "start",
        }
        plain |= {"log_paths": [str(logs[dump.log])] if dump.log else []}
        model = re.search(r'model_name="([^"]+)"', dump.path.read_text())
        baseline = folder / f"baseline-{number}.yaml"
        baseline.write_text(recording.replace(BASELINE_MODEL, model[1]) if model else recording)
        predictors += [plain, plain | {"name": f"{dump.name} with a baseline", "baseline": str(baseline)}]
    config = folder / "config.yaml"
    config.write_text(json.dumps({"predictors": predictors}))

    def wait_and_look() -> None:
        for side, url in sides:
            wait_for_logs(url, predictors)
            side.look(url, player.stage)

    with old.serving(config) as old_url, new.serving(config) as new_url:
        sides = ((old, old_url), (new, new_url))
        wait_and_look()
        player.stage = "before"
        wait_and_look()
        for log, copy in logs.items():
            with copy.open("ab") as file:
                file.write(log.read_bytes()[copy.stat().st_size :])
        for _, url in sides:
            wait_for_logs(url, predictors)
            get(f"{url}/metrics")  # a scrape samples what of the log was read before it
        if not quick:
            time.sleep(SHORT_WINDOW_SECONDS)
            for _, url in sides:
                get(f"{url}/metrics")  # what grows now grew within the window that decides whether it drafts
            time.sleep(INTERVAL_SECONDS)
        player.stage = "after"
        wait_and_look()


def look_at_snapshots(sides: Sequence[Side], player: Player) -> None:
    """Note the snapshot of every dump."""
    urls = [f"{player.url}/snapshots/{number}" for number in range(len(player.dumps))]
    for side in sides:
        command = [sys.executable, "-c", SNAPSHOTS, *urls]
        environment = os.environ | {"PYTHONPATH": str(side.package)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
        lines = done.stdout.splitlines()
        for number, dump in enumerate(player.dumps):
            side.seen["snapshots"][dump.name] = [
                json.dumps(json.loads(line), sort_keys=True) if line.startswith("{") else line
                for line in lines[2 * number : 2 * number + 2]
            ]


def look_at_rules(sides: Sequence[Side]) -> None:
    """Note what every rendered rule says, but for its annotations."""
    for side in sides:
        for path in sorted((side.package.parent / "rules/rendered").glob("*.rules.yaml")):
            for group in yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["groups"]:
                for rule in group["rules"]:
                    name = rule.get("alert") or rule["record"]
                    if name not in GONE_RULES:
                        rule.pop("annotations", None)
                        title = f"{path.name}: {group['name']}: {name}"
                        rules = side.seen["rules"].setdefault(title, [])
                        rules += json.dumps({"interval": group.get("interval"), **rule}, sort_keys=True).splitlines()


def look_at_commands(sides: Sequence[Side], player: Player, folder: Path, *, quick: bool) -> None:
    """Run ``analyze`` on all logs and responses, ``check`` on all dumps, and what reads recordings on the demo's."""
    fixtures = folder / "old/tests/fixtures"
    cases = folder / "logcases.log"
    lines = (fixtures / "logcases.jsonl").read_text().splitlines()
    cases.write_text("".join(f"{json.loads(line)['line']}\n" for line in lines))
    inputs = [[str(path)] for path in (cases, *sorted(fixtures.rglob("*.log")))]
    inputs += [["--responses", str(path)] for path in fixtures.rglob("responses/*.jsonl")]
    runs: list[tuple[str, ...]] = []
    for given in inputs:
        title = f"analyze {given[-1].removeprefix(f'{fixtures}/').removeprefix(f'{folder}/')}"
        runs.append(("logs", title, "analyze", "--output", "jsonl", *given))
        runs.append(("reports", title, "analyze", "--output", "text", *given))
    for number, dump in enumerate(() if quick else player.dumps):
        log = ["LOG", str(dump.log)] if dump.log else []
        runs.append(("checks", f"check {dump.name}", "check", f"{player.url}/check/{number}", "--window=100ms", *log))
    recordings = [str(folder / f"old/deploy/demo/{name}.yaml") for name in ("before", "baseline")]
    for order in (recordings, recordings[::-1]):
        names = " and ".join(Path(path).stem for path in order)
        runs.append(("recordings", f"compare {names}", "compare", "--output=json", *order))
    runs += [("recordings", f"show {path}", "baseline", "show", "--output=json", path) for path in recordings]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for side in sides:
            player.fetches.clear()
            options = side.start("check", "--help").communicate()[0]
            spelt = {"LOG": "--predictor.log-path" if "--predictor.log-path" in options else "--log-path"}
            for done in [pool.submit(side.run, *(spelt.get(word, word) for word in run)) for run in runs]:
                done.result()


def differences(sides: Sequence[Side], *kinds: str) -> list[str]:
    """Return a unified diff of each document that differs."""
    found = []
    for kind in kinds:
        old, new = (side.seen[kind] for side in sides)
        for name in sorted(old.keys() | new.keys()):
            before, after = old.get(name, []), new.get(name, [])
            if before != after:
                diff = difflib.unified_diff(before, after, f"old {name}", f"new {name}", n=1, lineterm="")
                found.append("\n".join(diff))
    return found


def git(*arguments: str) -> str:
    """Run git in this tree; return what it says."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()  # noqa: S603


def main() -> int:
    """Compare; return the exit code."""
    parser = argparse.ArgumentParser(description="Compare the exporter's outputs with those of an older revision.")
    parser.add_argument("revision", nargs="?", default=FIRST, help=f"default: {FIRST}")
    parser.add_argument("--quick", action="store_true", help="leave out `check` and the minute before the last look")
    parser.add_argument("--words", action="store_true", help="show the differences of sentences and reports, too")
    arguments = parser.parse_args()
    revision = git("rev-parse", "--short", arguments.revision)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git("worktree", "add", "--quiet", "--detach", f"{folder}/old", revision)
        try:
            old = Side("old", folder / "old/exporter", folder, arguments.quick)
            new = Side("new", ROOT / "exporter", folder, arguments.quick)
            sides = (old, new)
            player = Player(find_dumps(folder / "old/tests/fixtures"))
            threading.Thread(target=player.serve_forever, daemon=True).start()
            look_at_rules(sides)
            look_at_snapshots(sides, player)
            look_at_commands(sides, player, folder, quick=arguments.quick)
            look_at_serve(old, new, player, folder, quick=arguments.quick)
        finally:
            git("worktree", "remove", "--force", f"{folder}/old")
    judged = ("rules", "snapshots", "logs", "checks", "recordings", "expositions", "status documents")
    wrong = differences(sides, *judged)
    reworded = differences(sides, "sentences", "reports")
    for each in (*wrong, *(reworded if arguments.words else ())):
        sys.stdout.write(f"{each}\n\n")
    counts = ", ".join(f"{len(sides[0].seen[kind])} {kind}" for kind in judged)
    verdict = f"{len(wrong)} differ from" if wrong else "the same as"
    sys.stdout.write(f"{counts}: {verdict} {revision} ({len(reworded)} sets of sentences and reports are reworded)\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
