"""One rule document carried out for one process: inputs, reads, calls, rules.

    inputs → contractReads → apiCalls → rules → branch → payload → execution

The order matters and is fixed. Three kinds of ending: valid or invalid (both are answers, and
`onInvalid` is a path like any other), a hard error (`HardError`), or what a typed rule demands.
What follows the choice of the branch is in `branch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.dialects.xrc137.casts import CastFailed, Overflow, cast, is_address
from anabranch.dialects.xrc137.document import (
    ApiCall,
    ContractRead,
    Default,
    Extract,
    Input,
    ReadSlot,
    RuleDocument,
    RuleExpression,
    RuleKind,
)
from anabranch.expressions.cel.values import (
    CelError,
    CelLimitError,
    CelMissingName,
    check_lists,
    plain_of,
)
from anabranch.work.evaluations import evaluate
from anabranch.work.rule.api import ApiCaller, CallFailed, request_for
from anabranch.work.rule.branch import BranchWork, computed, typed
from anabranch.work.rule.chain_use import ChainUse
from anabranch.work.rule.ports import (
    BadAbi,
    ChainUnavailable,
    ContractExecutor,
    ContractReader,
    ExecutorUnavailable,
    OtherChain,
    ReadFailed,
)
from anabranch.work.rule.steps import (
    Evaluated,
    HardError,
    PreparedBranch,
    RuleFindings,
    RuleProcess,
    SessionCancelled,
    StepAborted,
)

_MISSING = object()


class RuleServices(msgspec.Struct, frozen=True):
    """What a rule reaches the world with."""

    reader: ContractReader
    executor: ContractExecutor
    calls: ApiCaller
    clock: Clock


class Evaluation:
    def __init__(
        self,
        document: RuleDocument,
        payload: Mapping[str, Any],
        process: RuleProcess,
        services: RuleServices,
        chain: ChainUse | None = None,
    ) -> None:
        self._chain = chain or ChainUse()
        self._document = document
        self._payload = payload
        self._process = process
        self._services = services
        self.findings = RuleFindings()
        self._names: dict[str, Any] = {}

    async def run(self) -> Evaluated:
        """Raises `HardError`, `StepAborted` or `SessionCancelled`; `findings` then say how far it
        came."""
        self._take_inputs()
        for number, read in enumerate(self._document.reads):
            await self._read(read, f"contractReads[{number}]")
        for call in self._document.calls:
            await self._call(call)
        valid = not self.findings.inputs_missing and await evaluate(self._rules_hold)
        return await self._finish(valid and not self.findings.softly)

    # -- inputs ------------------------------------------------------------------------------

    def _take_inputs(self) -> None:
        names = self._process.gives()
        for each in self._document.inputs:
            given = self._payload.get(each.name)
            if _is_empty(given):
                names.pop(each.name, None)
                if each.default is None:
                    self.findings.inputs_missing.append(each.name)
                else:
                    names[each.name] = each.default.value
                continue
            names[each.name] = self._input(each, given)
        self._names = names | self._process.insists()

    def _input(self, declared: Input, given: Any) -> Any:
        try:
            return cast(given, declared.type)
        except CastFailed as error:
            what = f"input {declared.name}: {error.message}"
            if declared.default is None or not isinstance(error, Overflow):
                raise HardError(what, code=error.code) from None
            self.findings.failures.append(f"{what}, so its default is taken")
            return declared.default.value

    # -- reads -------------------------------------------------------------------------------

    async def _read(self, read: ContractRead, what: str) -> None:
        try:
            values = await self._values_of(read, what)
        except (ReadFailed, CelMissingName) as error:
            self.findings.failures.append(f"{what}: {error.message}")
            values = ()
        for slot in read.slots:
            self._save_slot(slot, values, what)

    async def _values_of(self, read: ContractRead, what: str) -> Sequence[Any]:
        to, args = await evaluate(partial(self._target_of, read, what))
        if not read.rpc:
            await self._require_chain()
        try:
            return await self._services.reader.read(
                to=to,
                function=read.function,
                args=args,
                saved_types={slot.index: slot.type for slot in read.slots},
                rpc=read.rpc,
            )
        except BadAbi as error:
            raise HardError(f"{what}: {error.message}", code="abi") from None

    def _target_of(self, read: ContractRead, what: str) -> tuple[str, list[Any]]:
        to = computed(lambda: read.to.evaluate(self._names), f"`to` of {what}")
        if not is_address(to):
            raise HardError(f"`to` of {what} is no address", code="bad_to")
        args = [typed(arg, self._names, f"args[{n}] of {what}") for n, arg in enumerate(read.args)]
        return to, args

    async def _require_chain(self) -> None:
        """A node that is away is a failed read, as anywhere; one of another chain is an error."""
        try:
            await self._chain.require()
        except OtherChain:
            raise
        except ChainUnavailable as error:
            raise ReadFailed(error.message) from None

    def _save_slot(self, slot: ReadSlot, values: Sequence[Any], what: str) -> None:
        value: Any = _MISSING
        if slot.index < len(values):
            try:
                value = cast(_from_chain(values[slot.index]), slot.type)
            except CastFailed as error:
                self._did_not_fit(f"{what}, {slot.key}", error, slot.default)
        if value is _MISSING and slot.default is not None:
            value = slot.default.value
        self._save(slot.key, value, self.findings.contract_saves)

    def _did_not_fit(self, what: str, error: CastFailed, default: Default | None) -> None:
        """A value of the wrong type is missing. One out of range is an error of the rule, which
        names a type too small for what it reads, unless it says what to take instead."""
        if isinstance(error, Overflow) and default is None:
            raise HardError(f"{what}: {error.message}", code=error.code) from None
        self.findings.failures.append(f"{what}: {error.message}")

    def _save(self, key: str, value: Any, saves: dict[str, Any] | None) -> None:
        """Put a value into the environment. One that is missing makes the step invalid."""
        if value is _MISSING:
            self._names.pop(key, None)
            self.findings.softly.append(f"{key} could not be had and has no default")
            return
        self._names[key] = value
        if saves is not None:
            saves[key] = plain_of(value)

    # -- calls -------------------------------------------------------------------------------

    async def _call(self, call: ApiCall) -> None:
        answer: Any = _MISSING
        try:
            key = self._key_for(call)
            request = await evaluate(partial(request_for, call, self._names, key))
            answer = await self._services.calls.call(request)
        except (CallFailed, CelMissingName) as error:
            self.findings.failures.append(f"call {call.name}: {error.message}")
        if answer is not _MISSING:
            try:
                check_lists(answer)
            except CelLimitError as error:
                raise HardError(f"call {call.name}: {error.message}", code="limit") from None
        for extract in call.extracts:
            value = await evaluate(partial(self._extracted, extract, answer, call.name))
            if value is _MISSING and extract.default is not None:
                value = extract.default.value
            saves = self.findings.api_saves if extract.save else None
            self._save(extract.alias, value, saves)

    def _key_for(self, call: ApiCall) -> str:
        """Two calls of one step must not be taken for one by a server that knows the header."""
        one = len(self._document.calls) == 1
        return self._process.key if one else f"{self._process.key}:{call.name}"

    def _extracted(self, extract: Extract, answer: Any, call: str) -> Any:
        if answer is _MISSING:
            return _MISSING
        what = f"call {call}, {extract.alias}"
        names = {**self._names, "resp": answer}
        try:
            value = extract.value.evaluate_checked(names)
            return _scalar(value) if not extract.type else cast(value, extract.type)
        except CelLimitError as error:
            raise HardError(f"{what}: {error.message}", code="limit") from None
        except CelError as error:
            self.findings.failures.append(f"{what}: {error.message}")
        except CastFailed as error:
            self._did_not_fit(what, error, extract.default)
        return _MISSING

    # -- rules -------------------------------------------------------------------------------

    def _rules_hold(self) -> bool:
        """The session's end comes before the step's, and that before valid or not."""
        for number in self._true_rules("cancelSession"):
            raise SessionCancelled(f"rules[{number}] cancels the session")
        for number in self._true_rules("abortStep"):
            raise StepAborted(f"rules[{number}] aborts the step")
        wanted = [n for n, rule in enumerate(self._document.rules) if rule.kind == "validate"]
        holding = self._true_rules("validate")
        failed = [n for n in wanted if n not in holding]
        self.findings.rules_failed.extend(failed)
        self.findings.rules_silent.extend(n for n in failed if self._is_silent(n))
        return not self.findings.rules_failed

    def _true_rules(self, kind: RuleKind) -> list[int]:
        return [
            number
            for number, rule in enumerate(self._document.rules)
            if rule.kind == kind and self._holds(rule, number)
        ]

    def _is_silent(self, number: int) -> bool:
        return bool(self._document.rules[number].expression.missing(self._names))

    def _holds(self, rule: RuleExpression, number: int) -> bool:
        if self._is_silent(number):
            return False
        what = f"rules[{number}]"
        value = computed(lambda: rule.expression.evaluate_checked(self._names), what)
        if not isinstance(value, bool):
            raise HardError(f"{what} gives neither true nor false", code="expression")
        return value

    # -- the branch --------------------------------------------------------------------------

    async def _finish(self, valid: bool) -> Evaluated:
        work = BranchWork(self._process, self._names, self._services.clock.now())
        otherwise = work.prepared_as_far_as_possible
        if valid:
            try:
                prepared = await evaluate(partial(work.prepared, self._document.on_valid))
            except CelMissingName as error:
                self.findings.softly.append(f"onValid: {error.message}")
                valid = False
        if not valid:
            prepared = await evaluate(partial(otherwise, self._document.on_invalid))
        if prepared.call is not None and not await self._carried_out(prepared) and valid:
            valid = False  # what was done is undone by the chain; the other branch speaks
            prepared = await evaluate(partial(otherwise, self._document.on_invalid, call=False))
        return Evaluated("valid" if valid else "invalid", prepared, self.findings)

    async def _carried_out(self, prepared: PreparedBranch) -> bool:
        assert prepared.call is not None
        call = self.findings.call = replace(prepared.call, chain_id=self._chain.chain_id)
        try:
            called = self.findings.called = await self._services.executor.execute(call)
        except ExecutorUnavailable as error:
            if error.retryable:
                raise
            raise HardError(error.message, code="execution") from None
        except BadAbi as error:
            raise HardError(f"execution: {error.message}", code="abi") from None
        self._chain.seen = called.chain_id or self._chain.seen
        return called.ok


def _is_empty(value: Any) -> bool:
    """Not given: null, and texts, lists and mappings without anything in them."""
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, list | tuple | dict):
        raise CastFailed("only a single value can be saved")
    return value


def _from_chain(value: Any) -> Any:
    return "0x" + value.hex() if isinstance(value, bytes) else value
