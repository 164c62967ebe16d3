"""vLLM's ``--speculative-config``: read it out of a command, and write one for another k.

Keys are vLLM's. ``num_speculative_tokens_per_batch_size`` (dynamic k) is a list of first batch size, last batch size
and k. vLLM (``validate_and_normalize_dynamic_sd_schedule``) wants the first range to begin at 1 and no two ranges to
overlap; gaps, and batches above the last range, keep the k of the range before. A k above ``num_speculative_tokens``
is cut to it, and 0 drafts nothing. The batch size is the number of requests that a step schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import ServerCommand, read_command
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import Release

_SCHEDULE: Final = "num_speculative_tokens_per_batch_size"
_SCHEDULE_SINCE: Final = (0, 24, 0)
# These run without a draft model or head of their own.
_WITHOUT_DRAFT_MODEL: Final = frozenset({"mtp", "ngram", "ngram_gpu", "suffix"})


def has_schedule(release: Release | None, *, data_parallel: bool) -> bool:
    """Whether the release chooses k by batch size.

    Data parallel engines cannot: each chooses its own k, and they wait for each other. vLLM ignores it there since
    0.26.
    """
    return release is not None and release >= _SCHEDULE_SINCE and not data_parallel


def given_config(command: str | None) -> dict[str, Any]:
    """Return the speculative configuration in a command that starts vLLM; empty if there is none to read."""
    found = _server_command(command).arguments.get("speculative_config")
    return found if isinstance(found, dict) else {}


def is_data_parallel(command: str | None) -> bool:
    """Whether a command starts more than one data parallel engine."""
    return (deployment_of(command).data_parallel_size or 1) > 1


def config_for(
    given: dict[str, Any],
    method: str | None,
    num_speculative_tokens: int,
    *,
    schedule: Sequence[tuple[int, int, int]] = (),
) -> dict[str, Any] | None:
    """Return the configuration with another k; ``None`` if the method is not known.

    The keys that were ``given`` stay, except another schedule.
    """
    method = method or given.get("method")
    if not isinstance(method, str):
        return None
    found = {
        "method": method,
        **{key: value for key, value in given.items() if key != _SCHEDULE},
        "num_speculative_tokens": num_speculative_tokens,
    }
    if schedule:
        found[_SCHEDULE] = [list(each) for each in schedule]
    return found


def lacks_draft_model(config: dict[str, Any]) -> bool:
    """Whether the configuration's method needs a draft model or head that it does not name."""
    return "model" not in config and config.get("method") not in _WITHOUT_DRAFT_MODEL


def deployment_of(command: str | None) -> Deployment:
    """Return what a command that starts vLLM says of its deployment; nothing for free text."""
    return _server_command(command).deployment()


def _server_command(command: str | None) -> ServerCommand:
    try:
        return read_command(command) if command else ServerCommand()
    except ConfigError:  # it is free text
        return ServerCommand()
