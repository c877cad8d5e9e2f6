"""What a definition wants to be given when it is started: names, types, defaults, what is needed.

Each language says it in its own place: a playbook in its workload, a workflow definition in `input`
and in the references to it, an orchestration in the payload of its first rule, a template in its
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.dialects.xrc729.words import RULE
from anabranch.errors import InputError
from anabranch.net.net import Net, Step, Work
from anabranch.net.problems import closest

if TYPE_CHECKING:
    from anabranch.dialects.arca.templates import Template

#: string, number, integer, boolean, object, array, any; as templates call them.
Type = str

#: The types of rule documents, as far as a form can tell them apart; numbers beyond 64 bits are
#: written as texts.
_OF_RULES: Mapping[str, Type] = {
    "bool": "boolean",
    "int64": "integer",
    "uint64": "integer",
    "double": "number",
    "timestamp_ms": "integer",
}

NAMES_SHOWN = 12  # of those that an error lists


class RunInput(msgspec.Struct, frozen=True):
    """One input of a run."""

    name: str
    type: Type = "any"
    required: bool = False
    default: Any = None
    has_default: bool = True
    description: str = ""


def inputs_of(net: Net) -> list[RunInput]:
    """In the order of the definition; what has no default comes last."""
    found = {name: RunInput(name, type_of(value), default=value) for name, value in _defaults(net)}
    for name, expression in net.computed.items():
        said = f"worked out when it starts: {expression.text}"
        found.setdefault(name, RunInput(name, has_default=False, description=said))
    for wanted in (*_of_rule(net.steps[net.entry]), *_of_references(net)):
        found.setdefault(wanted.name, wanted)
    return list(found.values())


def require_known(net: Net, given: Mapping[str, Any]) -> None:
    """Refuse input that a definition neither declares nor reads: a name was misspelt.

    One that declares no input at all takes anything."""
    known = _known(net) if given else None
    if not known:
        return
    unknown = [name for name in given if name not in known and not _is_private(net, name)]
    if not unknown:
        return
    what = "the input" if len(unknown) == 1 else "the inputs"
    raise InputError(
        f"{net.name} has no use for {what} {', '.join(map(repr, unknown[:NAMES_SHOWN]))}; "
        f"{_meant(net, unknown[0], known)} A run can be started with it all the same "
        "(--allow-extra-input, `allow_extra_input`)",
        code="unknown_input",
    )


def _meant(net: Net, unknown: str, known: set[str]) -> str:
    """The name that is nearest, or those that are declared: others are only read somewhere."""
    names = sorted(_declared(net))
    if near := closest(unknown, names) or closest(unknown, sorted(known)):
        return near
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"its inputs are {', '.join(names[:NAMES_SHOWN])}{more}."


def _known(net: Net) -> set[str] | None:
    """None where anything may be read."""
    if net.reads is None or not all(map(_is_at_hand, net.steps.values())):
        return None
    declared = _declared(net)
    return declared | net.reads if declared else None


def _declared(net: Net) -> set[str]:
    declared = {one.name for one in inputs_of(net)}
    for step in net.steps.values():
        declared |= {one.name for one in _of_rule(step)}
    return declared


def _is_at_hand(step: Step) -> bool:
    """A rule that is read from a chain may want anything."""
    work = step.work
    return work is None or work.kind != RULE or work.program.text is not None


def _is_private(net: Net, name: str) -> bool:
    return any(prefix and name.startswith(prefix) for prefix in (net.private, net.sealed))


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


def type_of(value: Any) -> Type:
    """What a default says about its input."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return "any"


def _defaults(net: Net) -> Iterator[tuple[str, Any]]:
    for name, value in net.workload.items():
        yield str(name), value


def _of_rule(step: Step) -> Iterator[RunInput]:
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
