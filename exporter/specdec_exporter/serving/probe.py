"""What ``/probe?target=URL`` may ask for."""

from __future__ import annotations

import re

from specdec_exporter import bounds
from specdec_exporter.config import PredictorSettings, valid_url
from specdec_exporter.errors import ConfigError


def asked_for(pattern: str, target: str, name: str) -> PredictorSettings:
    """Return the predictor at ``target``, called ``name``.

    Raises :class:`ConfigError` if ``pattern`` does not match the whole target, and for a user and password in it: they
    are not those of whoever asks.
    """
    if len(target) > bounds.TARGET_CHARACTERS or len(name) > bounds.LABEL_CHARACTERS or not name.isprintable():
        raise ConfigError(
            f"expected a target of at most {bounds.TARGET_CHARACTERS} characters, "
            f"and a name of at most {bounds.LABEL_CHARACTERS} printable ones"
        )
    if "@" in target or not re.fullmatch(pattern, valid_url(target)):
        raise ConfigError("--web.probe does not allow this target")
    return PredictorSettings(url=target, name=name or PredictorSettings().name)
