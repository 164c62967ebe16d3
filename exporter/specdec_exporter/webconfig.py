"""``--web.config.file``: TLS, basic authentication and response headers, in the format of Prometheus' exporter-toolkit.

Whatever of that format cannot be done here is an error when the file is read, never a setting silently not applied. The
one exception is ``http2``: this server speaks HTTP/1.1, which every HTTP/2 client falls back to.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from specdec_exporter.errors import ConfigError

_log = logging.getLogger(__name__)

ClientAuthType = Literal[
    "NoClientCert", "RequestClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
]
TLSVersion = Literal["TLS10", "TLS11", "TLS12", "TLS13"]

_TLS_VERSIONS: dict[TLSVersion, ssl.TLSVersion] = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: dict[ClientAuthType, ssl.VerifyMode] = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # Go asks, then lets everyone in: nothing here would read the certificate
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_TLS13_CIPHER_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_CIPHER_SUITES = {  # Go's names (crypto/tls.CipherSuites), which the format uses, to OpenSSL's
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
_HEADERS: dict[str, frozenset[str] | None] = {  # the only ones the format allows, with their values where those are few
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": frozenset({"nosniff"}),
    "X-Frame-Options": frozenset({"deny", "sameorigin"}),
    "X-XSS-Protection": None,
}
_NOT_OFFERED = {  # keys of the format that we know and do not offer, with what to do instead
    "tls_server_config.cert": "write the certificate to a file and name that in cert_file",
    "tls_server_config.key": "write the key to a file and name that in key_file",
    "tls_server_config.client_ca": "write the certificates to a file and name that in client_ca_file",
    "tls_server_config.client_allowed_sans": "use a CA in client_ca_file that signs the allowed clients only",
    "tls_server_config.curve_preferences": "leave it out, OpenSSL's order is used",
    "rate_limit": "put a proxy in front",
    "auth_excluded_paths": "send the credentials with every request, probes included",
}
_MAY_BE_EMPTY = {"http_server_config", "basic_auth_users"}  # an empty tls_server_config is rather a mistake than a wish
_BCRYPT_HASH = re.compile(r"\$2[abxy]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


class TLSServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tls_server_config``. Relative paths in the file start beside it; here they start in the working directory."""

    cert_file: str
    key_file: str
    client_auth_type: ClientAuthType = "NoClientCert"
    client_ca_file: str | None = None
    min_version: TLSVersion = "TLS12"
    max_version: TLSVersion = "TLS13"
    cipher_suites: tuple[str, ...] = ()  # Go's names; of TLS 1.2 and below, those of 1.3 are always on
    prefer_server_cipher_suites: bool = True


class HTTPServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``http_server_config``. ``headers`` are set on responses that do not set them themselves."""

    http2: bool = True
    headers: dict[str, str] = {}


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. ``basic_auth_users`` maps a user to a bcrypt hash; empty means no authentication."""

    tls_server_config: TLSServerConfig | None = None
    http_server_config: HTTPServerConfig = HTTPServerConfig()
    basic_auth_users: dict[str, str] = {}

    def ssl_context(self) -> ssl.SSLContext | None:
        """A server context of the certificates as they are now, ``None`` without TLS.

        Raises :class:`ConfigError` for files that cannot be read or do not belong together. To follow changes of the
        files use :meth:`WebConfigFile.ssl_context`.
        """
        return _ssl_context(self.tls_server_config) if self.tls_server_config else None


def load_web_config(path: str | Path) -> WebConfig:
    """Read and check a web configuration file, the files that it names included.

    Raises :class:`ConfigError`, which names the file and the key, and never repeats a hash.
    """
    path = Path(path)
    try:
        # Not strict: without YAML's guesses at types every scalar is a string, the model says which are booleans.
        config = msgspec.convert(_offered(_parse(path)), WebConfig, strict=False)
        if config.tls_server_config:
            tls = _beside(config.tls_server_config, path.parent)
            config = msgspec.structs.replace(config, tls_server_config=tls)
        _check_headers(config.http_server_config.headers)
        _check_users(config.basic_auth_users)
        config.ssl_context()
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_reworded(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


class WebConfigFile:
    """A web configuration file that is followed: read again when it, a certificate or a key has changed.

    Raises :class:`ConfigError` if the file is bad at first. Later a bad file is logged once and the last good one stays
    in force. TLS cannot be switched on or off without a restart, because the socket is already one or the other.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp = _stamp([self._path])
        self._config = load_web_config(self._path)
        self._context = self._config.ssl_context()
        self._context_stamp = self._files_stamp()

    def current(self) -> WebConfig:
        """The settings now in force: one ``stat`` per call, a reading only after a change."""
        if (stamp := _stamp([self._path])) != self._stamp:
            self._stamp = stamp
            try:
                config = load_web_config(self._path)
            except ConfigError as error:
                _log.warning("web configuration not changed: %s", error)
                return self._config
            if (config.tls_server_config is None) != (self._context is None):
                _log.warning("%s: switching TLS on or off takes a restart", self._path)
            self._config = config
            _log.info("web configuration read again: %s", self._path)
        return self._config

    def ssl_context(self) -> ssl.SSLContext | None:
        """One context for a server's whole life that gives each new connection the current settings and certificates.

        ``None`` if the file had no ``tls_server_config`` at first.
        """
        return _FollowingContext.over(self._current_context) if self._context else None

    def _current_context(self) -> ssl.SSLContext:
        config = self.current()
        stamp = self._files_stamp()
        if stamp != self._context_stamp:
            self._context_stamp = stamp
            try:
                self._context = config.ssl_context() or self._context
            except ConfigError as error:
                _log.warning("certificates not changed: %s", error)
        assert self._context is not None  # noqa: S101 - only called by a context that exists because this one did
        return self._context

    def _files_stamp(self) -> object:
        tls = self._config.tls_server_config
        files = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        return self._stamp, _stamp(file for file in files if file)


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


class _FollowingContext(ssl.SSLContext):
    """Stands in for a context that changes. asyncio makes each connection's TLS object with ``wrap_bio``."""

    _current: Callable[[], ssl.SSLContext]

    @classmethod
    def over(cls, current: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current = current
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._current().wrap_bio(*args, **kwargs)


def _ssl_context(tls: TLSServerConfig) -> ssl.SSLContext:
    key_path = "tls_server_config"
    for key, version in (("min_version", tls.min_version), ("max_version", tls.max_version)):
        if version not in _TLS_VERSIONS:
            raise ConfigError(f"{key_path}.{key}: {version} is obsolete and not offered; use TLS12 or TLS13")
    if tls.min_version > tls.max_version:
        raise ConfigError(f"{key_path}: min_version {tls.min_version} is above max_version {tls.max_version}")
    if tls.client_auth_type not in _VERIFY_MODES:
        raise ConfigError(
            f"{key_path}.client_auth_type: {tls.client_auth_type} is not offered, because it takes any certificate for "
            "a proof; use RequireAndVerifyClientCert"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _TLS_VERSIONS[tls.min_version]
    context.maximum_version = _TLS_VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        _set_cipher_suites(context, tls)
    _load_certificates(context, tls)
    return context


def _set_cipher_suites(context: ssl.SSLContext, tls: TLSServerConfig) -> None:
    key_path = "tls_server_config.cipher_suites"
    for suite in tls.cipher_suites:
        if suite not in _CIPHER_SUITES and suite not in _TLS13_CIPHER_SUITES:
            raise ConfigError(f"{key_path}: {suite!r} is not offered; known are {', '.join(_CIPHER_SUITES)}")
    names = [_CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in _CIPHER_SUITES]
    if not names and tls.min_version != "TLS13":
        raise ConfigError(f"{key_path}: leaves none for TLS 1.2; set min_version to TLS13 to offer TLS 1.3 alone")
    if names:
        context.set_ciphers(":".join(names))


def _load_certificates(context: ssl.SSLContext, tls: TLSServerConfig) -> None:
    for key, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file), ("client_ca_file", tls.client_ca_file)):
        if file is None:
            continue
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise ConfigError(f"tls_server_config.{key}: {file}: {error.strerror}") from error
    try:
        # Without a password OpenSSL would ask for an encrypted key's one on the terminal, and wait.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except ssl.SSLError as error:
        reason = "the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH" else error.reason
        raise ConfigError(
            f"tls_server_config: cert_file {tls.cert_file}, key_file {tls.key_file}: "
            f"{reason or 'not a PEM certificate and an unencrypted PEM key'}"
        ) from error
    _trust_clients(context, tls)


def _trust_clients(context: ssl.SSLContext, tls: TLSServerConfig) -> None:
    context.verify_mode = _VERIFY_MODES[tls.client_auth_type]
    if tls.client_ca_file is None:
        if tls.client_auth_type == "RequireAndVerifyClientCert":
            raise ConfigError("tls_server_config: client_auth_type RequireAndVerifyClientCert needs a client_ca_file")
        if context.verify_mode is not ssl.CERT_NONE:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)  # the system's roots, as in Go
        return
    if context.verify_mode is ssl.CERT_NONE:
        raise ConfigError(
            f"tls_server_config.client_ca_file: has no effect with client_auth_type {tls.client_auth_type}; "
            "use RequireAndVerifyClientCert"
        )
    try:
        context.load_verify_locations(tls.client_ca_file)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls_server_config.client_ca_file: {tls.client_ca_file}: no PEM certificate in it"
        ) from error


def _parse(path: Path) -> object:
    import yaml  # noqa: PLC0415 - only those who use a web configuration pay for it

    class StrictLoader(yaml.BaseLoader):
        """Refuses a key that stands twice, of which YAML would quietly take the last."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(problem="a key is not a word", problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return StrictLoader(path.read_bytes()).get_single_data()
    except OSError as error:
        raise ConfigError(f"{error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{where}{error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError("not YAML") from error


def _offered(document: object) -> object:
    """The document without empty sections, which the format takes for absent; refuses what we know and do not offer."""
    if not document:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"expected a mapping of {', '.join(WebConfig.__struct_fields__)}")
    tls = document.get("tls_server_config")
    keys = [*document, *(f"tls_server_config.{key}" for key in tls)] if isinstance(tls, dict) else [*document]
    for key in keys:
        if advice := _NOT_OFFERED.get(key):
            raise ConfigError(f"{key}: not offered by this exporter; {advice}")
    return {key: value for key, value in document.items() if value or key not in _MAY_BE_EMPTY}


def _beside(tls: TLSServerConfig, directory: Path) -> TLSServerConfig:
    for key in ("cert_file", "key_file"):
        if not getattr(tls, key):
            raise ConfigError(f"tls_server_config.{key}: is empty")
    return msgspec.structs.replace(
        tls,
        cert_file=str(directory / tls.cert_file),
        key_file=str(directory / tls.key_file),
        client_ca_file=str(directory / tls.client_ca_file) if tls.client_ca_file else None,
    )


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        key_path = f"http_server_config.headers.{name}"
        if name not in _HEADERS:
            raise ConfigError(f"{key_path}: cannot be set; allowed are {', '.join(_HEADERS)}")
        allowed = _HEADERS[name]
        if value and allowed and value.lower() not in allowed:
            raise ConfigError(f"{key_path}: expected {' or '.join(sorted(allowed))}, found {value!r}")
        if not value.isprintable():
            raise ConfigError(f"{key_path}: has a line break or another control character in it")


def _check_users(users: Mapping[str, str]) -> None:
    for user, hashed in users.items():
        if ":" in user:
            raise ConfigError(f"basic_auth_users.{user}: a user's name cannot contain a colon")
        if not _BCRYPT_HASH.fullmatch(hashed):
            raise ConfigError(f"basic_auth_users.{user}: not a bcrypt hash; `htpasswd -nBC 10 {user}` makes one")


def _reworded(error: msgspec.ValidationError) -> str:
    """``tls_server_config.min_version: Invalid enum value 'TLS9'`` from msgspec's wording, which ends with the path."""
    problem, _, key_path = str(error).partition(" - at `$.")
    return f"{key_path.rstrip('`')}: {problem}" if key_path else problem


def _stamp(files: Iterable[str | Path]) -> list[tuple[int, int, int] | None]:
    """What changes when a file is written, replaced, or a symbolic link before it swapped (as Kubernetes does)."""

    def stamp(file: str | Path) -> tuple[int, int, int] | None:
        try:
            status = Path(file).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    return [stamp(file) for file in files]
