"""A server as a real process, a second terminal beside it, and a look at the server's locks."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import quick_starts
from anabranch.surfaces.cli.parser import build
from hangs import HANG_SECONDS
from surfaces.cli.support import GATE, HEAD, HELLO

SCRAP = HELLO.replace("name: hello", "name: scrap")
LOOP = f"""{HEAD}metadata: {{name: looping}}
workflow:
  - step: each
    loop: {{in: [1, 2], iterator: n}}
    tool: {{kind: noop}}
"""
TEMPLATE = {
    "template_id": "ask.v1",
    "label": "Ask",
    "parameters": [],
    "graph": {"steps": []},
}

#: One line for each verb that takes `--store`; what is in braces is filled in. Some of them are
#: refused, because a server owns the store: they open and close it all the same.
VERBS: dict[str, Sequence[str]] = {
    "run": ["hello.yaml"],
    "register": ["hello.yaml", "--path", "tests/hello"],
    "catalog list": [],
    "catalog versions": ["tests/hello"],
    "catalog show": ["tests/hello"],
    "credential add": ["shop", "--type", "secret", "--from-file", "hello.yaml"],
    "credential list": [],
    "credential show": ["shop"],
    "credential rotate": ["shop", "--from-file", "hello.yaml"],
    "credential rekey": ["--new-key-file", "other.key"],
    "credential remove": ["shop"],
    "graph": ["{run}"],
    "get": ["anabranch:run:{run}/step/each"],
    "runs": [],
    "show": ["{run}"],
    "events": ["{run}"],
    "explain": ["{run}"],
    "logs": ["{run}"],
    "settings": [],
    "completion": ["bash"],
    "signal": ["{gate}", "paid"],
    "retry": ["{run}", "each"],
    "skip": ["{cancel}", "each"],
    "schedule add": ["beside", "hello.yaml", "--every", "1h", "--paused"],
    "schedule list": [],
    "schedule show": ["beside"],
    "schedule next": ["beside"],
    "schedule pause": ["beside"],
    "schedule resume": ["beside"],
    "schedule run-now": ["beside"],
    "schedule backfill": [
        *("beside", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T01:00:00Z", "--dry-run")
    ],
    "schedule remove": ["beside"],
    "trigger add": ["after", "hello.yaml", "--after", "nothing", "--paused"],
    "trigger list": [],
    "trigger show": ["after"],
    "trigger test": ["after"],
    "trigger pause": ["after"],
    "trigger resume": ["after"],
    "trigger retry": ["after"],
    "trigger remove": ["after"],
    "alias set": ["prod", "tests/hello"],
    "alias list": [],
    "alias show": ["prod"],
    "alias rollback": ["prod"],
    "alias remove": ["prod"],
    "limits": [],
    "security": [],
    "overview": [],
    "export": ["{run}", "--file", "runs.jsonl.gz"],
    "import": ["runs.jsonl.gz"],
    "resume": ["{run}"],
    "pause": ["{cancel}"],
    "cancel": ["{cancel}"],
    "patch": ["{gate}", "a=1"],
    "loop": ["{run}", "each", "--stop"],
    "decide": ["{gate}", "ask", "--fulfil", "--actor", "ann"],
    "redrive": ["{run}"],
    "purge": ["--name", "scrap", "--older-than", "0s"],
    "bulk": ["cancel", "--prefix", "nobody", "--dry-run"],
    "session list": [],
    "session show": ["{run}"],
    "session receipts": ["{run}"],
    "session alive": ["{run}"],
    "session executed": ["{run}"],
    "session wake": ["{run}"],
    "session kill": ["{run}"],
    "session gas": ["hello.yaml"],
    "session next": ["0x" + "1" * 40],
    "session wakeable": ["--as", "0x" + "1" * 40],
    "dispatches": ["{run}"],
    "snapshot": ["{run}"],
    "template put": ["template.json"],
    "template list": [],
    "template versions": ["ask.v1"],
    "template show": ["ask.v1"],
    "template run": ["ask.v1"],
    "template delete": ["ask.v1"],
    "token create": ["--scope", "read", "--name", "beside"],
    "token list": [],
    "token revoke": ["{token}"],
    "webhook create": ["http://127.0.0.1:9/", "--paused", "--kind", "run.finished"],
    "webhook list": [],
    "webhook show": ["1"],
    "webhook pause": ["1"],
    "webhook resume": ["1"],
    "webhook rotate": ["1"],
    "webhook delete": ["1"],
    "webhook change": ["1", "--name", "x"],
    "webhook deliveries": ["1"],
    "webhook delivery": ["1", "1"],
    "webhook redeliver": ["1", "1"],
    "store backup": ["backup.db", "--force"],
    "store restore": ["backup.db"],
    "store check": [],
    "store compact": [],
    "store migrate": [],
    "cluster servers": [],
    "cluster partitions": [],
    "cluster owner": ["{run}"],
    "cluster drain": ["1"],
}
SERVERS = {"serve", "dev"}  # they become the engine, or are refused: see the tests of ownership

#: Reads command lines as JSON, runs each as `anabranch` would, and says how it went.
TERMINAL = """
import contextlib, io, json, sys
from anabranch.surfaces.cli.main import command
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(json.loads(line))
        except SystemExit as left:
            code = f"usage: {left.code}"
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def verbs_with_a_store() -> set[str]:
    """Every verb, or action of one, that takes `--store`."""
    found: set[str] = set()

    def walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
        inner = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        for name, below in (inner[0].choices if inner else {}).items():
            walk(below, (*words, name))
        if not inner and any("--store" in one.option_strings for one in parser._actions):
            found.add(" ".join(words))

    walk(build(), ())
    return found


class Beside:
    """The second terminal: a process of its own, in which many commands are run one by one."""

    def __init__(self, folder: Path, store: Path) -> None:
        self._folder, self._store = folder, store
        self._environment = {
            k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")
        } | {"USER": "ann"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, verb: str, *words: str) -> tuple[Any, str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = [*verb.split(), *words, "--store", str(self._store)]
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        assert not str(code).startswith("usage"), f"{line}: {err}"
        assert "Traceback" not in err, err
        return code, out, err

    def do(self, verb: str, **names: str) -> tuple[Any, str, str]:
        """One of `VERBS`."""
        return self.say(verb, *(word.format(**names) for word in VERBS[verb]))

    def process(self, verb: str, **names: str) -> None:
        """The same, in a process that ends with it."""
        words = [word.format(**names) for word in VERBS[verb]]
        done = quick_starts.run(
            [
                *(sys.executable, "-m", "anabranch", *verb.split(), *words),
                *("--store", str(self._store)),
            ],
            cwd=self._folder,
            env=self._environment,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def beside(folder: Path, store: Path) -> Iterator[Beside]:
    (folder / "hello.yaml").write_text(HELLO)
    (folder / "template.json").write_text(json.dumps(TEMPLATE))
    (folder / "other.key").write_text("0123456789abcdef" * 4)
    terminal = Beside(folder, store)
    try:
        yield terminal
    finally:
        terminal.close()


class Site:
    """`anabranch serve`, and requests to it."""

    def __init__(self, folder: Path, *more: str) -> None:
        words = ("serve", "--port", "0", "--json", "--store", "s.db", *more)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
        self.store = folder / "s.db"
        self.log = (folder / "server.log").open("ab")
        self.process = quick_starts.Popen(
            [sys.executable, "-m", "anabranch", *words],
            cwd=folder,
            env=kept,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.token = ""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (folder / "server.log").read_text()[-4000:]
        self.url = json.loads(line)["url"]

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None
    ) -> tuple[int, Any]:
        """Status and answer, whatever it is; at most the beginning of a stream."""
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if data else {}
        if token or self.token:
            given["Authorization"] = f"Bearer {token or self.token}"
        request = urllib.request.Request(f"{self.url}{path}", data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                streams = "event-stream" in answer.headers.get("Content-Type", "")
                text = answer.read1(1000) if streams else answer.read()
                return answer.status, _json(text)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _json(error.read())

    def start(self, definition: str, **more: Any) -> str:
        status, answer = self.ask("POST", "/api/v1/runs", {"definition": definition, **more})
        assert status == 201, answer
        return str(answer["run"])

    def ended(self, run: str) -> str:
        while not (told := self.ask("GET", f"/api/v1/runs/{run}/wait?seconds=60")[1])["settled"]:
            pass
        return str(told["status"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


@contextmanager
def site(folder: Path, *more: str) -> Iterator[Site]:
    made = Site(folder, *more)
    try:
        yield made
    finally:
        made.close()


def gated(at: Site, run: str) -> str:
    return at.start(GATE, run=run)


def locks_of(process: int, path: Path) -> list[str]:
    """SQLite's locks of a process on a file: the ranges of bytes."""
    about = path.stat()
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    found = []
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, access, owner, where, *span = line.split()[:8]
        if (kind, owner, where) == ("POSIX", str(process), place):
            found.append(f"{access} {' '.join(span)}")
    return sorted(found)


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
