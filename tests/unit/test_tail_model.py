"""Any sequence of what happens to logs, against a model of what must be read."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logfiles import Log, Reader

# Positions are saved with fsync, which takes longest of all on a disk.
FAST_DIRECTORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class LogLife(RuleBasedStateMachine):
    """A log at a path, its writer, its rotation, and readers that come and go.

    ``required`` is what must be read once, at the latest after a calm end: its bytes are where a reader can know them.
    Everything else that was written may be read, never twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=FAST_DIRECTORY))
        self.state = self.directory / "positions.json"
        self.log = Log(self.directory / "vllm.log")
        self.log.write("before")
        self.number = 0
        self.partial = ""  # the unterminated line at the end of the log
        self.written: set[str] = set()
        self.required: set[str] = set()
        self.unread: set[str] = set()  # lines in the file under the path since the last look
        self.since_look: set[str] = set()  # lines in any file since the last look that found one under the path
        self.is_open = False  # the reader has found the file under the path
        self.recognisable = False  # the reader has seen a line of what is or was in this file
        self.lost_track = False  # since the last look the file was replaced by one that no rotation explains
        self.got: Counter[str] = Counter()
        self.reader = self.new_reader()

    def new_reader(self) -> Reader:
        reader = Reader(self.log.path, state=self.state)
        self.take(reader.read())
        return reader

    def teardown(self) -> None:
        self.complete()
        self.take(self.reader.wait())
        self.take(self.reader.close())
        try:
            assert self.required <= self.got.keys(), sorted(self.required - self.got.keys())
        finally:
            shutil.rmtree(self.directory)

    def take(self, lines: list[str]) -> None:
        self.got.update(lines)
        self.unread.clear()
        self.is_open = self.log.path.exists()
        if self.is_open:
            self.since_look.clear()
            self.lost_track = False
        self.recognisable = self.is_open and b"\n" in self.log.path.read_bytes()

    def new_line(self, padding: int) -> str:
        self.number += 1
        line = f"{self.number} {'x' * padding}"
        self.written.add(line)
        return line

    def complete(self) -> None:
        if self.partial:
            self.log.append("\n")
            self.note(self.partial)
            self.partial = ""

    def note(self, line: str) -> None:
        self.required.add(line)
        self.unread.add(line)
        self.since_look.add(line)

    def replaced(self) -> None:
        """The file is gone from its path, and no rotation explains where."""
        if not self.is_open:
            self.required -= self.unread
        self.unread.clear()
        self.lost_track = True
        self.is_open = self.recognisable = False

    @rule(padding=st.sampled_from([0, 1, 30, 1200]), count=st.integers(1, 3))
    def write(self, padding: int, count: int) -> None:
        self.complete()
        for _ in range(count):
            line = self.new_line(padding)
            self.log.write(line)
            self.note(line)

    @rule(padding=st.sampled_from([0, 40, 2000]))
    def write_part(self, padding: int) -> None:
        self.complete()
        self.partial = self.new_line(padding)
        self.log.append(self.partial)

    @rule()
    def look(self) -> None:
        self.take(self.reader.read())

    @rule()
    def wait(self) -> None:
        self.take(self.reader.wait())

    @rule(count=st.integers(1, 4), padding=st.sampled_from([0, 50, 1500]))
    def rotate(self, count: int, padding: int) -> None:
        """Lines before each rotation, so that the files can be told apart."""
        for _ in range(count):
            self.complete()
            self.write(padding, 1)
            self.log.rotate()
            self.unread.clear()  # they stand in files that remain
            self.is_open = self.recognisable = False

    @rule()
    def rotate_mid_line(self) -> None:
        """The writer finishes its line on the file that it still holds."""
        self.complete()
        self.partial = self.new_line(10)
        self.log.append(self.partial)
        with self.log.path.open("ab", buffering=0) as writer:
            self.log.rotate()
            self.unread.clear()
            self.take(self.reader.read())
            writer.write(b"\n")
            self.note(self.partial)
            self.partial = ""
            self.take(self.reader.read())

    @rule(padding=st.sampled_from([0, 50, 1500]))
    def copytruncate(self, padding: int) -> None:
        self.write(padding, 1)
        self.log.copytruncate()
        if not self.recognisable:
            self.required -= self.unread  # a file of which nothing was seen cannot be missed
        self.unread.clear()
        self.write(padding, 1)

    @rule(name=st.sampled_from(["-20261120", "-20261121", ".7"]))
    def keep_a_copy(self, name: str) -> None:
        """Somebody copies the log, once or over the last copy; the log goes on."""
        self.look()
        if self.log.path.exists() and not (name == ".7" and self.log.sibling(name).path.exists()):
            shutil.copyfile(self.log.path, self.log.sibling(name).path)

    @rule(padding=st.sampled_from([0, 50, 1500]), look_between=st.booleans())
    def copytruncate_over_the_last_copy(self, padding: int, look_between: bool) -> None:
        self.look()
        recognisable = self.recognisable
        self.write(padding, 1)
        shutil.copyfile(self.log.path, self.log.sibling("-20261120").path)
        if look_between:
            self.look()
        elif not recognisable:
            self.required -= self.unread
        self.log.truncate()
        self.look()

    @rule(look_between=st.booleans())
    def copytruncate_behind_the_last_copy(self, look_between: bool) -> None:
        self.complete()
        self.look()
        self.log.sibling("-20261122").append(self.log.path.read_bytes())
        if look_between:
            self.look()
        self.log.truncate()
        self.look()

    @rule(edited=st.booleans())
    def replace_a_rotated_file(self, edited: bool) -> None:
        """By a copy of itself, which perhaps begins in another way."""
        rotated = self.log.sibling(".1").path
        if rotated.exists() and self.log.path.exists():
            self.look()
            copy = self.directory / "copy"
            copy.write_bytes(rotated.read_bytes().partition(b"\n")[2] if edited else rotated.read_bytes())
            copy.rename(rotated)
            self.look()

    @rule()
    def truncate(self) -> None:
        self.complete()
        self.log.truncate()
        self.required -= self.unread
        self.lost_track = True
        self.write(7, 1)

    @rule(look_between=st.booleans())
    def delete_and_create(self, look_between: bool) -> None:
        self.complete()
        self.log.path.unlink()
        self.replaced()
        if look_between:
            self.look()  # what was in it is still to be had
            self.replaced()
        self.write(3, 1)

    @rule()
    def swap_symlink(self) -> None:
        """The path becomes a link to another file."""
        self.complete()
        self.number += 1
        target = Log(self.directory / f"run-{self.number}.txt")
        target.path.touch()
        link = self.directory / "link"
        link.symlink_to(target.path.name)
        self.log.path.rename(self.directory / f"was-{self.number}.txt")
        link.rename(self.log.path)
        self.replaced()
        self.write(5, 1)

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

    @rule(count=st.integers(0, 3), rotations=st.integers(0, 3))
    def be_down(self, count: int, rotations: int) -> None:
        """The log goes on without a reader."""
        self.take(self.reader.close())
        if count:
            self.write(20, count)
        for _ in range(rotations):
            self.rotate(1, 20)
        self.reader = self.new_reader()

    @invariant()
    def nothing_is_read_twice(self) -> None:
        assert not [line for line, count in self.got.items() if count > 1]

    @invariant()
    def nothing_is_invented(self) -> None:
        assert self.got.keys() <= self.written


TestLogLife = LogLife.TestCase
TestLogLife.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
