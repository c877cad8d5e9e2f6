"""The process of a part: a fork of the runner, which has loaded everything that most tests need."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import pkgutil
import signal
import socket
import sys
import threading
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from hypothesis.internal.conjecture import providers

import anabranch
from tools.suite.new_stores import copy_new_stores, make_new_stores_for
from tools.suite.parts import Part
from tools.suite.plugin import PartPlugin
from tools.suite.process_table import PART, end_with, name_part

FIRST = (
    "aiohttp.test_utils",
    "anyio.pytest_plugin",
    "hypothesis.strategies",
    "_hypothesis_pytestplugin",
    "schemathesis.pytest.plugin",
    "yaml",
    "pdb",
    "platformdirs",
    "cryptography.hazmat.bindings._rust",
)
TESTS = Path(__file__).parent.parent.parent / "tests"
#: These load libraries that begin threads, which a fork would not have.
NOT_LOADED = ("anabranch.pools.dask", "anabranch.pools.ray", "anabranch.__main__")


class Options(NamedTuple):
    fast: bool = False
    """Without the tests that are marked slow, as `make check` wants it."""
    patient: bool = False
    """A test may take as long as it takes, as those of `make soak` do."""


def load() -> None:
    """What tests use, once for all of them: loading takes longer than most files."""
    for name in FIRST:
        import_module(name)
    for module in pkgutil.walk_packages(anabranch.__path__, "anabranch."):
        if not module.name.startswith(NOT_LOADED):
            with contextlib.suppress(ImportError):
                import_module(module.name)
    with warnings.catch_warnings(action="ignore"):  # this is early, and meant to be
        providers._get_local_constants()  # of all modules, which every process would look through
    copy_new_stores()
    assert threading.active_count() == 1, "a fork has only one thread"
    gc.collect()
    gc.freeze()


def begin(part: Part, number: int, folder: Path, output: Path, options: Options) -> tuple[int, int]:
    """Its pid, and the end of a pipe where it tells what happens."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run(part, number, folder, output, options, writing)
    os.close(writing)
    return pid, reading


def _run(
    part: Part, number: int, folder: Path, output: Path, options: Options, writing: int
) -> NoReturn:
    """As an interpreter runs a program, to its end."""
    status = 70
    try:
        os.setsid()
        _default_signals()
        make_new_stores_for(part.tests)
        os.environ[PART] = str(number)
        with open(os.devnull) as nothing, output.open("wb") as file:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        channel = os.fdopen(writing, "w")
        forks = _offer_forks(number, writing) if part.kind != "pure" else None
        faulthandler.enable()
        words = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder}"]
        # What is loaded already is not written anew for its asserts: those of plugins do not fail.
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        words += ["-m", "not slow"] if options.fast else []
        plugin = PartPlugin(channel, patient=options.patient)
        status = pytest.main([*words, *part.tests], plugins=[plugin])
        with contextlib.suppress(BaseException):
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr, channel):
            stream.flush()
        if forks is not None:
            os.kill(forks, signal.SIGKILL)
            os.waitpid(forks, 0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _offer_forks(number: int, writing: int) -> int:
    """Fork the process that `tests/quick_starts.py` asks for others from here, where everything is
    loaded and nothing has begun. Its pid; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    part = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        os.environ["ANABRANCH_QUICK_STARTS"] = f"{os.getpid()}:{ours.detach()}"
        return pid
    try:
        end_with(part)  # one that died has no time to tell it so
        ours.close()
        os.close(writing)
        name_part(number)
        os.chdir("/")
        sys.path.insert(1, str(TESTS))
        import_module("quick_starts").serve(theirs.detach())
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _default_signals() -> None:
    """Whatever the shell that began all this ignores, children of tests would ignore too."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(one, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
