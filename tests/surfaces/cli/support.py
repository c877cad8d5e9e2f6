"""A person at a terminal: commands as real processes, on a store in a folder of their own."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import quick_starts
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.runtime.nets import Nets
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.cli.main import command
from anabranch.surfaces.cli.output import logs
from hangs import HANG_SECONDS

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"

HELLO = f"""{HEAD}metadata: {{name: hello}}
workload: {{who: you, deep: {{a: 1, b: 2}}}}
workflow:
  - step: greet
    tool: {{kind: noop, result: "hello {{{{ workload.who }}}}"}}
"""

GATE = f"""{HEAD}metadata: {{name: gate}}
workflow:
  - step: ask
    tool: {{kind: decision, ask: "Ship it?", actors: [ann, bob]}}
    next:
      arcs:
        - {{step: ship, when: "{{{{ event.name == 'step.done' }}}}"}}
        - {{step: hold}}
  - step: ship
    tool: {{kind: noop, result: shipped}}
  - step: hold
    tool: {{kind: noop, result: held}}
"""

#: Waits at its first step until `go` is set; `slow` then takes a while.
ADMIT = f"""{HEAD}metadata: {{name: admit}}
workflow:
  - step: held
    spec: {{policy: {{admit: {{rules: [{{when: "{{{{ ctx.go }}}}", then: {{allow: true}}}}]}}}}}}
    tool: {{kind: noop, result: "{{{{ ctx.go }}}}"}}
"""


def sleeper(seconds: float, name: str = "sleeper") -> str:
    """Three steps, of which the middle one sleeps in a shell."""
    return f"""{HEAD}metadata: {{name: {name}}}
workflow:
  - step: first
    tool: {{kind: noop}}
    next: {{arcs: [{{step: sleep}}]}}
  - step: sleep
    tool: {{kind: shell, command: "echo $$ >> pids; sleep {seconds}; echo slept"}}
    next: {{arcs: [{{step: last, when: "{{{{ event.name == 'step.done' }}}}"}}]}}
  - step: last
    tool: {{kind: noop, result: "{{{{ steps.sleep.stdout }}}}"}}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Runs `anabranch` in a folder, with a store of its own there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "anabranch.db"

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PYTEST_"))}
        paths = [str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        person = {"USER": "ann", "LOGNAME": "ann", "PYTHONPATH": os.pathsep.join(paths)}
        return {**kept, **person, **(more or {})}

    def begin(self, *words: object, env: Mapping[str, str] | None = None, **more: Any) -> Process:
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        return Process(
            [sys.executable, "-m", "anabranch", *map(str, words)],
            stdin=more.pop("stdin", subprocess.DEVNULL),
            text=True,
            cwd=self.folder,
            env=self.environment(env),
            encoding="utf-8",
            **more,
        )

    def run(
        self,
        *words: object,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        seconds: float = HANG_SECONDS,
    ) -> Done:
        process = self.begin(
            *words, env=env, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL
        )
        return process.end(stdin, seconds)

    def show(self, run: str) -> dict[str, Any]:
        """What `show --json` says, without the price of a process."""
        store = SqliteStore(self.store, read_only=True)
        try:
            return Reader(store, Nets(store, compiler())).show(run)
        finally:
            store.close()

    def ok(self, *words: object, **more: Any) -> Done:
        done = self.run(*words, **more)
        assert done.code == 0, done
        return done


class Process(quick_starts.Popen[str]):
    def end(self, stdin: str | None = None, seconds: float = HANG_SECONDS) -> Done:
        try:
            out, err = self.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self.communicate()
            raise AssertionError(f"hangs: {self.args!r}\n{out}\n{err}") from None
        return Done(self.returncode, out or "", err or "")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        os.kill(self.pid, number)


@contextmanager
def beginning(terminal: Terminal, *words: object, **more: Any) -> Iterator[Process]:
    """A command that runs meanwhile; whatever happens, it is gone afterwards."""
    process = terminal.begin(*words, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Here(Terminal):
    """The same commands inside this process: quick, for everything that is not about processes.
    What is begun still is one of its own."""

    def __init__(
        self, folder: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(folder)
        self._capture = capture
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("ANABRANCH_")]:
            patch.delenv(name)
        patch.setenv("USER", "ann")
        patch.setenv("LOGNAME", "ann")
        pools = logging.getLogger("anabranch.pools")  # a command sets for good where it tells
        patch.setattr(pools, "handlers", pools.handlers)
        patch.setattr(pools, "propagate", pools.propagate)
        patch.setattr(logs, "_TALKATIVE", set())

    def run(self, *words: object, stdin: str | None = None, **_more: Any) -> Done:
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO((stdin or "").encode()))
        self._capture.readouterr()
        try:
            code = command([str(word) for word in words])
        except SystemExit as left:  # argparse has spoken
            code = left.code if isinstance(left.code, int) else 1
        finally:
            sys.stdin = before
        out, err = self._capture.readouterr()
        return Done(code, out, err)
