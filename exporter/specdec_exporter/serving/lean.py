"""What keeps the sidecar small: memory that importing and starting would take for nothing.

``tests/unit/test_lean.py`` tests each measure. ``make bench`` holds the sum of them to a budget.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from typing import Any

# Libraries import these modules for functions that nobody calls here: 1 MiB. Python loads one as soon as it is used.
LOADED_WHEN_USED = frozenset(
    {
        "attr.validators",
        "bz2",  # shutil, for archives
        "idna",  # yarl, for host names that are not ASCII
        "lzma",
        "msgspec.inspect",
    }
)


class _WhenUsed:
    """Finds these modules as Python does, but has each load when its first attribute is read."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in LOADED_WHEN_USED else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def load_when_used() -> None:
    """Call this before a library is imported that imports one of those modules."""
    if _WhenUsed not in sys.meta_path:
        sys.meta_path.insert(0, _WhenUsed)


class _NoContext:
    """Stands in for a TLS context that nobody uses: it takes every setting and every call."""

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        return self

    def __ior__(self, _other: object) -> Any:
        return self


@contextlib.contextmanager
def lean_imports() -> Iterator[None]:
    """Import aiohttp in here: it takes less than it would.

    - aiohttp's connector makes two TLS contexts at import, with the system's CA certificates, for requests that bring
      none of their own. Ours bring one, made when it is needed: 3 MiB.
    - frozenlist in C is the only module that needs the C++ library: 1 MiB. In Python it does the same.
    - aiohttp reads the system's table of file types, for files that it would serve: 0.3 MiB. We serve none.
    """
    import mimetypes  # noqa: PLC0415  this and ssl are for serving alone, the module is for all commands
    import ssl  # noqa: PLC0415

    os.environ.setdefault("FROZENLIST_NO_EXTENSIONS", "1")
    new_context = ssl.SSLContext.__new__
    known_files = mimetypes.knownfiles
    ssl.SSLContext.__new__ = lambda *_args, **_kwargs: _NoContext()  # type: ignore[assignment,method-assign]
    mimetypes.knownfiles = []
    try:
        yield
    finally:
        mimetypes.knownfiles = known_files
        ssl.SSLContext.__new__ = new_context  # type: ignore[method-assign]


_M_MMAP_THRESHOLD = -3  # of malloc.h
_OWN_PAGES_BYTES = 256 * 1024


def give_back_memory() -> None:
    """Return what importing and starting up have freed to the system, and later at once what is large."""
    import ctypes  # noqa: PLC0415

    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        libc = ctypes.CDLL(None)
        # A large body gets pages of its own, which go back when it is freed. Otherwise glibc learns to keep them.
        libc.mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
        libc.malloc_trim(0)
