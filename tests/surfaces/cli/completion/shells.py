"""Real shells that have read their script, and what they offer for a line.

bash is asked by calling the function that it would call, and by pressing Tab in a terminal; fish
has a command for it; zsh completes in a terminal only, so the function that takes candidates is
replaced by one that writes them down.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

from hangs import HANG_SECONDS

_BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
_anabranch
[[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' "${COMPREPLY[@]}"
"""
_ZSH = """
PS1='' ; unsetopt zle_bracketed_paste 2>/dev/null
autoload -Uz compinit && compinit -u -d "$SCRATCH/zcompdump"
source "$SCRIPT"
compadd() {
    local -a hits
    builtin compadd -O hits "$@"
    print -rl -- "${(@)hits}" >> "$SCRATCH/hits"
    builtin compadd "$@"
}
finish() { print end >> "$SCRATCH/end" }
complete-and-write() { zle complete-word; finish }
zle -N complete-and-write
bindkey '^I' complete-and-write
print ready > "$SCRATCH/ready"
"""


def program(folder: Path) -> Path:
    """A folder with an `anabranch` of this interpreter in it."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    file = place / "anabranch"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m anabranch "$@"\n')
    file.chmod(0o755)
    return place


def environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PYTEST_"))}
    path = f"{program(folder.parent)}{os.pathsep}{kept.get('PATH', '')}"
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    return {**kept, "PATH": path, "HOME": str(home), "TERM": "dumb", "COLUMNS": "200"}


def bash(script: Path, line: str, folder: Path) -> list[str]:
    words = ["bash", "--norc", "--noprofile", "-c", _BASH, "_", str(script), line]
    return _told(words, folder)


def fish(script: Path, line: str, folder: Path) -> list[str]:
    words = ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]
    found = _told([*words, str(script), line], folder)
    return [each.partition("\t")[0] for each in found]


def _told(words: list[str], folder: Path) -> list[str]:
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def zsh(script: Path, line: str, folder: Path) -> list[str]:
    scratch = folder.parent / "zsh"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    (scratch / "rc").write_text(_ZSH)
    env = {**environment(folder), "SCRATCH": str(scratch), "SCRIPT": str(script)}
    with Typed(["zsh", "-f", "-i"], folder, env) as shell:
        shell.write(f'source "{scratch / "rc"}"\n')
        shell.until(lambda: (scratch / "ready").exists())
        shell.write(f"{line}\t")
        shell.until(lambda: (scratch / "end").exists())
    hits = scratch / "hits"
    found = hits.read_text().splitlines() if hits.exists() else []
    return list(dict.fromkeys(filter(None, found)))  # one candidate may fit in several ways


class Typed:
    """A program at a terminal of its own."""

    def __init__(self, words: list[str], folder: Path, env: dict[str, str]) -> None:
        self._words, self._folder, self._env = words, folder, env
        self.shown = ""

    def __enter__(self) -> Typed:
        self._here, there = pty.openpty()
        self._process = subprocess.Popen(
            self._words,
            cwd=self._folder,
            env=self._env,
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
        )
        os.close(there)
        return self

    def write(self, text: str) -> None:
        os.write(self._here, text.encode())

    def until(self, holds: object) -> None:
        """Read what is shown until something holds, or the machine hangs."""
        assert callable(holds)
        end = time.monotonic() + HANG_SECONDS
        while not holds():
            assert time.monotonic() < end, self.shown
            ready, _, _ = select.select([self._here], [], [], 0.05)
            if ready:
                try:
                    self.shown += os.read(self._here, 65536).decode(errors="replace")
                except OSError:  # it has ended
                    assert holds(), self.shown
                    return

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.wait(HANG_SECONDS)
        os.close(self._here)
