"""TLS, basic authentication and headers hold on a real server, follow their files, and refuse what they cannot do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest import mock

import aiohttp
import bcrypt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from yarl import URL

from specdec_exporter.commands import healthcheck
from specdec_exporter.errors import ConfigError, SpecdecError
from specdec_exporter.web.basicauth import protect
from specdec_exporter.web.webconfig import WebConfig, WebConfigFile, load_web_config
from support.certificates import Identity, issue
from support.processes import exporter_ran
from support.running import exporter, listening

# With a salt that stays, for it is in the names of tests, and every worker must find the same.
ALICE = bcrypt.hashpw(b"wonderland", b"$2b$04$j.Cm3PaPHiD0oF84qI6Mk.").decode()


# --- files ------------------------------------------------------------------------------------------


TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


def configure(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


# --- a real server ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(provider: Callable[[], WebConfig], context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text="specdec_up 1\n", headers={"X-Content-Type-Options": "nosniff, its own"})

    app = web.Application()
    protect(app, provider)
    app.router.add_get("/metrics", metrics)
    async with listening(app, tls=context) as port:
        yield f"{'https' if context else 'http'}://localhost:{port}/metrics"


def trusting(folder: Path, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    if client:
        context.load_cert_chain(folder / f"{client}.crt", folder / f"{client}.key")
    return context


async def fetch(url: str, **options: object) -> aiohttp.ClientResponse:
    """One request over a connection of its own, so that each one shakes hands."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        session.get(url, **options) as response,  # type: ignore[arg-type]
    ):
        await response.read()
        return response


async def server_name(url: str, context: ssl.SSLContext) -> str:
    """The common name in the certificate that the server shows."""
    _, writer = await asyncio.open_connection("localhost", URL(url).port, ssl=context)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return str(dict(pair for names in certificate["subject"] for pair in names)["commonName"])


# --- basic authentication --------------------------------------------------------------------------------------------


def users(**hashes_by_user: str) -> Callable[[], WebConfig]:
    return lambda: WebConfig(basic_auth_users=hashes_by_user)


def as_user(name: str, password: str) -> dict[str, str]:
    return {"Authorization": aiohttp.encode_basic_auth(name, password)}


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        (aiohttp.encode_basic_auth("alice", "wonderland"), 200),
        (aiohttp.encode_basic_auth("alice", "Wonderland"), 401),
        (aiohttp.encode_basic_auth("mallory", "wonderland"), 401),
        (aiohttp.encode_basic_auth("alice", "x" * 500), 401),
        ("basic " + base64.b64encode(b"alice:wonderland").decode(), 200),
        ("Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(), 401),
        ("Basic " + base64.b64encode(b"alice:won\x00derland").decode(), 401),
        ("Basic not-base64!", 401),
        ("Bearer wonderland", 401),
    ],
)
async def test_only_the_right_password_opens(authorization: str | None, status: int) -> None:
    async with serving(users(alice=ALICE)) as url:
        response = await fetch(url, headers={"Authorization": authorization} if authorization else {})
    assert response.status == status
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


async def test_an_unknown_user_costs_as_much_as_a_known_one_each_time() -> None:
    bob = bcrypt.hashpw(b"builder", bcrypt.gensalt(6)).decode()
    async with serving(users(alice=ALICE, bob=bob)) as url:
        for name in (names := [f"mallory{number}" for number in range(20)]):
            header = as_user(name, "x")
            with mock.patch.object(bcrypt, "checkpw", wraps=bcrypt.checkpw) as counted:
                for _ in range(2):
                    assert (await fetch(url, headers=header)).status == 401
            first, second = (call.args[1].split(b"$")[2] for call in counted.call_args_list)
            assert first == second
            names[names.index(name)] = first.decode()
    assert set(names) == {"04", "06"}  # a time between the two would be that of no known user


async def test_nobody_waits_for_unknown_users() -> None:
    asked, answered = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(password: bytes, hashed: bytes) -> bool:
        if hashed.endswith(b"." * 53):
            loop.call_soon_threadsafe(asked.set)
            return not answered.wait(60)
        return checkpw(password, hashed)

    checkpw = bcrypt.checkpw
    async with serving(users(alice=ALICE)) as url:
        with mock.patch.object(bcrypt, "checkpw", slow):
            mallory = as_user("mallory", "x")
            unknown = [asyncio.create_task(fetch(url, headers=mallory)) for _ in range(5)]
            await asked.wait()
            alice = as_user("alice", "wonderland")
            assert (await fetch(url, headers=alice)).status == 200
            assert not any(task.done() for task in unknown)
            answered.set()
            assert {(await task).status for task in unknown} == {401}


async def test_a_changed_password_locks_out_the_old_one_at_once(folder: Path) -> None:
    path = configure(folder, f"basic_auth_users:\n  alice: {ALICE}\n")
    file = WebConfigFile(path)
    old = as_user("alice", "wonderland")
    new = as_user("alice", "looking-glass")
    async with serving(file.current) as url:
        assert (await fetch(url, headers=old)).status == 200
        configure(
            folder, f"basic_auth_users:\n  alice: {bcrypt.hashpw(b'looking-glass', bcrypt.gensalt(4)).decode()}\n"
        )
        assert (await fetch(url, headers=old)).status == 401
        assert (await fetch(url, headers=new)).status == 200


async def test_a_file_that_turned_bad_changes_nothing_and_is_reported_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = configure(folder, f"basic_auth_users:\n  alice: {ALICE}\n")
    file = WebConfigFile(path)
    async with serving(file.current) as url:
        configure(folder, "basic_auth_users: oops\n")
        assert [(await fetch(url)).status for _ in range(3)] == [401, 401, 401]
        path.unlink()
        assert (await fetch(url)).status == 401
        configure(folder, "")  # as while it is being written
        assert (await fetch(url)).status == 401
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 3
    assert all("web.yml" in warning for warning in warnings)


async def test_configured_headers_stand_on_every_response_and_never_replace_its_own(folder: Path) -> None:
    path = configure(
        folder,
        "http_server_config:\n  http2: false\n  headers:\n"
        "    X-Frame-Options: deny\n    X-Content-Type-Options: nosniff\n    X-XSS-Protection: ''\n"
        f"basic_auth_users:\n  alice: {ALICE}\n",
    )
    config = load_web_config(path)
    async with serving(lambda: config) as url:
        header = as_user("alice", "wonderland")
        there = [await fetch(url), await fetch(url, headers=header)]
        responses = [*there, await fetch(url + "/nothing", headers=header), await fetch(url + "/nothing")]
    assert [response.status for response in responses] == [401, 200, 404, 401]
    assert {response.headers["X-Frame-Options"] for response in responses} == {"deny"}
    assert [response.headers["X-Content-Type-Options"] for response in responses] == [
        "nosniff",
        "nosniff, its own",
        "nosniff",
        "nosniff",
    ]
    assert not any("X-XSS-Protection" in response.headers for response in responses)


# --- TLS -------------------------------------------------------------------------------------------------------------


async def test_a_certificate_renewed_halfway_does_not_interrupt(folder: Path, authority: Identity) -> None:
    file = WebConfigFile(configure(folder, TLS))
    renewed = issue("server two", authority)
    context = trusting(folder)
    async with serving(file.current, file.ssl_context()) as url:
        (folder / "server.crt").write_bytes(renewed.certificate.public_bytes(serialization.Encoding.PEM))
        assert await server_name(url, context) == "server"  # the key does not fit yet
        renewed.write(folder, "server")
        assert await server_name(url, context) == "server two"


async def test_client_certificates_are_demanded_from_the_moment_the_file_says_so(folder: Path) -> None:
    file = WebConfigFile(configure(folder, TLS))
    anonymous = trusting(folder)
    known = trusting(folder, "client")
    async with serving(file.current, file.ssl_context()) as url:
        assert (await fetch(url, ssl=anonymous)).status == 200
        configure(folder, TLS + "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n")
        assert (await fetch(url, ssl=known)).status == 200
        with pytest.raises(aiohttp.ClientError):
            await fetch(url, ssl=anonymous)


@pytest.mark.parametrize(
    ("client", "let_in"), [(None, True), ("client", True), ("stranger", False)], ids=["none", "known", "stranger"]
)
async def test_a_certificate_is_verified_if_given(folder: Path, client: str | None, let_in: bool) -> None:
    issue("stranger").write(folder, "stranger")
    config = load_web_config(
        configure(folder, TLS + "  client_ca_file: ca.crt\n  client_auth_type: VerifyClientCertIfGiven\n")
    )
    context = trusting(folder, client)
    async with serving(lambda: config, config.ssl_context()) as url:
        if let_in:
            assert (await fetch(url, ssl=context)).status == 200
        else:
            with pytest.raises(aiohttp.ClientError):
                await fetch(url, ssl=context)


async def test_versions_and_ciphers_are_what_the_file_says(folder: Path) -> None:
    config = load_web_config(
        configure(
            folder,
            TLS + "  max_version: TLS12\n  prefer_server_cipher_suites: false\n"
            "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]\n",
        )
    )
    context = config.ssl_context()
    assert context is not None
    client = trusting(folder)
    async with serving(lambda: config, context) as url:
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        assert (await fetch(url, ssl=client)).status == 200
        client.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
        with pytest.raises(aiohttp.ClientError):
            await fetch(url, ssl=client)
        client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(aiohttp.ClientError):
            await fetch(url, ssl=client)


def test_tls_1_2_is_the_least_and_the_systems_roots_judge_optional_certificates(folder: Path) -> None:
    context = load_web_config(configure(folder, TLS)).ssl_context()
    assert context is not None
    assert (context.minimum_version, context.verify_mode) == (ssl.TLSVersion.TLSv1_2, ssl.CERT_NONE)
    context = load_web_config(configure(folder, TLS + "  client_auth_type: VerifyClientCertIfGiven\n")).ssl_context()
    assert context is not None
    assert context.verify_mode == ssl.CERT_OPTIONAL
    assert all(authority["subject"] != ((("commonName", "the authority"),),) for authority in context.get_ca_certs())


def test_switching_tls_on_without_a_restart_is_called_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = WebConfigFile(configure(folder, ""))
    assert file.ssl_context() is None
    configure(folder, TLS)
    file.current()
    assert "needs a restart" in caplog.text


# --- the whole exporter ----------------------------------------------------------------------------------------------


async def test_the_exporter_serves_those_with_a_password_and_answers_its_own_health_probe(folder: Path) -> None:
    path = configure(folder, TLS + f"basic_auth_users:\n  alice: {ALICE}\n")
    context = trusting(folder)
    header = as_user("alice", "wonderland")
    async with exporter(f"--web.config.file={path}", "--predictor.timeout=1s") as running:
        port = URL(running.url).port
        for page in ("/", "/metrics", "/api/v1/status", "/-/healthy"):
            url = f"https://localhost:{port}{page}"
            assert (await fetch(url, ssl=context)).status == 401
            assert (await fetch(url, ssl=context, headers=header)).status == 200
        probe = ("healthcheck", f"--web.listen-address=127.0.0.1:{port}", f"--web.config.file={path}")
        assert (await asyncio.to_thread(exporter_ran, *probe)).returncode == 0
    assert all("level=info" in line or "predictor's metrics" in line for line in running.log), running.log


async def probe(url: str) -> str:
    """The error of a health check of a server that may speak TLS; empty if it passes."""
    flags = [f"--web.listen-address=127.0.0.1:{URL(url).port}", "--web.config.file=web.yml"]
    try:
        await asyncio.to_thread(healthcheck.command.main, flags, standalone_mode=False)
    except SpecdecError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
async def test_a_health_probe_passes_where_client_certificates_are_demanded(folder: Path, version: str) -> None:
    demands = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
    file = WebConfigFile(configure(folder, f"{TLS}{demands}  max_version: {version}\n"))
    async with serving(file.current, file.ssl_context()) as url:
        assert await probe(url) == ""
    assert "refused" in await probe(url)


async def test_a_health_probe_takes_a_server_without_tls_and_is_not_content_with_any_connection() -> None:
    async with serving(WebConfig) as url:
        assert await probe(url) == ""

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # a TLS alert, which needs no working TLS
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        assert await probe(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tls_server_config:\n", "tls_server_config"),
        ("tls_server_config:\n  cert_file: ''\n  key_file: server.key\n", "tls_server_config.cert_file"),
        ("http_server_config:\n  headers:\n    X-Powered-By: me\n", "headers.X-Powered-By"),
        (TLS + "  cret_file: x\n", "tls_server_config.cret_file: unknown key"),
        ("tls_server_config:\n  cert_file: server.crt\n", "key_file"),
        ('tls_server_config:\n  cert_file: "a\\0b"\n  key_file: server.key\n', "control character"),
        ("tls_server_config:\n  cert_file: gone.crt\n  key_file: server.key\n", "gone.crt: No such file"),
        ("tls_server_config:\n  cert_file: server.crt\n  key_file: client.key\n", "does not belong"),
        ("tls_server_config:\n  cert_file: web.yml\n  key_file: server.key\n", "not a PEM|NO_START_LINE"),
        (TLS + "  client_auth_type: RequireAnyClientCert\n", "client_auth_type.*RequireAndVerifyClientCert"),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "client_ca_file"),
        (TLS + "  client_ca_file: ca.crt\n", "client_auth_type"),
        (
            TLS + "  client_ca_file: server.key\n  client_auth_type: VerifyClientCertIfGiven\n",
            "client_ca_file.*no PEM certificate",
        ),
        (TLS + "  min_version: TLS11\n", "tls_server_config.min_version.*TLS12"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12\n", "min_version TLS13 is above"),
        (TLS + "  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", "cipher_suites.*RC4"),
        (TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "cipher_suites.*min_version"),
        ("http_server_config:\n  headers:\n    X-Frame-Options: maybe\n", "headers.X-Frame-Options.*deny"),
        (
            'http_server_config:\n  headers:\n    Content-Security-Policy: "a\\r\\nSet-Cookie: b"\n',
            "control character",
        ),
        ("basic_auth_users:\n  alice: wonderland\n", "basic_auth_users.alice: not a bcrypt hash"),
        ("basic_auth_users:\n  alice:\n", r"basic_auth_users\[...\]: expected text, found nothing"),
        (f"basic_auth_users:\n  'a:b': {ALICE}\n", "colon"),
    ],
)
def test_a_bad_file_is_named_with_the_key(folder: Path, text: str, named: str) -> None:
    path = configure(folder, text)
    with pytest.raises(ConfigError, match=named) as caught:
        load_web_config(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert "wonderland" not in message
    assert ALICE not in message


def test_an_encrypted_key_is_refused_without_asking_anyone_for_its_password(folder: Path, authority: Identity) -> None:
    server = issue("server", authority)
    server.write(folder, "server")
    (folder / "server.key").write_bytes(server.key_pem(serialization.BestAvailableEncryption(b"secret")))
    with pytest.raises(ConfigError, match=r"server\.key"):
        load_web_config(configure(folder, TLS))
