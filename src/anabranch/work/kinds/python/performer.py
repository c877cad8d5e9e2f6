"""The kind `python`: inline code, run in a process of its own so that it can be stopped.

Inputs: `code`, or `code_b64`, or `script` (a file, or inline text); `args`; `libs`; `timeout`. How
the code is run is said in `inline.py`. The result is what the code gives and nothing else; what it
prints goes to the details of a failure, and to the log (level DEBUG) when it succeeds.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.work.faults import clipped, fault, misconfigured
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.isolation import Isolation
from anabranch.work.kinds.python.context import layers_of
from anabranch.work.kinds.python.inline import LAYERS, InlineJob, execute
from anabranch.work.kinds.python.processes import (
    Processes,
    ProcessFailure,
    ProcessOptions,
    ProcessOutcome,
)
from anabranch.work.kinds.script_sources import ScriptSources, script_text
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import given_to_work

logger = logging.getLogger("anabranch.work.python")

_OUTPUT_BYTES = 64 * 1024


class Python:
    """Performs inline Python code in a pool of processes."""

    def __init__(
        self, options: ProcessOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self._options = options
        self._scripts = scripts or ScriptSources()
        self._isolation = (options or ProcessOptions()).isolation
        self._processes: Processes | None = None

    async def perform(self, task: Task) -> Answer:
        try:
            code = await self._code(task)
            limit = inputs.timeout(task.inputs)
            request = _request(task, code)
        except InputError as error:
            return misconfigured(error)
        if self._processes is None:
            self._processes = Processes(self._options)
        try:
            outcome = await self._processes.run(request, limit)
        except TimeoutError:
            return fault("timeout", f"the code ran longer than {limit:g} s", code="TIMEOUT")
        except OSError as error:
            return fault("python", f"no Python process could be started: {error}")
        if outcome.output and outcome.error is None:
            scope = given_to_work()
            text = outcome.output if scope is None else scope.text(outcome.output)
            logger.debug("step %s printed: %s", task.step, text)
        return _answer(outcome, self._isolation)

    async def _code(self, task: Task) -> str:
        if _place_of(task.inputs) == "script":
            return await self._scripts.text(task.inputs["script"], task)
        return code_of(task.inputs)

    async def close(self) -> None:
        if self._processes is not None:
            await self._processes.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes now running."""
        return self._processes.pids if self._processes else ()


def run_inline(
    code: str,
    args: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    *,
    libs: Any = None,
    layers: Mapping[str, Any] | None = None,
    name: str = "inline",
) -> Answer:
    """Runs code in this very process, with the same meaning. For tests in virtual time.

    It cannot be stopped, and code that ends its process ends this one.
    """
    job = InlineJob(
        code, name, dict(args or {}), dict(context or {}), libs or {}, dict(layers or {})
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        reply = execute(job)
    text = printed.getvalue()
    error = msgspec.convert(reply.error, ProcessFailure) if reply.error else None
    outcome = ProcessOutcome(
        result=msgspec.json.decode(reply.result),
        error=error,
        output=text[-_OUTPUT_BYTES:],
        output_bytes=len(text.encode("utf-8", "replace")),
    )
    return _answer(outcome)


def code_of(given: Mapping[str, Any]) -> str:
    """The code of a task, wherever its author put it on this machine; may read a file."""
    name = _place_of(given)
    if name == "code":
        return inputs.text(given[name], "code")
    return _decoded(given[name]) if name == "code_b64" else script_text(given[name])


def _place_of(given: Mapping[str, Any]) -> str:
    written = [name for name in ("code", "code_b64", "script") if given.get(name) is not None]
    if len(written) != 1:
        found = f"it has {' and '.join(written)}" if written else "it has none of them"
        raise InputError(f"a python task takes one of code, code_b64 and script; {found}")
    return written[0]


def _decoded(value: Any) -> str:
    try:
        return base64.b64decode(inputs.text(value, "code_b64"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InputError(f"code_b64 is not base64 of UTF-8 text: {error}") from None


def _request(task: Task, code: str) -> bytes:
    # The context can be large; code that does not name it and has no main cannot miss it.
    wanted = any(word in code for word in ("context", "main", *LAYERS))
    names = task.names if wanted else {}
    if "context" not in code and "keychain" not in code:  # secrets only where they can be used
        names = {name: value for name, value in names.items() if name != "keychain"}
    for name, error in getattr(names.get("keychain"), "absent", {}).items():
        if name in code:  # what the code does not name it cannot miss
            raise InputError(error.message)
    job = {
        "code": code,
        "name": task.step,
        "args": inputs.mapping(task.inputs.get("args"), "args"),
        "context": {},
        "libs": libraries(task.inputs.get("libs")),
        "layers": layers_of(names) if wanted else {},
    }
    try:
        return msgspec.json.encode(job, enc_hook=as_builtin)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the arguments or the context are not JSON: {error}") from None


def libraries(given: Any) -> Any:
    """Imports: a mapping from aliases, or a list of modules."""
    return given if isinstance(given, list) else inputs.mapping(given, "libs")


def as_builtin(value: Any) -> Any:
    """Names come as the engine keeps them: views of mappings, text with manners."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} cannot be passed to a process")


def _answer(outcome: ProcessOutcome, isolation: Isolation | None = None) -> Answer:
    error = outcome.error
    if error is None:
        return succeeded(outcome.result)
    hint = isolation.hint(error.message) if isolation is not None else ""
    details = {
        name: clipped(text) if isinstance(text, str) else text
        for name, text in (error.details or {}).items()
    }
    if outcome.output:
        details["output"] = outcome.output
        details["output_bytes"] = outcome.output_bytes  # more than is shown, when it was cut
    message = clipped(error.message) + hint
    return failed(error.kind, message, retryable=error.retryable, details=details or None)
