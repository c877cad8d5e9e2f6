"""Questions to the module Arca, through the local routes that the node serves for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from anabranch.net.inputs import TYPES
from anabranch.operations.definitions.inputs import RunInput
from anabranch.surfaces.ui.node.frame import Refusal, ask

ARCA = "/v1/enact/arca"
MODULE = "arca"


class NotHosted(Refusal):
    """No module of this node answers for Arca."""

    def __init__(self) -> None:
        super().__init__(404, "not_hosted", "this node does not host Arca, which would do this")


async def ask_arca(
    request: web.Request,
    method: str,
    path: str,
    body: Any = None,
) -> dict[str, Any]:
    """What Arca answers to the operator. Raises `NotHosted`, and `Refusal` for everything else."""
    try:
        answer = await ask(request, method, ARCA + path, body)
    except Refusal as refusal:
        if refusal.status == 404 and not await is_hosted(request):
            raise NotHosted from None
        raise
    if not isinstance(answer, dict):
        raise Refusal(502, "module_answer", "Arca answered with something that cannot be read")
    return answer


async def is_hosted(request: web.Request) -> bool:
    """Whether a module of this node is Arca, or answers its routes."""
    modules = (await ask(request, "GET", "/v1/modules"))["items"]
    return any(
        one["module_id"] == MODULE
        or any(route["path"].startswith(f"{ARCA}/") for route in one["routes"])
        for one in modules
    )


# -- what it answers -------------------------------------------------------------------------------
# A module is another program: what it answers is read as text, whatever shape it has.


class TemplateRow(NamedTuple):
    name: str
    label: str
    description: str
    publisher: str
    parameters: int
    changed_at: Any
    is_public: bool
    came_from: str  # the node that it was imported from
    problem: str


class Preview(NamedTuple):
    """What is known about a template of another node."""

    publisher: str
    runs_node: bool | None  # whether the publisher runs the node that gave it
    signature: str  # valid, invalid, missing
    digest: str
    here: str  # absent, same, other
    problems: list[str]
    can_keep: bool

    @property
    def is_signed(self) -> bool:
        return self.signature == "valid"


def templates_in(answer: Mapping[str, Any], key: str = "items") -> list[TemplateRow]:
    rows = answer.get(key)
    return [
        row_of(one)
        for one in (rows if isinstance(rows, list) else ())
        if isinstance(one, dict) and _text(one, "template_id")
    ]


def row_of(one: Mapping[str, Any]) -> TemplateRow:
    parameters, imported = one.get("parameters"), one.get("imported")
    origin = imported if isinstance(imported, dict) else {}
    publisher = (
        _text(one, "publisher") or _text(origin, "publisher") or _text(one, "participant_id")
    )
    return TemplateRow(
        name=_text(one, "template_id"),
        label=_text(one, "label"),
        description=_text(one, "description"),
        publisher=publisher,
        parameters=len(parameters) if isinstance(parameters, dict) else 0,
        changed_at=one.get("updated_at") or one.get("created_at"),
        is_public=one.get("public") is True,
        came_from=_text(origin, "node_id"),
        problem=_text(one, "problem"),
    )


def template_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The `workflow-template.v1` in an answer. Raises `Refusal` where there is none."""
    found = answer.get("template")
    if not isinstance(found, dict) or not _text(found, "template_id"):
        raise Refusal(502, "module_answer", "Arca answered with something that is no template")
    return found


def parameters_of(template: Mapping[str, Any]) -> list[RunInput]:
    given = template.get("parameters")
    pairs = given.items() if isinstance(given, dict) else ()
    return [_parameter(str(name), one if isinstance(one, dict) else {}) for name, one in pairs]


def _parameter(name: str, one: Mapping[str, Any]) -> RunInput:
    kind = one.get("type")
    return RunInput(
        name,
        kind if isinstance(kind, str) and kind in TYPES else "any",
        required=one.get("required", "default" not in one) is True,
        default=one.get("default"),
        has_default="default" in one,
        description=_text(one, "description"),
    )


def preview_of(answer: Mapping[str, Any]) -> Preview:
    runs, problems = answer.get("publisher_runs_node"), answer.get("problems")
    listed = problems if isinstance(problems, list) else []
    return Preview(
        publisher=_text(answer, "publisher"),
        runs_node=runs if isinstance(runs, bool) else None,
        signature=_text(answer, "signature") or "missing",
        digest=_text(answer, "digest"),
        here=_text(answer, "here"),
        problems=[_text(one, "message") for one in listed[:50] if isinstance(one, dict)],
        can_keep=answer.get("importable") is True,
    )


def _text(one: Mapping[str, Any], name: str) -> str:
    found = one.get(name)
    return found if isinstance(found, str) else ""
