"""A rule document (XRC-137) as it was read: every expression compiled, every default cast.

A document is immutable and is read once; evaluating it compiles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from anabranch.expressions.cel.cel import Cel
from anabranch.expressions.placeholders import PlaceholderText, Value

#: What the engine itself puts into the environment of a rule. Declared inputs win over the first
#: two; the others cannot be replaced.
ENGINE_NAMES: Final = ("from", "pid", "__sessionId", "__pid", "__stepId", "__iteration")

RuleKind = Literal["validate", "abortStep", "cancelSession"]


class RuleProgram(msgspec.Struct, frozen=True):
    """What a step of an orchestration runs: the address of a rule, its text when bundled."""

    address: str
    alias: str = ""
    text: str | None = None


class Default(msgspec.Struct, frozen=True):
    """A default that is there; `None` in its place means that there is none."""

    value: Any


class Input(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: Default | None = None

    @property
    def required(self) -> bool:
        return self.default is None


class TypedValue(msgspec.Struct, frozen=True):
    type: str
    value: Value
    default: Default | None = None


class ReadSlot(msgspec.Struct, frozen=True):
    """Where one returned value of a contract read goes."""

    index: int
    key: str
    type: str
    default: Default | None = None


class ContractRead(msgspec.Struct, frozen=True):
    to: Value
    function: str
    args: tuple[TypedValue, ...] = ()
    slots: tuple[ReadSlot, ...] = ()
    rpc: str | None = None


class Extract(msgspec.Struct, frozen=True):
    alias: str
    type: str  # "" keeps the value as it is: the old form without a type
    value: Cel
    default: Default | None = None
    save: bool = True


class ApiCall(msgspec.Struct, frozen=True):
    name: str
    method: str
    url: PlaceholderText
    headers: Mapping[str, PlaceholderText] = {}
    body: PlaceholderText | None = None
    timeout_ms: int | None = None
    extracts: tuple[Extract, ...] = ()


class RuleExpression(msgspec.Struct, frozen=True):
    expression: Cel
    kind: RuleKind = "validate"


class Execution(msgspec.Struct, frozen=True):
    to: Value
    function: str = ""
    args: tuple[TypedValue, ...] = ()
    value: TypedValue | None = None
    gas_limit: int | None = None
    extras: Mapping[str, Any] = {}


class GrantDeclaration(msgspec.Struct, frozen=True):
    address: Value
    rights: int
    expire_days: Value | None = None  # None is as long as the log


class WakeUp(msgspec.Struct, frozen=True):
    """A request to let somebody go on who sleeps in another session."""

    runner: Value
    session: Value
    step: Value
    payload: Mapping[str, Value] = {}


class Wait(msgspec.Struct, frozen=True):
    """How long what follows sleeps: `seconds` and `milliseconds` from now, or `until` an instant
    in milliseconds since the epoch."""

    unit: Literal["seconds", "milliseconds", "until"]
    value: Value


class RuleBranch(msgspec.Struct, frozen=True):
    payload: Mapping[str, Value] = {}
    execution: Execution | None = None
    wait: Wait | None = None
    wake_ups: tuple[WakeUp, ...] = ()
    grants: tuple[GrantDeclaration, ...] = ()
    encrypt_logs: bool | None = None  # None follows the contract
    log_expire_days: int = 365


class RuleDocument(msgspec.Struct, frozen=True):
    inputs: tuple[Input, ...] = ()
    reads: tuple[ContractRead, ...] = ()
    calls: tuple[ApiCall, ...] = ()
    rules: tuple[RuleExpression, ...] = ()
    on_valid: RuleBranch = RuleBranch()
    on_invalid: RuleBranch = RuleBranch()

    @property
    def outputs(self) -> frozenset[str]:
        """Every key a step with this rule may hand on."""
        saved = {slot.key for read in self.reads for slot in read.slots}
        saved |= {each.alias for call in self.calls for each in call.extracts if each.save}
        return frozenset(saved) | set(self.on_valid.payload) | set(self.on_invalid.payload)
