"""The live view under a real (pseudo) terminal: what it shows, and what it leaves behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import quick_starts
from anabranch.surfaces.cli.output import render
from anabranch.surfaces.cli.output.live import _cut
from hangs import HANG_SECONDS

from ..support import HEAD, Terminal

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

VIEWED = f"""{HEAD}metadata: {{name: viewed}}
workflow:
  - step: first
    tool: {{kind: noop, result: "a\\e[2Jb"}}
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: work}}, {{step: ask}}]
  - step: work
    tool: {{kind: shell, command: "touch working; while [ ! -e enough ]; do sleep 0.02; done"}}
  - step: ask
    tool: {{kind: decision, ask: "May the 東京 shipment with a rather long name go out today?"}}
"""

MANY = (
    f"""{HEAD}metadata: {{name: many}}
workflow:
  - step: s0
    tool: {{kind: noop}}
    next: {{arcs: [{{step: s1}}]}}
"""
    + "".join(
        f"  - {{step: s{n}, tool: {{kind: noop}}, next: {{arcs: [{{step: s{n + 1}}}]}}}}\n"
        for n in range(1, 60)
    )
    + '  - {step: s60, tool: {kind: shell, command: "until [ -e enough ]; do sleep 0.02; done"}}\n'
)


class Screen:
    """What a terminal of this size would show: enough of one to follow what the view does."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.rows: list[str] = [""]
        self.row = 0
        self.scrolled = 0
        self.cursor = True

    def feed(self, text: str) -> None:
        for piece in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+|\x1b", text):
            self._take(piece)

    def _take(self, piece: str) -> None:
        if piece == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
            if self.row - self.scrolled >= self.lines:
                self.scrolled += 1
        elif piece in (HIDE, SHOW):
            self.cursor = piece == SHOW
        elif match := re.fullmatch(r"\x1b\[(\d+)A", piece):
            self.row = max(self.scrolled, self.row - int(match[1]))  # stops at the top edge
        elif piece == "\x1b[H":
            self.row = self.scrolled
        elif piece == "\x1b[2J":
            self.rows[self.scrolled :] = [""]
        elif piece == "\x1b[J":
            del self.rows[self.row :]
            self.rows.append("")
        elif piece.endswith("m") and piece.startswith("\x1b["):
            pass
        elif piece != "\r":
            assert not piece.startswith("\x1b"), f"unexpected {piece!r}"
            self._write(piece)

    def _write(self, text: str) -> None:
        assert len(self.rows[self.row] + text) <= self.columns, f"wraps: {text!r}"
        self.rows[self.row] += text


class Person:
    """Somebody who looks at the terminal a command runs in."""

    def __init__(self, master: int, process: subprocess.Popen[bytes], screen: Screen) -> None:
        self.master, self.process, self.screen = master, process, screen
        self.seen = ""

    def look(self, seconds: float = 0.05) -> bool:
        """Take in what has been drawn; false when the terminal is gone."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        text = data.decode("utf-8", "replace")
        self.seen += text
        self.screen.feed(text)
        return bool(data)

    def until(self, condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"never shown; last: {self.screen.rows}"
            self.look()

    def see(self, *words: str) -> None:
        self.until(lambda: all(any(word in row for row in self.screen.rows) for word in words))

    def to_the_end(self) -> int:
        while self.look(0.5) and self.process.poll() is None:
            pass
        while self.look(0.05) and select.select([self.master], [], [], 0.05)[0]:
            pass
        return self.process.wait(HANG_SECONDS)


def set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def watching(
    terminal: Terminal, *words: str, columns: int = 100, lines: int = 30, stdout: int | None = None
) -> Iterator[Person]:
    master, slave = pty.openpty()
    set_size(slave, columns, lines)
    process = quick_starts.Popen[bytes](
        [sys.executable, "-m", "anabranch", *words],
        stdin=slave, stdout=slave if stdout is None else stdout, stderr=slave,
        cwd=terminal.folder, env=terminal.environment({"TERM": "xterm"}), start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Person(master, process, Screen(columns, lines))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


pytestmark = pytest.mark.slow


def test_it_shows_steps_elapsed_time_and_what_it_waits_for_and_leaves_clean(
    terminal: Terminal,
) -> None:
    terminal.write("viewed.yaml", VIEWED)
    with watching(terminal, "run", "viewed.yaml", "--run-id", "v") as person:
        person.see("viewed (v)", "first", "done", "work", "running", "ask", "deciding")
        person.see("1 done, 2 live", "ask (token 3) waits for a decision", "at work (attempt 1)")
        assert not cursor_shown(person)
        first = elapsed(person)
        person.until(lambda: elapsed(person) > first)
        person.screen.columns = 10_000  # what is printed at the end may be as long as it is
        terminal.write("enough", "")
        assert person.to_the_end() == 4
        assert cursor_shown(person)
        left = [row for row in person.screen.rows if row.strip()]
        assert re.match(r"viewed \(v\): waiting, begun .* ago", left[0])
        assert sum("viewed" in row for row in left) == 1  # no frame is left over
        assert "\x1b[2Jb" not in person.seen  # what the step answered is shown, not obeyed


def widest(person: Person) -> int:
    return max(len(row) for row in person.screen.rows[person.screen.scrolled :])


def stays_within(person: Person, columns: int) -> bool:
    for _ in range(3):
        person.look(0.1)
        if widest(person) > columns:
            return False
    return True


def cursor_shown(person: Person) -> bool:
    return person.screen.cursor


def elapsed(person: Person) -> float:
    times = [re.search(r"([\d.]+) (ms|s)  \d+ done", row) for row in person.screen.rows]
    found = next((match for match in times if match), None)
    return -1.0 if found is None else float(found[1]) / (1000 if found[2] == "ms" else 1)


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (300, 80), (8, 3)])
def test_no_size_breaks_it(terminal: Terminal, size: tuple[int, int]) -> None:
    terminal.write("viewed.yaml", VIEWED)
    words = ("run", "viewed.yaml", "--run-id", "v")
    with watching(terminal, *words, columns=size[0], lines=size[1]) as person:
        person.screen.columns = max(size[0], 1)
        person.until(lambda: (terminal.folder / "working").exists())
        for _ in range(6):
            person.look(0.1)
        assert person.screen.scrolled == 0  # it never needs more lines than there are
        person.screen.columns = 10_000  # the summary at the end may be as long as it is
        terminal.write("enough", "")
        assert person.to_the_end() == 4
        assert cursor_shown(person)


def test_a_terminal_that_changes_its_size_is_followed(terminal: Terminal) -> None:
    terminal.write("viewed.yaml", VIEWED)
    with watching(terminal, "run", "viewed.yaml", "--run-id", "v") as person:
        person.see("work", "running")
        person.screen.columns = 10_000  # a frame drawn just before the change may be wider
        for columns, lines in ((40, 10), (120, 40), (30, 6)):
            set_size(person.master, columns, lines)
            person.screen.lines = lines
            # Three looks in a row: a frame drawn before the change may still be on its way.
            person.until(lambda fits=columns: stays_within(person, fits))  # type: ignore[misc]
            assert widest(person) <= columns
        terminal.write("enough", "")
        assert person.to_the_end() == 4


def test_more_steps_than_lines_show_the_last_ones(terminal: Terminal) -> None:
    terminal.write("many.yaml", MANY)
    with watching(terminal, "run", "many.yaml", columns=60, lines=12) as person:
        person.see("s60", "running", "more above")
        assert person.screen.scrolled == 0
        person.screen.columns = 10_000
        terminal.write("enough", "")
        assert person.to_the_end() == 0


def test_standard_output_may_go_elsewhere(terminal: Terminal) -> None:
    """The view is drawn on standard error, to the size of that terminal."""
    terminal.write("viewed.yaml", VIEWED)
    words = ("run", "viewed.yaml", "--run-id", "v")
    with (
        (terminal.folder / "out.txt").open("w") as out,
        watching(terminal, *words, columns=40, lines=10, stdout=out.fileno()) as person,
    ):
        person.see("viewed (v)")
        person.until(lambda: (terminal.folder / "working").exists())
        person.look(0.3)
        person.screen.columns = 10_000
        terminal.write("enough", "")
        person.to_the_end()
    assert (terminal.folder / "out.txt").read_text().startswith("viewed (v): waiting")


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_leaves_the_terminal_clean(terminal: Terminal, times: int) -> None:
    terminal.write("viewed.yaml", VIEWED)
    words = ("run", "viewed.yaml", "--run-id", "v", *(("--grace", "0.1") if times == 1 else ()))
    with watching(terminal, *words) as person:
        person.see("work", "running")
        person.screen.columns = 10_000
        os.kill(person.process.pid, signal.SIGINT)
        if times == 2:
            person.see("stopping")
            os.kill(person.process.pid, signal.SIGINT)
        assert person.to_the_end() == 130
        assert cursor_shown(person)
        assert "Traceback" not in person.seen
        shown = "\n".join(person.screen.rows)
        assert "stopping: running jobs finish or are released" in shown
        assert not re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", shown)  # no frame is left over


def test_json_and_no_watch_draw_nothing(terminal: Terminal) -> None:
    terminal.write("many.yaml", MANY)
    terminal.write("enough", "")
    for more in ("--json", "--no-watch"):
        with watching(terminal, "run", "many.yaml", more) as person:
            person.screen.columns = 1_000_000
            assert person.to_the_end() == 0
            assert HIDE not in person.seen


@pytest.mark.parametrize(
    ("line", "width", "cut"),
    [
        ("abcdef", 4, "abcd"),
        ("東京東京", 5, "東京"),
        ("\x1b[31mred\x1b[0m", 2, "\x1b[31mre\x1b[0m"),
        ("e\u0301e\u0301", 1, "e\u0301"),
        ("a\nb\tc", 10, "a b c"),
        ("abc", 0, ""),
        ("odd \x1b", 10, "odd \x1b\x1b[0m"),
    ],
)
def test_lines_are_cut_by_what_is_seen(line: str, width: int, cut: str) -> None:
    assert _cut(line, width) == cut


def test_jobs_that_wait_for_the_same_cluster_are_one_line() -> None:
    place = {"engine": "dask", "address": "dask://h:1", "state": "away"}
    rows = [
        {"what": "job", "id": f"1.{n}", "step": "s", "since": 0, "waits_for": "dask", "cluster": c}
        for n, c in enumerate([place, place, place, {**place, "task": "s-1"}])
    ]
    lines = render.waiting_lines(rows, now=0)
    heads = [line.partition(" waits")[0] for line in lines]
    assert heads == ["  s (job 1.0 and 2 more)", "  s (job 1.3)"]
