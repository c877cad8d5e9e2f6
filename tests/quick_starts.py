"""Processes of `anabranch` that need not load it: they are forked from one that has.

A process takes half a second to a second of processor time before it does anything, most of it for
imports. `Popen` here stands for `subprocess.Popen` in tests that start many of them: a program
`[sys.executable, "-m", "anabranch", …]`, or a script, begins in a fork of a process that has loaded
the command line, the servers and the nodes, and has no thread. It has a pid, streams, a folder, an
environment, signals and an exit status like any other; its parent only waits for it.

What depends on how an interpreter begins is begun by one: other programs, other locales, other
settings of Python or of TLS. `ANABRANCH_FRESH_STARTS=1` begins everything so; `make soak` does.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, AnyStr

LOADED = (
    "anabranch.surfaces.cli.main",
    "anabranch.surfaces.cli.commands.run.run",
    "anabranch.surfaces.cli.commands.serve.serve",
    "anabranch.surfaces.cli.commands.serve.worker",
    "anabranch.surfaces.cli.commands.node.node",
    "anabranch.surfaces.cli.commands.arca.arca",
    "anabranch.surfaces.cli.commands.dator.dator",
    "anabranch.surfaces.cli.backend.local.store",
    "anabranch.surfaces.http.serve",
    "anabranch.surfaces.http.node.server",
    "anabranch.surfaces.http.module.server",
    "anabranch.surfaces.ui.routes",
    "anabranch.surfaces.worker.worker",
    "anabranch.modules.arca.module",
    "anabranch.modules.dator.module",
)
#: Where a process that forks is there already: for which one, and the file that leads to it.
THERE = "ANABRANCH_QUICK_STARTS"
#: What an interpreter, or a library while it is loaded, reads from the environment.
READ_AT_THE_START = ("LANG", "LC_", "PYTHON", "SSL_", "OPENSSL_")
OWN = ("PYTHONPATH",)  # which a fork can still follow
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
CAN_FORK = sys.platform == "linux" and hasattr(subprocess.Popen, "_close_pipe_fds")
FRESH = os.environ.get("ANABRANCH_FRESH_STARTS", "") not in ("", "0") or not CAN_FORK
REQUEST_BYTES = 1 << 20
_SIGNATURE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


# -- in the process of the tests -------------------------------------------------------------------


class Popen(subprocess.Popen[AnyStr]):
    """A process as `subprocess.Popen` starts it, begun quickly where it makes no difference."""

    _told: socket.socket | None = None  # by whoever waits for it: its pid, then its status

    def _execute_child(self, *given: Any) -> None:
        bound = _SIGNATURE.bind(self, *given).arguments
        argv = [os.fspath(word) for word in bound["args"]]
        env = os.environ if bound["env"] is None else bound["env"]
        if FRESH or not _is_ours(argv) or not _is_alike(env) or not _is_plain(bound):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        places = (bound["p2cread"], bound["c2pwrite"], bound["errwrite"])
        streams: list[int] = [
            number if place == -1 else place for number, place in enumerate(places)
        ]
        request = {
            "argv": argv[1:],
            "cwd": os.fspath(bound["cwd"] or os.getcwd()),
            "env": dict(env),
            "session": bool(bound["start_new_session"]),
        }
        self._told, theirs = socket.socketpair()
        with theirs:
            _server().fork(request, [*streams, theirs.fileno()])
        (self.pid,) = struct.unpack("i", _whole(self._told))
        self._child_created = True
        self._close_pipe_fds(*(bound[name] for name in PIPES))  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._told is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return found
        patience = 0 if wait_flags & os.WNOHANG else None
        if not select.select([self._told], [], [], patience)[0]:
            return 0, 0
        (status,) = struct.unpack("i", _whole(self._told))
        with self._told as told:
            told.sendall(b"x")
            told.recv(1)  # nothing: the process is gone from the table of processes
        return self.pid, status

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._told is None:
            found: int | None = super()._internal_poll(*given, **more)  # type: ignore[misc]
            return found
        lock: threading.Lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode


def run(
    args: Sequence[str | os.PathLike[str]], *, timeout: float | None = None, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` with `capture_output`."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with Popen(args, **{**streams, **more}) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def _whole(told: socket.socket) -> bytes:
    number = told.recv(4, socket.MSG_WAITALL)
    assert len(number) == 4, "the process that forks has ended"
    return number


def _is_ours(argv: Sequence[str]) -> bool:
    if not argv or argv[0] != sys.executable:
        return False
    return list(argv[1:3]) == ["-m", "anabranch"] or (len(argv) > 1 and argv[1].endswith(".py"))


def _is_alike(env: Mapping[str, str]) -> bool:
    return _read_at_the_start(env) == _read_at_the_start(os.environ)


def _read_at_the_start(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in env.items()
        if name.startswith(READ_AT_THE_START) and name not in OWN
    }


def _is_plain(bound: Mapping[str, Any]) -> bool:
    odd = ("preexec_fn", "pass_fds", "shell", "executable", "gid", "gids", "uid")
    return not any(bound[name] for name in odd) and bound["umask"] == -1


class _Server:
    """The process that forks, as the tests see it: begun by the first who needs it, unless the
    suite has forked it from one that has loaded everything."""

    def __init__(self) -> None:
        whose, _, file = os.environ.get(THERE, "").partition(":")
        if whose == str(os.getpid()):
            self._socket = socket.socket(fileno=int(file))
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd="/",
            )
        atexit.register(process.wait)
        atexit.register(self._socket.close)

    def fork(self, request: Mapping[str, Any], files: Sequence[int]) -> None:
        socket.send_fds(self._socket, [json.dumps(request).encode()], list(files))


_servers: list[_Server] = []
_beginning = threading.Lock()


def _server() -> _Server:
    with _beginning:
        if not _servers:
            _servers.append(_Server())
        return _servers[0]


# -- in the process that forks ---------------------------------------------------------------------


def serve(number: int) -> None:
    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()  # whatever is loaded stays in pages that all of them share
    assert threading.active_count() == 1, "a fork has only one thread"
    with socket.socket(fileno=number) as asked:
        while True:
            text, files, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 4)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not text:
                return
            if os.fork() == 0:
                asked.close()
                _watch(json.loads(text), files)
            for file in files:
                os.close(file)


def _watch(request: dict[str, Any], files: list[int]) -> None:
    """Begin it, tell its pid, and how it ended; it is forgotten when that has been heard."""
    *streams, told = files
    pid = os.fork()
    if pid == 0:
        os.close(told)
        os._exit(_begin(request, streams))
    for file in {0, 1, 2, *streams}:
        os.close(file)
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # meant for the one that is watched
    with socket.socket(fileno=told) as channel, contextlib.suppress(OSError):
        channel.sendall(struct.pack("i", pid))
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status = ended.si_status
        channel.sendall(struct.pack("i", status << 8 if ended.si_code == os.CLD_EXITED else status))
        channel.recv(1)
        os.waitpid(pid, 0)
    os._exit(0)


def _begin(request: dict[str, Any], streams: Sequence[int]) -> int:
    """What an interpreter does before and after a program; returns its exit status."""
    if request["session"]:
        os.setsid()
    for file in streams:  # none of them may be overwritten before it is in its place
        assert file > 2
    for number, file in enumerate(streams):
        os.dup2(file, number)
    os.closerange(3, 1 << 16)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    _open_streams()
    gc.enable()
    first, *words = request["argv"]
    folder = request["cwd"] if first == "-m" else os.path.dirname(first)
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [folder, *filter(None, places), *sys.path[1:]]
    sys.argv = ["anabranch", *words[1:]] if first == "-m" else [first, *words]
    status = _run(first)
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return status


def _open_streams() -> None:
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False))  # noqa: SIM115
    size = 0 if at_once else -1  # a text that is written at once would still wait in a buffer
    out, err = (open(number, "wb", size, closefd=False) for number in (1, 2))  # noqa: SIM115
    lines = out.isatty()
    sys.stdout = io.TextIOWrapper(out, line_buffering=lines, write_through=at_once)
    sys.stderr = io.TextIOWrapper(
        err, errors="backslashreplace", line_buffering=True, write_through=at_once
    )


def _run(first: str) -> int:
    try:
        if first == "-m":
            runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(first, run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return (left.code or 0) & 0xFF
        print(left.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(int(sys.argv[1]))
