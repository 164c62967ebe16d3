"""vLLM's ``--speculative-config``: read it out of a command, and write one for another k.

Keys are vLLM's. ``num_speculative_tokens_per_batch_size`` (dynamic k) is a list of first batch size, last batch size
and k. vLLM (``validate_and_normalize_dynamic_sd_schedule``) wants the first range to begin at 1 and no two ranges to
overlap; gaps, and batches above the last range, keep the k of the range before. A k above ``num_speculative_tokens``
is cut to it, and 0 drafts nothing. The batch size is the number of requests that a step schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import ServerCommand
from specdec_exporter.predictor.facts.deployment import Deployment, speculative_config_of
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.predictor.versions import parse_release

_SCHEDULE: Final = "num_speculative_tokens_per_batch_size"
_SCHEDULE_SINCE: Final = (0, 24, 0)
# These run without a draft model or head of their own.
_WITHOUT_DRAFT_MODEL: Final = frozenset({"mtp", "ngram", "ngram_gpu", "suffix"})


class Range(NamedTuple):
    """Batch sizes from ``first`` to ``last``, and their k: one entry of the list above."""

    first: int
    last: int
    k: int


class Server(NamedTuple):
    """The command that started it, and method and k as it reported them; ``None``: not known."""

    command: str | None
    method: str | None
    k: int | None


def given_config(command: str | None) -> dict[str, Any]:
    """Return the speculative configuration in a command that starts vLLM; empty if there is none to read."""
    return speculative_config_of(_server_command(command).arguments)


def config_of(server: Server, ranges: Sequence[Range] = ()) -> dict[str, Any] | None:
    """Return the configuration of a server, as its command or else its method and k say; with ``ranges``, k by them.

    ``None`` if the method or k is not known. The other keys of the command stay.
    """
    given = given_config(server.command)
    if given and not ranges:
        return given
    method = server.method or given.get("method")
    if not isinstance(method, str) or not server.k:
        return None
    found = {"method": method, **given, "num_speculative_tokens": server.k}
    return found | {_SCHEDULE: [list(each) for each in ranges]} if ranges else found


def one_k_because(servers: Sequence[Server], version: str | None) -> str | None:
    """Return why a vLLM of this version cannot choose among servers by batch size; ``None`` if it can.

    Data parallel engines cannot: each chooses its own k, and they wait for each other. vLLM ignores it there since
    0.26.
    """
    like = [Range(1, 1, 1)]
    drafters = {msgspec.json.encode(config_of(each._replace(k=1), like), order="sorted") for each in servers}
    if len(drafters) > 1 or not all(each.k for each in servers):
        return "not in k alone"
    parallel = any((deployment_of(each.command).data_parallel_size or 1) > 1 for each in servers)
    release = parse_release(version) if version else None
    if release is not None and release >= _SCHEDULE_SINCE and not parallel:
        return None
    return f"vLLM {version or '(release unknown)'}{' with data parallel engines' if parallel else ''} takes one k"


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
