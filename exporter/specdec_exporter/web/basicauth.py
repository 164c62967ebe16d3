"""What ``--web.config.file`` asks of each request: basic authentication with bcrypt hashes, and response headers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from specdec_exporter.web.webconfig import WebConfig


def protect(app: web.Application, config_provider: Callable[[], WebConfig]) -> None:
    """Have ``app`` check the password of each request and set the configured headers.

    ``config_provider`` is called once for each, e.g. :meth:`WebConfigFile.current`. A configuration without users needs
    no password. A header that the response sets itself stays.
    """
    passwords = _Passwords()

    @web.middleware
    async def check_password(request: web.Request, handler: Handler) -> web.StreamResponse:
        users = config_provider().basic_auth_users
        if users and not await passwords.admit(users, request.headers.get("Authorization")):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": 'Basic realm="specdec-exporter", charset="UTF-8"'})
        return await handler(request)

    async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
        for name, value in config_provider().http_server_config.headers.items():
            if value != "":  # blank means unset
                response.headers.setdefault(name, str(value))

    app.middlewares.append(check_password)
    app.on_response_prepare.append(add_headers)


class _Passwords:
    """Checks passwords outside the event loop, one at a time for each user, and remembers correct ones.

    bcrypt needs 50 ms or more, which is too slow for each scrape. The memory holds keyed digests of user, stored hash
    and password, so a changed hash makes the old digest useless. All unknown users wait for each other, and nobody
    waits for them.
    """

    _REMEMBERED = 128

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._right: dict[bytes, None] = {}  # ordered, so that the oldest can go
        self._turns: dict[str, asyncio.Lock] = {}  # by stored hash; "" for unknown users

    async def admit(self, users: Mapping[str, str], authorization: str | None) -> bool:
        if (credentials := _credentials(authorization)) is None:
            return False
        user, password = credentials
        stored = users.get(user)
        digest = self._digest(user, stored or "", password)
        if digest in self._right:
            return True
        if not self._turns.keys() <= {"", *users.values()}:  # the configuration changed
            self._turns = {}
        async with self._turns.setdefault(stored or "", asyncio.Lock()):
            if digest in self._right:  # another request checked it meanwhile
                return True
            right = await asyncio.to_thread(_matches, password, stored or self._decoy(user, users))
        if stored is None or not right:
            return False
        if len(self._right) >= self._REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[digest] = None
        return True

    def _decoy(self, user: str, users: Mapping[str, str]) -> str:
        """Return a hash that no password has, for an unknown user.

        It is as expensive as that of one of the known users, always the same one, so that the time does not reveal
        which users exist.
        """
        costs = sorted(hashed.split("$")[2] for hashed in users.values())
        chosen = int.from_bytes(self._digest(user, "", b"")) % len(costs)
        return f"$2b${costs[chosen]}${'.' * 53}"

    def _digest(self, user: str, stored: str, password: bytes) -> bytes:
        # Unambiguous: neither user nor hash contains a colon, and the password comes last.
        return hashlib.blake2b(f"{user}:{stored}:".encode() + password, key=self._key).digest()


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Return user and password of an ``Authorization`` header, ``None`` if it is not valid Basic authentication."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, stored: str) -> bool:
    import bcrypt  # noqa: PLC0415 - only basic authentication needs it

    # bcrypt only uses 72 bytes. Version 5.0 refuses longer passwords; 4.x and htpasswd cut them.
    return bcrypt.checkpw(password[:72], stored.encode())
