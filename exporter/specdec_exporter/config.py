"""Settings in one frozen object. A flag overrides the environment, which overrides the file and its defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.yamlfile import convert, number_of, read_yaml

LogLevel = Literal["debug", "info", "warn", "error"]
PredictorLogFormat = Literal["auto", "plain", "cri", "docker"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Duration(float):
    """Seconds of ``5m``, ``1h30m``, ``250ms``, or of a plain number of seconds.

    Raises :class:`ConfigError` for anything else, 0 included.
    """

    __slots__ = ()

    def __new__(cls, given: str | float) -> Self:
        """Read ``given``."""
        text = str(given)
        seconds = number_of(text) or 0.0
        if re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))
        if not 0.0 < seconds < float("inf"):
            raise ConfigError(f"expected a duration such as 30s, 5m or 1h30m, found {text!r}")
        return super().__new__(cls, seconds)


class Interval(Duration):
    """The :class:`Duration` between two reads, at least a second."""

    __slots__ = ()

    def __new__(cls, given: str | float) -> Self:
        """Read ``given``."""
        seconds = super().__new__(cls, given)
        if seconds < 1.0:
            raise ConfigError(f"expected at least 1s, found {str(given)!r}")
        return seconds


def parse_listen_address(text: str) -> tuple[str | None, int]:
    """Return host and port of ``:10409``, ``127.0.0.1:10409`` or ``[::1]:10409``; no host means every interface."""
    match = re.fullmatch(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})", text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"expected a listen address such as :10409 or [::1]:10409, found {text!r}")
    return match["v6"] or match["host"] or None, int(match["port"])


def valid_listen_address(text: str) -> str:
    """Return ``text`` if :func:`parse_listen_address` understands it, else raise :class:`ConfigError`."""
    parse_listen_address(text)
    return text


def valid_url(text: str, given: str | None = None) -> str:
    """Return ``text`` if it is an http(s) URL with a host, else raise :class:`ConfigError`, which shows no password.

    ``given`` is what a person wrote, if that is not ``text``.
    """
    try:
        url = urlsplit(text)
        valid = (
            url.scheme in ("http", "https")
            and bool((url.hostname or "").strip())
            and (url.port is None or url.port > 0)
        )
    except ValueError:
        valid = False
    if valid and "@" in url.path + url.query + url.fragment:  # a password with "/" would be taken for a path, and shown
        raise ConfigError("expected a URL without @ after the host; in a password, / is written as %2F, and @ as %40")
    if not valid or not text.isprintable():
        found = text if given is None else given
        raise ConfigError(f"expected a URL such as http://127.0.0.1:8080, found {found.rpartition('@')[2]!r}")
    return text


def url_of(text: str) -> str:
    """Return the URL that a person means by ``text``: without a scheme, such as ``host:8080``, it is plain HTTP."""
    return valid_url(text if "://" in text else f"http://{text}", text)


def valid_path(text: str) -> str:
    """Return ``text`` if it can be the path of an endpoint, else raise :class:`ConfigError`."""
    if not re.fullmatch(r"/[\w./-]+", text):
        raise ConfigError(f"expected a path such as /metrics, found {text!r}")
    if text.startswith(("/-/", "/api/")):
        raise ConfigError(f"expected a path that no other endpoint has, found {text!r}")
    return text


def valid_name(text: str) -> str:
    """Return ``text`` if it can be a predictor's name, else raise :class:`ConfigError`."""
    if not text or not text.isprintable():
        raise ConfigError("a predictor's name must be one printable line, and not empty")
    return text


def default_name() -> str:
    """Return the name of a predictor that nobody has named: that of the KServe service whose pod this is, if any."""
    return os.environ.get("INFERENCE_SERVICE_NAME") or "default"


_SECRET_HEADERS = re.compile(r"auth|cookie|token|key|secret|password|session", re.IGNORECASE)


def valid_header(text: str) -> str:
    """Return ``text`` if it names a header whose values may be shown, else raise :class:`ConfigError`."""
    if not re.fullmatch(r"[\w-]{1,64}", text, re.ASCII):
        raise ConfigError(f"expected the name of a header such as X-Tenant, found {text!r}")
    if _SECRET_HEADERS.search(text):
        raise ConfigError(f"the values of {text} are probably secret, and a report is not: name another header")
    return text


def _different_addresses(addresses: tuple[str, ...]) -> None:
    """Raise :class:`ConfigError` if there is none, or if two of them cannot both be listened on."""
    if not addresses:
        raise ConfigError("expected at least one, found none")
    for (host, port), (other, other_port) in combinations(map(parse_listen_address, addresses), 2):
        same = None in (host, other) or host == other or _is_every(host, other) or _is_every(other, host)
        if same and port == other_port != 0:
            raise ConfigError(f"two of them have port {port} on the same interface")


def _is_every(host: str | None, other: str | None) -> bool:
    """Whether ``host`` means every interface of the kind that ``other`` is."""
    return host == ("::" if ":" in str(other) else "0.0.0.0")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file. ``checks``: for a field, the function that raises :class:`ConfigError` for its value."""

    checks: ClassVar[dict[str, Callable[[Any], object]]] = {}

    def __post_init__(self) -> None:
        mistakes = []
        for name, check in self.checks.items():
            try:
                check(getattr(self, name))
            except ConfigError as error:
                mistakes.append(f"{name}: {error}")
        if mistakes:
            raise ConfigError(*mistakes)


class WebSettings(Section, frozen=True, kw_only=True):
    """``web:`` of the file, ``--web.*``."""

    checks = {"listen_addresses": _different_addresses, "telemetry_path": valid_path}

    listen_addresses: tuple[str, ...] = (":10409",)
    telemetry_path: str = "/metrics"
    config_file: str | None = None
    enable_lifecycle: bool = False
    disable_exporter_metrics: bool = False


class OwnLogSettings(Section, frozen=True, kw_only=True):
    """``log:`` of the file, ``--log.*``: the exporter's own log."""

    level: LogLevel = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class Access(Section, frozen=True, kw_only=True):
    """How to reach a predictor with TLS and a token: Prometheus' words, and files of PEM or of one token."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False
    bearer_token_file: str | None = None


SYSTEM_TRUST: Final = Access()  # no settings: the system's certificates, no token


class PredictorSettings(Access, frozen=True, kw_only=True):
    """One entry of ``predictors:``, or ``--predictor.*`` and ``--baseline.file``."""

    checks = {"name": valid_name, "url": valid_url}

    name: str = msgspec.field(default_factory=default_name)
    url: str = "http://127.0.0.1:8080"
    timeout: Duration = Duration(5)
    interval: Interval = Interval(15)
    log_paths: tuple[str, ...] = ()
    log_format: PredictorLogFormat = "auto"
    log_trust: Literal["server", "any"] = "server"
    log_from: Literal["end", "start"] = "end"
    log_source: Literal["file", "kubernetes"] = "file"
    baseline: str | None = None


def _without_clashes(predictors: tuple[PredictorSettings, ...]) -> None:
    """Raise :class:`ConfigError` for predictors that cannot be followed together."""
    names = [predictor.name for predictor in predictors]
    if not predictors:
        raise ConfigError("expected at least one, found none")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two predictors are called {name!r}; names must differ")
    if sum(predictor.log_source == "kubernetes" for predictor in predictors) > 1:
        raise ConfigError("only one predictor can read its log from the Kubernetes API")
    if sum("-" in predictor.log_paths for predictor in predictors) > 1:
        raise ConfigError("only one predictor can read its log from stdin ('-')")


class Settings(Section, frozen=True, kw_only=True):
    """All settings of ``serve``."""

    checks = {"predictors": _without_clashes}

    web: WebSettings = WebSettings()
    log: OwnLogSettings = OwnLogSettings()
    window: Duration = Duration(300)
    predictors: tuple[PredictorSettings, ...] = msgspec.field(default_factory=lambda: (PredictorSettings(),))


def load_settings(config_file: str | None, overrides: dict[str, dict[str, Any]]) -> Settings:
    """Return the settings of a file (or the defaults) with ``overrides`` from flags and environment.

    ``overrides`` has the sections ``web``, ``log``, ``predictor`` and ``top``; a missing key changes nothing. Raises
    :class:`ConfigError` that names the file, the key's path and the expected value.
    """
    settings = _read(config_file) if config_file else Settings()
    predictors, own = settings.predictors, overrides.get("predictor", {})
    if own:
        if len(predictors) != 1:
            flags = ", ".join(map(_flag_of, own))
            raise ConfigError(f"{config_file} lists {len(predictors)} predictors: {flags} cannot select one of them")
        predictors = (msgspec.structs.replace(predictors[0], **own),)
    return msgspec.structs.replace(
        settings,
        web=msgspec.structs.replace(settings.web, **overrides.get("web", {})),
        log=msgspec.structs.replace(settings.log, **overrides.get("log", {})),
        predictors=predictors,
        **overrides.get("top", {}),
    )


def _read(config_file: str) -> Settings:
    if (document := read_yaml(config_file, ConfigError)) is None:  # as while it is being written
        raise ConfigError(f"{config_file}: expected settings, found nothing")
    return convert(document, Settings, config_file, ConfigError)


def _flag_of(key: str) -> str:
    return "--baseline.file" if key == "baseline" else f"--predictor.{key.replace('_', '-')}"


def listed_predictor(config_file: str, target: str | None) -> PredictorSettings:
    """Return the predictor of a file that ``target`` means, by name or URL; ``None`` means its only one.

    Raises :class:`ConfigError`.
    """
    predictors = _read(config_file).predictors
    wanted = (target or "").removesuffix("/")
    found = [each for each in predictors if wanted in (each.name, each.url.removesuffix("/"))] if target else predictors
    if len(found) != 1:
        known = ", ".join(each.name for each in predictors)
        raise ConfigError(f"{config_file}: expected one of {known}; found {target or 'no name'}")
    return found[0]
