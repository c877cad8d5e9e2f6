"""The lessons of the tutorial, followed as they stand: files are saved, commands run in one shell.

A block with `title="NAME"` is a file. In a block of `console` a line `$ …` is a command and the
lines under it are what it prints, with `…` for anything; `# exit code N` behind a command says how
it ends, when it is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .pages import environment, fits, run_all

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_ENDS = re.compile(r"\s+# exit code (\d+)$")


class Told(NamedTuple):
    """A command, what it is said to print, and its exit code."""

    text: str
    prints: str
    ends: int


class Lesson(NamedTuple):
    files: dict[str, str]
    commands: list[Told]


def read_lesson(page: str) -> Lesson:
    files: dict[str, str] = {}
    told: list[Told] = []
    for language, title, body in _BLOCK.findall(page):
        if title:
            files[title] = body
        elif language == "console":
            told += read_console(body)
    return Lesson(files, told)


def read_console(block: str) -> Iterator[Told]:
    """The commands of a block, each with what stands under it."""
    first, *rest = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first, f"a block of commands begins with `$ `: {first!r}"
    for part in rest:
        line, _, prints = part.partition("\n")
        ends = _ENDS.search(line)
        yield Told(_ENDS.sub("", line), prints.strip("\n"), int(ends[1]) if ends else 0)


def follow(lessons: list[Lesson], folder: Path, *programs: Path) -> int:
    """Follow them one after another in one folder; returns how many commands print something."""
    env = environment(folder, *programs)
    return sum(_follow(lesson, folder, env, number) for number, lesson in enumerate(lessons, 1))


def _follow(lesson: Lesson, folder: Path, env: dict[str, str], number: int) -> int:
    out = folder / f"out-{number}"
    out.mkdir()
    for name, text in lesson.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    run_all(_script(lesson.commands, out), folder, env)
    for count, one in enumerate(lesson.commands):
        printed = (out / str(count)).read_text(encoding="utf-8")
        said = f"lesson {number}: {one.text}\nprints\n{printed}"
        assert (out / f"{count}.code").read_text() == f"{one.ends}\n", said
        assert not one.prints or fits(printed, loosely(one.prints)), f"{said}not\n{one.prints}"
    return sum(bool(one.prints) for one in lesson.commands)


def loosely(prints: str) -> str:
    """A line that is only an ellipsis stands for any number of lines; a busy machine takes seconds
    for what takes milliseconds."""
    text = re.sub(r"^…\n|\n…$", "…", prints.strip(), flags=re.MULTILINE)
    return re.sub(r"… ms\b|(?<=\+)(?: |…)*\d+\.\d+", "…", text)


def _script(commands: list[Told], out: Path) -> str:
    """Each with what it prints and its exit code in files; a program in the background prints
    elsewhere, as it would be in the way of the next command."""
    lines: list[str] = []
    for number, one in enumerate(commands):
        if " & " in one.text:
            lines += [f": > {out}/{number}", one.text]
        else:
            lines.append(f"{{ {one.text}\n}} > {out}/{number} 2>&1")
        lines.append(f"echo $? > {out}/{number}.code")
    return "\n".join(lines)
