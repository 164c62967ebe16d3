"""The Kubernetes API as a pod reaches it: its address, its certificate, the token of the service account."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import aiohttp
import msgspec

from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.metrics.access import Credentials

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST_REFUSAL_BYTES: Final = 16 * 1024


class _ApiStatus(msgspec.Struct):
    """The API's answer where it refuses."""

    message: str = ""


class Refused(Exception):  # noqa: N818  private to those who ask the API: they note it and try again
    """The API answered with something else than what was asked for. ``status`` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(plain(message))
        self.status = status


class KubernetesApi:
    """Where the API is and who asks.

    Token and certificate are read anew for every request, because the kubelet renews them. ``token_path`` ``None``
    sends none.
    """

    def __init__(self, url: str, *, token_path: Path | None, ca_path: Path | None) -> None:
        self._url = url.rstrip("/")
        authority, token = (None if path is None else str(path) for path in (ca_path, token_path))
        access = Access(ca_file=authority, bearer_token_file=token)
        self._credentials = Credentials(access, has_password=False)

    @classmethod
    def in_pod(
        cls, asker: str, environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT
    ) -> Self:
        """Return the API of the cluster that this pod is in.

        Reads KUBERNETES_SERVICE_HOST and _PORT. Raises :class:`ConfigError`, which names ``asker``, the setting that
        needs the API, where they or the token are missing.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigError(f"{asker} works only inside a pod: KUBERNETES_SERVICE_HOST is not set")
        token_path = service_account / "token"
        if not token_path.is_file():
            raise ConfigError(
                f"{asker} needs a service account token, but {token_path} does not exist"
                " (is automountServiceAccountToken false?)"
            )
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return cls(url, token_path=token_path, ca_path=service_account / "ca.crt")

    @contextlib.asynccontextmanager
    async def get(
        self,
        session: aiohttp.ClientSession,
        path: str,
        parameters: Mapping[str, str],
        *,
        limits: aiohttp.ClientTimeout,
        right: str,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for ``path``; the answer is there until the block ends.

        ``right`` is what the service account must be allowed, for the message. Raises :class:`Refused` for any answer
        but 200, :class:`FetchError` for a bad token or certificate file, and aiohttp's errors.
        """
        async with session.get(
            self._url + path,
            params=parameters,
            headers={**self._credentials.headers(), "Accept-Encoding": "identity"},
            ssl=self._credentials.context() if self._url.startswith("https:") else True,
            timeout=limits,
            allow_redirects=False,
        ) as response:
            if response.status != HTTPStatus.OK:
                raise Refused(response.status, await refusal(response, right))
            yield response


async def refusal(response: aiohttp.ClientResponse, right: str) -> str:
    """Return the API's reason for its refusal, and what to do about it."""
    said = ""
    with contextlib.suppress(aiohttp.ClientError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = msgspec.json.decode(await response.content.read(_LONGEST_REFUSAL_BYTES), type=_ApiStatus).message
    advice = f"; let the service account {right}" if response.status == HTTPStatus.FORBIDDEN else ""
    return f"the Kubernetes API answered {response.status}: {said[:300] or response.reason}{advice}"
