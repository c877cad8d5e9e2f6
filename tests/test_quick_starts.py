"""A process that is begun quickly is one like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch
import quick_starts
from hangs import HANG_SECONDS

PROGRAM = [sys.executable, "-m", "anabranch"]
SCRIPT = """
import json, os, sys, threading, time
print(json.dumps([os.getcwd(), sys.argv[1:], os.environ.get("MORE"), sys.stdin.read()]), flush=True)
print("said aside", file=sys.stderr)
if "helper" in sys.argv:
    import helper
if "fails" in sys.argv:
    raise ValueError("as told")
if "leaves" in sys.argv:
    sys.exit(7)
if "interrupted" in sys.argv:
    os.kill(os.getpid(), 2)
if "waits" in sys.argv:
    time.sleep(3600)
threading.Thread(target=lambda: print("the last word")).start()
"""

needs_forks = pytest.mark.skipif(quick_starts.FRESH, reason="everything is begun afresh")


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("print('helped')")
    return [sys.executable, str(tmp_path / "script.py")]


def is_quick(process: quick_starts.Popen[Any]) -> bool:
    return process._told is not None


@needs_forks
@pytest.mark.parametrize("word", ["", "helper", "fails", "leaves", "interrupted"])
def test_it_says_and_ends_as_one_that_was_begun_afresh(
    word: str, script: list[str], tmp_path: Path
) -> None:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    more: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "MORE": "é"}, **streams}
    kinds: list[Callable[..., Any]] = [subprocess.Popen, quick_starts.Popen]
    ends = []
    for kind in kinds:
        with kind([*script, "a b", word], text=True, **more) as process:
            said = process.communicate("given", timeout=HANG_SECONDS)
        ends.append((process.returncode, said[0], said[1].splitlines()[-1]))
    assert ends[0] == ends[1]
    assert is_quick(process)


@needs_forks
def test_the_command_line_begins_in_a_process_of_its_own(tmp_path: Path) -> None:
    program = [*PROGRAM, "runs"]
    made: quick_starts.Popen[bytes] = quick_starts.Popen(
        program, cwd=tmp_path, stderr=subprocess.PIPE
    )
    with made as process:
        assert process.pid != os.getpid()
        assert b"there is no store" in process.communicate(timeout=HANG_SECONDS)[1]
    assert (process.returncode, is_quick(process)) == (2, True)
    assert not Path(f"/proc/{process.pid}").exists()
    done = quick_starts.run([*PROGRAM, "--version"], text=True)
    assert (done.returncode, done.stdout) == (0, f"anabranch {anabranch.__version__}\n")


@needs_forks
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it(number: signal.Signals, script: list[str]) -> None:
    with quick_starts.Popen([*script, "waits"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(HANG_SECONDS) == -number
        assert process.poll() == -number


@pytest.mark.parametrize(
    ("program", "env"),
    [
        ([sys.executable, "-c", "print(1)"], {}),
        ([*PROGRAM, "--version"], {"LC_ALL": "C"}),
        ([*PROGRAM, "--version"], {"PYTHONUTF8": "1"}),
        ([*PROGRAM, "--version"], {"SSL_CERT_FILE": "/nowhere"}),
    ],
)
def test_what_depends_on_the_start_of_an_interpreter_gets_one(
    program: list[str], env: dict[str, str]
) -> None:
    given = {**os.environ, **env}
    with quick_starts.Popen(program, env=given, stdout=subprocess.DEVNULL) as process:
        assert process.wait(HANG_SECONDS) == 0
    assert not is_quick(process)
