"""The templates of a trigger: checked when it is added, rendered when it fires.

    hook     body, headers (in lower case), query, trigger
    after    run (id, name, status, labels, input, result, problem, parent, …), trigger

What a template may make is bounded by the sandbox, and what comes out of all of them once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError, InputError
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.expressions.port import Constant
from anabranch.operations.triggers.trigger import OWN_LABELS, Trigger

BYTES_MAX = 4 * 1024 * 1024  # of what the templates of one trigger make together
SPEC_BYTES_MAX = 64 * 1024
LABELS_MAX = 32
KEY_LETTERS = 200
_FALSE = (False, None, "", 0, "false", "False", "none", "None")


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """What comes out of the templates; `fires` says what `when` came to."""

    fires: bool = True
    input: Any = None
    labels: dict[str, str] = {}
    run: str = ""  # that is signalled
    run_labels: dict[str, str] = {}  # of those that are


def require_readable(trigger: Trigger) -> None:
    """Everything that can be told about templates before there is something to fill in."""
    given = _templates(trigger)
    size = len(msgspec.json.encode(given))
    if size > SPEC_BYTES_MAX:
        raise InputError(
            f"the templates of a trigger have {size:,} bytes, and {SPEC_BYTES_MAX:,} are the most",
            code="trigger_template",
        )
    for labels in (trigger.labels, trigger.signal.labels if trigger.signal else {}):
        _require_labels(labels)
    for key, structure in given.items():
        try:
            Jinja().tree(structure)
        except (ExpressionError, ValueError) as error:
            said = getattr(error, "message", str(error))
            raise InputError(
                f"a template in `{key}` cannot be read: {said}", code="trigger_template"
            ) from None


def _templates(trigger: Trigger) -> dict[str, Any]:
    found: dict[str, Any] = {"input": trigger.input, "labels": trigger.labels}
    found["when"] = trigger.when
    if trigger.hook is not None:
        found["key"] = trigger.hook.key
    if trigger.signal is not None:
        found |= {"signal.run": trigger.signal.run, "signal.labels": trigger.signal.labels}
    return found


def _require_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > LABELS_MAX:
        raise InputError(f"a trigger has at most {LABELS_MAX} labels", code="trigger_labels")
    for key in OWN_LABELS:
        if key in labels:
            raise InputError(
                f"the label {key!r} is set by the trigger itself", code="trigger_labels"
            )


def rendered(trigger: Trigger, names: Mapping[str, Any]) -> Rendered:
    """What the trigger makes of a call or a run; raises `InputError` where a template fails."""
    known = {**names, "trigger": {"name": trigger.name}}
    if trigger.when and _value("when", trigger.when, known) in _FALSE:
        return Rendered(fires=False)
    given = _input(trigger, known)
    signal = trigger.signal
    made = Rendered(
        input=given,
        labels=_texts("labels", trigger.labels, known),
        run=str(_value("signal.run", signal.run, known)) if signal and signal.run else "",
        run_labels=_texts("signal.labels", signal.labels, known) if signal else {},
    )
    size = len(msgspec.json.encode(made))
    if size > BYTES_MAX:
        raise InputError(
            f"the templates of the trigger {trigger.name} make {size:,} bytes, and {BYTES_MAX:,} "
            "are the most",
            code="trigger_template",
        )
    return made


def names_made_later(given: Mapping[str, Any]) -> set[str]:
    """Of an input: those whose values are templates."""
    return {name for name, one in given.items() if not isinstance(Jinja().tree(one), Constant)}


def key_of(trigger: Trigger, names: Mapping[str, Any]) -> str:
    """What makes two calls of a hook the same one; "" where this one has nothing of the kind."""
    assert trigger.hook is not None
    made = _value("key", trigger.hook.key, {**names, "trigger": {"name": trigger.name}})
    key = "" if made is None else str(made)
    if len(key) > KEY_LETTERS or not key.isprintable():
        raise InputError(
            f"the idempotency key is longer than {KEY_LETTERS} letters, or not printable",
            code="idempotency_key",
        )
    return key


def _input(trigger: Trigger, names: Mapping[str, Any]) -> Any:
    if trigger.input is not None:
        return _value("input", trigger.input, names)
    body = names.get("body", {}) if trigger.hook is not None else {}
    if trigger.signal is None and not isinstance(body, Mapping):
        raise InputError(
            f"the body is no JSON object, and the trigger {trigger.name} does not say which input "
            "to make of it",
            code="trigger_input",
        )
    return body


def _texts(key: str, structure: Mapping[str, str], names: Mapping[str, Any]) -> dict[str, str]:
    made = _value(key, structure, names)
    return {name: value if isinstance(value, str) else _text(value) for name, value in made.items()}


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _value(key: str, structure: Any, names: Mapping[str, Any]) -> Any:
    try:
        return Jinja().tree(structure).evaluate(names)
    except ExpressionError as error:
        said = f"the template of `{key}`: {error.message}"
        raise InputError(said, code="trigger_template") from None
