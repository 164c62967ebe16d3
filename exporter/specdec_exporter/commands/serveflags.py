"""The table of ``serve``'s flags, the settings that they set, and a reader of usual command lines without click.

click costs 1 MiB for as long as ``serve`` runs. So this module reads plain command lines, and click reads all others,
such as help and bad usage. A test checks that both read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from specdec_exporter import config
from specdec_exporter.config import Settings, load_settings
from specdec_exporter.errors import ConfigError
from specdec_exporter.serving.lean import lean_imports


class Flag(NamedTuple):
    """One flag. ``check`` turns the text into the setting or raises :class:`ConfigError`. A switch takes no text."""

    name: str
    help: str
    metavar: str | None = None
    check: Callable[[str], Any] | None = None
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    switch: bool = False

    @property
    def key(self) -> str:
        """The name of the command's parameter: ``predictor_url`` for ``--predictor.url``."""
        return self.name.lstrip("-").replace(".", "_").replace("-", "_")

    @property
    def variable(self) -> str:
        """The flag's environment twin."""
        return f"SPECDEC_{self.key.upper()}"

    def setting(self, texts: list[str]) -> Any:
        """Return the setting. No text gives ``None``, or an empty tuple if the flag is repeatable."""
        if self.repeatable:
            return tuple(map(self._setting, texts))
        return self._setting(texts[-1]) if texts else None

    def _setting(self, text: str) -> Any:
        if self.choices and text not in self.choices:
            raise ConfigError(f"expected one of {', '.join(self.choices)}, found {text!r}")
        return self.check(text) if self.check else text


# The commands that ask a predictor themselves have these too.
ACCESS_FLAGS = (
    Flag("--predictor.ca-file", "CA certificates for its TLS.  [default: those of the system]", "PATH"),
    Flag("--predictor.cert-file", "Client certificate, if it demands one.", "PATH"),
    Flag("--predictor.key-file", "Key of the client certificate.", "PATH"),
    Flag("--predictor.server-name", "Name that its certificate must have.  [default: the URL's host]", "NAME"),
    Flag("--predictor.insecure-skip-verify", "Accept any certificate.", switch=True),
    Flag("--predictor.bearer-token-file", "Token to send with each request.", "PATH"),
)
FLAGS = (
    Flag("--config.file", "YAML file with any of these settings. It can list several predictors.", "PATH"),
    Flag(
        "--web.listen-address",
        "Address to listen on, repeatable; [::1]:10409 for IPv6.  [default: :10409]",
        "[HOST]:PORT",
        config.valid_listen_address,
        repeatable=True,
    ),
    Flag("--web.telemetry-path", "Path of the metrics.  [default: /metrics]", "PATH", config.valid_path),
    Flag("--web.config.file", "TLS and basic auth, in the format of Prometheus exporters.", "PATH"),
    Flag("--web.enable-lifecycle", "Allow POST /-/reload.", switch=True),
    Flag("--web.disable-exporter-metrics", "Leave out process_* and python_info.", switch=True),
    Flag(
        "--log.level",
        "Least severe message of the exporter's own log, which goes to stderr.  [default: info]",
        choices=("debug", "info", "warn", "error"),
    ),
    Flag("--log.format", "Format of the exporter's own log.  [default: logfmt]", choices=("logfmt", "json")),
    Flag("--predictor.url", "The predictor.  [default: http://127.0.0.1:8080]", "URL", config.valid_url),
    Flag(
        "--predictor.name",
        "Its name, for the label inference_service. In a pod of KServe the InferenceService's, if you give none."
        "  [default: default]",
        "NAME",
        config.valid_name,
    ),
    Flag(
        "--predictor.timeout",
        "Longest time for one fetch of its metrics.  [default: 5s]",
        "DURATION",
        config.parse_duration,
    ),
    *ACCESS_FLAGS,
    Flag(
        "--predictor.log-path",
        "Its log: a path or a glob, repeatable; - is stdin. Without this flag no log is read.",
        "PATH",
        repeatable=True,
    ),
    Flag(
        "--predictor.log-format",
        "Framing of the log's lines.  [default: auto]",
        choices=("auto", "plain", "cri", "docker"),
    ),
    Flag(
        "--predictor.log-trust",
        "Whose lines count: those that name the server's own loggers, or any.  [default: server]",
        choices=("server", "any"),
    ),
    Flag(
        "--predictor.log-from",
        "Where to begin in logs that exist when the exporter starts.  [default: end]",
        choices=("end", "start"),
    ),
    Flag(
        "--predictor.log-source",
        "Read the log from files, or from the Kubernetes API.  [default: file]",
        choices=("file", "kubernetes"),
    ),
    Flag("--predictor.log-state", "File that keeps the read positions across restarts.", "PATH"),
    Flag("--baseline.file", "Baseline to serve beside the predictor, from `baseline record`.", "PATH"),
    Flag(
        "--window",
        "Time span of the derived metrics, the page and the API.  [default: 5m]",
        "DURATION",
        config.parse_duration,
    ),
)
# Flags whose setting has another section or name than the flag.
_SECTIONS = {"window": ("top", "", "window"), "baseline_file": ("predictor", "", "baseline")}
_SETTINGS = {"listen_address": "listen_addresses", "log_path": "log_paths"}


def overrides(flags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort the flags that were set into the sections of :func:`config.load_settings`."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in flags.items():
        if value is None or value == ():
            continue
        section, _, rest = _SECTIONS.get(key) or key.partition("_")
        sections.setdefault(section, {})[_SETTINGS.get(rest, rest)] = value
    return sections


def plain_flags(arguments: Iterable[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the command's parameters as click would give them; ``None`` if click must read the command line."""
    by_name = {flag.name: flag for flag in FLAGS}
    texts: dict[str, list[str]] = {name: [] for name in by_name}
    rest = iter(arguments)
    for argument in rest:
        name, has_text, text = argument.partition("=")
        if name not in by_name or by_name[name].switch:
            return None
        if not has_text:
            text = next(rest, "--")
            if text.startswith("-") and text != "-":  # the text seems to be missing
                return None
        texts[name].append(text)
    for name, flag in by_name.items():
        twin = environment.get(flag.variable)
        if twin and not texts[name]:
            if flag.switch:
                return None
            texts[name] = twin.split() if flag.repeatable else [twin]
    try:
        return {flag.key: flag.setting(texts[name]) for name, flag in by_name.items()}
    except ConfigError:
        return None


def settings_loader(config_file: str | None, flags: Mapping[str, Any]) -> Callable[[], Settings]:
    """Return a function that reads the configuration under these flags, at the start and at each reload."""
    return partial(load_settings, config_file, overrides(flags))


def start(load: Callable[[], Settings]) -> int:
    """Serve until a signal; return the exit code."""
    settings = load()
    with lean_imports():
        from specdec_exporter.serving import serve

    return serve.run(settings, load)
