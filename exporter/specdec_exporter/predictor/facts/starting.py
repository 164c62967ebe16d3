"""The method and the k to start with, by the target: ``starting.yaml``."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import msgspec.yaml

from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.versions import parse_release


class StartingPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to try first with a kind of target. ``k``: number of speculative tokens, by the checkpoint if ``None``."""

    target: str
    method: str
    why: str
    needs: str
    sources: tuple[str, ...]
    k: int | None = None
    since: str | None = None

    def config(self, deployment: Deployment) -> dict[str, Any]:
        """Return its ``--speculative-config`` for the deployment."""
        named = {} if self.method in ("mtp", "ngram") else {"model": "DRAFT"}
        return {"method": self.method, **named, "num_speculative_tokens": self.k or deployment.n_predict or 1}


@cache
def load_starting_points() -> tuple[StartingPoint, ...]:
    """Return the entries of the file."""
    content = pkgutil.get_data(__package__, "starting.yaml")
    if content is None:
        raise FileNotFoundError("starting.yaml")
    return msgspec.yaml.decode(content, type=tuple[StartingPoint, ...])


def starting_point(deployment: Deployment, names: Iterable[str]) -> StartingPoint:
    """Return what to try first. ``names``: of the target, as far as they are known.

    A checkpoint with MTP layers counts as their family. A method that the release does not have is left out.
    """
    text = " ".join(filter(None, (*names, deployment.model, deployment.architecture)))
    release = deployment.release

    def fits(point: StartingPoint) -> bool:
        since = parse_release(point.since or "")
        if since is not None and release is not None and release < since:
            return False
        if point.method == "mtp" and deployment.n_predict is not None:
            return True
        return re.search(point.target, text or "?", re.IGNORECASE) is not None

    return next(filter(fits, load_starting_points()))
