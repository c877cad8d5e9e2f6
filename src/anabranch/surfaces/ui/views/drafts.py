"""A text in the editor and everything that can be said about it without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from anabranch.dialects.arca.template_check import template_problems
from anabranch.dialects.arca.templates import Template, definition_text, read_template
from anabranch.dialects.nodes import Fields
from anabranch.dialects.port import ToolSignature
from anabranch.dialects.source import read_source
from anabranch.errors import AnabranchError, DefinitionError
from anabranch.net.fingerprint import fingerprint
from anabranch.net.net import Net
from anabranch.net.problems import Problem
from anabranch.operations.definitions.inputs import RunInput, inputs_of, parameters_of
from anabranch.operations.definitions.prepare import Prepared, check, prepare
from anabranch.operations.definitions.templates import DIALECT as TEMPLATE
from anabranch.operations.definitions.templates import Templates
from anabranch.surfaces.http.guard.shares import in_share
from anabranch.surfaces.ui.context import Ui, ui_of
from anabranch.surfaces.ui.views.forms import given_of

TEXT_MAX = 2 * 1024 * 1024


class DraftView(msgspec.Struct, frozen=True):
    text: str
    dialect: str = ""
    name: str = ""
    description: str = ""
    fingerprint: str = ""
    net: Net | None = None
    template: Template | None = None
    problems: list[Problem] = []
    wanted: list[RunInput] = []
    refused: AnabranchError | None = None  # it could not even be looked at

    @property
    def checked(self) -> bool:
        return bool(self.text.strip()) and self.refused is None

    @property
    def errors(self) -> int:
        return sum(one.severity == "error" for one in self.problems)

    @property
    def runs(self) -> bool:
        """It can be kept and started."""
        return self.net is not None or self.template is not None


def examined(ui: Ui, text: str, rules: Mapping[str, Any] | None, form: Any = None) -> DraftView:
    """In a thread: compiling a long text takes a while. `form` has values for parameters."""
    if _is_template(text):
        return _template(text, form)
    try:
        compiled = check(text, _tools(ui), rules)
    except AnabranchError as error:
        return DraftView(text, refused=error)
    net, problems = compiled.net, list(compiled.problems)
    if net is None:
        return DraftView(text, compiled.dialect, problems=problems)
    problems += _without_rules(ui, net, problems)
    problems += ui.parts.preflight.not_done_here(net)
    problems += ui.parts.preflight.missing_extras(net)
    problems += ui.parts.preflight.refused_files(net)
    problems += ui.parts.participants.needs_of(net)
    return DraftView(
        text, net.dialect, net.name, net.description, net.fingerprint, net,
        problems=problems, wanted=inputs_of(net),
    )  # fmt: skip


def _without_rules(ui: Ui, net: Net, known: list[Problem]) -> list[Problem]:
    """Rules that are not at hand do not keep a definition from being right, but from starting."""
    seen = {(one.position.line, one.code) for one in known}
    found = ui.parts.preflight.missing_rules(net)
    hint = "paste it below, under Rules of an orchestration"
    return [
        Problem(one.position, one.code, one.message, hint, "warning")
        for one in found
        if (one.position.line, one.code) not in seen
    ]


def _is_template(text: str) -> bool:
    if "template_id" not in text:
        return False
    root = read_source(text).root
    return isinstance(root, Fields) and "template_id" in root and "workflow_id" not in root


def _template(text: str, form: Any) -> DraftView:
    """A template is drawn as the definition that its parameters make of it, once they do."""
    try:
        template = read_template(text, file="<text>")
        problems = template_problems(text, file="<text>")
    except DefinitionError as error:
        problems = list(error.problems)
    if problems:
        return DraftView(text, TEMPLATE, problems=problems)
    wanted = parameters_of(template)
    net = None
    try:
        values = given_of(wanted, form).values if form is not None else {}
        net = prepare(definition_text(template.materialise(values))).net
    except AnabranchError:
        pass  # it is said when somebody starts it
    said = template.label or template.description
    mark = fingerprint(TEMPLATE, text)
    return DraftView(text, TEMPLATE, template.template_id, said, mark, net, template, [], wanted)


async def runnable(
    request: web.Request,
    draft: DraftView,
    rules: Mapping[str, Any] | None,
    given: Mapping[str, Any],
) -> Prepared:
    """What is started; raises with everything that is wrong."""
    tools = _tools(ui_of(request))
    if draft.template is None:
        return await in_share(request, prepare, draft.text, tools, rules)
    text = definition_text(draft.template.materialise(given))
    return await in_share(request, prepare, text, tools)


async def keep(
    request: web.Request, text: str, rules: Mapping[str, Any] | None
) -> tuple[str, bool]:
    """Put it into the store; its fingerprint, and whether it was not there before."""
    ui = ui_of(request)
    if await in_share(request, _is_template, text):
        kept = await in_share(request, Templates(ui.parts.store).put, text, "<text>")
        return kept.fingerprint, kept.is_new
    ready = await in_share(request, prepare, text, _tools(ui), rules)
    mark = ready.definition.fingerprint
    if ui.parts.store.definition(mark) is not None:
        return mark, False
    ui.parts.nets.put(msgspec.structs.replace(ready.definition, created_at=ui.now()), ready.net)
    return mark, True


def _tools(ui: Ui) -> list[ToolSignature]:
    return ui.parts.toolbox.signatures()
