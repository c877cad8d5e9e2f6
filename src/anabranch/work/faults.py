"""How work says that it failed: the kinds of error and what a retry can do about each."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any

from anabranch.errors import AnabranchError, InputError
from anabranch.files import FileTimeout
from anabranch.kernel.values import INTERNAL, Answer, failed
from anabranch.work.secrets.redaction import head_of
from anabranch.work.values.texts import LIMIT, clip

#: Trying the same thing again gives the same answer. Every other kind may heal with time.
FINAL_KINDS = frozenset({"config", "result", "auth", "not_found", "client_error", "parse"})

#: This process, or the machine, has no file left to open: a matter of the moment.
OUT_OF_FILES = "out_of_files"
_SPENT = (errno.EMFILE, errno.ENFILE)
_CAUSES_MAX = 10
_FRAMES = 8
_NOTE = re.compile(r" … \(cut: ([\d,]+) characters in all\)\Z")


def fault(
    kind: str, message: str, *, code: str = "", details: Any = None, retryable: bool | None = None
) -> Answer:
    """A failed answer whose `retryable` follows from the kind unless the caller knows better.

    Called while an error is handled that comes from a lack of files, it says that instead.
    """
    may_heal = kind not in FINAL_KINDS if retryable is None else retryable
    if not may_heal and out_of_files(sys.exception()):
        kind, may_heal = OUT_OF_FILES, True
    return failed(kind, clipped(message), code=code, retryable=may_heal, details=details)


def clipped(text: str) -> str:
    """The beginning of a text; no secret that the job was given is cut in two."""
    if len(text) <= LIMIT:
        return clip(text)
    note = _NOTE.search(text)  # cut on its way here, where nobody knew the secrets
    total = note.group(1) if note is not None else f"{len(text):,}"
    return f"{clip(head_of(text, LIMIT))} … (cut: {total} characters in all)"


def out_of_files(error: BaseException | None) -> bool:
    """Whether the error, or one that it came from, is that no more files can be opened."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return False
        if isinstance(error, OSError) and error.errno in _SPENT:
            return True
        error = error.__cause__ or error.__context__
    return False


def no_file_left() -> bool:
    """The same for libraries that do not say why they could not open one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return out_of_files(error)
    return False


def unexpected(error: BaseException, what: str) -> Answer:
    """An error that no code foresaw. It fails its attempt like any other fault, with its reason:
    counted, retried as the policy says, and never sooner than `kernel.jobs` allows."""
    text = str(error) if not isinstance(error, RecursionError) else "it nests too deep"
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return fault(INTERNAL, f"{what}: {reason}")


def not_prepared(error: AnabranchError) -> Answer:
    """A task that could not be put together, for a reason that has words of its own."""
    may_heal = bool(getattr(error, "retryable", False)) or out_of_files(error)
    return failed(getattr(error, "kind", error.code), str(error), retryable=may_heal)


class Unavailable(InputError):
    """What a task names could not be had; the answer says why, and whether to try again."""

    def __init__(self, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.answer = answer


def misconfigured(error: InputError) -> Answer:
    """The task cannot run as it is written; or not now, where what it names does not answer."""
    if isinstance(error, Unavailable):
        return error.answer
    if isinstance(error, FileTimeout):
        return fault("storage_access", error.message)
    return fault("config", error.message)


def raised(error: BaseException, *, outside: str) -> Answer:
    """What an exception of the user's code means. Frames of the file `outside` are not shown."""
    name = type(error).__name__
    text = str(error)
    return fault(
        _kind_of(error),
        f"{name}: {text}" if text else name,
        details={
            "exception_type": name,
            "message": clipped(text),
            "traceback": clipped(short_traceback(error.__traceback__, outside)),
        },
    )


def _kind_of(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionError):
        return "connection"
    return "python"


def short_traceback(trace: TracebackType | None, outside: str) -> str:
    """The last frames of the user's code, with their lines."""
    frames = [frame for frame in traceback.extract_tb(trace) if frame.filename != outside]
    return "".join(traceback.format_list(frames[-_FRAMES:])).rstrip()
