"""Targets from files in the format of Prometheus' file_sd: lists of ``targets`` and ``labels``, in JSON or YAML.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config
"""

from __future__ import annotations

import asyncio
import glob
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from specdec_exporter import bounds
from specdec_exporter.config import valid_url
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.sources.aside import Aside
from specdec_exporter.serving.discovery.target import ProviderHealth, Target
from specdec_exporter.yamlfile import MAX_BYTES, AsWritten, parse_yaml

LOG = logging.getLogger("specdec")

LOOK_SECONDS: Final = 5.0  # between two looks; a look costs one stat per file
_UNNAMED: Final = "default"  # the service of a target that nobody named


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a file. Of the labels, only those that :func:`_targets` names count."""

    targets: tuple[str, ...]
    labels: dict[str, AsWritten] = {}


class FileProvider:
    """Reads the files that match ``patterns``, and reads them again when they change.

    Of a bad file, what it said before stays.
    """

    name = "files"

    def __init__(self, patterns: tuple[str, ...], changed: Callable[[], None]) -> None:
        self.health = ProviderHealth()
        self.left_out = 0
        self._patterns = patterns
        self._changed = changed
        self._files: dict[str, tuple[Target, ...]] = {}
        self._stamps: dict[str, tuple[int, ...]] = {}
        self._problems: dict[str, str] = {}

    @property
    def targets(self) -> list[Target]:
        """The targets of all files, file by file."""
        return [target for _, targets in sorted(self._files.items()) for target in targets]

    async def run(self) -> None:
        """Look every few seconds. The files may be on a file system that hangs, so a thread looks."""
        aside = Aside()
        try:
            while True:
                try:
                    changed = await aside.run(self.look)
                except Exception as error:
                    changed = self.health.failed(type(error).__name__)
                    LOG.exception("looking for files with targets failed")
                if changed:
                    self._changed()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            aside.end()

    def look(self) -> bool:
        """Read what has changed; return whether anything had."""
        first = self.health.last_success is None and not self.health.failures
        paths = self._matching()
        gone = self._files.keys() - paths
        for path in self._stamps.keys() - paths:
            self._files.pop(path, None)
            del self._stamps[path]
            self._problems.pop(path, None)
        changed = [path for path in paths if self._is_other(path)]
        for path in changed:
            self._read(path)
        if not self._problems:
            self.health.succeeded()
        return bool(first or gone or changed)

    def _matching(self) -> list[str]:
        found = (path for pattern in self._patterns for path in glob.iglob(pattern))  # noqa: PTH207  patterns may be absolute
        some = sorted(set(islice(found, 64 * bounds.TARGET_FILES)))
        if len(some) > bounds.TARGET_FILES and not self._stamps:
            LOG.warning("more files with targets than are read", extra={"read": bounds.TARGET_FILES})
        return some[: bounds.TARGET_FILES]

    def _is_other(self, path: str) -> bool:
        """Whether the file is not the one that was read last."""
        try:
            status = Path(path).stat()
            stamp: tuple[int, ...] = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
        except OSError:
            stamp = ()
        if self._stamps.get(path) == stamp:
            return False
        self._stamps[path] = stamp
        return True

    def _read(self, path: str) -> None:
        try:
            targets = tuple(_targets(path))
        except ConfigError as error:
            self._problems[path] = str(error)
            self.health.failed(str(error))
            LOG.warning("file with targets is bad; what it said before stays", extra={"reason": str(error)})
            return
        self._files[path] = targets
        self._problems.pop(path, None)


def _targets(path: str) -> Iterator[Target]:
    """Read a file. Raises :class:`ConfigError` that names it."""
    for group in _groups(path):
        labels = group.labels
        for name, text in labels.items():
            if len(text) > bounds.LABEL_CHARACTERS or not text.isprintable():
                most = bounds.LABEL_CHARACTERS
                raise ConfigError(f"{path}: label {name}: expected at most {most} printable characters")
        metrics_path = labels.get("__metrics_path__", "/metrics")
        if not metrics_path.endswith("/metrics"):
            found = metrics_path[:80]
            raise ConfigError(f"{path}: __metrics_path__: expected a path that ends in /metrics, found {found!r}")
        for address in group.targets:
            url = f"{labels.get('__scheme__', 'http')}://{address}{metrics_path}"
            try:
                valid = bool(address) and urlsplit(valid_url(url)).netloc == address and "@" not in address
            except ConfigError:
                valid = False
            if not valid or not address.isprintable() or len(address) > bounds.LABEL_CHARACTERS:
                raise ConfigError(f"{path}: expected a target such as 10.0.0.1:8080, found {address[:80]!r}")
            yield Target(
                url=url.removesuffix("/metrics"),
                inference_service=labels.get("inference_service") or _UNNAMED,
                instance=labels.get("instance") or address,
                namespace=labels.get("namespace", ""),
                pod=labels.get("pod", ""),
            )


def _groups(path: str) -> tuple[_Group, ...]:
    if not Path(path).is_file():  # a pipe would hold up all the others
        raise ConfigError(f"{path}: expected a file")
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    if not path.endswith(".json"):
        groups: tuple[_Group, ...] = parse_yaml(content, path, ConfigError).read(tuple[_Group, ...])
        return groups
    try:
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
        return msgspec.json.decode(content, type=tuple[_Group, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {plain(str(error))[:300]}") from error  # it repeats unknown keys
