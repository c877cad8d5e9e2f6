"""Questions to the module Arca, through the local routes that the node serves for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from aiohttp import web

from anabranch.dialects.arca.templates import TYPES
from anabranch.operations.definitions.inputs import RunInput, Type
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
    query: Mapping[str, str] | None = None,
) -> Any:
    """What Arca answers to the operator. Raises `NotHosted`, and `Refusal` for everything else."""
    try:
        return await ask(request, method, ARCA + path, body, query)
    except Refusal as refusal:
        if refusal.status == 404 and not await is_hosted(request):
            raise NotHosted from None
        raise


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


class Verdict(NamedTuple):
    """What is known about who published a template."""

    publisher: str
    status: str  # valid, or why not
    reason: str
    digest: str

    @property
    def is_valid(self) -> bool:
        return self.status == "valid"


def templates_in(answer: Any) -> list[TemplateRow]:
    rows = answer.get("items") if isinstance(answer, dict) else None
    return [
        row_of(one) for one in rows or () if isinstance(one, dict) and _text(one, "template_id")
    ]


def row_of(one: Mapping[str, Any]) -> TemplateRow:
    parameters = one.get("parameters")
    return TemplateRow(
        _text(one, "template_id"),
        _text(one, "label"),
        _text(one, "description"),
        _text(one, "publisher") or _text(one, "participant_id"),
        len(parameters) if isinstance(parameters, dict) else 0,
        one.get("updated_at") or one.get("created_at"),
    )


def template_of(answer: Any) -> dict[str, Any]:
    """The `workflow-template.v1` in an answer. Raises `Refusal` where there is none."""
    found = answer.get("template", answer) if isinstance(answer, dict) else None
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
        cast(Type, kind) if kind in TYPES else "any",
        required=one.get("required", "default" not in one) is True,
        default=one.get("default"),
        has_default="default" in one,
        description=_text(one, "description"),
    )


def verdict_of(answer: Mapping[str, Any]) -> Verdict:
    signed = answer.get("signature")
    said = signed if isinstance(signed, dict) else {}
    return Verdict(
        _text(answer, "publisher"),
        _text(said, "status") or "unknown",
        _text(said, "reason"),
        _text(answer, "digest"),
    )


def _text(one: Mapping[str, Any], name: str) -> str:
    found = one.get(name)
    return found if isinstance(found, str) else ""
