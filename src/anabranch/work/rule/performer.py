"""The kind `rule`: evaluates the rule of a step and answers valid or invalid.

The task brings `payload`, `owner`, `budget` and, for receipts and gas, where the orchestration
comes from and how many processes follow each outcome (see `dialects/xrc729/lower.py`). The answer
carries what goes over the stored payload, the wait of what follows, wake-ups and a receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.clock import Clock, SystemClock
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc137.gas import GasEstimate
from anabranch.errors import AnabranchError
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed
from anabranch.work.port import Performer, Task
from anabranch.work.rule.api import ApiCaller, ApiOptions
from anabranch.work.rule.evaluate import Evaluation, Means
from anabranch.work.rule.ledger import GasLedger
from anabranch.work.rule.ports import (
    ContractReader,
    DecryptionFailed,
    Decryptor,
    Executor,
    LogEncryptor,
    NoChain,
    RecordedCalls,
    RuleSource,
    RuleUnavailable,
)
from anabranch.work.rule.receipt import Origin, receipt, with_error, with_outcome
from anabranch.work.rule.steps import (
    Evaluated,
    Findings,
    HardError,
    Process,
    SessionCancelled,
    StepAborted,
)
from anabranch.work.rule.texts import FoundRule, RuleTexts

GAS, GAS_EXHAUSTED = "gas", "gas_exhausted"


def rule_performer(
    *,
    rules: RuleSource | None = None,
    reader: ContractReader | None = None,
    executor: Executor | None = None,
    http: ApiOptions | None = None,
    decryptor: Decryptor | None = None,
    encryptor: LogEncryptor | None = None,
    clock: Clock | None = None,
    ledger: GasLedger | None = None,
) -> Performer:
    """The performer for the kind `rule`. What is left out is absent: no rules but bundled ones,
    reads that fail softly, calls that are recorded and never sent."""
    means = Means(
        reader or NoChain(),
        executor or RecordedCalls(),
        ApiCaller(http),
        clock or SystemClock(),
    )
    return RulePerformer(RuleTexts(rules, decryptor), means, ledger or GasLedger(), encryptor)


class RulePerformer:
    def __init__(
        self,
        texts: RuleTexts,
        means: Means,
        ledger: GasLedger,
        encryptor: LogEncryptor | None = None,
    ) -> None:
        self._texts = texts
        self._means = means
        self._ledger = ledger
        self._encryptor = encryptor

    async def close(self) -> None:
        await self._means.calls.close()

    async def perform(self, task: Task) -> Answer:
        program = task.program
        if not isinstance(program, RuleProgram):
            return failed("config", "a rule job needs the rule it runs", retryable=False)
        return await _Execution(self, task, program).run()


class _Execution:
    """One task of a performer."""

    def __init__(self, performer: RulePerformer, task: Task, program: RuleProgram) -> None:
        self._texts = performer._texts
        self._means = performer._means
        self._ledger = performer._ledger
        self._encryptor = performer._encryptor
        self._task = task
        self._program = program
        self._process = Process(
            session=task.run,
            iteration=_iteration(task.job),
            step=task.step,
            owner=str(task.inputs.get("owner") or ""),
            rule=program.address,
        )
        self._origin = Origin(
            orchestration=str(task.inputs.get("orchestration") or ""),
            ostc_id=str(task.inputs.get("ostcId") or ""),
            ostc_hash=str(task.inputs.get("ostcHash") or ""),
        )

    async def run(self) -> Answer:
        try:
            text = await self._texts.text(self._program)
        except RuleUnavailable as error:
            return self._unavailable(error)
        self._origin = Origin(
            self._origin.orchestration,
            self._origin.ostc_id,
            self._origin.ostc_hash,
            text.hash,
            text.origin,
        )
        try:
            found = await self._texts.document(self._program, text)
        except (HardError, DecryptionFailed) as error:
            return self._aborted(error, Findings(), gas=0)
        return await self._within_budget(found)

    async def _within_budget(self, found: FoundRule) -> Answer:
        bill = self._texts.bill(
            found,
            _number(self._task.inputs, "valid_spawns", 1),
            _number(self._task.inputs, "invalid_spawns", 1),
        )
        run, worst = self._task.run, bill.worst_case
        ctx = self._task.names.get("ctx") or {}
        recorded = _number(ctx, GAS, 0)
        budget = _number(self._task.inputs, "budget", 0)
        gone = ctx.get(GAS_EXHAUSTED) is True
        if gone or not self._ledger.reserve(run, worst, recorded=recorded, budget=budget):
            return self._out_of_gas(worst, recorded, budget, gone)
        used = 0
        try:
            answer, used = await self._evaluated(found, bill)
        finally:
            self._ledger.settle(run, worst, used)
        return answer

    async def _evaluated(self, found: FoundRule, bill: GasEstimate) -> tuple[Answer, int]:
        given = self._task.inputs.get("payload")
        payload: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        evaluation = Evaluation(found.document, payload, self._process, self._means)
        try:
            done = await evaluation.run()
        except (HardError, StepAborted, SessionCancelled) as error:
            findings = evaluation.findings
            answer = self._aborted(error, findings, gas=bill.common, encrypted=found.encrypted)
            return answer, bill.common
        gas = bill.common + self._branch_gas(done, bill)
        record = receipt(self._process, self._origin, done.findings, gas=gas)
        sealed = await with_outcome(
            record, done, encrypted=found.encrypted, encryptor=self._encryptor
        )
        answer = Answer(
            status="ok",
            outcome=done.validity,
            result=done.overlay,
            wait_ms=done.prepared.wait_ms,
            patches=(ContextPatch(GAS, gas, "sum"),),
            record=sealed,
            wakes=done.prepared.wakes,
        )
        return answer, gas

    def _branch_gas(self, done: Evaluated, bill: GasEstimate) -> int:
        spawns = _number(self._task.inputs, f"{done.validity}_spawns", 1)
        return bill.taken(done.validity, wait_ms=done.prepared.wait_ms, spawns=spawns)

    # -- other endings -----------------------------------------------------------------------

    def _unavailable(self, error: RuleUnavailable) -> Answer:
        if error.retryable:
            return failed("rule_unavailable", error.message, retryable=True)
        return self._aborted(error, Findings(), gas=0)

    def _out_of_gas(self, worst: int, recorded: int, budget: int, gone: bool) -> Answer:
        why = (
            "the gas of this session is used up"
            if gone
            else f"the step may take {worst} gas; {recorded} of {budget} are used"
        )
        error = HardError(f"{why}; start a session with a larger maxTotalGas", code="gas")
        patch = () if gone else (ContextPatch(GAS_EXHAUSTED, True),)
        return self._aborted(error, Findings(), gas=0, also=patch)

    def _aborted(
        self,
        error: AnabranchError,
        findings: Findings,
        *,
        gas: int,
        encrypted: bool = False,
        also: tuple[ContextPatch, ...] = (),
    ) -> Answer:
        record = receipt(self._process, self._origin, findings, gas=gas)
        patches = (ContextPatch(GAS, gas, "sum"), *also) if gas else also
        return Answer(
            status="cancel_run" if isinstance(error, SessionCancelled) else "aborted",
            fault=Fault(kind=error.code, message=error.message, retryable=False),
            patches=patches,
            record=with_error(record, error, encrypted=encrypted),
        )


def _iteration(job: str) -> int:
    """Jobs are named `<token>.<slot>`, and the token is the iteration of the process."""
    token = job.partition(".")[0]
    return int(token) if token.isdecimal() else 0


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
