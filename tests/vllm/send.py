"""A load command for ``tune --temperatures``: sends requests at ``SPECDEC_TEMPERATURE`` until it is ended.

PYTHONPATH=tests python -m vllm.send URL CLIENTS
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from vllm import saturated
from vllm.server import MODEL_NAME


def main() -> None:
    """Keep the clients busy; an answer that is an error ends it."""
    url, clients, temperature = sys.argv[1], int(sys.argv[2]), float(os.environ["SPECDEC_TEMPERATURE"])
    prompts = itertools.cycle(saturated.prompts(0.9, saturated.DIFFERENT_PROMPTS))

    def send() -> None:
        while True:
            body = {
                "model": MODEL_NAME,
                "prompt": next(prompts),
                "ignore_eos": True,
                "max_tokens": 24,
                "temperature": temperature,
            }
            request = urllib.request.Request(
                f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60.0) as answer:
                answer.read()

    with ThreadPoolExecutor(clients) as pool:
        for each in [pool.submit(send) for _ in range(clients)]:
            each.result()


if __name__ == "__main__":
    main()
