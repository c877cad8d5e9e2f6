"""What the tests of rules share: a world in memory, and one call that carries out a document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.clock import ManualClock
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.kernel.values import Answer
from anabranch.work.port import Task
from anabranch.work.rule.performer import RulePerformer, rule_performer
from anabranch.work.rule.ports import CallOutcome, ContractCall, ReadFailed

from ..support import run

OWNER = "0x" + "0a" * 20
RULE = "0x" + "0b" * 20
TOKEN = "0x" + "0c" * 20
SENT = CallOutcome(ok=True, tx="0xbeef")
NOW = 1_700_000_000_000


@dataclass
class Chain:
    """Answers reads from a table and notes calls."""

    values: dict[str, Any] = field(default_factory=dict)
    outcome: CallOutcome | Exception = SENT
    reads: list[dict[str, Any]] = field(default_factory=list)
    calls: list[ContractCall] = field(default_factory=list)

    async def read(
        self,
        *,
        to: str,
        function: str,
        args: Sequence[Any],
        saved_types: Mapping[int, str],
        rpc: str | None,
    ) -> Sequence[Any]:
        self.reads.append({"to": to, "args": list(args), "types": dict(saved_types), "rpc": rpc})
        found = self.values.get(function, ReadFailed("reverted"))
        if isinstance(found, Exception):
            raise found
        return list(found)

    async def execute(self, call: ContractCall) -> CallOutcome:
        self.calls.append(call)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def rule_task(document: Any, payload: Mapping[str, Any] | None = None, **more: Any) -> Task:
    text = document if isinstance(document, str) else json.dumps({"payload": {}, **document})
    inputs = {"payload": dict(payload or {}), "owner": OWNER, "budget": 0}
    name, job = more.pop("run", "17"), more.pop("job", "3.0")
    return Task(
        run=name,
        step=more.pop("step", "Check"),
        job=job,
        attempt=1,
        key=more.pop("key", f"{name}/{job}"),
        kind="rule",
        names={"ctx": more.pop("ctx", {})},
        program=more.pop("program", RuleProgram(RULE, "Check", text)),
        inputs=inputs | more,
    )


def performer(chain: Chain | None = None, **more: Any) -> RulePerformer:
    made = rule_performer(
        reader=chain, executor=chain, clock=more.pop("clock", ManualClock(NOW)), **more
    )
    assert isinstance(made, RulePerformer)
    return made


def carried_out(
    document: Any, payload: Mapping[str, Any] | None = None, chain: Chain | None = None, **more: Any
) -> Answer:
    """The answer of one step."""

    async def whole() -> Answer:
        worker = performer(chain)
        try:
            return await worker.perform(rule_task(document, payload, **more))
        finally:
            await worker.close()

    return run(whole())
