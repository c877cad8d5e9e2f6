"""Pipes, devices and files without end, wherever a path can be named: the server goes on."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import anabranch
from hangs import HANG_SECONDS
from in_loop import in_loop
from surfaces.cli.commands.test_serve import Serving, serving
from surfaces.cli.support import HEAD, HELLO, Terminal, beginning, until

NAME = "metadata: {name: reads}\n"

#: A step for every place where a path stands; `PATH` is the pipe.
PLACES = {
    "script": "{step: s, tool: {kind: python, script: PATH}}",
    "playbook": "{step: s, tool: {kind: playbook, path: PATH}}",
    "artifact": "{step: s, tool: {kind: artifact, action: get, uri: PATH}}",
    "secrets": "{step: s, tool: {kind: secrets, provider: file, path: PATH}}",
    "jsonl": "{step: s, loop: {in: {jsonl: PATH}}, tool: {kind: noop}}",
    "csv": "{step: s, loop: {in: {csv: PATH}}, tool: {kind: noop}}",
    "keychain": "{step: s, tool: {kind: noop, result: '{{ keychain.pw | length }}'}}",
}


def definition(place: str, path: Path | str) -> str:
    keys = f"keychain: [{{name: pw, kind: file, path: {path}}}]\n" if place == "keychain" else ""
    return f"{HEAD}{NAME}{keys}workflow: [{PLACES[place].replace('PATH', str(path))}]\n"


def post(server: Serving, path: str, body: Any) -> Any:
    asked = urllib.request.Request(
        f"{server.url}/api/v1{path}",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=HANG_SECONDS) as answer:
        return json.load(answer)


def ended(server: Serving, run: str) -> Any:
    until(lambda: server.get(f"/runs/{run}")["status"] not in ("running", "waiting"))
    return server.get(f"/runs/{run}")


@pytest.mark.slow
def test_a_pipe_is_refused_in_every_place_and_the_server_goes_on(terminal: Terminal) -> None:
    pipe = terminal.folder / "pipe"
    os.mkfifo(pipe)
    for _ in range(2):  # and again after a restart
        with serving(terminal) as server:
            for place in PLACES:
                made = post(server, "/runs", {"definition": definition(place, pipe)})
                found = ended(server, made["run"])
                assert found["status"] == "failed", place
                assert "only regular files are read" in str(found["failures"]), (
                    place,
                    found["failures"],
                )
            made = post(server, "/runs", {"definition": HELLO})
            assert ended(server, made["run"])["status"] == "completed"
            server.process.interrupt(signal.SIGTERM)
            assert server.process.end().code == 0


@pytest.mark.slow
def test_a_file_system_without_an_answer_stops_nobody_else(terminal: Terminal) -> None:
    """As a dead mount does it: the call into the kernel never comes back."""
    terminal.write(
        "dead_mount.py",
        "import os, threading\n"
        "def hanging(real):\n"
        "    def look(path, *more, **given):\n"
        "        if 'dead' in os.fspath(path) if not isinstance(path, int) else False:\n"
        "            open('begun', 'a').close()\n"
        "            threading.Event().wait()\n"
        "        return real(path, *more, **given)\n"
        "    return look\n"
        "os.stat, os.lstat = hanging(os.stat), hanging(os.lstat)\n",
    )
    places = ("script", "playbook", "artifact", "secrets", "keychain", "jsonl")
    with serving(terminal, "--tools", "dead_mount", "--grace", 0.2) as server:
        runs = [
            post(server, "/runs", {"definition": definition(place, "/dead/file")})["run"]
            for place in places
        ]
        until((terminal.folder / "begun").exists)
        made = post(server, "/runs", {"definition": HELLO})
        assert ended(server, made["run"])["status"] == "completed"
        post(server, f"/runs/{runs[0]}/cancel", {"reason": "enough"})
        assert ended(server, runs[0])["status"] == "cancelled"
        server.process.interrupt(signal.SIGTERM)
        assert server.process.end().code == 0
    with serving(terminal, "--grace", 0.2) as server:  # the mount is back
        for run in runs[1:]:
            assert ended(server, run)["status"] == "failed"
        server.process.interrupt(signal.SIGTERM)
        assert server.process.end().code == 0


@in_loop
async def test_devices_and_files_without_end_are_refused(tmp_path: Path) -> None:
    places = ("script", "artifact", "keychain", "secrets", "playbook")
    async with anabranch.Engine(tmp_path / "s.db") as engine:
        for place, path in product(places, ("/dev/zero", "/proc/self/mem")):
            found = await engine.wait(await engine.start(definition(place, path)))
            assert found.status == "failed", (place, path)
            if path.startswith("/dev/"):  # refused before anything was read
                said = str(found.problem) + str(found.steps)
                assert "belongs to the system" in said, (place, path)


@pytest.mark.slow
def test_a_book_of_participants_that_is_a_pipe_is_refused_at_the_start(terminal: Terminal) -> None:
    os.mkfifo(terminal.folder / "book.yaml")
    with beginning(terminal, "serve", "--port", 0, "--participants", "book.yaml") as process:
        done = process.end()
    assert done.code == 2
    assert "only regular files are read" in done.err
