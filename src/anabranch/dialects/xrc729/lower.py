"""From the declarations of an orchestration to a net.

Every step has one job, the evaluation of its rule, and a branch for each outcome. A join becomes a
join of the kernel: the target waits in the scope of the branch that declares it, and the spawns of
that branch are the members of a fresh one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc729.bundle import ADDRESS, Bundle, alias_of
from anabranch.dialects.xrc729.document import (
    BranchActions,
    JoinDeclaration,
    Orchestration,
    StepDeclaration,
)
from anabranch.dialects.xrc729.wake_policy import PayloadWakePolicy
from anabranch.dialects.xrc729.words import (
    BUDGET,
    DIALECT,
    OWNER,
    PRIVATE,
    RULE,
    SEALED,
    SESSION,
)
from anabranch.expressions.port import NOTHING, Paths
from anabranch.net.net import Arc, Branch, GatherRule, Join, Net, RunPolicy, Slot, Step, Work


class RuleInputs(msgspec.Struct, frozen=True):
    """What the job of a step is given: the payload of its process, and whose session it is.

    payload        the stored payload, sealed keys included
    session        its number, where its owner has one for it; "" is the run itself
    owner, budget  from the labels `owner` and `max_gas` of the run; budget 0 is no limit
    orchestration, ostcId, ostcHash   where the document came from, for receipts
    chainId        the chain it was loaded from; 0 where it comes from elsewhere
    valid_spawns, invalid_spawns      how many processes follow each outcome, for gas
    """

    valid_spawns: int = 0
    invalid_spawns: int = 0
    chain_id: int = 0
    text: str = "the payload of the process"
    reads: ClassVar[Paths] = NOTHING

    def evaluate(self, names: Mapping[str, Any]) -> dict[str, Any]:
        labels = names.get("labels") or {}
        budget = str(labels.get(BUDGET, ""))
        return {
            "payload": names["payload"],
            "owner": labels.get(OWNER, ""),
            "session": labels.get(SESSION, ""),
            "budget": int(budget) if budget.isascii() and budget.isdecimal() else 0,
            "orchestration": labels.get("registry", ""),
            "ostcId": labels.get("ostcId", ""),
            "ostcHash": labels.get("ostcHash", ""),
            "chainId": self.chain_id,
            "valid_spawns": self.valid_spawns,
            "invalid_spawns": self.invalid_spawns,
        }


def lower(
    orchestration: Orchestration,
    bundle: Bundle,
    *,
    entry: str,
    fingerprint: str,
    labels: Mapping[str, str],
    writes: Mapping[str, frozenset[str]],
) -> Net:
    """`writes` has the keys that each step puts into the payload, where its rule is known."""
    steps = {
        name: _step(step, bundle, writes.get(name, frozenset()))
        for name, step in orchestration.steps.items()
    }
    return Net(
        name=orchestration.id,
        dialect=DIALECT,
        fingerprint=fingerprint,
        steps=steps,
        entry=entry,
        policy=RunPolicy(on_failure="handled"),
        carries_payload=True,
        private=PRIVATE,
        sealed=SEALED,
        wake_policy=PayloadWakePolicy(),
        labels=labels,
    )


def _step(step: StepDeclaration, bundle: Bundle, writes: frozenset[str]) -> Step:
    following = {branch.outcome: _processes(branch) for branch in step.branches}
    chain = bundle.chain.get("chainId")
    inputs = RuleInputs(
        following.get("valid", 0),
        following.get("invalid", 0),
        chain if isinstance(chain, int) else 0,
    )
    program = program_of(step.rule, bundle)
    work = Work(
        kind=RULE,
        inputs=inputs,
        program=program,
        error_aborts=True,
        finishes_when_killed=True,
        outcomes=("valid", "invalid"),
        names_run=_names_session(program.text or ""),
    )
    branches = tuple(_branch(branch) for branch in step.branches)
    return Step(step.name, work, branches=branches, position=step.position, writes=writes)


_NAMES_OF_SESSION = re.compile(r"\[\s*(__sessionId|__pid|__iteration|pid)\s*\]")


def _names_session(text: str) -> bool:
    """Whether a rule says which session or process it runs in; as far as its text is here."""
    names = set(_NAMES_OF_SESSION.findall(text))
    return bool(names - {"pid"} if _declares_pid(text) else names)


def _declares_pid(text: str) -> bool:
    """Then `pid` is an input."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    declared = document.get("payload") if isinstance(document, dict) else None
    return isinstance(declared, dict) and "pid" in declared


def _processes(branch: BranchActions) -> int:
    return len(branch.spawns) + (branch.join is not None)


def program_of(name: str, bundle: Bundle) -> RuleProgram:
    """The rule that a step names: its address, its alias, its text, as far as they are known."""
    text, alias = bundle.rule(name), alias_of(name)
    address = alias if ADDRESS.fullmatch(alias) else (text.address if text is not None else "")
    return RuleProgram(
        address=address,
        alias="" if alias == address else alias,
        text=None if text is None else text.text,
    )


def _branch(branch: BranchActions) -> Branch:
    return Branch(
        outcome=branch.outcome,
        mode="inclusive",
        arcs=tuple(Arc(spawn.step, position=spawn.position) for spawn in branch.spawns),
        join=None if branch.join is None else _join(branch.join),
        carry_payload=True,
    )


def _join(join: JoinDeclaration) -> Join:
    rule = GatherRule(
        mode="quorum" if join.mode == "kofn" else join.mode,
        k=join.k,
        select="slot",
        combine="merge",
        losers=join.policy,
    )
    slots = tuple(Slot(producer.node, producer.when) for producer in join.producers)
    return Join(join.target, rule, slots, join.position)
