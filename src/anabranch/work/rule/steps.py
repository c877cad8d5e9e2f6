"""What the evaluation of a rule works with: who it is for, what may go wrong, what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.dialects.xrc137.document import RuleBranch
from anabranch.errors import AnabranchError
from anabranch.expressions.cel.values import UInt, Uint256
from anabranch.kernel.values import WakeRequest
from anabranch.work.rule.ports import CallOutcome, ContractCall

Validity = Literal["valid", "invalid"]
PRIVATE = "__"  # keys that are shown nowhere


class RuleProcess(msgspec.Struct, frozen=True):
    """The process a rule is evaluated for."""

    session: str
    iteration: int
    step: str
    owner: str = ""
    rule: str = ""  # the address of its rule
    run: str = ""  # the run that the session is; sessions of two owners may have one number
    first_key: str = ""  # of a session that redrives another: the key of the same step there

    @property
    def pid(self) -> str:
        return f"{self.session}:{self.iteration}"

    @property
    def own_key(self) -> str:
        return f"{self.run or self.session}:{self.iteration}"

    @property
    def key(self) -> str:
        """The idempotency key of whatever the step does outside: no other step has it, but the
        same one where its session is redriven."""
        return self.first_key or self.own_key

    def gives(self) -> dict[str, Any]:
        """Names that declared inputs may replace."""
        return {"from": self.owner, "pid": self.pid}

    def insists(self) -> dict[str, Any]:
        """Names that nothing replaces."""
        number = self.session.isascii() and self.session.isdecimal() and len(self.session) < 78
        return {
            "__sessionId": Uint256(int(self.session)) if number else self.session,
            "__pid": self.pid,
            "__stepId": self.step,
            "__iteration": UInt(self.iteration),
        }


class HardError(AnabranchError):
    """The process ends as aborted. `code` is the class in the receipt."""


class StepAborted(AnabranchError):
    """An `abortStep` rule holds."""

    code = "abort_step"


class SessionCancelled(AnabranchError):
    """A `cancelSession` rule holds."""

    code = "cancel_session"


class RuleFindings(msgspec.Struct):
    """What is known so far; also what a receipt says about a step that did not get through."""

    inputs_missing: list[str] = []
    failures: list[str] = []  # reads and calls that gave nothing
    rules_failed: list[int] = []
    rules_silent: list[int] = []  # those of them that read what is missing, and so said nothing
    softly: list[str] = []  # why it cannot be valid, beside the rules
    contract_saves: dict[str, Any] = {}
    api_saves: dict[str, Any] = {}
    call: ContractCall | None = None
    called: CallOutcome | None = None


class PreparedBranch(msgspec.Struct, frozen=True):
    """A branch with everything worked out, and nothing done yet."""

    branch: RuleBranch
    output: Mapping[str, Any]
    call: ContractCall | None
    wait_ms: int
    wakes: tuple[WakeRequest, ...]
    grants: tuple[Mapping[str, Any], ...]
    dropped: tuple[str, ...] = ()  # outputs of `onInvalid` that could not be computed


class Evaluated(msgspec.Struct, frozen=True):
    """A step that got to its end."""

    validity: Validity
    prepared: PreparedBranch
    findings: RuleFindings

    @property
    def overlay(self) -> dict[str, Any]:
        """What goes over the stored payload, weakest first."""
        saved = self.findings.contract_saves | self.findings.api_saves
        return {**saved, **self.prepared.output}
