"""The record of one predictor: all that is kept between two looks. :mod:`observing` alone changes it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from specdec_exporter.baseline.pinned import NOT_SEEN, Fit, PinnedBaseline
from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import StartFailure
from specdec_exporter.predictor.log.totals import LogTotals
from specdec_exporter.predictor.metrics.processes import Processes
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot, Speculator
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.evidence import DecodingBaseline
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.speculation.policy import Policy, load_policy
from specdec_exporter.state.drafts import DraftSources
from specdec_exporter.state.history import History
from specdec_exporter.state.lastword import Remembered
from specdec_exporter.state.loads import EngineLoads, LoadCounters
from specdec_exporter.state.running import Running
from specdec_exporter.state.traffic import TrafficWindow
from specdec_exporter.state.windows import SampleRing


@dataclass(slots=True)
class EngineTrack:
    """One engine, of one process. ``ratios`` counts its short windows by their acceptance rate, of all processes."""

    ring: SampleRing
    snapshot: EngineSnapshot  # its last answer
    loads: EngineLoads
    ratios: HistogramCounter
    short_window_start: float = -math.inf  # monotonic
    short_window_totals: Counts | None = None


@dataclass(slots=True)
class PredictorState:
    """Everything known of one predictor. Not thread-safe: it lives in the event loop.

    ``url`` is without credentials. ``clock`` gives monotonic seconds, ``wall_clock`` Unix seconds, both of the
    exporter's machine. Without a ``reader`` no log is read.
    """

    name: str
    url: str = ""
    _: KW_ONLY
    window_seconds: float = 300.0
    policy: Policy = field(default_factory=load_policy)
    reader: ReaderCounters | None = None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    born: float = field(init=False)  # monotonic

    # The last fetch.
    up: bool = False
    up_reason: str | None = "not read yet"  # in words
    asked: bool = False  # a fetch has ended, well or not
    snapshot: Snapshot | None = None  # None if the last fetch failed
    lost: bool = False  # nothing answered since the last answer

    # What answers.
    processes: Processes = field(default_factory=Processes)
    restarts: int = 0
    settled_at: float = -math.inf  # monotonic: until then the process is in its slow first time
    inference_engine: InferenceEngine | None = None  # the last that answered
    version_asked: bool = False  # since the last restart that was seen
    version: str | None = None  # of an engine other than vLLM
    dropped_figures: Counter[str] = field(default_factory=Counter)  # what the metrics held beyond a bound

    # Its engines, by model and name.
    tracks: dict[tuple[str, str], EngineTrack] = field(default_factory=dict)
    engines_told: int = 0  # by the last snapshot, with those that were left out
    positions: int = 0  # of the last snapshot
    k_since: float = -math.inf  # monotonic: the metrics told another k before
    last_worked: dict[str, float] = field(default_factory=dict)  # by engine, monotonic; the longest idle first
    draft_sources: DraftSources = field(default_factory=DraftSources)

    # Its served models, by name.
    loads: dict[str, LoadCounters] = field(default_factory=dict)
    traffic: dict[str, TrafficWindow] = field(default_factory=dict)

    # Its log.
    running: Running = field(default_factory=Running)
    failed_start: StartFailure | None = None  # the last one, while nothing shows that a later start succeeded
    log: LogTotals = field(default_factory=LogTotals)
    log_rings: dict[str, SampleRing] = field(default_factory=dict)  # by engine
    warnings: Counter[str] = field(default_factory=Counter)

    # Its baseline: the file, what fits of it, and what the last minutes give against it.
    pinned: PinnedBaseline | None = None
    fit: Fit = NOT_SEEN
    seen: Snapshot | None = None  # the last one with an engine
    baseline: DecodingBaseline | None = None
    cost: Measured | None = None
    cost_seconds: float = 0.0  # of those minutes, what was seen
    last_even: BreakEven | None = None  # the assumed break-even of the last reading

    # What was said.
    history: History = field(default_factory=History)
    remembered: Remembered | None = None  # None: nothing was said yet

    def __post_init__(self) -> None:
        self.born = self.clock()

    @property
    def counted(self) -> bool:
        """Whether the last fetch gave statistics."""
        return self.snapshot is not None and self.snapshot.stats_present

    @property
    def process_count(self) -> int:
        """How many processes answer in turn; 0 before the first answer."""
        return self.processes.count(self.clock())

    @property
    def dropped(self) -> Counter[str]:
        """What metrics and log held beyond a bound, by what (see :mod:`specdec_exporter.bounds`)."""
        of_reader = dict(self.reader.dropped) if self.reader else {}  # a copy: its thread goes on counting
        return self.dropped_figures + self.log.dropped + Counter(of_reader)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Served models by the metrics; until the first metrics, by the log's init line."""
        named = self.running.model_name
        return tuple(sorted({model for model, _ in self.tracks})) or ((named,) if named else ())

    @property
    def engine_names(self) -> tuple[str, ...]:
        """Engines by the metrics, whatever they serve."""
        return tuple(sorted({engine for _, engine in self.tracks}))

    @property
    def engine_generation(self) -> str | None:
        """``"v0"`` or ``"v1"``; ``None`` of other inference engines than vLLM."""
        if self.is_other_engine:
            return None
        if self.snapshot is not None and self.snapshot.engine_generation:
            return self.snapshot.engine_generation
        return self.running.config.engine_generation if self.running.config else None

    @property
    def engine(self) -> InferenceEngine:
        """The inference engine that answers; vLLM until another one does."""
        return self.inference_engine or VLLM

    @property
    def is_other_engine(self) -> bool:
        """Whether another inference engine than vLLM answers."""
        return self.engine is not VLLM

    @property
    def method(self) -> str | None:
        """Speculation method by the start in the log, else by the metrics."""
        return self.running.method or self._told.method

    @property
    def draft_model(self) -> str | None:
        """Draft model by the start in the log, else by the metrics."""
        return self.running.draft_model or self._told.draft_model

    @property
    def num_speculative_tokens(self) -> int | None:
        """K by the log's start, the positions in the last metrics, those in the log's lines, or the metrics' word."""
        logged = self.running.speculator(self.positions or self.log.num_positions)
        return logged.num_speculative_tokens or self._told.num_speculative_tokens

    @property
    def _told(self) -> Speculator:
        return self.seen.speculator if self.seen else Speculator()
