"""What the predictor runs, by the start in its log and by ``/version``."""

from __future__ import annotations

import msgspec

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.speculator import Speculator, speculator
from specdec_exporter.predictor.log.start import Start


class Running(msgspec.Struct, frozen=True):
    """The last start, and the release that the predictor's own ``/version`` names.

    ``config``, ``deployment`` and ``given`` are the start's: a scrape must not work them out again. ``given`` is what
    the arguments alone say.
    """

    start: Start = Start()
    config: EngineConfig | None = None
    deployment: Deployment = Deployment()
    given: Deployment = Deployment()
    api_version: str | None = None

    def after(self, event: Event) -> Running:
        """Return what runs after an event of a start."""
        start = self.start.after(event)
        return Running(start, start.config, start.deployment, start.given, self.api_version)

    @property
    def speculative(self) -> bool | None:
        """Whether the server is configured to speculate; ``None`` if its start does not tell."""
        return self.deployment.speculative

    def speculator(self, positions: int = 0) -> Speculator:
        """What drafts; ``positions`` of a curve, 0 without one."""
        return speculator(self.config, self.given, positions)

    @property
    def method(self) -> str | None:
        """Speculation method by the start in the log."""
        return self.deployment.method

    @property
    def draft_model(self) -> str | None:
        """Draft model by the start in the log."""
        return self.deployment.draft_model

    @property
    def vllm_version(self) -> str | None:
        """The release by ``/version``, else by the log's init line."""
        return self.api_version or (self.config.vllm_version if self.config else None)

    @property
    def model_name(self) -> str | None:
        """The served model by the log's init line."""
        return (self.config.served_model_name or self.config.model) if self.config else None
