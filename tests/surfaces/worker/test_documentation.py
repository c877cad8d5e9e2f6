"""The commands of docs/workers.md do what is written under them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangs import HANG_SECONDS
from surfaces.cli.support import Terminal, beginning

PAGE = Path(__file__).parents[3] / "docs" / "workers.md"
pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page is written for curl"),
]


def script(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the page in order, each with what is written under it."""
    part = text.partition("<!-- by hand: begin -->")[2].partition("<!-- by hand: end -->")[0]
    command = ""
    for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("#> "):
                yield command, line.removeprefix("#> ")
                command = ""
            else:
                command += line + "\n"


def fits(said: str, expected: str) -> bool:
    """Whether it was said, with anything in the place of an ellipsis."""
    pattern = ".*".join(map(re.escape, expected.split("…")))
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None


def test_every_command_of_the_page_says_what_is_written_under_it(tmp_path: Path) -> None:
    commands = list(script(PAGE.read_text()))
    assert len(commands) > 25
    terminal = Terminal(tmp_path)
    with beginning(terminal, "serve", "--port", "0", stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split(" at ")[1].strip()
        lines = [f"API={url}/api/v1"]
        for number, (command, _) in enumerate(commands):
            lines += [command, f"printf '\\n==%s==\\n' {number}"]
        done = subprocess.run(
            ["bash", "-u", "-c", "\n".join(lines)],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answers = re.split(r"\n==\d+==\n", done.stdout)
    for (command, expected), said in zip(commands, answers, strict=False):
        assert fits(said, expected), f"{command}\nsays {said}\nnot  {expected}"
