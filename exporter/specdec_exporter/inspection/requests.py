"""Saved responses, read once: records of single requests in, their distribution out. Pure, memory of fixed size."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from specdec_exporter.inspection.requestgroups import KindGroup, RequestCounter, RequestGroup, RequestGroups
from specdec_exporter.predictor.log.events import Event, RequestParams
from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, WithoutRecord, log_request_ids
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import Finding

_LEAST_ACCEPTED = 10
_PARTLY_VERIFIED = Finding("PASS", "Verification", PARTLY_VERIFIED)


class LeastAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A request of little acceptance: its text may be worth training the draft model on."""

    request_id: str
    model: str | None
    acceptance_ratio: float
    drafts: int


class RequestsAnalysis(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="responses"):
    """All responses. ``junk`` counts lines that are no response, ``without_record`` responses without a record.

    ``groups`` has the kinds of requests, and ``findings`` what they show. ``least_accepted`` has the requests with the
    lowest acceptance, of those with at least ``least_accepted_min_drafts`` drafts: with fewer, chance alone gives some
    requests nearly no acceptance. ``partly_verified``: vLLM verified only part of each draft and counted all of it as
    drafted, by the log. Then acceptance reads too low, and neither ranks requests nor gives a finding.
    """

    all: RequestGroup
    groups: tuple[KindGroup, ...]
    findings: tuple[Finding, ...]
    least_accepted: tuple[LeastAccepted, ...]
    least_accepted_min_drafts: int
    without_record: int
    junk: int
    junk_reason: str | None  # of the first
    partly_verified: bool = False
    too_long: int = 0  # lines that were skipped for their length


class RequestStory:
    """The records of one or several files. ``with_header`` as for :class:`RequestGroups`."""

    def __init__(self, *, with_header: bool = False) -> None:
        self._groups = RequestGroups(with_header=with_header)
        self._least: list[tuple[float, int, LeastAccepted]] = []  # a heap: of the highest acceptance first
        self._min_drafts = load_policy().min_drafts
        self._all = RequestCounter()
        self.without_record = 0
        self.junk = 0
        self.junk_reason: str | None = None

    @property
    def requests(self) -> int:
        """Records so far."""
        return self._all.requests

    def add(self, record: ResponseSpeculation) -> None:
        """Take in one request."""
        self._all.add(record)
        self._groups.add(record)
        self._rank(record)

    def _rank(self, record: ResponseSpeculation) -> None:
        ratio = record.acceptance_ratio
        if ratio is None or record.request_id is None or record.drafts < self._min_drafts:
            return
        request = LeastAccepted(
            request_id=record.request_id, model=record.model, acceptance_ratio=ratio, drafts=record.drafts
        )
        # Of equal ones the first stays.
        heapq.heappush(self._least, (-ratio, -self._all.requests, request))
        if len(self._least) > _LEAST_ACCEPTED:
            heapq.heappop(self._least)

    def add_other(self, line: Junk | WithoutRecord) -> None:
        """Count a line without a record."""
        if isinstance(line, WithoutRecord):
            self.without_record += 1
            return
        self.junk += 1
        self.junk_reason = self.junk_reason or line.reason

    def analysis(self, *, too_long: int = 0, partly_verified: bool = False) -> RequestsAnalysis:
        """Return what was read so far; ``too_long`` lines were not. ``partly_verified``: see the result."""
        least = [] if partly_verified else sorted(self._least, reverse=True)
        return RequestsAnalysis(
            all=self._all.close(),
            groups=self._groups.closed(),
            findings=(_PARTLY_VERIFIED,) if partly_verified else self._groups.findings(),
            least_accepted=tuple(request for _, _, request in least),
            least_accepted_min_drafts=self._min_drafts,
            without_record=self.without_record,
            junk=self.junk,
            junk_reason=self.junk_reason,
            partly_verified=partly_verified,
            too_long=too_long,
        )


class RequestTemperatures:
    """The temperatures of requests by their ids in the log, for responses whose saved line does not tell.

    Clients can choose ids. If two requests of one id have different temperatures, no response gets either.
    """

    def __init__(self) -> None:
        self._known: dict[str, float | None] = {}

    def noting(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of a log, and note the temperatures in them."""
        for event in events:
            if isinstance(event, RequestParams) and event.request_id is not None and event.temperature is not None:
                before = self._known.get(event.request_id, event.temperature)
                self._known[event.request_id] = event.temperature if before == event.temperature else None
            yield event

    def joined(self, record: ResponseSpeculation) -> ResponseSpeculation:
        """Return the record with its temperature, if it or the log tells one."""
        if record.temperature is None:
            for name in log_request_ids(record.request_id or ""):
                if name in self._known:
                    return msgspec.structs.replace(record, temperature=self._known[name])
        return record
