"""The branch of a rule: what it says, calls, and asks of others, all worked out before any of it
is done. Nothing after the execution can fail, so no call is made for a step that then ends badly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anabranch.dialects.xrc137.casts import CastFailed, cast, is_address
from anabranch.dialects.xrc137.document import (
    Execution,
    GrantDeclaration,
    RuleBranch,
    TypedValue,
    Wait,
    WakeUp,
)
from anabranch.dialects.xrc137.limits import EXPIRE_DAYS, WAIT_SECONDS
from anabranch.expressions.cel.values import (
    WHOLE,
    CelError,
    CelLimitError,
    CelMissingName,
    plain_of,
    text_of,
)
from anabranch.expressions.placeholders import Value
from anabranch.kernel.values import WakeRequest
from anabranch.work.rule.ports import ContractCall
from anabranch.work.rule.steps import HardError, PreparedBranch, RuleProcess

_WEI_MAX = 2**256 - 1


def typed(given: TypedValue, names: Mapping[str, Any], what: str) -> Any:
    """The value of `{type, value, default}`; integers plain, as an ABI wants them."""
    try:
        value = cast(computed(lambda: given.value.evaluate(names), what), given.type)
    except CelMissingName:
        if given.default is None:
            raise
        value = given.default.value
    except CastFailed as error:
        if given.default is None:
            raise HardError(f"{what}: {error.message}", code=error.code) from None
        value = given.default.value
    return int(value) if type(value) in WHOLE else value


def computed(work: Callable[[], Any], what: str) -> Any:
    """What an expression comes to; what went wrong in it is an error of the rule."""
    try:
        return work()
    except CelMissingName:
        raise
    except CelLimitError as error:
        raise HardError(f"{what}: {error.message}", code="limit") from None
    except CelError as error:
        raise HardError(f"{what}: {error.message}", code="expression") from None


class BranchWork:
    def __init__(self, process: RuleProcess, names: Mapping[str, Any], now: int) -> None:
        self._process = process
        self._names = names
        self._now = now

    def prepared(self, branch: RuleBranch) -> PreparedBranch:
        """Everything, or `CelMissingName` when a key is missing."""
        output = {key: self._plain(value, key) for key, value in branch.payload.items()}
        call = None if branch.execution is None else self._call(branch.execution)
        wait_ms = self._wait_ms(branch.wait)
        return PreparedBranch(
            branch, output, call, wait_ms, self._wakes(branch, output), self._grants(branch)
        )

    def prepared_as_far_as_possible(
        self, branch: RuleBranch, *, call: bool = True
    ) -> PreparedBranch:
        """What cannot be computed for a missing key is left out; the rest goes on."""
        output: dict[str, Any] = {}
        dropped: list[str] = []
        for key, value in branch.payload.items():
            try:
                output[key] = self._plain(value, key)
            except CelMissingName:
                dropped.append(key)
        execution = None
        if call and branch.execution is not None:
            try:
                execution = self._call(branch.execution)
            except CelMissingName:
                dropped.append("execution")
        try:
            wait_ms = self._wait_ms(branch.wait)
        except CelMissingName:
            wait_ms = 0
            dropped.append("wait")
        wakes, grants = self._wakes(branch, output), self._grants(branch)
        return PreparedBranch(branch, output, execution, wait_ms, wakes, grants, tuple(dropped))

    def _plain(self, value: Value, key: str) -> Any:
        return computed(lambda: plain_of(value.evaluate(self._names)), f"payload {key}")

    # -- execution ---------------------------------------------------------------------------

    def _call(self, execution: Execution) -> ContractCall | None:
        to = computed(lambda: execution.to.evaluate(self._names), "`to` of the execution")
        if to == "":
            return None  # a branch that only speaks
        if not is_address(to):
            raise HardError("`to` of the execution is no address", code="bad_to")
        args = tuple(
            typed(arg, self._names, f"args[{n}] of the execution")
            for n, arg in enumerate(execution.args)
        )
        return ContractCall(
            to=to,
            function=execution.function,
            args=args,
            value=self._wei(execution.value),
            gas_limit=execution.gas_limit,
            key=self._process.key,
            own_key=self._process.own_key if self._process.first_key else "",
        )

    def _wei(self, given: TypedValue | None) -> int:
        if given is None:
            return 0
        value = typed(given, self._names, "`value` of the execution")
        try:
            wei = int(cast(value, "int256" if isinstance(value, int) and value < 0 else "uint256"))
        except CastFailed as error:
            message = f"`value` of the execution: {error.message}"
            raise HardError(message, code=error.code) from None
        if not 0 <= wei <= _WEI_MAX:
            raise HardError("`value` of the execution is negative", code="overflow")
        return wei

    # -- what comes next ---------------------------------------------------------------------

    def _wait_ms(self, wait: Wait | None) -> int:
        if wait is None:
            return 0
        value = computed(lambda: wait.value.evaluate(self._names), "the wait")
        try:
            number = int(cast(value, "int64"))
        except CastFailed as error:
            raise HardError(f"the wait: {error.message}", code=error.code) from None
        if wait.unit == "until":
            milliseconds = max(0, number - self._now)
        else:
            milliseconds = number * (1000 if wait.unit == "seconds" else 1)
        if not 0 <= milliseconds <= WAIT_SECONDS * 1000:
            message = f"the wait must be from 0 to {WAIT_SECONDS} seconds"
            raise HardError(message, code="limit")
        return milliseconds

    def _wakes(self, branch: RuleBranch, output: Mapping[str, Any]) -> tuple[WakeRequest, ...]:
        """A request that cannot be worked out is none."""
        found = []
        for wake_up in branch.wake_ups:
            try:
                found.append(self._wake(wake_up, output))
            except CelMissingName:
                continue
        return tuple(found)

    def _wake(self, wake_up: WakeUp, output: Mapping[str, Any]) -> WakeRequest:
        own = {key: self._plain(value, key) for key, value in wake_up.payload.items()}
        both = {**output, **own}
        return WakeRequest(
            run=self._text(wake_up.session, "sessionId"),
            step=self._text(wake_up.step, "stepId"),
            owner=self._process.owner,
            rule=self._process.rule,
            payload={key: value for key, value in both.items() if not key.startswith("_")},
            runner=self._text(wake_up.runner, "runner"),
        )

    def _text(self, value: Value, key: str) -> str:
        return text_of(computed(partial(value.evaluate, self._names), f"`{key}` of a wake-up"))

    def _grants(self, branch: RuleBranch) -> tuple[Mapping[str, Any], ...]:
        found = []
        for grant in branch.grants:
            try:
                address = computed(partial(grant.address.evaluate, self._names), "a grant")
            except CelMissingName:
                continue
            if not is_address(address):
                raise HardError("the address of a grant is no address", code="bad_to")
            days = self._days(grant, branch.log_expire_days)
            found.append({"address": address, "rights": grant.rights, "expireDays": days})
        return tuple(found)

    def _days(self, grant: GrantDeclaration, otherwise: int) -> int:
        """A grant whose days cannot be had lasts as long as the log it is for."""
        if grant.expire_days is None:
            return otherwise
        try:
            value = computed(partial(grant.expire_days.evaluate, self._names), "`expireDays`")
            days = int(cast(value, "int64"))
        except CelMissingName:
            return otherwise
        except CastFailed as error:
            raise HardError(f"`expireDays` of a grant: {error.message}", code=error.code) from None
        if not 1 <= days <= EXPIRE_DAYS:
            message = f"`expireDays` of a grant must be from 1 to {EXPIRE_DAYS}"
            raise HardError(message, code="limit")
        return days
