"""Temperatures of requests by their ids in the log, for responses whose saved line does not tell. Pure."""

from __future__ import annotations

import msgspec

from specdec_exporter.predictor.log.events import Event, RequestParams
from specdec_exporter.predictor.responses import ResponseSpeculation, log_request_ids


class RequestTemperatures:
    """The temperatures of requests. With ``most``, of the latest so many that have no response yet.

    Clients can choose ids. If two requests of one id have different temperatures, no response gets either.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._known: dict[str, float | None] = {}

    def observe_event(self, event: Event) -> str | None:
        """Note the temperature in a line of the log; return the id of its request."""
        if not isinstance(event, RequestParams) or event.request_id is None or event.temperature is None:
            return None
        before = self._known.get(event.request_id, event.temperature)
        self._known[event.request_id] = event.temperature if before == event.temperature else None
        if self._most is not None and len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return event.request_id

    def joined(self, record: ResponseSpeculation) -> ResponseSpeculation | None:
        """Return the record with its temperature; ``None`` if neither it nor the log tells so far."""
        for name in log_request_ids(record.request_id or ""):
            if name in self._known:
                found = self._known[name] if self._most is None else self._known.pop(name)
                return record if record.temperature is not None else msgspec.structs.replace(record, temperature=found)
        return None if record.temperature is None else record
