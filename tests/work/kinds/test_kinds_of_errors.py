"""Errors have kinds, by exception and by exit status, and each kind says whether to try again."""

from __future__ import annotations

import errno
import socket
import subprocess
import urllib.error
from typing import Any

import pytest

from anabranch.work.kinds.commands.command import EXIT_KINDS, kind_of_exit
from anabranch.work.kinds.commands.shell import Shell
from anabranch.work.kinds.python.exception_kinds import kind_of
from anabranch.work.kinds.python.performer import run_inline

from ..support import fault_of, run, task


def called(name: str, *bases: type[BaseException]) -> BaseException:
    """An exception of a library that is not here."""
    made: Any = type(name, bases or (Exception,), {})
    error: BaseException = made("x")
    return error


@pytest.mark.parametrize(
    ("error", "kind", "may_heal"),
    [
        (ValueError("x"), "schema", False),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "schema", False),
        (TypeError("x"), "schema", False),
        (KeyError("x"), "schema", False),
        (IndexError("x"), "python", True),
        (RuntimeError("x"), "python", True),
        (TimeoutError("x"), "timeout", True),
        (subprocess.TimeoutExpired("ls", 1), "timeout", True),
        (called("ReadTimeout", type("Timeout", (OSError,), {})), "timeout", True),
        (ConnectionRefusedError("x"), "connection", True),
        (socket.gaierror(-2, "x"), "connection", True),
        (urllib.error.URLError("x"), "connection", True),
        (called("ConnectError"), "connection", True),
        (OSError(errno.EHOSTUNREACH, "x"), "connection", True),
        (MemoryError(), "resource", True),
        (OSError(errno.ENOSPC, "x"), "resource", True),
        (OSError(errno.EMFILE, "x"), "resource", True),
        (FileNotFoundError("x"), "not_found", False),
        (PermissionError("x"), "storage_access", False),
        (ModuleNotFoundError("x"), "config", False),
        (OSError("x"), "python", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_an_exception_has_its_kind(error: BaseException, kind: str, may_heal: bool) -> None:
    assert kind_of(error) == (kind, may_heal)


def test_code_that_cannot_be_compiled_is_never_tried_again() -> None:
    assert fault_of(run_inline("def")).retryable is False


@pytest.mark.parametrize(("status", "expected"), [*EXIT_KINDS.items(), (1, ("shell", True))])
def test_an_exit_status_has_its_kind(status: int, expected: tuple[str, bool]) -> None:
    answer = run(Shell().perform(task("shell", command=f"exit {status}")))
    fault = fault_of(answer)
    assert (fault.kind, fault.retryable) == expected
    assert fault.code == f"EXIT_{status}"


def test_a_shell_that_is_killed_ran_out_of_something() -> None:
    assert kind_of_exit(-9) == ("resource", True)
    assert kind_of_exit(-15) == ("shell", True)
