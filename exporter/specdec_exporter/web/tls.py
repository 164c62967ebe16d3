"""``tls_server_config`` of a web configuration file: certificates, client authentication, versions, ciphers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from specdec_exporter.errors import ConfigError

# Not RequireAnyClientCert, which accepts any certificate, and no version that is obsolete.
ClientAuthType = Literal["NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
TLSVersion = Literal["TLS12", "TLS13"]

_TLS_VERSIONS: dict[TLSVersion, ssl.TLSVersion] = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: dict[ClientAuthType, ssl.VerifyMode] = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # Go asks for a certificate and then ignores it
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_TLS13_CIPHER_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_CIPHER_SUITES = {  # the format uses Go's names (crypto/tls.CipherSuites); the values are OpenSSL's
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


class TLSServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tls_server_config``. Paths are absolute or relative to the working directory, not to the file."""

    cert_file: str
    key_file: str
    client_auth_type: ClientAuthType = "NoClientCert"
    client_ca_file: str | None = None
    min_version: TLSVersion = "TLS12"
    max_version: TLSVersion = "TLS13"
    cipher_suites: tuple[str, ...] = ()  # Go's names, for TLS 1.2; the suites of TLS 1.3 are always on
    prefer_server_cipher_suites: bool = True


def server_context(tls: TLSServerConfig) -> ssl.SSLContext:
    """Return a server context with the current certificates.

    Raises :class:`ConfigError`, which names the key, for files that cannot be read or do not belong together, and for
    settings that are not supported.
    """
    if tls.min_version > tls.max_version:
        raise ConfigError(f"tls_server_config: min_version {tls.min_version} is above max_version {tls.max_version}")
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
            raise ConfigError(f"{key_path}: {suite!r} is not supported; expected one of {', '.join(_CIPHER_SUITES)}")
    names = [_CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in _CIPHER_SUITES]
    if not names and tls.min_version != "TLS13":
        raise ConfigError(f"{key_path}: no cipher suite for TLS 1.2; add one, or set min_version to TLS13")
    if names:
        context.set_ciphers(":".join(names))


def _load_certificates(context: ssl.SSLContext, tls: TLSServerConfig) -> None:
    for key, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file), ("client_ca_file", tls.client_ca_file)):
        try:
            if file is not None:
                Path(file).read_bytes()  # an error of OpenSSL would not name the file
        except OSError as error:
            raise ConfigError(f"tls_server_config.{key}: {file}: {error.strerror}") from error
    try:
        # Without a password, OpenSSL would ask for the one of an encrypted key on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        reason = "the key does not belong to the certificate" if mismatch else error.reason
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
        raise ConfigError(f"tls_server_config.client_ca_file: {tls.client_ca_file}: no PEM certificate") from error


class FollowingContext(ssl.SSLContext):
    """A context that asks another one for each connection's TLS object, which asyncio makes with ``wrap_bio``."""

    _current: Callable[[], ssl.SSLContext]

    @classmethod
    def over(cls, current: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return a context that makes each connection with the context that ``current`` returns at that time."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current = current
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Return the TLS object of a new connection."""
        return self._current().wrap_bio(*args, **kwargs)
