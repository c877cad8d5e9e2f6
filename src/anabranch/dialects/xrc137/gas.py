"""Validation gas: what carrying out a rule is billed with. It has nothing to do with EVM gas.

A step pays the common part (inputs, reads, calls, rules) and what its branch adds. Everything but a
computed wait can be told from the document alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.dialects.xrc137.document import (
    ApiCall,
    ContractRead,
    Execution,
    RuleBranch,
    RuleDocument,
)
from anabranch.expressions.cel.cel import Cel
from anabranch.expressions.cel.cost import Prices, cost
from anabranch.expressions.cel.values import CelError
from anabranch.expressions.placeholders import Value, placeholders_in

BASE: Final = 10_000
REQUIRED_INPUT: Final = 1_000
DEFAULTED_INPUT: Final = 200
RULE_BASE: Final = 1_200
RULE_PRICES: Final = Prices(operator=600, function=800, matches=4_000)
PLACEHOLDER: Final = 250
READ_BASE: Final = 6_000
READ_ARG: Final = 600
READ_SAVE: Final = 400
READ_DEFAULT: Final = 250
CALL_BASE: Final = 8_000
CALL_PLACEHOLDER: Final = 200
EXTRACT_BASE: Final = 600
EXTRACT_PRICES: Final = Prices(operator=500, function=400, matches=4_000)
OUTCOME_KEY: Final = 400
OUTCOME_EXPRESSION: Final = 600
EXECUTION_BASE: Final = 1_200
EXECUTION_ARG: Final = 700
EXECUTION_VALUE: Final = 800
ENCRYPTED_LOG: Final = 2_000
WAIT_HOUR: Final = 100
WAIT: Final = "wait"  # the line of a bill
_HOUR_MS: Final = 3_600_000


class GasLine(msgspec.Struct, frozen=True):
    """One item of the bill: of the common part ("common") or of a branch ("valid", "invalid")."""

    part: str
    what: str
    gas: int


class GasEstimate(msgspec.Struct, frozen=True):
    common: int
    valid: int
    invalid: int
    lines: tuple[GasLine, ...] = ()

    def taken(self, part: str, *, wait_ms: int, spawns: int) -> int:
        """What the branch "valid" or "invalid" adds, with the wait as it turned out."""
        work = sum(line.gas for line in self.lines if line.part == part and line.what != WAIT)
        return work + wait_gas(wait_ms, spawns)

    @property
    def total_valid(self) -> int:
        return self.common + self.valid

    @property
    def total_invalid(self) -> int:
        return self.common + self.invalid

    @property
    def worst_case(self) -> int:
        return self.common + max(self.valid, self.invalid)


def estimate(
    document: RuleDocument,
    *,
    valid_spawns: int = 1,
    invalid_spawns: int = 1,
    encrypted: bool = False,
) -> GasEstimate:
    """The bill before anything runs. A wait that is computed counts as one started hour."""
    common = tuple(GasLine("common", what, gas) for what, gas in _common(document) if gas)
    valid = _branch_lines("valid", document.on_valid, valid_spawns, encrypted)
    invalid = _branch_lines("invalid", document.on_invalid, invalid_spawns, encrypted)
    return GasEstimate(_sum(common), _sum(valid), _sum(invalid), (*common, *valid, *invalid))


def wait_gas(wait_ms: int, spawns: int) -> int:
    """For every started hour and every process that sleeps."""
    return -(-wait_ms // _HOUR_MS) * spawns * WAIT_HOUR


def _sum(lines: tuple[GasLine, ...]) -> int:
    return sum(line.gas for line in lines)


def _common(document: RuleDocument) -> list[tuple[str, int]]:
    required = sum(each.required for each in document.inputs)
    lines = [
        ("base", BASE),
        ("required inputs", required * REQUIRED_INPUT),
        ("inputs with a default", (len(document.inputs) - required) * DEFAULTED_INPUT),
    ]
    lines += [(f"contractReads[{n}]", _read(read)) for n, read in enumerate(document.reads)]
    lines += [(f"apiCalls[{n}]", _call(call)) for n, call in enumerate(document.calls)]
    lines += [
        (f"rules[{n}]", RULE_BASE + _expression(rule.expression))
        for n, rule in enumerate(document.rules)
    ]
    return lines


def _expression(cel: Cel) -> int:
    return cost(cel.tree, RULE_PRICES) + placeholders_in(cel.text) * PLACEHOLDER


def _value(value: Value) -> int:
    """What working out a value of a branch costs, beside its place."""
    if value.cel is not None:
        return _expression(value.cel)
    return value.placeholders * PLACEHOLDER


def _read(read: ContractRead) -> int:
    defaults = sum(slot.default is not None for slot in read.slots)
    gas = READ_BASE + len(read.args) * READ_ARG
    return gas + len(read.slots) * READ_SAVE + defaults * READ_DEFAULT


def _call(call: ApiCall) -> int:
    """Placeholders of headers are free."""
    placeholders = call.url.placeholders + (call.body.placeholders if call.body else 0)
    extracts = sum(EXTRACT_BASE + cost(each.value.tree, EXTRACT_PRICES) for each in call.extracts)
    return CALL_BASE + placeholders * CALL_PLACEHOLDER + extracts


def _branch(branch: RuleBranch, encrypted: bool) -> list[tuple[str, int]]:
    lines = [("output keys", sum(map(_output, branch.payload.values())))]
    if branch.execution is not None:
        lines.append(("execution", _execution(branch.execution)))
    if encrypted if branch.encrypt_logs is None else branch.encrypt_logs:
        lines.append(("encrypted log", ENCRYPTED_LOG))
    return lines


def _output(value: Value) -> int:
    return OUTCOME_KEY + (OUTCOME_EXPRESSION if value.sort == "expression" else 0) + _value(value)


def _execution(execution: Execution) -> int:
    """The address belongs to the base."""
    gas = EXECUTION_BASE + sum(EXECUTION_ARG + _value(arg.value) for arg in execution.args)
    if execution.value is not None:
        gas += EXECUTION_VALUE + _value(execution.value.value)
    return gas


def _branch_lines(
    part: str, branch: RuleBranch, spawns: int, encrypted: bool
) -> tuple[GasLine, ...]:
    lines = [*_branch(branch, encrypted), (WAIT, wait_gas(_fixed_wait(branch), spawns))]
    return tuple(GasLine(part, what, gas) for what, gas in lines if gas)


def _fixed_wait(branch: RuleBranch) -> int:
    """The wait in milliseconds as far as the document says it."""
    if branch.wait is None:
        return 0
    if branch.wait.unit == "until" or branch.wait.value.names:
        return _HOUR_MS
    try:
        value = branch.wait.value.evaluate({})
    except CelError:
        return _HOUR_MS  # it ends the step when it comes to that
    scale = 1000 if branch.wait.unit == "seconds" else 1
    return value * scale if isinstance(value, int) else _HOUR_MS
