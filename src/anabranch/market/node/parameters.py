"""What stands in the paths and queries of the node's endpoints: read here, described in OpenAPI.

An endpoint names its parameters; what each one means is the same wherever it stands. Unknown ones
are refused: a caller who misspells `open` would otherwise get every page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

from anabranch.market.node.errors import NodeError

ID_MAX = 512  # characters of a name in a path
TEXT_MAX = 512  # characters of a parameter
CODE = "bad_query"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    summary: str
    kind: Literal["string", "integer", "boolean"] = "string"
    choices: tuple[str, ...] = ()
    least: int = 1  # of an integer
    most: int = 500
    required: bool = False
    example: str = ""


LEVELS = ("info", "warning", "error")
RUN_STATUSES = (
    "active", "pending", "running", "paused", "completed", "failed", "cancelled",
    "deadline_exceeded", "step_timeout",
)  # fmt: skip
QUERY: Mapping[str, Parameter] = {
    "open": Parameter(summary="only what is open, or only what is not", kind="boolean"),
    "limit": Parameter(summary="how many at most", kind="integer"),
    "before": Parameter(summary="the `next` of an earlier page"),
    "since": Parameter(summary="what came after this number or instant", example="0"),
    "capability": Parameter(summary="the id of a capability", example="offer-catalog"),
    "cursor": Parameter(summary="the `next` of an earlier page"),
    "source": Parameter(
        summary="whose offers: of this node, of others, or both",
        choices=("local", "observed", "all"),
    ),
    "service_type": Parameter(summary="what the service does", example="text/summarise"),
    "provider_node": Parameter(summary="the node that offers"),
    "provider": Parameter(summary="the participant who offers"),
    "active_only": Parameter(summary="false: with those that have ended, too", kind="boolean"),
    "hidden": Parameter(
        summary="true: the offers of strangers, which are hidden, and no others; for the operator",
        kind="boolean",
    ),
    "account": Parameter(summary="the account; by default that of the participant of this node"),
    "run_id": Parameter(summary="the workflow run of the order"),
    "component": Parameter(summary="the module that delivers"),
    "peer": Parameter(summary="the node that delivers"),
    "module": Parameter(summary="the id of a module"),
    "level": Parameter(summary="how much it matters", choices=LEVELS),
    "status": Parameter(
        summary="the status of the run, or `active` for all that go on", choices=RUN_STATUSES
    ),
    "mode": Parameter(
        summary="`deferred`: the answer is a deferred-operation.v1", choices=("sync", "deferred")
    ),
}
#: What a name means in another way at one path.
EXCEPTIONS: Mapping[tuple[str, str], Parameter] = {
    ("/v1/directory/holders", "capability"): Parameter(
        summary="the id of a capability", required=True, example="offer-catalog"
    ),
    ("/v1/directory/nodes", "source"): Parameter(
        summary="only nodes that came from this network", example="203.0.113.7"
    ),
    ("/v1/artifact-delivery/recover", "limit"): Parameter(
        summary="how many at most", kind="integer", most=10_000
    ),
}
PATH: Mapping[str, Parameter] = {
    "operation": Parameter(summary="the id of a deferred operation", example="deferred:1"),
    "node": Parameter(summary="the id of a node", example="node:did:key:z6Mk"),
    "participant": Parameter(summary="the id of a participant", example="participant:did:key:z6Mk"),
    "capability": Parameter(summary="the id of a capability", example="service.dispatch.execute"),
    "offer": Parameter(summary="the id of an offer", example="offer:summaries"),
    "hold": Parameter(summary="the id of a hold", example="hold:1"),
    "execution": Parameter(summary="the id of an execution", example="execution:1"),
    "contract": Parameter(summary="the id of a contract", example="contract:1"),
    "receipt": Parameter(summary="the id of a receipt", example="receipt:1"),
    "delivery": Parameter(summary="the id of a delivery", example="delivery:1"),
    "admission": Parameter(summary="the id of an admission", example="admission:1"),
    "request": Parameter(summary="the id of an entry or of its request", example="request:1"),
    "module": Parameter(summary="the id of a module", example="m"),
    "run": Parameter(summary="the id of a workflow run", example="run:1"),
    "step": Parameter(summary="the id of a step of the run", example="s1"),
}


def parameter_at(path: str, name: str) -> Parameter:
    return EXCEPTIONS.get((path, name)) or QUERY[name]


def require_query(
    path: str,
    known: Sequence[str],
    given: Mapping[str, str],
    own: Mapping[str, Parameter] | None = None,
) -> None:
    """Raises `NodeError` for a parameter that the endpoint does not take, or not so. `own` are
    those that mean something at this endpoint alone."""
    own = own or {}
    for name, text in given.items():
        if name not in known and name not in own:
            listed = ", ".join(dict.fromkeys((*known, *own))) or "none"
            raise NodeError(400, CODE, f"`{name[:100]}` is no parameter here, but: {listed}")
        _require(name, own.get(name) or parameter_at(path, name), text)


def _require(name: str, parameter: Parameter, text: str) -> None:
    if len(text) > TEXT_MAX or not text.isprintable():
        raise NodeError(400, CODE, f"`{name}` has at most {TEXT_MAX} characters, all printable")
    if parameter.choices and text not in parameter.choices:
        raise NodeError(400, CODE, f"`{name}` is one of {', '.join(parameter.choices)}")
    if parameter.kind == "boolean" and text not in ("true", "false"):
        raise NodeError(400, CODE, f"`{name}` is true or false")
    if parameter.kind == "integer" and not _is_between(text, parameter.least, parameter.most):
        least, most = parameter.least, parameter.most
        raise NodeError(400, CODE, f"`{name}` is a number from {least} to {most}")


def _is_between(text: str, least: int, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most


def read_names(encoded: Mapping[str, str]) -> dict[str, str]:
    """The named parts of a path, decoded. Raises `NodeError` for what can be no id."""
    return {name: _read_name(name, part) for name, part in encoded.items()}


def _read_name(name: str, part: str) -> str:
    try:
        text = unquote_to_bytes(part).decode()
    except UnicodeError:
        text = ""
    if not text or len(text) > ID_MAX or not text.isprintable():
        raise NodeError(
            400, "bad_path", f"`{name}` in the path has 1 to {ID_MAX} characters, all printable"
        )
    return text
