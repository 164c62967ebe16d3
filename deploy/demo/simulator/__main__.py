"""``python -m demo.simulator``: serve one simulated predictor."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from demo.simulator.log import NOTICE
from demo.simulator.server import serving
from demo.simulator.settings import SettingsError, SimulatorSettings, load_settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo.simulator",
        description="A simulated vLLM predictor. No vLLM and no model run. What it does is in the scenario file.",
    )
    parser.add_argument("--scenario", metavar="FILE", help="YAML file with settings and incidents")
    parser.add_argument("--listen-address", metavar="HOST:PORT", help="port 0 takes a free one")
    parser.add_argument("--log-path", metavar="FILE", help="append the log to this file, and not to standard output")
    parser.add_argument("--load", help="4/s: requests per second; 16: concurrent requests; 0: none")
    parser.add_argument("--speed", type=float, help="simulated seconds per real second")
    parser.add_argument("--seed", type=int, help="seed of all randomness")
    parser.add_argument("--uptime-seconds", type=float, help="the first process says that it began so much earlier")
    return parser


async def _serve(settings: SimulatorSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(settings) as url:
        sys.stderr.write(f"{NOTICE}\nsimulating vLLM {settings.vllm_version} at {settings.speed:g}x on {url}\n")
        await stop.wait()


def main() -> int:
    """Exit code 0 when it ended as asked, 1 when it could not begin."""
    arguments = vars(_parser().parse_args())
    scenario = arguments.pop("scenario")
    try:
        asyncio.run(_serve(load_settings(scenario, {k: v for k, v in arguments.items() if v is not None})))
    except SettingsError as error:
        sys.stderr.write(f"simulator: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
