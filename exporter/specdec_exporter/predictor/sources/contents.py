"""Which log files hold the same content: the file of a saved place, copies, and what somebody appended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from specdec_exporter.predictor.log.lines import CHUNK_BYTES
from specdec_exporter.predictor.sources.logfile import LogFile, Position, common_length
from specdec_exporter.predictor.sources.rotation import begin_alike


def matching(position: Position, files: Sequence[LogFile], *, anywhere: bool = False) -> LogFile | None:
    """Return the file that has the content of ``position``; ``anywhere``: its path may differ."""
    for file in files:
        if file.identity == position.identity and holds(position, file):
            return file
    # The numbers differ for a copy, and for the file itself after its volume was mounted anew.
    candidates = [file for file in files if anywhere or file.path == position.path]
    return fullest([file for file in candidates if position.offset and holds(position, file)])


def fullest(files: Sequence[LogFile]) -> LogFile | None:
    """Return the largest of ``files``; of equal ones the last."""
    return max(reversed(files), key=lambda file: file.size_bytes, default=None)


def newer_than(position: Position, found: LogFile, rotated: Sequence[LogFile], live: LogFile) -> list[LogFile]:
    """Return the ``rotated`` files, oldest first, that are newer than ``found``, which holds ``position``.

    They are unread if ``found`` is the renamed file itself or a copy from before it was cut. The age of any other copy
    proves nothing. Nothing is known of the files that follow one which was already rotated. Only inodes count here,
    because the number of a device changes when its volume is mounted anew.
    """
    newer: list[LogFile] = []
    if position.rotated or position.inode not in {found.identity[1], live.identity[1]}:
        return newer
    copied = position.inode != found.identity[1]
    for file in rotated[rotated.index(found) + 1 :]:
        if copied and file.modified_ns < found.modified_ns:
            continue  # somebody copied the log by hand and gave the copy an old name
        if not any(begin_alike(file.head, other.head) for other in (found, *newer, live)):
            newer.append(file)
    return newer


def read_of_copy(before: LogFile | None, file: LogFile) -> int:
    """Return how many bytes of ``file`` were read, or will be, in the file ``before`` it.

    An editor, rsync or overlayfs may have replaced that by a copy of itself.
    """
    if before is None or before.is_linked() or not holds(before.position(), file):
        return 0
    return _end_of_common_lines(before, file)


def _end_of_common_lines(log: LogFile, copy: LogFile) -> int:
    """Return the end of the whole lines that ``copy`` has like ``log``, from the place of ``log`` on."""
    end = at = log.offset
    with contextlib.suppress(OSError):
        same = CHUNK_BYTES
        while same == CHUNK_BYTES:
            piece, other = (os.pread(file.fd, CHUNK_BYTES, at) for file in (log, copy))
            same = common_length(piece, other)
            if newline := piece.rfind(b"\n", 0, same) + 1:  # there may be none: in a hole, or in a long line
                end = at + newline
            at += same
    return end


def continues(rotated: LogFile, position: Position) -> bool:
    """Whether somebody appended the log itself, which was read as far as ``position``, to its rotated file."""
    return (
        position.path == rotated.path
        and not position.rotated
        and position.offset > 0
        and holds(position, rotated, start=rotated.seen)
    )


def holds(position: Position, file: LogFile, start: int = 0) -> bool:
    """Whether the file has the content of a place, ``start`` bytes further on; no if it cannot be read."""
    try:
        return position.holds_in(file.fd, start)
    except OSError:
        return False
