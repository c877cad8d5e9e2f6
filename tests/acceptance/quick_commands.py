"""A command `anabranch` for shells whose processes need not load it: see `quick_starts`.

The command is a small program that hands its words, its folder, its environment and its streams to
this process and waits; the real one is forked from a process that has loaded Anabranch. Signals are
handed on, and whoever kills the small program kills the real one: it is gone before anything else
begins.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import quick_starts

UNBUFFERED = "PYTHONUNBUFFERED"
MAIN = Path(__file__).parent / "quick_main.py"
REQUEST_BYTES = 1 << 20
#: `-I -S` begins in ten milliseconds. It ends as the real one does, also by a signal.
CLIENT = """#!{python} -IS
import array, json, os, signal, socket, struct, sys
words = [*{first!r}, *sys.argv[1:]]
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({address!r})
said = json.dumps({{"argv": words, "cwd": os.getcwd(), "env": dict(os.environ)}}).encode()
streams = array.array("i", [0, 1, 2])
pid = 0
def hand_on(number, frame):
    if pid:
        os.kill(pid, number)
    else:
        early.append(number)
early = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, hand_on)
link.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
first = link.recv(4)
pid = struct.unpack("i", first)[0] if first else 0
if not pid:
    os.execv({python!r}, [{python!r}, *words])
for number in early:
    os.kill(pid, number)
status = struct.unpack("i", link.recv(4))[0]
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
os._exit(os.waitstatus_to_exitcode(status))
"""


@contextmanager
def quick_commands(file: Path, *first: str) -> Iterator[None]:
    """`file` is the command as long as this lasts; nothing that it began outlives that. `first` are
    the words for Python that it begins with: without any it stands for Python itself."""
    if quick_starts.FRESH:
        write(file, f'#!/bin/sh\nexec "{sys.executable}" {" ".join(first)} "$@"\n')
        yield
        return
    with TemporaryDirectory(prefix="abq-") as folder:  # short: it has a socket
        address = str(Path(folder) / "s")
        server = _Server(address)
        write(file, CLIENT.format(python=sys.executable, address=address, first=first))
        try:
            yield
        finally:
            server.close()


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


class _Server:
    """One thread: it takes requests, tells how they end, and ends those whose asker is gone."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(address)
        self._listening.listen(64)
        self._wakes, self._wake = socket.socketpair()
        self._begun: dict[socket.socket, tuple[int, socket.socket]] = {}  # by asker: pid, told
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._wake.close()
        self._thread.join()

    def _serve(self) -> None:
        with self._listening, self._wakes:
            while True:
                told = {told: asker for asker, (_, told) in self._begun.items()}
                ready, _, _ = select.select(
                    [self._listening, self._wakes, *self._begun, *told], [], []
                )
                for one in ready:
                    if one in told and told[one] in self._begun:
                        self._tell_end(told[one])
                self._end_those_left()
                if self._wakes in ready:
                    break
                if self._listening in ready:
                    self._begin(self._listening.accept()[0])
            for asker in list(self._begun):
                self._kill(asker)

    def _begin(self, asker: socket.socket) -> None:
        text, files, _, _ = socket.recv_fds(asker, REQUEST_BYTES, 3)
        try:
            if len(files) < 3:
                asker.close()  # it was killed before it said what it wants
                return
            request = json.loads(text)
            request["argv"] = _quick_words(request["argv"])
            if not request["argv"] or not _is_alike(request["env"]):
                asker.sendall(struct.pack("i", 0))
                asker.close()
                return
            told, theirs = socket.socketpair()
            with theirs:
                request["session"] = False
                quick_starts._server().fork(request, [*files, theirs.fileno()])
            (pid,) = struct.unpack("i", told.recv(4, socket.MSG_WAITALL))
            self._begun[asker] = (pid, told)
            with suppress(OSError):
                asker.sendall(struct.pack("i", pid))
        finally:
            for file in files:
                os.close(file)

    def _tell_end(self, asker: socket.socket) -> None:
        _, told = self._begun.pop(asker)
        status = _forget(told)
        with asker, suppress(OSError):
            asker.sendall(struct.pack("i", status))

    def _end_those_left(self) -> None:
        for asker in list(self._begun):
            if select.select([asker], [], [], 0)[0]:  # it never says more, so it is gone
                self._kill(asker)

    def _kill(self, asker: socket.socket) -> None:
        pid, told = self._begun.pop(asker)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _forget(told)
        asker.close()


def _forget(told: socket.socket) -> int:
    """How it ended; it is gone from the table of processes afterwards."""
    with told:
        (status,) = struct.unpack("i", told.recv(4, socket.MSG_WAITALL))
        told.sendall(b"x")
        told.recv(1)
    return int(status)


def _quick_words(argv: Sequence[str]) -> list[str]:
    """Of the same program, as `quick_starts` begins them; nothing where it does not."""
    first, *more = argv or [""]
    if [first, *more[:1]] == ["-m", "anabranch"]:
        return [str(MAIN), *more[1:]]
    if first == "-m" and more[0].startswith("anabranch."):
        found = find_spec(more[0])
        return [str(found.origin), *more[1:]] if found is not None else []
    return [*argv] if first.endswith(".py") else []


def _is_alike(env: Mapping[str, str]) -> bool:
    """Whether streams are buffered `MAIN` sees to itself."""
    other = {name: text for name, text in env.items() if name != UNBUFFERED}
    given = {name: text for name, text in os.environ.items() if name == UNBUFFERED}
    return quick_starts._is_alike({**other, **given})
