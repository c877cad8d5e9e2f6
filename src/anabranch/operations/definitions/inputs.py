"""What a definition wants to be given when it is started: names, types, defaults, what is needed.

Each language says it in its own place: a playbook in `inputs` and its workload, a workflow
definition in `input` and in the references to it, an orchestration in the payload of its first
rule, a template in its parameters. `input_check` holds it against what is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.dialects.xrc729.words import RULE
from anabranch.net.inputs import Input, type_of
from anabranch.net.net import Net, Step, Work

if TYPE_CHECKING:
    from anabranch.dialects.arca.templates import Template

#: The types of rule documents, as far as a form can tell them apart; numbers beyond 64 bits are
#: written as texts.
_OF_RULES: Mapping[str, str] = {
    "bool": "boolean",
    "int64": "integer",
    "uint64": "integer",
    "double": "number",
    "timestamp_ms": "integer",
}


class RunInput(msgspec.Struct, frozen=True):
    """One input of a run."""

    name: str
    type: str = "any"
    required: bool = False
    default: Any = None
    has_default: bool = True
    description: str = ""
    enum: tuple[Any, ...] = ()
    secret: bool = False


def inputs_of(net: Net) -> list[RunInput]:
    """In the order of the definition; what has no default comes last."""
    found = {one.name: _declared_input(net, one) for one in net.inputs}
    for name, value in net.workload.items():
        found.setdefault(name, RunInput(name, type_of(value), default=value))
    for name, expression in net.computed.items():
        said = f"worked out when it starts: {expression.text}"
        found.setdefault(name, RunInput(name, has_default=False, description=said))
    for wanted in (*of_rule(net.steps[net.entry]), *_of_references(net)):
        found.setdefault(wanted.name, wanted)
    return list(found.values())


def parameters_of(template: Template) -> list[RunInput]:
    return [
        RunInput(
            one.name,
            one.type,
            required=one.required,
            default=one.default,
            has_default=not one.required and one.default is not None,
            description=one.description,
        )
        for one in template.parameters
    ]


def _declared_input(net: Net, one: Input) -> RunInput:
    said = one.description
    if one.name in net.computed:
        said = said or f"worked out when it starts: {net.computed[one.name].text}"
    return RunInput(
        one.name,
        one.type,
        required=one.required,
        default=net.workload.get(one.name),
        has_default=one.name in net.workload and not one.nullable,
        description=said,
        enum=one.enum,
        secret=one.secret,
    )


def of_rule(step: Step) -> Iterator[RunInput]:
    """The payload that the rule of a step declares, where the rule is at hand."""
    work = step.work
    if work is None or work.kind != RULE or work.program.text is None:
        return
    from anabranch.dialects.xrc137.read import read_rule  # only orchestrations need it

    document, _ = read_rule(work.program.text)
    for one in document.inputs if document is not None else ():
        yield RunInput(
            one.name,
            _OF_RULES.get(one.type, "string"),
            required=one.required,
            default=one.default.value if one.default is not None else None,
            has_default=one.default is not None,
            description=one.type,
        )


def secrets_of_rules(net: Net) -> list[str]:
    """Inputs that rules need and no log has: who redrives the session gives them again."""
    if not net.sealed:
        return []
    return sorted(
        {
            one.name
            for step in net.steps.values()
            for one in of_rule(step)
            if one.required and one.name.startswith(net.sealed)
        }
    )


def _of_references(net: Net) -> Iterator[RunInput]:
    """What steps of a workflow definition read of the input and nobody gives by default."""
    if net.dialect != "arca":
        return
    for step in net.steps.values():
        source = step.decision.source if step.decision is not None else None
        for work in (step.work, source):
            for name in _names_read(work):
                yield RunInput(name, required=True, has_default=False)


def _names_read(work: Work | None) -> Iterator[str]:
    from anabranch.dialects.arca.requests import Inputs  # only workflow definitions need it

    inputs = work.inputs if work is not None else None
    if not isinstance(inputs, Inputs):
        return
    ordered = [] if inputs.terms is None else [one for one, _ in inputs.terms.references()]
    for reference in (*inputs.input.given.references(), *ordered):
        segments = reference.path.segments
        if reference.root == "input" and len(segments) > 1:
            yield str(segments[1])
