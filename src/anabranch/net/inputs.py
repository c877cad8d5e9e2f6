"""What a run can be given: the inputs that a definition declares, and which values fit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

#: The types of inputs and of the parameters of templates.
TYPES = ("string", "integer", "number", "boolean", "object", "array", "any")
_CALLED = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}


class Input(msgspec.Struct, frozen=True):
    """One that the definition declares; its default is in `Net.workload`."""

    name: str
    type: str = "any"
    enum: tuple[Any, ...] = ()
    required: bool = False
    secret: bool = False  # the log never has it
    nullable: bool = False  # its default is null
    description: str = ""


def is_of(value: Any, kind: str) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return number and (isinstance(value, int) or value.is_integer())
        case "number":
            return number
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list | tuple)
        case _:
            return True


def type_of(value: Any) -> str:
    """What a default says about its input."""
    kinds = ("boolean", "number", "string", "object", "array")
    return next((kind for kind in kinds if is_of(value, kind)), "any")


def is_choice(value: Any, enum: tuple[Any, ...]) -> bool:
    """Whether it is one of them; true is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in enum)


def describe_type(kind: str) -> str:
    """The type as a sentence has it."""
    return _CALLED.get(kind, "anything")
