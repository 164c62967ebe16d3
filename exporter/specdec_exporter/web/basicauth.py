"""The middleware of ``--web.config.file``: basic authentication with bcrypt hashes, and the configured headers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specdec_exporter.web.webconfig import WebConfig


def auth_middleware(config_provider: Callable[[], WebConfig]) -> Middleware:
    """Aiohttp middleware that asks every request for a user's password and sets the configured headers.

    ``config_provider`` is called once per request: :meth:`WebConfigFile.current` for a file that is followed. Without
    users everyone is let in. A response's own headers win over configured ones.
    """
    passwords = _Passwords()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        config = config_provider()
        authorization = request.headers.get("Authorization")
        try:
            if config.basic_auth_users and not await passwords.admit(config.basic_auth_users, authorization):
                raise web.HTTPUnauthorized(
                    headers={"WWW-Authenticate": 'Basic realm="specdec-exporter", charset="UTF-8"'}
                )
            response = await handler(request)
        except web.HTTPException as error:
            _add_headers(error, config)
            raise
        _add_headers(response, config)
        return response

    return middleware


def _add_headers(response: web.StreamResponse | web.HTTPException, config: WebConfig) -> None:
    for name, value in config.http_server_config.headers.items():
        if value:  # blank means unset
            response.headers.setdefault(name, value)


class _Passwords:
    """Checks passwords one at a time off the event loop, and remembers the right ones.

    bcrypt is slow on purpose (50 ms and more), a scrape is not. What is remembered is a keyed digest that covers the
    stored hash, so that a changed hash is forgotten by itself.
    """

    _REMEMBERED = 128

    def __init__(self) -> None:
        self._key = os.urandom(32)
        self._right: dict[bytes, None] = {}
        self._turn = asyncio.Lock()

    async def admit(self, users: Mapping[str, str], authorization: str | None) -> bool:
        if (credentials := _credentials(authorization)) is None:
            return False
        user, password = credentials
        stored = users.get(user)
        digest = self._digest(user, stored or "", password)
        if digest in self._right:
            return True
        async with self._turn:
            if digest in self._right:  # another request of the same user was first
                return True
            # An unknown user costs as much as a known one, so that time does not tell who exists.
            right = await asyncio.to_thread(_matches, password, stored or _decoy(users))
        if stored is None or not right:
            return False
        if len(self._right) >= self._REMEMBERED:
            del self._right[next(iter(self._right))]
        self._right[digest] = None
        return True

    def _digest(self, user: str, stored: str, password: bytes) -> bytes:
        # Neither a user nor a hash can contain a colon, the password comes last: one reading only.
        return hashlib.blake2b(f"{user}:{stored}:".encode() + password, key=self._key).digest()


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """User and password of an ``Authorization`` header, ``None`` if it is not sound Basic authentication."""
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _matches(password: bytes, stored: str) -> bool:
    import bcrypt  # noqa: PLC0415 - only those who use basic authentication pay for it

    # bcrypt has never looked beyond 72 bytes; bcrypt 5.0 raises where 4.x and htpasswd cut off.
    return bcrypt.checkpw(password[:72], stored.encode())


def _decoy(users: Mapping[str, str]) -> str:
    """A hash that no password has, as costly as the costliest stored one."""
    return f"$2b${max(hashed.split('$')[2] for hashed in users.values())}${'.' * 53}"
