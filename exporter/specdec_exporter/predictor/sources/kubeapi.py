"""The Kubernetes API as a pod reaches it: its address, its certificate, the token of the service account."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import aiohttp
import msgspec

from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError, FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.metrics.access import Credentials

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST_REFUSAL_BYTES: Final = 16 * 1024


class _ApiStatus(msgspec.Struct):
    """The API's answer where it refuses."""

    message: str = ""


class KubernetesApi:
    """Where the API is and who asks.

    Token and certificate are read anew for every request, because the kubelet renews them.
    """

    def __init__(self, url: str, *, token_path: Path, ca_path: Path | None) -> None:
        self._url = url
        access = Access(ca_file=None if ca_path is None else str(ca_path), bearer_token_file=str(token_path))
        self._credentials = Credentials(access, has_password=False)

    @classmethod
    def in_pod(cls, asker: str, environ: Mapping[str, str], service_account: Path) -> Self:
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

        ``right`` is what the service account must be allowed, for the message. Raises :class:`FetchError` for any
        answer but 200 and for a bad token or certificate file, and aiohttp's errors.
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
                raise FetchError("http_status", await _refusal(response, right))
            yield response


async def _refusal(response: aiohttp.ClientResponse, right: str) -> str:
    """Return the API's reason for its refusal, and what to do about it."""
    said = ""
    with contextlib.suppress(aiohttp.ClientError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = msgspec.json.decode(await response.content.read(_LONGEST_REFUSAL_BYTES), type=_ApiStatus).message
    advice = f"; let the service account {right}" if response.status == HTTPStatus.FORBIDDEN else ""
    return plain(f"the Kubernetes API answered {response.status}: {said[:300] or response.reason}{advice}")
