"""What a run is given, held against what its definition wants, before it begins."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from anabranch.dialects.xrc729.words import RULE
from anabranch.errors import InputError
from anabranch.kernel.step import deep_merge
from anabranch.net.inputs import Input, describe_type, is_choice, is_of, type_of
from anabranch.net.net import Net, Step
from anabranch.net.problems import closest
from anabranch.operations.definitions.inputs import inputs_of, of_rule
from anabranch.work.values.json_values import require_json

NAMES_SHOWN = 12  # of those that an error lists
LETTERS_SHOWN = 60  # of a value
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def require_input(
    net: Net,
    given: Mapping[str, Any],
    *,
    extra: bool = False,
    handed_on: bool = False,
    later: Collection[str] = (),
) -> None:
    """Refuse input that a run cannot be started with, with everything that is wrong with it.

    `extra` allows names that nothing reads. What is handed on by a parent need only be what the
    definition declares; the types of defaults bind people. `later` names what is not known yet.
    """
    if not extra:
        _require_known(net, given)
    wrong = [found for one in net.inputs if one.name not in later if (found := _wrong(one, given))]
    if not handed_on:
        undeclared = given.keys() - {one.name for one in net.inputs} - set(later)
        wrong += [
            found for name in given if name in undeclared if (found := _odd(net, name, given))
        ]
    if wrong:
        raise InputError(f"{net.name}: {'; '.join(text for _, text in wrong)}", code=wrong[0][0])


def require_no_secret(net: Net, names: Collection[str]) -> None:
    """Among input that is kept as it is, for runs that begin later."""
    kept = sorted(net.secret_inputs.intersection(names))
    if kept:
        raise InputError(
            f"{net.name}: the input {kept[0]!r} is a secret, and would be kept in plain here: let "
            "the playbook look it up in its keychain",
            code="secret_input",
        )


Wrong = tuple[str, str]  # its code, and what to say


def _wrong(one: Input, given: Mapping[str, Any]) -> Wrong | None:
    name = f"the input {one.name!r}" + (f" ({one.description})" if one.description else "")
    if one.name not in given:
        said = f"{name} is needed: {describe_type(one.type)}"
        return ("missing_input", said) if one.required else None
    value = given[one.name]
    shown = "what was given" if one.secret else _shown(value)
    if value is None and one.nullable:
        return None
    if not is_of(value, one.type) or (value is None and one.required):
        return "input_type", f"{name} is {describe_type(one.type)}, not {shown}"
    if one.enum and not is_choice(value, one.enum):
        return "input_choice", f"{name} is one of {', '.join(map(_shown, one.enum))}, not {shown}"
    return None


def _odd(net: Net, name: str, given: Mapping[str, Any]) -> Wrong | None:
    """Of an input that has a default and no declaration: one of another type is a mistake."""
    default, value = net.workload.get(name), given[name]
    if value is None or default in (None, ""):
        return None
    kind = type_of(default)
    if _is_alike(value, kind):
        return None
    said = f"the default of the input {name!r} is {_shown(default)}, so it is {describe_type(kind)}"
    return "input_type", f"{said}, not {_shown(value)}"


def _require_known(net: Net, given: Mapping[str, Any]) -> None:
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
        declared |= {one.name for one in of_rule(step)}
    return declared


def _is_at_hand(step: Step) -> bool:
    """A rule that is read from a chain may want anything."""
    work = step.work
    return work is None or work.kind != RULE or work.program.text is not None


def _is_private(net: Net, name: str) -> bool:
    return any(prefix and name.startswith(prefix) for prefix in (net.private, net.sealed))


def _is_alike(value: Any, kind: str) -> bool:
    """Whether it may stand for a default of this type, of which nobody has said that it is all that
    may be given: a text stands for anything without parts."""
    if kind == "string":
        return not isinstance(value, Mapping | list | tuple)
    return is_of(value, kind)


def _shown(value: Any) -> str:
    text = ""
    for part in _ENCODER.iterencode(value):  # no further than it is shown
        text += part
        if len(text) > LETTERS_SHOWN:
            break
    return text if len(text) <= LETTERS_SHOWN else f"{text[: LETTERS_SHOWN - 1]}…"


# -- values as people type them --------------------------------------------------------------------


def read_typed(net: Net, given: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The input that is given, and over it what somebody typed, by its names, which may be dotted:
    JSON where it is JSON, but for inputs that are declared as texts."""
    kinds = {one.name: one.type for one in net.inputs}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        whole = kinds.get(name) == "string" or (net.sealed and name.startswith(net.sealed))
        put(values, name.split("."), text if whole else read_text(text), name)
    return deep_merge(given, values)


def read_text(text: str) -> Any:
    """JSON if it can be read as JSON, the text itself otherwise."""
    try:
        return require_json(json.loads(text), "the value")
    except (ValueError, RecursionError, InputError):
        return text


def put(values: dict[str, Any], path: list[str], new: Any, what: str) -> None:
    """Under a path of names."""
    for part in path[:-1]:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InputError(f"{what!r} goes through {part!r}, which is not a mapping")
        values = inner
    values[path[-1]] = new
