"""The node's surface as a table of endpoints: HTTP serves it, OpenAPI describes it, tests call it.

An endpoint says who may call it. `handle` finds the endpoint, checks the caller and the body, and
turns what is refused into an answer; handlers are coroutines from a `Call` to an `Answer`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError, Conflict, InputError, NotFound, Refused, StoreError
from anabranch.market.node.errors import NodeError
from anabranch.market.node.parameters import Parameter, read_names, require_query

logger = logging.getLogger("anabranch.node")

#: `operator` has the control token, `module` the token of a module, `peer` is another node whose
#: message carries its signature, `open` is anyone who reaches the port.
Scope = Literal["operator", "module", "peer", "open"]
BODY_BYTES = 16 * 1024 * 1024
_NAME = re.compile(r"{(\w+)(\*?)}")  # {rest*} takes slashes too


class Caller(msgspec.Struct, frozen=True):
    """Who calls, as the transport knows; nothing in a body changes it."""

    scope: Scope
    module: str = ""  # the id of the module
    actor: str = ""  # for records: operator, or the module


OPEN, OPERATOR = Caller("open"), Caller("operator", actor="operator")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    caller: Caller = OPEN
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: Any = None  # JSON, already read
    raw: bytes = b""  # the body as it came
    params: Mapping[str, str] = {}  # named parts of the path
    remote: str = ""  # the address that the connection comes from


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = {}


Handler = Callable[[Call], Awaitable[Answer]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    method: str
    path: str  # "/v1/executions/{execution}"
    scopes: tuple[Scope, ...]
    handler: Handler
    summary: str
    body: Any = None  # type that the JSON body has to fit; None takes any JSON
    misfit: Mapping[str, Any] = {}  # said besides where the body does not fit
    returns: Any = None
    status: int = 200  # of the good answer
    query: tuple[str, ...] = ()  # parameters that it takes; `parameters.py` says what they are
    parameters: Mapping[str, Parameter] = {}  # further ones, which only this endpoint takes
    example: Any = None
    errors: tuple[int, ...] = ()
    body_bytes: int = BODY_BYTES


class Api:
    """The table, and how a call finds its way through it."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        durable: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`durable` is awaited before any answer leaves: what it says, or refuses, may rest on
        something that another call has changed and that is not on the disk yet."""
        self.endpoints = tuple(endpoints)
        self._durable = durable
        self._routes = [_route(one) for one in self.endpoints]
        #: Where no endpoint fits: claimed local routes of modules.
        self.fallback: Handler | None = None

    def add(self, endpoint: Endpoint) -> None:
        """One more row, of a surface that serves the table."""
        self.endpoints = (*self.endpoints, endpoint)
        self._routes.append(_route(endpoint))

    async def handle(self, call: Call) -> Answer:
        """Never raises for what callers do; what is refused has changed nothing."""
        answer = await self._answer(call)
        if self._durable is not None and answer.status < 500:
            try:
                await self._durable()
            except AnabranchError as error:
                return _refused(error)
        return answer

    async def _answer(self, call: Call) -> Answer:
        try:
            endpoint, encoded = self._find(call)
            if endpoint is None:
                assert self.fallback is not None
                return await self.fallback(call)
            _require_scope(endpoint, call.caller)
            params = read_names(encoded)
            require_query(endpoint.path, endpoint.query, call.query, endpoint.parameters)
            _require_body(endpoint, call)
            return await endpoint.handler(msgspec.structs.replace(call, params=params))
        except NodeError as error:
            body = {**problem(error.status, error.code, error.message), **error.more}
            return Answer(status=error.status, body=body, headers=error.headers)
        except AnabranchError as error:
            return _refused(error)

    def admitted(self, call: Call) -> int:
        """How many bytes the body of this call may have, asked before it is read. Raises
        `NodeError` for those who may not call, whatever they send."""
        endpoint, _ = self._find(call)
        if endpoint is None:
            return 0 if call.caller.scope == "open" else BODY_BYTES
        _require_scope(endpoint, call.caller)
        return endpoint.body_bytes

    def _find(self, call: Call) -> tuple[Endpoint | None, Mapping[str, str]]:
        known: list[str] = []
        path = call.path
        for head, pattern, endpoint in self._routes:
            if not path.startswith(head) or (match := pattern.fullmatch(path)) is None:
                continue
            if endpoint.method == call.method:
                return endpoint, match.groupdict()
            known.append(endpoint.method)
        if known:
            allowed = {"Allow": ", ".join(dict.fromkeys(known))}
            said = f"{call.path[:200]} takes no {call.method[:20]}"
            raise NodeError(405, "method", said, headers=allowed)
        if self.fallback is None:
            raise NodeError(404, "not_found", f"there is nothing at {call.path[:200]}")
        return None, {}


class NodeProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of everything that is refused. Programs look at `code`; some endpoints add fields
    of their own, such as `outcome`."""

    status: int
    title: str
    code: str
    detail: str


DETAIL_MAX = 2000  # characters: a message may quote what was sent


def problem(status: int, code: str, detail: str) -> dict[str, Any]:
    """The body of everything that is refused, as `NodeProblem`."""
    title = HTTPStatus(status).phrase
    return {"status": status, "title": title, "code": code, "detail": detail[:DETAIL_MAX]}


def _route(endpoint: Endpoint) -> tuple[str, re.Pattern[str], Endpoint]:
    """With what its path begins with: most paths are told apart by that, without the pattern."""
    return endpoint.path.partition("{")[0], _pattern(endpoint.path), endpoint


def _pattern(path: str) -> re.Pattern[str]:
    """`{name}` takes one part of the path, `{name*}` all the rest."""
    out, at = "", 0
    for found in _NAME.finditer(path):
        out += re.escape(path[at : found.start()])
        out += f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})"
        at = found.end()
    return re.compile(out + re.escape(path[at:]))


def _require_scope(endpoint: Endpoint, caller: Caller) -> None:
    if "open" in endpoint.scopes or caller.scope in endpoint.scopes:
        return
    if caller.scope == "open":
        raise NodeError(401, "unauthorized", "a token is needed for this")
    raise NodeError(403, "forbidden", f"this is not for the {caller.scope}")


def _require_body(endpoint: Endpoint, call: Call) -> None:
    if len(call.raw) > endpoint.body_bytes:
        raise NodeError(413, "too_large", f"a body has at most {endpoint.body_bytes:,} bytes")
    if endpoint.body is None:
        return
    try:
        msgspec.convert(call.body, endpoint.body)
    except msgspec.ValidationError as error:
        raise NodeError(400, "schema", str(error), more=endpoint.misfit) from None


def _refused(error: AnabranchError) -> Answer:
    match error:
        case InputError():
            status = 400
        case NotFound():
            status = 404
        case Conflict() | Refused():
            status = 409
        case StoreError():
            status = 503
        case _:
            logger.error("refused for a reason of the node", exc_info=error)
            status = 500
    return Answer(status=status, body=problem(status, error.code, error.message))
