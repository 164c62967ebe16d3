"""Clients that keep an exporter busy until they are stopped. Run by ``serving.py``.

    python busy_clients.py HOST PORT COUNT

Half of them scrape again and again over one connection each; the others send a request head that never ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

HEAD = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n"


async def scrape(host: str, port: int) -> None:
    """Ask for the metrics without a pause; open a new connection if the server closes this one."""
    while True:
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await asyncio.open_connection(host, port)
            while True:
                writer.write(HEAD + b"\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)


async def dawdle(host: str, port: int) -> None:
    """Send a head slowly, for ever."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(HEAD)
            while True:
                await asyncio.sleep(0.5)
                writer.write(b"X-More: 1\r\n")
                await writer.drain()


async def main(host: str, port: int, count: int) -> None:
    """Run so many clients."""
    await asyncio.gather(*((scrape if i % 2 else dawdle)(host, port) for i in range(count)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
