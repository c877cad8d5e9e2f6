"""A role module made of a function: it takes the input of an order and returns the output.

    def summarise(given):                 # or (given, task) for the whole request
        return {"summary": given["text"][:40]}

`RejectTask` rejects an input, `RoleUnavailable` asks to be asked later, any other exception is a
failure. The same dispatch is done once in a life of the module: what was answered to the last
thousand is answered again.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, InputError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.modules.dator.config import EXECUTE_PATH
from anabranch.modules.dator.roles import MESSAGE_MAX, RoleFailed, RoleUnavailable
from anabranch.modules.kit.module import Module

logger = logging.getLogger("anabranch.module")

ANSWERS_KEPT = 1000
#: Input of an order, and maybe the whole request, to its output.
RoleFunction = Callable[..., Any]


class RejectTask(AnabranchError):
    """The input is not one that this role works on."""

    code = "rejected-invalid-request"


class FunctionRoles:
    """Implements `RoleCalls` with functions, by capability id; for tests and worlds."""

    def __init__(self, functions: Mapping[str, RoleFunction]) -> None:
        self._functions = functions

    async def call(
        self, capability_id: str, request: Mapping[str, Any], seconds: float
    ) -> Mapping[str, Any]:
        function = self._functions.get(capability_id)
        if function is None:
            raise RoleUnavailable(f"there is no role {capability_id}")
        try:
            async with asyncio.timeout(seconds):
                return await perform(function, request)
        except TimeoutError:
            said = f"the role did not answer within {seconds:g} s"
            raise RoleFailed(said, code="role-timeout") from None


async def perform(
    function: RoleFunction, task: Mapping[str, Any], *, in_thread: bool = False
) -> dict[str, Any]:
    """The `service-dispatch-response` to a `role_task_execute` request."""
    given = (task["request/input"], task) if _takes_task(function) else (task["request/input"],)
    try:
        if in_thread and not inspect.iscoroutinefunction(function):
            output = await asyncio.to_thread(function, *given)
        else:
            output = function(*given)
        if inspect.isawaitable(output):
            output = await output
        content = _content(output)
    except RejectTask as error:
        return _response(task, "rejected-invalid-request", error.message)
    except RoleUnavailable:
        raise
    except Exception as error:
        logger.warning("the role failed: %s", type(error).__name__, exc_info=error)
        return _response(task, "failed", f"{type(error).__name__}: {error}")
    return {
        **_response(task, "completed", "done"),
        "answer/content": content,
        "answer/format": "json",
        "human-linked-participation": False,
    }


def _takes_task(function: RoleFunction) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some that come with Python do not say it
        return False
    return sum(one.kind in kinds for one in found) > 1


def _content(output: Any) -> Any:
    """A text would be read as JSON, so it is written as such."""
    data = json.loads(msgspec.json.encode(output))
    return json.dumps(data) if isinstance(data, str) else data


def _response(task: Mapping[str, Any], status: str, message: str) -> dict[str, Any]:
    return {
        "schema_version": "v1",
        "capability_id": "service_dispatch_execute",
        "status": status,
        "dispatch/id": task["dispatch/id"],
        "provenance/origin-classes": ["node-generated"],
        "message": message[:MESSAGE_MAX],
    }


class RoleTask(msgspec.Struct, frozen=True, rename={
    "dispatch_id": "dispatch/id", "given": "request/input", "role": "role/capability_id",
}):  # fmt: skip
    """What a role must find in a request."""

    capability_id: str
    dispatch_id: str
    given: dict[str, Any]
    role: str = ""


class RoleModule(Module):
    """Serves one function; a node may host it, or a person starts it."""

    module_id = "role"

    def __init__(self, function: RoleFunction, name: str = "role") -> None:
        self.module_id = name
        self._function = function
        self._answers: OrderedDict[str, asyncio.Task[dict[str, Any]]] = OrderedDict()
        super().__init__()

    def report(self) -> dict[str, Any]:
        return {
            "module_name": self.module_id,
            "module_role": "role-module",
            "capabilities": [{"capability_id": "role_task_execute", "class": "other"}],
        }

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint(
                method="POST",
                path=EXECUTE_PATH,
                scopes=("operator",),
                handler=self._execute,
                summary="Do the work of an order",
                body=RoleTask,
                errors=(400,),
            )
        ]

    async def close(self) -> None:
        await cancel_and_wait(*self._answers.values(), ignore=Exception)

    async def _execute(self, call: Call) -> Answer:
        task = msgspec.convert(call.body, RoleTask)
        if task.capability_id != "role_task_execute":
            raise NodeError(400, "schema", "`capability_id` is role_task_execute")
        doing = self._answers.get(task.dispatch_id)
        if doing is None:
            work = perform(self._function, call.body, in_thread=True)
            doing = asyncio.get_running_loop().create_task(work)
            self._answers[task.dispatch_id] = doing
            self._forget()
        try:
            return Answer(body=await asyncio.shield(doing))
        except RoleUnavailable as error:
            self._answers.pop(task.dispatch_id, None)
            raise NodeError(503, "role-unavailable", error.message) from None

    def _forget(self) -> None:
        """The oldest ones that are done."""
        for name, doing in list(self._answers.items()):
            if len(self._answers) <= ANSWERS_KEPT:
                return
            if doing.done():
                del self._answers[name]


def load_function(named: str) -> RoleFunction:
    """`module:function`, found from the current folder on. Raises `InputError`."""
    module_name, _, function_name = named.partition(":")
    if not module_name or not function_name:
        raise InputError(f"{named[:200]!r} is no module:function", code="usage")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{named[:200]!r} cannot be loaded: {error}", code="usage") from None
    if not callable(found):
        raise InputError(f"{named[:200]!r} is no function", code="usage")
    function: RoleFunction = found
    return function
