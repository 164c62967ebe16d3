"""TLS and the token for a predictor, against real servers: who is trusted, what is sent, and files that change."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from specdec_exporter import bounds
from specdec_exporter.commands.cli import cli
from specdec_exporter.config import Access
from specdec_exporter.errors import FetchError, SpecdecError
from specdec_exporter.predictor.metrics.access import system_trust
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from support import running
from support.certificates import Identity, issue

NOBODY = "http://127.0.0.1:9"
BODY = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 3.0\n'


class Predictor:
    """Where a predictor answers, and the credentials that it was sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[str | None] = []


async def ask(url: str, access: Access) -> str:
    """The reason why a fetch fails, empty if it succeeds."""
    async with open_session() as session:
        try:
            await MetricsFetcher(session, url, access=access).fetch(10)
        except FetchError as error:
            return f"{error.reason}: {error}"
    return ""


def context(folder: Path, name: str = "server", *, demands: bool = False) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    if demands:
        made.load_verify_locations(folder / "ca.crt")
        made.verify_mode = ssl.CERT_REQUIRED
    return made


@asynccontextmanager
async def predictor(made: ssl.SSLContext | None) -> AsyncIterator[Predictor]:
    async with running.predictor(BODY, tls=made) as played:
        playing = Predictor(played.url.replace("127.0.0.1", "localhost"))

        async def answer(request: web.Request) -> web.Response:
            playing.sent.append(request.headers.get("Authorization"))
            return web.Response(body=BODY, headers=played.headers)

        played.answer = answer
        yield playing


def access(folder: Path, **others: str) -> Access:
    named = {key: str(folder / name) for key, name in others.items() if key.endswith("_file")}
    return Access(**{**others, **named})  # type: ignore[arg-type]


# --- who is trusted --------------------------------------------------------------------------------------------------


async def test_a_certificate_is_trusted_by_its_ca_or_by_itself_and_else_refused(folder: Path) -> None:
    issue("another authority").write(folder, "other")
    async with predictor(context(folder)) as server:
        assert await ask(server.url, access(folder, ca_file="ca.crt")) == ""
        assert await ask(server.url, access(folder, ca_file="server.crt")) == ""  # another one signed it
        assert await ask(server.url, Access(insecure_skip_verify=True)) == ""
        for refused in (Access(), access(folder, ca_file="other.crt")):
            assert "tls: GET https://localhost" in (why := await ask(server.url, refused))
            assert "its certificate is not trusted: " in why


async def test_a_server_without_tls_is_told_from_one_that_does_not_answer() -> None:
    async with predictor(None) as server:
        server.url = server.url.replace("http://", "https://")
        assert "nothing speaks TLS there" in await ask(server.url, Access())


async def test_a_certificate_that_the_environment_names_is_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As KServe's of an LLMInferenceService: it signed itself."""
    issue("itself").write(folder, "itself")
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "itself.crt"))
    system_trust.cache_clear()
    async with predictor(context(folder, "itself")) as server:
        assert await ask(server.url, Access()) == ""
    system_trust.cache_clear()


async def test_a_certificate_must_have_the_name_and_be_valid_still(folder: Path, authority: Identity) -> None:
    issue("elsewhere", authority, host="vllm.example").write(folder, "elsewhere")
    issue("expired", authority, until=dt.timedelta(seconds=-60)).write(folder, "expired")
    trusting = {"ca_file": "ca.crt"}
    async with predictor(context(folder, "elsewhere")) as server:
        assert "not valid for 'localhost'" in await ask(server.url, access(folder, **trusting))
        assert await ask(server.url, access(folder, **trusting, server_name="vllm.example")) == ""
        assert await ask(server.url, Access(insecure_skip_verify=True)) == ""
    async with predictor(context(folder, "expired")) as server:
        assert "certificate has expired" in await ask(server.url, access(folder, **trusting))
        assert await ask(server.url, Access(insecure_skip_verify=True)) == ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_is_shown_to_who_demands_it(folder: Path, version: ssl.TLSVersion) -> None:
    demanding = context(folder, demands=True)
    demanding.maximum_version = version
    async with predictor(demanding) as server:
        known = access(folder, ca_file="ca.crt", cert_file="client.crt", key_file="client.key")
        assert await ask(server.url, known) == ""
        assert "give cert_file and key_file" in await ask(server.url, access(folder, ca_file="ca.crt"))


# --- files that change -----------------------------------------------------------------------------------------------


async def test_new_files_hold_from_the_next_fetch_and_bad_ones_only_as_long_as_they_are_bad(
    folder: Path, authority: Identity
) -> None:
    new = issue("the next authority")
    made = context(folder, demands=True)
    (folder / "token").write_text("first\n")
    known = access(folder, ca_file="ca.crt", cert_file="client.crt", key_file="client.key", bearer_token_file="token")
    async with predictor(made) as server, open_session() as session:
        fetcher = MetricsFetcher(session, server.url, access=known)
        await fetcher.fetch(10)

        new.write(folder, "ca")  # the server and its CA are replaced, as cert-manager does
        issue("server", new).write(folder, "server")
        made.load_cert_chain(folder / "server.crt", folder / "server.key")
        made.load_verify_locations(folder / "ca.crt")
        (folder / "token").write_text("second")
        await fetcher.fetch(10)
        assert server.sent == ["Bearer first", "Bearer second"]

        (folder / "client.crt").write_text("half written")
        with pytest.raises(FetchError, match=r"cert_file .*client\.crt") as caught:
            await fetcher.fetch(10)
        assert caught.value.reason == "credentials"
        issue("client", new).write(folder, "client")
        issue("another", authority).write(folder, "another")
        key = (folder / "client.key").read_bytes()
        (folder / "another.key").replace(folder / "client.key")
        with pytest.raises(FetchError, match="the key does not belong to the certificate"):
            await fetcher.fetch(10)
        (folder / "client.key").write_bytes(key)
        (folder / "ca.crt").unlink()
        with pytest.raises(FetchError, match=r"ca_file .*ca\.crt: cannot be read: No such file"):
            await fetcher.fetch(10)
        new.write(folder, "ca")
        await fetcher.fetch(10)


BAD_TOKENS = {
    "gone": (None, "cannot be read: No such file or directory"),
    "empty": (b" \n", "expected one token, found an empty file"),
    "two lines": (b"s3cret\ns3cret", "expected one token, found spaces, line breaks"),
    "a header": (b"s3cret\r\nX-Other: 1", "expected one token"),
    "binary": (b"s3cret\0\xff", "expected one token"),
    "large": (b"s3cret" * bounds.TOKEN_BYTES, f"expected at most {bounds.TOKEN_BYTES} bytes"),
}


@pytest.mark.parametrize("what", BAD_TOKENS)
async def test_a_bad_token_fails_the_fetch_and_is_neither_sent_nor_shown(folder: Path, what: str) -> None:
    content, says = BAD_TOKENS[what]
    if content is not None:
        (folder / "token").write_bytes(content)
    async with predictor(None) as server:
        why = await ask(server.url, access(folder, bearer_token_file="token"))
        assert why.startswith(f"credentials: bearer_token_file {folder}/token: {says}")
        assert "s3cret" not in why
        assert server.sent == []


@pytest.mark.parametrize("key", ["ca_file", "bearer_token_file", "cert_file"])
async def test_what_is_no_file_fails_the_fetch_at_once(folder: Path, key: str) -> None:
    os.mkfifo(folder / "fifo")
    others = {"key_file": "client.key"} if key == "cert_file" else {}
    for name in ("fifo", "."):
        why = await ask("https://localhost:1", access(folder, **{key: name}, **others))
        assert "expected a regular file" in why or "Is a directory" in why
    assert "cannot be read" in await ask("https://localhost:1", access(folder, **{key: "a\0b"}, **others))


async def test_a_key_with_a_password_fails_without_asking_for_it(folder: Path) -> None:
    locked = issue("client")
    locked.write(folder, "client")
    (folder / "client.key").write_bytes(locked.key_pem(serialization.BestAvailableEncryption(b"secret")))
    why = await ask("https://localhost:1", access(folder, cert_file="client.crt", key_file="client.key"))
    assert why.startswith("credentials: ")
    assert why.endswith("expected unencrypted PEM files")


async def test_a_ca_file_without_certificates_is_named(folder: Path) -> None:
    for name in ("server.key", "empty"):
        (folder / "empty").touch()
        why = await ask("https://localhost:1", access(folder, ca_file=name))
        assert why == f"credentials: ca_file {folder}/{name}: expected PEM certificates"


@pytest.mark.parametrize(
    "line",
    [
        "check chat",
        "baseline record --predictor.url=chat --duration=1s",
        "baseline check base.yaml --predictor.url=chat",
    ],
)
def test_commands_that_ask_a_predictor_take_its_access_from_the_configuration(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_bytes((Path(__file__).parents[2] / "deploy" / "demo" / "baseline.yaml").read_bytes())
    (tmp_path / "specdec.yaml").write_text(f"predictors: [{{name: chat, url: '{NOBODY}', bearer_token_file: gone}}]")
    said = ""
    try:
        cli.main([*line.split(), "--config.file=specdec.yaml"], standalone_mode=False)
    except SpecdecError as error:
        said = str(error)
    assert "bearer_token_file gone: cannot be read: No such file or directory" in said + capsys.readouterr().out


# --- who gets the token ----------------------------------------------------------------------------------------------


async def test_a_token_goes_to_its_own_host_and_port_only(folder: Path) -> None:
    (folder / "token").write_text("s3cret")
    known = access(folder, bearer_token_file="token", ca_file="ca.crt")
    async with predictor(context(folder)) as other, predictor(None) as plain:
        for target in (other.url, plain.url, plain.url.replace("http:", "https:")):

            async def elsewhere(_: web.Request, target: str = target) -> web.Response:
                raise web.HTTPFound(f"{target}/metrics")

            async with running.predictor() as redirecting:
                redirecting.answer = elsewhere
                why = await ask(redirecting.url, known)
            assert why.startswith("redirect: ")
            assert "s3cret" not in why
        assert (other.sent, plain.sent) == ([], [])
        assert await ask(plain.url, known) == ""  # as Prometheus does: TLS may be a mesh's work
        assert plain.sent == ["Bearer s3cret"]
