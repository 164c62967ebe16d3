"""The smallest exporter over aiohttp and prometheus_client: what the libraries alone take. Run by ``serving.py``.

    python -m bench.minimal_exporter URL

At each scrape it fetches URL and tells how many bytes came, beside prometheus_client's own figures of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import aiohttp
from aiohttp import web
from prometheus_client import REGISTRY, Gauge
from prometheus_client.exposition import choose_encoder

BODY_BYTES = Gauge("body_bytes", "Bytes of the last fetch.")


async def metrics(request: web.Request) -> web.Response:
    """Fetch and answer."""
    async with aiohttp.ClientSession() as session, session.get(sys.argv[1]) as response:
        BODY_BYTES.set(len(await response.read()))
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})


async def main() -> None:
    """Serve on a port that the kernel chooses, and tell it in the exporter's own words."""
    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    runner = web.AppRunner(app, handle_signals=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    print(f"msg=listening address={host}:{port} tls=False\nmsg=ready", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(web.GracefulExit):
        asyncio.run(main())
