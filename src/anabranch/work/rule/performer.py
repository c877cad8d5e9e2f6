"""The kind `rule`: evaluates the rule of a step and answers valid or invalid.

The task brings `payload`, `owner`, `budget` and, for receipts and gas, where the orchestration
comes from and how many processes follow each outcome (see `dialects/xrc729/lower.py`). The answer
carries what goes over the stored payload, the wait of what follows, wake-ups and a receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock, SystemClock
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc137.gas import GasEstimate
from anabranch.errors import AnabranchError
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, postponed
from anabranch.work.port import Performer, Task
from anabranch.work.rule.api import ApiCaller, ApiOptions
from anabranch.work.rule.chain_use import ChainUse
from anabranch.work.rule.evaluate import Evaluation, RuleServices
from anabranch.work.rule.ledger import GasLedger
from anabranch.work.rule.patience import Patience
from anabranch.work.rule.ports import (
    ChainIdentity,
    ChainUnavailable,
    ContractExecutor,
    ContractReader,
    DecryptionFailed,
    Decryptor,
    ExecutorUnavailable,
    LogEncryptor,
    NoChain,
    RecordedCalls,
    RuleSource,
)
from anabranch.work.rule.receipt import Origin, receipt, with_error, with_outcome
from anabranch.work.rule.steps import (
    Evaluated,
    HardError,
    RuleFindings,
    RuleProcess,
    SessionCancelled,
    StepAborted,
)
from anabranch.work.rule.texts import FoundRule, RuleTexts

GAS, GAS_EXHAUSTED = "gas", "gas_exhausted"
ERROR_LETTERS = 500
CHAIN = "chain_id"  # of a session that was not loaded from a chain: the one that it first used


def rule_performer(
    *,
    rules: RuleSource | None = None,
    reader: ContractReader | None = None,
    executor: ContractExecutor | None = None,
    http: ApiOptions | None = None,
    decryptor: Decryptor | None = None,
    encryptor: LogEncryptor | None = None,
    clock: Clock | None = None,
    ledger: GasLedger | None = None,
    identity: ChainIdentity | None = None,
    patience: Patience | None = None,
) -> Performer:
    """The performer for the kind `rule`. What is left out is absent: no rules but bundled ones,
    reads that fail softly, calls that are recorded and never sent, chains that are not compared."""
    services = RuleServices(
        reader or NoChain(),
        executor or RecordedCalls(),
        ApiCaller(http),
        clock or SystemClock(),
    )
    return RulePerformer(
        texts=RuleTexts(rules, decryptor),
        services=services,
        ledger=ledger or GasLedger(),
        patience=patience or Patience(),
        encryptor=encryptor,
        identity=identity,
    )


class RulePerformer(msgspec.Struct, frozen=True, kw_only=True):
    texts: RuleTexts
    services: RuleServices
    ledger: GasLedger
    patience: Patience
    encryptor: LogEncryptor | None = None
    identity: ChainIdentity | None = None

    async def close(self) -> None:
        await self.services.calls.close()

    async def perform(self, task: Task) -> Answer:
        program = task.program
        if not isinstance(program, RuleProgram):
            return failed("config", "a rule job needs the rule it runs", retryable=False)
        return await _Execution(self, task, program).run()


class _Execution:
    """One task of a performer."""

    def __init__(self, performer: RulePerformer, task: Task, program: RuleProgram) -> None:
        self._texts = performer.texts
        self._services = performer.services
        self._ledger = performer.ledger
        self._encryptor = performer.encryptor
        self._patience = performer.patience
        self._task = task
        self._program = program
        self._chain = ChainUse(performer.identity, self._chain_known())
        self._process = RuleProcess(
            session=str(task.inputs.get("session") or task.run),
            iteration=_iteration(task.job),
            step=task.step,
            owner=str(task.inputs.get("owner") or ""),
            rule=program.address,
            run=task.run,
            first_key=_first_key(task),
        )
        self._origin = Origin(
            orchestration=str(task.inputs.get("orchestration") or ""),
            ostc_id=str(task.inputs.get("ostcId") or ""),
            ostc_hash=str(task.inputs.get("ostcHash") or ""),
        )

    async def run(self) -> Answer:
        try:
            if self._program.text is None:
                await self._chain.require()
            text = await self._texts.text(self._program)
        except ChainUnavailable as error:
            return self._put_off(error) or self._given_up(error, RuleFindings(), gas=0)
        self._origin = replace(self._origin, rule_hash=text.hash, rule_origin=text.origin)
        try:
            found = await self._texts.document(self._program, text)
        except (HardError, DecryptionFailed) as error:
            return self._aborted(error, RuleFindings(), gas=0)
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
        evaluation = Evaluation(found.document, payload, self._process, self._services, self._chain)
        try:
            done = await evaluation.run()
        except (HardError, StepAborted, SessionCancelled) as error:
            findings = evaluation.findings
            answer = self._aborted(error, findings, gas=bill.common, encrypted=found.encrypted)
            return answer, bill.common
        except ChainUnavailable as error:
            if (later := self._put_off(error)) is not None:
                return later, 0
            findings = evaluation.findings
            answer = self._given_up(error, findings, gas=bill.common, encrypted=found.encrypted)
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
            patches=(ContextPatch(GAS, gas, "sum"), *self._chain_learnt()),
            record=sealed,
            wakes=done.prepared.wakes,
            by_error=_error_of(done, encrypted=found.encrypted),
        )
        return answer, gas

    def _branch_gas(self, done: Evaluated, bill: GasEstimate) -> int:
        spawns = _number(self._task.inputs, f"{done.validity}_spawns", 1)
        return bill.taken(done.validity, wait_ms=done.prepared.wait_ms, spawns=spawns)

    # -- other endings -----------------------------------------------------------------------

    def _put_off(self, error: ChainUnavailable) -> Answer | None:
        """The step is tried again later, as long as patience lasts; None when it does not."""
        if not error.retryable:
            return None
        pause = self._patience.pause_ms(self._task.postponed, self._task.postponed_ms)
        return postponed(error.code, error.message, pause) if pause else None

    def _given_up(
        self, error: ChainUnavailable, findings: RuleFindings, *, gas: int, encrypted: bool = False
    ) -> Answer:
        message = error.message
        if error.retryable:
            times, seconds = self._task.postponed + 1, self._task.postponed_ms / 1000
            tries = f"{times} tries" if times > 1 else "one try"
            message += f"; given up after {tries} in {seconds:g} s (setting chain_patience_seconds)"
        code = "execution" if isinstance(error, ExecutorUnavailable) else error.code
        return self._aborted(HardError(message, code=code), findings, gas=gas, encrypted=encrypted)

    def _chain_known(self) -> int:
        """The chain that the session was loaded from, or that an earlier step of it used."""
        ctx = self._task.names.get("ctx") or {}
        return _number(self._task.inputs, "chainId", 0) or _number(ctx, CHAIN, 0)

    def _chain_learnt(self) -> tuple[ContextPatch, ...]:
        use = self._chain
        return (ContextPatch(CHAIN, use.seen),) if use.seen and not use.known else ()

    def _out_of_gas(self, worst: int, recorded: int, budget: int, gone: bool) -> Answer:
        why = (
            "the gas of this session is used up"
            if gone
            else f"the step may take {worst} gas; {recorded} of {budget} are used"
        )
        error = HardError(f"{why}; start a session with a larger maxTotalGas", code="gas")
        patch = () if gone else (ContextPatch(GAS_EXHAUSTED, True),)
        return self._aborted(error, RuleFindings(), gas=0, also=patch)

    def _aborted(
        self,
        error: AnabranchError,
        findings: RuleFindings,
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


def _error_of(done: Evaluated, *, encrypted: bool) -> str:
    """Why a step is invalid although no rule of it said so; of an encrypted rule only that."""
    findings, called = done.findings, done.findings.called
    if done.validity == "valid" or len(findings.rules_failed) > len(findings.rules_silent):
        return ""
    if findings.inputs_missing:
        said = f"inputs are missing: {', '.join(findings.inputs_missing)}"
    elif findings.softly:
        said = "; ".join([*findings.softly, *findings.failures])
    elif called is not None and not called.ok:
        said = f"its call failed: {called.error}" if called.error else "its call failed"
    else:
        return ""
    return "an error in an encrypted rule" if encrypted else said[:ERROR_LETTERS]


def _iteration(job: str) -> int:
    """Jobs are named `<token>.<slot>`, and the token is the iteration of the process."""
    token = job.partition(".")[0]
    return int(token) if token.isdecimal() else 0


def _first_key(task: Task) -> str:
    """In a session that redrives another: the key that the step had there, as rules write keys."""
    if task.key.startswith(f"{task.run}/"):
        return ""
    run, _, job = task.key.rpartition("/")
    return f"{run}:{_iteration(job)}" if "." in job else task.key


def _number(values: Mapping[str, Any], key: str, default: int) -> int:
    value = values.get(key, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
