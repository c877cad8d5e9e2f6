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
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.expressions.jinja.jinja import made_from
from anabranch.expressions.port import Constant
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.reads import KEYCHAIN
from anabranch.work.faults import clipped, fault, misconfigured
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.isolation import Isolation
from anabranch.work.kinds.python.context import layers_of
from anabranch.work.kinds.python.inline import LAYERS, InlineJob, execute
from anabranch.work.kinds.python.places import Places
from anabranch.work.kinds.python.processes import JobsTogether, Processes
from anabranch.work.kinds.python.together import ProcessFailure, ProcessOutcome
from anabranch.work.kinds.script_sources import ScriptSources, script_text
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import given_to_work

logger = logging.getLogger("anabranch.work.python")

_OUTPUT_BYTES = 64 * 1024


#: Layers of the context that differ from item to item of a loop.
_OF_ITEM = ("args", "iter", "tasks", "reserved")


#: Inputs that are looked at once a shard, where they are the same for all of its items.
_OF_PLAIN_ITEMS = frozenset({"code", "args", "timeout", "timeout_seconds"})


class CodeOfItem(NamedTuple):
    """One item of a loop, for a process that does many of them."""

    step: str
    code: str
    libs: Any
    limit: float | None
    shared: dict[str, Any]  # layers of the context that all items see
    body: bytes

    def fits(self, other: CodeOfItem) -> bool:
        """Whether both can be done in one go, where they are items of one shard."""
        return (self.code, self.libs, self.limit) == (other.code, other.libs, other.limit)


class Python:
    """Performs inline Python code in a pool of processes."""

    def __init__(
        self,
        options: ProcessOptions | None = None,
        scripts: ScriptSources | None = None,
        places: Places | None = None,
    ) -> None:
        self._options = options
        self._places = places
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
        try:
            outcome = await self._started().run(request, limit, task.step)
        except TimeoutError:
            return _timed_out(limit)
        except OSError as error:
            return _not_started(error)
        return self._answered(outcome, task.step)

    def together(self, task: Task) -> CodeOfItem | None:
        """What the process is told of one item among many; None where the item has to be done by
        itself: its code is elsewhere, it may use secrets, or something is wrong with it."""
        given = task.inputs
        if KEYCHAIN in task.names or len(_places(given)) != 1 or "script" in given:
            return None
        try:
            code = given["code"] if type(given.get("code")) is str else code_of(given)
            limit = inputs.timeout(given)
            wanted = _wants_context(code)
            layers = layers_of(task.names) if wanted else {}
            own = {name: layers[name] for name in _OF_ITEM} if wanted else {}
            shared = {name: value for name, value in layers.items() if name not in own}
            args = inputs.mapping(given.get("args"), "args")
            libs = libraries(given.get("libs"))
            body = msgspec.json.encode((args, own), enc_hook=as_builtin)
        except (InputError, TypeError, ValueError, RecursionError):
            return None
        return CodeOfItem(task.step, code, libs, limit, shared, body)

    def request_of_item(
        self, structure: Any, path: tuple[str, ...], step: str
    ) -> Callable[[Any], CodeOfItem | None] | None:
        """The same for items of which the code sees nothing but arguments made of the item."""
        if not isinstance(structure, Mapping) or not structure.keys() <= _OF_PLAIN_ITEMS:
            return None
        args = structure.get("args", {})
        make = made_from(args, path) if isinstance(args, Mapping) else None
        rest = {name: _constant(part) for name, part in structure.items() if name != "args"}
        code = rest.get("code")
        if (
            make is None
            or not isinstance(code, str)
            or _wants_context(code)
            or None in rest.values()
        ):
            return None
        try:
            limit = inputs.timeout(rest)
        except InputError:
            return None
        encode = msgspec.json.Encoder(enc_hook=as_builtin).encode
        none: dict[str, Any] = {}  # libraries, and layers of the context

        def request(item: Any) -> CodeOfItem | None:
            try:
                body = encode((make(item), none))
            except (AnabranchError, TypeError, ValueError, RecursionError):
                return None  # the longer way says what is wrong
            return CodeOfItem(step, code, none, limit, none, body)

        return request

    async def perform_each(
        self,
        items: Sequence[CodeOfItem],
        numbers: Sequence[int],
        take: Callable[[Sequence[Answer]], None],
        *,
        stops: bool,
    ) -> bool:
        """Do some of the items, at least the first, and take their answers in order. All of them
        fit the first. No item is begun behind one that failed, if `stops`. False where they have to
        be done one by one, and none was begun."""
        first = items[0]
        head = {"code": first.code, "name": first.step, "libs": first.libs, "stops": stops}
        try:
            common = msgspec.json.encode(head, enc_hook=as_builtin)
            shared = msgspec.json.encode(first.shared, enc_hook=as_builtin) if first.shared else b""
        except (TypeError, ValueError, RecursionError):
            return False

        def heard(outcomes: Sequence[ProcessOutcome]) -> None:
            take([self._answered(outcome, first.step) for outcome in outcomes])

        try:
            bodies = [item.body for item in items]
            given = JobsTogether(common, shared, bodies, numbers, first.limit)
            await self._started().run_each(given, heard, first.step)
        except TimeoutError:
            take([_timed_out(first.limit)])
        except OSError as error:
            take([_not_started(error)])
        return True

    def _started(self) -> Processes:
        if self._processes is None:
            self._processes = Processes(self._options, self._places)
        return self._processes

    def _answered(self, outcome: ProcessOutcome, step: str) -> Answer:
        if outcome.output and outcome.error is None:
            scope = given_to_work()
            text = outcome.output if scope is None else scope.text(outcome.output)
            logger.debug("step %s printed: %s", step, text)
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


def _places(given: Mapping[str, Any]) -> list[str]:
    return [name for name in ("code", "code_b64", "script") if given.get(name) is not None]


def _place_of(given: Mapping[str, Any]) -> str:
    written = _places(given)
    if len(written) != 1:
        found = f"it has {' and '.join(written)}" if written else "it has none of them"
        raise InputError(f"a python task takes one of code, code_b64 and script; {found}")
    return written[0]


def _decoded(value: Any) -> str:
    try:
        return base64.b64decode(inputs.text(value, "code_b64"), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InputError(f"code_b64 is not base64 of UTF-8 text: {error}") from None


def _timed_out(limit: float | None) -> Answer:
    return fault("timeout", f"the code ran longer than {limit:g} s", code="TIMEOUT")


def _not_started(error: OSError) -> Answer:
    return fault("python", f"no Python process could be started: {error}")


def _constant(part: Any) -> str | int | float | None:
    """What an input is for every item; None where that differs, or takes a closer look."""
    value = part.value if isinstance(part, Constant) else part
    return value if isinstance(value, str | int | float) else None


@lru_cache(maxsize=16)
def _wants_context(code: str) -> bool:
    """The context can be large; code that does not name it and has no main cannot miss it."""
    return any(word in code for word in ("context", "main", *LAYERS))


def _request(task: Task, code: str) -> bytes:
    wanted = _wants_context(code)
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
