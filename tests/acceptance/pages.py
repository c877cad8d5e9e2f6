"""Pages whose commands are tried: a shell runs them as they stand, from top to bottom.

What is tried stands between `<!-- tried: begin -->` and `<!-- tried: end -->`, in blocks of
`sh`. A line `#>` says what the command above it prints, with `…` for anything.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from free_ports import free_ports
from hangs import HANG_SECONDS

from .quick_commands import quick_commands


class Command(NamedTuple):
    text: str
    says: str | None  # what is written under it


def part(page: str) -> str:
    return page.partition("<!-- tried: begin -->")[2].partition("<!-- tried: end -->")[0]


def commands(page: str) -> Iterator[Command]:
    """The commands in order; a line that ends with a backslash goes on."""
    for block in re.findall(r"```sh\n(.*?)```", part(page), re.DOTALL):
        lines = block.replace("\\\n", "").splitlines()
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            if not line.startswith("#> "):
                says = after.removeprefix("#> ") if after.startswith("#> ") else None
                yield Command(line, says)


def fits(said: str, expected: str) -> bool:
    """Whether it was said, with anything in the place of an ellipsis."""
    pattern = ".*".join(map(re.escape, expected.split("…")))
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def script(found: list[Command], out: Path) -> str:
    """Each command, and what it said and how it ended in files of its own. What servers and
    workers say in the background goes elsewhere."""
    lines = []
    for number, one in enumerate(found):
        text = f"{{ {one.text}\n}} > {out}/{number} 2>&1" if one.says is not None else one.text
        lines += [text, f"echo $? > {out}/{number}.code"]
    return "\n".join(lines)


def with_free_ports(page: str, known: tuple[str, ...]) -> str:
    """The page with ports that are free here in the place of those it names."""
    for one, free in zip(known, free_ports(len(known)), strict=True):
        page = page.replace(one, str(free))
    return page


def environment(folder: Path, *programs: Path) -> dict[str, str]:
    """`anabranch` is the one of this test run; as at a terminal, what it prints comes in order."""
    (folder / "bin").mkdir()
    command = folder / "bin" / "anabranch"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m anabranch "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PG"))}
    places = (folder / "bin", *programs, os.environ["PATH"])
    return {**kept, "PATH": ":".join(map(str, places)), "PYTHONUNBUFFERED": "1"}


def run_all(text: str, folder: Path, env: dict[str, str]) -> None:
    """In a group of its own, which is gone afterwards, whatever is left of it."""
    with (
        quick_commands(folder / "bin" / "anabranch", "-m", "anabranch"),
        (folder / "background").open("w") as background,
    ):
        shell = subprocess.Popen(
            ["bash", "-u", "-c", text],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=background,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(HANG_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def try_page(page: str, folder: Path, *programs: Path) -> int:
    """Run all of it; every command ends well and says what is written under it. Returns how many
    of them say something."""
    (folder / "out").mkdir()
    found = list(commands(page))
    run_all(script(found, folder / "out"), folder, environment(folder, *programs))
    for number, one in enumerate(found):
        file = folder / "out" / str(number)
        said = file.read_text() if one.says is not None else ""
        beside = (folder / "background").read_text()
        assert (folder / "out" / f"{number}.code").read_text() == "0\n", (one, said, beside)
        if one.says is not None:
            assert fits(said, one.says), f"{one.text}\nsays {said}\nnot  {one.says}\n{beside}"
    return sum(one.says is not None for one in found)
