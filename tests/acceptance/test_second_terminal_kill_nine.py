"""A server under load, a second terminal that does everything beside it, and then `kill -9`.

What was acknowledged is there afterwards, in a file that is sound, round after round. Kills follow
what has been done, not the clock. `make soak` does a thousand rounds.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS
from surfaces.cli.support import HEAD, HELLO

from .beside import SCRAP, VERBS, Beside, Site, beside, gated, site

ROUNDS = int(os.environ.get("ANABRANCH_TERMINAL_ROUNDS", "3"))  # every verb once
CLIENTS = 3
RUNS_AT_LEAST = 12  # acknowledged in a round
BREATH_SECONDS = 0.05  # between two runs of a client once there are as many
SHARES = 3  # each round runs every third verb
FILES = ("", "-wal")

#: A step that opens the files of the store in a way that no look at the statement recognises.
OPENS = f"""{HEAD}metadata: {{name: opens}}
workflow:
  - step: open
    tool:
      kind: duckdb
      query: SELECT content FROM read_blob(['s.d' || 'b', 's.db-' || 'shm', 's.db-' || 'wal'])
"""

BACKUP = """
import sqlite3, sys
source, target = (sqlite3.connect(path) for path in sys.argv[1:])
source.backup(target)
print(target.execute("PRAGMA integrity_check").fetchone()[0])
"""


@dataclass
class Load:
    """Clients that start runs until the server is gone, and remember what they were told."""

    site: Site
    started: list[str] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        return threads

    def _client(self) -> None:
        try:
            if find_spec("duckdb") is not None:
                self.site.start(OPENS)
            while True:
                self.site.start(SCRAP)  # of these nothing is expected: they are purged
                run = self.site.start(HELLO)
                self.started.append(run)
                if self.site.ended(run) == "completed":
                    self.completed.append(run)
                if len(self.completed) >= RUNS_AT_LEAST:
                    self.enough.set()
                    time.sleep(BREATH_SECONDS)  # the rest of the round is the second terminal's
        except AssertionError as error:
            self.wrong.append(str(error))
        except (OSError, ValueError, TypeError):
            pass  # it was killed
        finally:
            self.enough.set()


def second_terminal(
    terminal: Beside, at: Site, folder: Path, round_: int, names: dict[str, str]
) -> None:
    """A share of the verbs, now and then one in a process of its own; a backup and a plain copy."""
    copying = subprocess.Popen(
        [sys.executable, "-c", BACKUP, str(at.store), str(folder / f"backup{round_}.db")],
        stdout=subprocess.PIPE,
        text=True,
    )
    for suffix in FILES:
        shutil.copy(f"{at.store}{suffix}", folder / f"copy.db{suffix}")
    share = list(VERBS)[round_ % SHARES :: SHARES]
    for verb in share:
        terminal.do(verb, **names)
    if round_ % 4 == 0:  # starting a process takes longer than all of these together
        terminal.process(("purge", "runs", "token list")[round_ % 3], **names)
    out, _ = copying.communicate(timeout=HANG_SECONDS)
    assert out == "ok\n", "the backup that was made beside the server"


def new_token(terminal: Beside, scope: str) -> tuple[str, str]:
    code, out, err = terminal.say("token create", "--scope", scope, "--name", scope, "--json")
    assert code == 0, err
    made = json.loads(out)
    return made["id"], made["token"]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_beside_a_second_terminal(tmp_path: Path) -> None:
    started: list[str] = []
    completed: list[str] = []
    revoked = ""
    with beside(tmp_path, tmp_path / "s.db") as terminal:
        _, admin = new_token(terminal, "admin")
        for round_ in range(ROUNDS):
            with site(tmp_path, "--tokens-required") as at:
                at.token = admin
                if revoked:
                    assert at.ask("GET", "/api/v1/runs", token=revoked)[0] == 401
                number, revoked = new_token(terminal, "read")
                assert at.ask("GET", "/api/v1/runs", token=revoked)[0] == 200
                names = {"run": at.start(HELLO), "token": "none"}
                names |= {name: gated(at, f"{name}{round_}") for name in ("gate", "cancel")}
                load = Load(at)
                clients = load.begin()
                second_terminal(terminal, at, tmp_path, round_, names)
                code, _, err = terminal.say("token revoke", number)
                assert code == 0, err
                while at.ask("GET", "/api/v1/runs", token=revoked)[0] != 401:
                    assert at.process.poll() is None
                load.enough.wait()
                assert not load.wrong, load.wrong[0]
                assert at.process.poll() is None, "the server stopped by itself"
                at.kill()
                for client in clients:
                    client.join()
            started += [names["run"], names["gate"], names["cancel"], *load.started]
            completed += load.completed
            everything_is_there(at.store, started, completed)
            for left in tmp_path.glob("backup*"):
                left.unlink()


def everything_is_there(path: Path, started: list[str], completed: list[str]) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with closing(SqliteStore(path, read_only=True)) as store:
        heads = {head.run: head for head in store.heads(HeadFilter(limit=1_000_000))}
    assert [run for run in started if run not in heads] == []
    assert [run for run in completed if heads[run].status != "completed"] == []
