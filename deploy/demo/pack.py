"""The rule pack and Alertmanager's configuration with the demo's short windows, rendered when the demo starts."""

from __future__ import annotations

import asyncio
import functools
import json
from pathlib import Path
from typing import Any, Literal

import rjsonnet

_ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("config.libsonnet")
_SNIPPET = """
local mixin = (import 'mixin.libsonnet') + { _config+:: import '%s' };
{
  rules: { groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups },
  alertmanager: mixin.specdecAlertmanager.example,
}
"""


@functools.cache
def _rendered(config: Path) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(rjsonnet.evaluate_snippet("demo", _SNIPPET % config, jpathdir=[str(_ROOT)]))
    return rendered


async def text(part: Literal["rules", "alertmanager"], config: Path = CONFIG) -> str:
    """The file for Prometheus or Alertmanager, as JSON, which is YAML too. The first call renders for some seconds."""
    rendered = await asyncio.to_thread(_rendered, config)
    return json.dumps(rendered[part], indent=2)
