"""What keeps the sidecar small: memory that importing and starting would take for nothing."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import ssl
from collections.abc import Iterator


@contextlib.contextmanager
def without_ca_certificates() -> Iterator[None]:
    """Import aiohttp in here: its connector loads the system's CA certificates at import, 2 MiB of them.

    They are for requests that bring no TLS context of their own. Ours bring one, made when it is needed.
    """
    load = ssl.SSLContext.load_default_certs
    ssl.SSLContext.load_default_certs = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]


def give_back_memory() -> None:
    """Return what importing and starting up have freed to the system."""
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
