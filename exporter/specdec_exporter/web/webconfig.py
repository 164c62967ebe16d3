"""``--web.config.file``: TLS, basic authentication and response headers, in the format of Prometheus' exporter-toolkit.

A key of that format which is not here is an error when the file is read. The one exception is ``http2``: this server
speaks HTTP/1.1, and every HTTP/2 client can do so.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import plain
from specdec_exporter.web.tls import FollowingContext, TLSServerConfig, server_context
from specdec_exporter.yamlfile import convert, read_yaml

_log = logging.getLogger(__name__)

_HEADERS: dict[str, frozenset[str] | None] = {  # all that the format allows, some with a list of values
    "Content-Security-Policy": None,
    "Strict-Transport-Security": None,
    "X-Content-Type-Options": frozenset({"nosniff"}),
    "X-Frame-Options": frozenset({"deny", "sameorigin"}),
    "X-XSS-Protection": None,
}
# Version, cost, 22 characters of salt (the last one holds two bits), 31 of hash. bcrypt raises on anything else.
_BCRYPT_HASH = re.compile(r"\$2[abxy]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")


class HTTPServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``http_server_config``. ``headers`` are added to responses that do not set them; ``0`` is text here."""

    http2: bool = True
    headers: dict[str, str | int] = {}


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. ``basic_auth_users`` maps a user to a bcrypt hash; empty means no authentication."""

    tls_server_config: TLSServerConfig | None = None
    http_server_config: HTTPServerConfig = HTTPServerConfig()
    basic_auth_users: dict[str, str] = {}

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a server context with the current certificates, ``None`` without TLS.

        Raises :class:`ConfigError` for files that cannot be read or do not belong together.
        :meth:`WebConfigFile.ssl_context` follows changes of the files.
        """
        return server_context(self.tls_server_config) if self.tls_server_config else None


def load_web_config(path: str | Path) -> WebConfig:
    """Read and check a web configuration file and the files that it names.

    Raises :class:`ConfigError`, which names the file and the key. It never contains a hash.
    """
    document = read_yaml(path, ConfigError)
    if isinstance(document, dict) and document.get("tls_server_config", "") is None:
        raise ConfigError(f"{path}: tls_server_config: expected a mapping, found nothing")
    config = convert(document, WebConfig, str(path), ConfigError)
    try:
        if config.tls_server_config:
            tls = _beside(config.tls_server_config, Path(path).parent)
            config = msgspec.structs.replace(config, tls_server_config=tls)
        _check_headers(config.http_server_config.headers)
        _check_users(config.basic_auth_users)
        config.ssl_context()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return config


class WebConfigFile:
    """A web configuration file. It is read again when it, a certificate or a key has changed.

    Raises :class:`ConfigError` if the file is invalid at first. Later an invalid file is logged once and the last valid
    settings stay. Switching TLS on or off needs a restart, because the socket already has TLS or not. So does switching
    passwords off: a file that is just being written is empty.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp = _stamp([self._path])
        self._config = load_web_config(self._path)
        self._context = self._config.ssl_context()
        self._complaint = ""

    def current(self) -> WebConfig:
        """Return the current settings. Each call does a ``stat`` of each file, and reads changed or invalid ones."""
        tls = self._config.tls_server_config
        stamp = _stamp([self._path, *((tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ())])
        if stamp != self._stamp:
            try:
                self._read_again()
                self._stamp = stamp
            except ConfigError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    _log.warning("the web configuration is unchanged: %s", error)
        return self._config

    def _read_again(self) -> None:
        config = load_web_config(self._path)
        if self._config.basic_auth_users and not config.basic_auth_users:
            raise ConfigError(f"{self._path}: basic_auth_users: switching passwords off needs a restart")
        context = config.ssl_context()
        if config != self._config:
            _log.info("web configuration read again: %s", self._path)
        if (context is None) != (self._context is None):
            _log.warning("%s: switching TLS on or off needs a restart", self._path)
        self._config, self._context = config, context or self._context

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a context that gives each new connection the current settings and certificates.

        ``None`` if the file had no ``tls_server_config`` at first.
        """
        return FollowingContext.over(self._current_context) if self._context else None

    def _current_context(self) -> ssl.SSLContext:
        self.current()
        assert self._context is not None  # noqa: S101 - ssl_context() returns a caller only if there is one
        return self._context


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


def _check_headers(headers: Mapping[str, str | int]) -> None:
    for name, given in headers.items():
        value = str(given)
        key_path = plain(f"http_server_config.headers.{name}")
        if name not in _HEADERS:
            raise ConfigError(f"{key_path}: expected one of {', '.join(_HEADERS)}")
        allowed = _HEADERS[name]
        if not value.isprintable():
            raise ConfigError(f"{key_path}: expected one line")
        if value and allowed and value.lower() not in allowed:
            raise ConfigError(f"{key_path}: expected {' or '.join(sorted(allowed))}, found {value!r}")


def _check_users(users: Mapping[str, str]) -> None:
    for user, hashed in users.items():
        key_path = plain(f"basic_auth_users.{user}")
        if ":" in user:
            raise ConfigError(f"{key_path}: a user's name cannot contain a colon")
        if not _BCRYPT_HASH.fullmatch(hashed):
            raise ConfigError(f"{key_path}: not a bcrypt hash; `htpasswd -nBC 10 USER` makes one")


def _stamp(files: Iterable[str | Path | None]) -> list[tuple[int, int, int] | None]:
    """Return values that change when a file is written or replaced, or when Kubernetes swaps a link to it."""

    def stamp(file: str | Path) -> tuple[int, int, int] | None:
        try:
            status = Path(file).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    return [stamp(file) for file in files if file is not None]
