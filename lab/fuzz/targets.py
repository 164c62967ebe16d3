"""Every parser of what others send."""

from __future__ import annotations

from fuzz import answers, files, log, metrics, served

TARGETS = {
    target.name: target
    for target in (*metrics.TARGETS, *log.TARGETS, *answers.TARGETS, *files.TARGETS, *served.TARGETS)
}
