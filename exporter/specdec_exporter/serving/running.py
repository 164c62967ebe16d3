"""What the predictor runs, by the start in its log and by ``/version``."""

from __future__ import annotations

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.speculator import Speculator, speculator
from specdec_exporter.predictor.log.start import Start


class Running:
    """The last start, and the release that the predictor's own ``/version`` names."""

    def __init__(self) -> None:
        self.start = Start()
        self.config: EngineConfig | None = None
        self.deployment = Deployment()  # what the start says; a scrape must not work it out again
        self._given = Deployment()  # what the arguments alone say
        self.api_version: str | None = None

    def observe(self, event: Event) -> bool:
        """Take in an event of a start; return whether it names a configuration or arguments."""
        self.start = self.start.after(event)
        self.deployment, self._given = self.start.deployment, self.start.given
        self.config = self.start.config
        return event in (self.config, self.start.arguments)

    @property
    def speculative(self) -> bool | None:
        """Whether the engine is configured to speculate; ``None`` without an engine-init line."""
        return self.config.speculative is True if self.config else None

    def speculator(self, positions: int = 0) -> Speculator:
        """What drafts; ``positions`` of a curve, 0 without one."""
        return speculator(self.config, self._given, positions)

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
