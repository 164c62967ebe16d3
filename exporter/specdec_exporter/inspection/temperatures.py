"""Temperatures of requests by their ids in the log, for responses whose saved line does not tell. Pure."""

from __future__ import annotations

import msgspec

from specdec_exporter.predictor.log.events import Event, RequestParams
from specdec_exporter.predictor.responses import ResponseSpeculation, log_request_ids


class RequestTemperatures:
    """The temperatures of requests.

    Clients can choose ids. If two requests of one id have different temperatures, no response gets either.
    """

    def __init__(self) -> None:
        self._known: dict[str, float | None] = {}

    def observe_event(self, event: Event) -> None:
        """Note the temperature in a line of the log."""
        if not isinstance(event, RequestParams) or event.request_id is None or event.temperature is None:
            return
        before = self._known.get(event.request_id, event.temperature)
        self._known[event.request_id] = event.temperature if before == event.temperature else None

    def joined(self, record: ResponseSpeculation) -> ResponseSpeculation:
        """Return the record with its temperature, if it or the log tells one."""
        if record.temperature is None:
            for name in log_request_ids(record.request_id or ""):
                if name in self._known:
                    return msgspec.structs.replace(record, temperature=self._known[name])
        return record
