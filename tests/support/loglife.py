"""Any sequence of what happens to logs, against a model of what must be read.

``tests/unit/test_tail_model.py`` runs it for seconds, and every night for longer.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from specdec_exporter import bounds
from specdec_exporter.predictor.sources.positions import PositionFile
from support.logfiles import Log, Reader

# Positions are saved with fsync, which takes longest of all on a disk.
FAST_DIRECTORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SPELLINGS = ["absolute", "relative", "dotted", "glob", "link to the directory", "link to the file"]
NUMBERED = ""
NAMED = [
    *("vllm.log-20261123-{:03}", "vllm.log.2026-11-23_{:03}", "vllm-20261123-{:03}.log", "vllm.log.{:03}"),
    *("vllm-{}.log", "vllm.log_{}.bak", "vllm-Nov-{}.log", "../old/vllm.log-{}"),
]
PADDING = st.sampled_from([0, 50, 1500])  # files are told apart by their first KiB
NO_OPENING = ["EMFILE", "ENFILE", "EACCES", "EIO", "ESTALE", "ELOOP"]
NO_SAVING = ["ENOSPC", "EROFS", "EDQUOT", "EFBIG", "EIO", "EACCES", "ENOENT"]


class LogLife(RuleBasedStateMachine):
    """A log at a path, its writer, its rotation, and readers that come and go.

    ``required`` is what must be read once, at the next look that finds a file under the path: its bytes are where a
    reader can know them. Everything else that was written may be read, never twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(dir=FAST_DIRECTORY))
        self.state = self.home / "positions.json"
        self.directory = self.home / "logs"
        self.directory.mkdir()
        self.olddir = self.home / "old"
        self.olddir.mkdir()
        self.log = Log(self.directory / "vllm.log")
        self.log.write("0 before")
        self.number = 0
        self.unseen = 0  # rotations since the last look
        self.partial = ""  # the unterminated line at the end of the log
        self.written: set[str] = set()
        self.required: set[str] = set()
        self.unread: set[str] = set()  # lines in the file under the path since the last look
        self.since_look: set[str] = set()  # lines in any file since the last look that found one under the path
        self.is_open = False  # the reader has found the file under the path
        self.recognisable = False  # the reader has seen a line of what is or was in this file
        self.lost_track = False  # since the last look the file was replaced by one that no rotation explains
        self.got: Counter[str] = Counter()
        self.unfinished: set[str] = set()  # lines at the end of rotated files that nobody ended
        self.may_repeat: set[str] = set()  # of these, since the positions were lost

    @initialize(
        spelling=st.sampled_from(SPELLINGS),
        naming=st.sampled_from([NUMBERED, *NAMED]),
        old=st.integers(0, 2),
        half_a_line=st.booleans(),
    )
    def begin(self, spelling: str, naming: str, old: int, half_a_line: bool) -> None:
        """Old rotated files are there already, and nothing of them is to be read; of half a line, everything."""
        self.naming = naming
        self.newest = self.log  # the last rotated file
        for number in range(old):
            self.move_away()
            self.log.write(f"0 before {number}")
        self.link()
        if half_a_line:
            self.partial = self.new_line(10)
            self.log.append(self.partial)
        self.spelling = spelling
        self.path = {
            "absolute": str(self.log.path),
            "relative": os.path.relpath(self.log.path),
            "dotted": f"{self.directory}/../{self.directory.name}/vllm.log",
            "glob": f"{self.log.path}*",
            "link to the directory": str(self.directory / "here" / "vllm.log"),
            "link to the file": str(self.directory / "current"),
        }[spelling]
        self.reader = self.new_reader()

    def link(self) -> None:
        (self.directory / "here").symlink_to(".")
        (self.directory / "current").symlink_to("vllm.log")

    def new_reader(self) -> Reader:
        reader = Reader(self.path, state=self.state, olddir=self.olddir)
        self.take(reader.read())
        return reader

    def teardown(self) -> None:
        try:
            self.complete()
            self.take(self.reader.wait())
            self.take(self.reader.close())
        finally:
            shutil.rmtree(self.home)

    def take(self, lines: list[str]) -> None:
        self.unseen = 0
        self.got.update(lines)
        self.unread.clear()
        self.is_open = self.log.path.exists()
        self.recognisable = self.is_open and b"\n" in self.log.path.read_bytes()
        if self.is_open:
            assert self.required <= self.got.keys(), sorted(self.required - self.got.keys())
            numbers = [int(line.split()[0]) for line in lines]
            assert numbers == sorted(numbers) or self.lost_track, lines
            self.since_look.clear()
            self.lost_track = False

    def look(self) -> None:
        self.take(self.reader.read())

    def new_line(self, padding: int) -> str:
        self.number += 1
        line = f"{self.number} {'x' * padding}"
        self.written.add(line)
        return line

    def complete(self, end: str = "\n") -> None:
        if self.partial:
            self.log.append(end)
            self.note(self.partial)
            self.partial = ""

    def note(self, line: str) -> None:
        self.required.add(line)
        self.unread.add(line)
        self.since_look.add(line)

    def write(self, padding: int, count: int = 1) -> None:
        self.complete()
        for _ in range(count):
            line = self.new_line(padding)
            self.log.write(line)
            self.note(line)

    def dated(self, number: int) -> Log:
        """A rotated file with a date in its name; older than all that rotation makes if the number is below 100."""
        return Log(self.directory / (self.naming or NAMED[0]).format(number))

    def move_away(self) -> None:
        """Rename the log, as rotation does, and begin an empty one."""
        self.unseen += 1
        if self.naming == NUMBERED:
            self.log.rotate()
            self.newest = self.log.sibling(".1")
        else:
            self.number += 1
            self.newest = self.dated(100 + self.number)
            self.log.path.rename(self.newest.path)
            self.log.path.touch()
            self.log.stamp()
        self.unread.clear()  # they stand in a file that remains
        self.is_open = self.recognisable = False

    def replaced(self) -> None:
        """The file is gone from its path, and no rotation explains where."""
        if not self.is_open:
            self.required -= self.unread
        self.unread.clear()
        self.lost_track = True
        self.is_open = self.recognisable = False

    # --- the writer and the reader ------------------------------------------------------------------------------------

    @rule(padding=st.sampled_from([0, 1, 30, 1200]), count=st.integers(1, 3))
    def write_lines(self, padding: int, count: int) -> None:
        self.write(padding, count)

    @rule(padding=st.sampled_from([0, 40, 2000]))
    def write_part(self, padding: int) -> None:
        self.complete()
        self.partial = self.new_line(padding)
        self.log.append(self.partial)

    @rule(seconds=st.sampled_from([0.0, 10.0]))
    def look_after(self, seconds: float) -> None:
        self.take(self.reader.wait(seconds))

    @rule()
    def restart(self) -> None:
        self.take(self.reader.close())
        self.reader = self.new_reader()

    @rule()
    def crash(self) -> None:
        self.reader.kill()
        if self.lost_track or not self.recognisable:
            self.required -= self.since_look
        self.reader = self.new_reader()

    @rule(
        count=st.integers(0, 3),
        rotations=st.integers(0, 3),
        meanwhile=st.sampled_from(["", "copied", "truncated"]),
    )
    def be_down(self, count: int, rotations: int, meanwhile: str) -> None:
        """The log goes on without a reader; perhaps it moves to another volume, or copytruncate comes."""
        self.take(self.reader.close())
        if count:
            self.write(20, count)
        for _ in range(rotations):
            self.rotate(1, 20)
        if meanwhile == "copied" and self.recognisable:
            self.log.become_a_copy()
        if meanwhile == "truncated" and self.recognisable:
            self.copytruncate(20)
        self.reader = self.new_reader()

    @rule(damage=st.sampled_from(["torn", "empty", "garbage", "gone", "older"]), count=st.integers(0, 2))
    def lose_the_positions(self, damage: str, count: int) -> None:
        """The start begins at the end. What was written meanwhile is lost, but nothing counts twice but half a line."""
        self.may_repeat |= self.unfinished
        self.complete()
        self.look()
        saved = self.state.read_bytes()
        self.take(self.reader.close())
        if damage == "gone":
            self.state.unlink()
        elif damage == "older":  # of another log
            self.state.write_bytes(
                saved.replace(b'"path":"', b'"path":"/elsewhere')
                .replace(b'"paths":["', b'"paths":["/elsewhere')
                .replace(b'"inode":', b'"inode":9')
            )
        else:
            content = self.state.read_bytes()
            self.state.write_bytes({"torn": content[: len(content) // 2], "empty": b"", "garbage": b"\0" * 99}[damage])
        Path(f"{self.state}.tmp").write_bytes(saved[:-9])  # as a kill leaves it
        for _ in range(count):
            self.log.write(self.new_line(20))
        self.reader = self.new_reader()

    @rule(name=st.sampled_from(NO_OPENING), rotations=st.integers(0, 2), looks=st.integers(1, 2))
    def fail_to_open(self, name: str, rotations: int, looks: int) -> None:
        """No descriptors, no permission or no network for a while, in which the log rotates."""
        self.look()
        for _ in range(looks):
            self.rotate(rotations, 20)
            self.write(10)
            with mock.patch("os.open", side_effect=error(name)), mock.patch("os.listdir", side_effect=error(name)):
                self.got.update(self.reader.read())
        self.write(10)
        self.look()

    @rule(name=st.sampled_from(NO_SAVING), rotates=st.booleans())
    def fail_to_save(self, name: str, rotates: bool) -> None:
        """Only a crash in this time could count lines twice."""
        self.look()
        with mock.patch.object(PositionFile, "_replace", side_effect=error(name)):
            self.write(10)
            if rotates:
                self.rotate(1, 20)
            self.take(self.reader.wait())
        self.write(10)
        self.look()

    # --- rotation by renaming -----------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), padding=PADDING)
    def rotate(self, count: int, padding: int) -> None:
        """Lines before each rotation, so that the files can be told apart."""
        if self.unseen > bounds.ROTATED_FILES // 2:
            self.look()
        for _ in range(count):
            self.write(padding)
            self.move_away()

    @rule(late=st.integers(0, 2), looks=st.booleans())
    def rotate_mid_line(self, late: int, looks: bool) -> None:
        """The writer finishes its line on the file that it still holds, and may stay there for a while."""
        if self.lost_track:  # by a truncation, after which a file rotated unseen may be taken for a copy
            self.look()
        self.complete()
        self.partial = self.new_line(10)
        self.log.append(self.partial)
        with self.log.path.open("ab", buffering=0) as writer:
            self.move_away()
            if looks:
                self.look()
            writer.write(b"\n")
            self.note(self.partial)
            self.partial = ""
            self.look()
            for _ in range(late):
                line = self.new_line(10)
                writer.write(f"{line}\n".encode())
                self.note(line)
                self.take(self.reader.wait(4))

    @rule(restarts=st.booleans(), goes_on=st.booleans())
    def rotate_an_unfinished_line(self, restarts: bool, goes_on: bool) -> None:
        """It counts as a line when its file has been left for good; what may follow of it does not."""
        self.look()
        self.complete()
        line = self.new_line(10)
        self.log.append(line)
        self.move_away()
        self.got.update(self.reader.read())
        assert line not in self.got
        self.required.add(line)
        self.take(self.reader.wait())
        if restarts:
            self.restart()
        if not goes_on:
            self.unfinished.add(line)
        else:
            line = self.new_line(0)
            self.newest.append(f" is no line\n{line}\n")
            self.required.add(line)
            self.look()

    @rule()
    def rotate_and_pack(self) -> None:
        """The rotated file is compressed while its last lines are unread."""
        self.look()
        self.write(10)
        self.move_away()
        self.newest.sibling(".gz").path.write_bytes(b"packed\n")
        self.newest.path.unlink()
        self.look()

    # --- copies -------------------------------------------------------------------------------------------------------

    @rule(padding=PADDING)
    def copytruncate(self, padding: int) -> None:
        self.write(padding)
        if self.naming == NUMBERED:
            self.log.copytruncate()
            self.newest = self.log.sibling(".1")
        else:
            self.number += 1
            self.newest = self.dated(100 + self.number)
            self.log.copy_to(self.newest)
            self.log.truncate()
        if not self.recognisable:
            self.required -= self.unread  # a file of which nothing was seen cannot be missed
            self.lost_track = True
        self.unread.clear()
        self.write(padding)

    # --- truncation and replacement -----------------------------------------------------------------------------------

    @rule()
    def truncate(self) -> None:
        self.complete()
        self.log.truncate()
        self.required -= self.unread
        self.lost_track = True
        self.write(7)

    @rule(look_between=st.booleans(), late=st.booleans())
    def delete_and_create(self, look_between: bool, late: bool) -> None:
        self.complete()
        if late:
            self.look()
        with self.log.path.open("ab", buffering=0) as writer:
            self.log.path.unlink()
            self.replaced()
            if look_between or late:
                self.look()  # what was in it is still to be had
                self.replaced()
            for _ in range(3 if late else 0):
                line = self.new_line(10)
                writer.write(f"{line}\n".encode())
                self.required.add(line)
                self.take(self.reader.wait(4))
                assert line in self.got
                self.replaced()
        self.write(3)

    @rule(looks=st.booleans())
    def edit_in_an_editor(self, looks: bool) -> None:
        self.complete()
        if looks:
            self.look()
        else:
            self.lost_track = True
        self.log.become_a_copy()
        self.write(10)
        self.look()

    @invariant()
    def nothing_is_read_twice(self) -> None:
        assert not [line for line, count in self.got.items() if count > 1 and line not in self.may_repeat]

    @invariant()
    def nothing_is_invented(self) -> None:
        assert self.got.keys() <= self.written
        assert self.partial not in self.got


def error(name: str) -> OSError:
    """The error with this name."""
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))
