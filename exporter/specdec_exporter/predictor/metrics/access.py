"""TLS and the token for one predictor, from files that are read again when they change."""

from __future__ import annotations

import functools
import os
import re
import ssl
import stat
from pathlib import Path
from typing import Final

from specdec_exporter import bounds
from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError, FetchError

_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")


class Credentials:
    """What each request to a predictor needs of TLS, and its token.

    A file that is missing or bad fails the request, not the start: the next request reads it again. Raises
    :class:`ConfigError` for settings that never work together.
    """

    def __init__(self, access: Access, *, has_password: bool) -> None:
        if (access.cert_file is None) != (access.key_file is None):
            given, missing = ("key", "cert") if access.cert_file is None else ("cert", "key")
            raise ConfigError(f"{given}_file needs {missing}_file")
        if access.insecure_skip_verify and access.ca_file is not None:
            raise ConfigError("insecure_skip_verify excludes ca_file")
        if access.bearer_token_file is not None and has_password:
            raise ConfigError("expected bearer_token_file or a user in the URL, found both")
        self.access = access
        self._context: ssl.SSLContext | None = None
        self._stamp: object = None

    def headers(self) -> dict[str, str]:
        """Return the header with the token. Raises :class:`FetchError` for a file without one."""
        path = self.access.bearer_token_file
        if path is None:
            return {}
        token = _read(path, "bearer_token_file", bounds.TOKEN_BYTES).strip()
        if not _TOKEN.fullmatch(token):
            what = "an empty file" if not token else "spaces, line breaks or characters that are not ASCII in it"
            raise FetchError("credentials", f"bearer_token_file {path}: expected one token, found {what}")
        return {"Authorization": f"Bearer {token.decode('ascii')}"}

    def context(self) -> ssl.SSLContext:
        """Return a context of the files as they are. Raises :class:`FetchError` for certificates that do not load."""
        access = self.access
        if access.ca_file is None and access.cert_file is None and not access.insecure_skip_verify:
            return system_trust()
        stamp = [_stamp(file) for file in (access.ca_file, access.cert_file, access.key_file) if file is not None]
        if self._context is None or stamp != self._stamp:
            self._context = None
            self._context = _context(access)
            self._stamp = stamp
        return self._context


@functools.cache
def system_trust() -> ssl.SSLContext:
    """Load the certificates that the system trusts; only for a predictor with TLS."""
    return ssl.create_default_context()


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A certificate in ca_file is trusted even if another one signed it, as in Go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if access.insecure_skip_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif access.ca_file is None:
        context.load_default_certs()
    else:
        content = _read(access.ca_file, "ca_file", bounds.CERTIFICATE_BYTES)
        try:
            context.load_verify_locations(cadata=content.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise FetchError("credentials", f"ca_file {access.ca_file}: expected PEM certificates") from error
    if access.cert_file is not None and access.key_file is not None:
        _read(access.cert_file, "cert_file", bounds.CERTIFICATE_BYTES)  # an error of OpenSSL would not name the file
        _read(access.key_file, "key_file", bounds.CERTIFICATE_BYTES)
        try:
            # Without a password, OpenSSL would ask for the one of an encrypted key on the terminal.
            context.load_cert_chain(access.cert_file, access.key_file, password="")
        except (ssl.SSLError, OSError) as error:
            mismatch = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
            reason = "the key does not belong to the certificate" if mismatch else "expected unencrypted PEM files"
            raise FetchError(
                "credentials", f"cert_file {access.cert_file}, key_file {access.key_file}: {reason}"
            ) from error
    return context


def _read(path: str, key: str, max_bytes: int) -> bytes:
    """Return the content of a regular file: a FIFO would hold up everything."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = file.read(max_bytes + 1) if regular else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FetchError("credentials", f"{key} {path}: cannot be read: {reason}") from error
    if not regular:
        raise FetchError("credentials", f"{key} {path}: expected a regular file")
    if len(content) > max_bytes:
        raise FetchError("credentials", f"{key} {path}: expected at most {max_bytes} bytes")
    return content


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes when a file is written or replaced, or when Kubernetes swaps a link to it."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
