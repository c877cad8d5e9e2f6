"""The place where plans are played: several sessions in one world, in virtual time.

It is the world of `play`: the real core, a store in memory, a clock that moves only when nothing
else can. Rules are evaluated for real; what they would fetch from outside comes from mocks, and a
call or a read that nobody mocked fails as one that reaches nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc137.read import read_rule
from anabranch.dialects.xrc729.words import BUDGET, OWNER, SESSION
from anabranch.errors import AnabranchError, InputError
from anabranch.expressions.cel.values import from_json
from anabranch.kernel import stimuli as s
from anabranch.net.net import Net
from anabranch.operations.read.processes import Process, processes
from anabranch.runtime.live_run import history
from anabranch.runtime.values.sealing import split
from anabranch.testing.plan.judge import Seen
from anabranch.testing.scripted.answers import Planned
from anabranch.testing.scripted.backstage import backstage
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.virtual.post import Letter
from anabranch.testing.virtual.world import JobKey, World
from anabranch.work.port import Parked, Task
from anabranch.work.rule.api import ApiRequest, CallFailed
from anabranch.work.rule.evaluate import RuleServices
from anabranch.work.rule.ledger import GasLedger
from anabranch.work.rule.patience import Patience
from anabranch.work.rule.performer import RulePerformer
from anabranch.work.rule.ports import ReadFailed, RecordedCalls
from anabranch.work.rule.texts import RuleTexts

TURNS_MAX = 100_000


class Mocks(msgspec.Struct):
    """What the outside world answers.

    `api` by address, or by its beginning: the body, or `{"status": 500}`, or `{"body": …}`.
    `reads` by `name`, `name(types)(returns)` or `0x… name`: the returned values.
    """

    api: Mapping[str, Any] = {}
    reads: Mapping[str, Any] = {}
    missing: dict[str, bool] = {}  # asked for, and not there

    async def close(self) -> None:
        """Nothing is open."""

    async def call(self, request: ApiRequest) -> Any:
        known = [key for key in self.api if request.url.startswith(key)]
        if not known:
            self.missing[f"{request.method} {request.url}"] = True
            raise CallFailed("nothing is mocked for it")
        said = self.api[max(known, key=len)]
        if isinstance(said, Mapping) and ("status" in said or "body" in said):
            status = said.get("status", 200)
            if not 200 <= int(status) < 300:
                raise CallFailed(f"HTTP status {status}")
            said = said.get("body")
        return from_json(said)

    async def read(
        self,
        *,
        to: str,
        function: str,
        args: Sequence[Any],  # noqa: ARG002 - the port's signature
        saved_types: Mapping[int, str],  # noqa: ARG002
        rpc: str | None,  # noqa: ARG002
    ) -> Sequence[Any]:
        name = function.partition("(")[0].strip()
        for key in (f"{to} {name}", f"{to.lower()} {name}", function, name):
            if key in self.reads:
                said = self.reads[key]
                return said if isinstance(said, list) else [said]
        self.missing[f"{name} of {to}"] = True
        raise ReadFailed("nothing is mocked for it")


def mocks_from(given: Any, where: str) -> Mocks:
    if not isinstance(given, Mapping) or not set(given) <= {"api", "reads"}:
        raise InputError(f"{where} has `api` and `reads`, both by name", code="plan")
    parts = [given.get("api") or {}, given.get("reads") or {}]
    if not all(isinstance(part, Mapping) for part in parts):
        raise InputError(f"{where}: `api` and `reads` are mappings", code="plan")
    return Mocks(parts[0], parts[1])


class StartedSession(msgspec.Struct, frozen=True):
    """A session that was started."""

    run: str
    owner: str
    number: int


class Stage(World):
    def __init__(self, net: Net, mocks: Mocks) -> None:
        super().__init__(net, Scripts(Script(net, {}), Script(net, {}, "decisions")))
        services = RuleServices(mocks, RecordedCalls(), mocks, self.clock)  # type: ignore[arg-type]
        self._performer = RulePerformer(
            texts=RuleTexts(None), services=services, ledger=GasLedger(), patience=Patience()
        )
        self._inputs: dict[str, dict[int, dict[str, Any]]] = {}
        self._turns = 0

    def start(
        self, net: Net, owner: str, payload: Mapping[str, Any], *, step: str, max_gas: int
    ) -> StartedSession:
        """Begin a session; raises what keeps it from beginning."""
        run = f"session-{len(self._inputs) + 1}"
        number = self.store.take_session_number(owner, run) or 0
        labels = {OWNER: owner, SESSION: str(number)} | ({BUDGET: str(max_gas)} if max_gas else {})
        shown, sealed = split(net, payload)
        self._inputs[run] = {}
        self.open_run(run, net, sealed)
        start = s.Start(run=run, input=shown, step=step or None, labels=labels)
        self.hand_over(Letter(run, start, must=True))
        self.settle()
        return StartedSession(run, owner, number)

    def plan(self, key: JobKey, task: Task, label: str) -> Planned:
        program = task.program
        if not isinstance(program, RuleProgram):
            return super().plan(key, task, label)
        given = task.inputs.get("payload")
        token = int(task.job.partition(".")[0])
        self._inputs[task.run][token] = _declared(program, given)
        answer = backstage(self._performer.perform(task))
        assert not isinstance(answer, Parked), "rules do not park"
        return Planned(answer)

    # -- time ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything that happens without time passing."""
        self.turn()
        while self.core.busy or self._due():
            self._count()
            if not self.core.busy:
                self.advance()
            self.turn()

    def pass_time(self, until: int | None = None) -> bool:
        """To the next instant at which something happens; false when nothing will by then."""
        at = self._next()
        if at is None or (until is not None and at > until):
            return False
        self._count()
        self.advance()
        self.settle()
        return True

    def _next(self) -> int | None:
        coming = [at for at in (self.post.next_at(), self.core.next_alarm()) if at is not None]
        return min(coming, default=None)

    def _due(self) -> bool:
        at = self._next()
        return at is not None and at <= self.clock.now()

    def _count(self) -> None:
        self._turns += 1
        if self._turns > TURNS_MAX:
            message = f"the plan was stopped after {TURNS_MAX:,} turns: a loop without an end?"
            raise AnabranchError(message, code="limit")

    # -- looking -------------------------------------------------------------------------------

    def seen(self, run: str, *, still: bool = False) -> Seen:
        """The session now; `still`: it is taken as it stands."""
        found = list(self.of(run).values())
        head = self.store.head(run)
        over = still or head is None or head.finished
        killed = head is not None and head.status == "cancelled"
        return Seen(found, self._inputs[run], over, killed)

    def of(self, run: str) -> dict[int, Process]:
        return processes(history(self.store.read(run), run=run))


def _declared(program: RuleProgram, payload: Any) -> dict[str, Any]:
    """The inputs as the rule sees them: declared keys, defaults where nothing was given."""
    given = payload if isinstance(payload, Mapping) else {}
    document, _ = read_rule(program.text or "")
    if document is None:
        return dict(given)
    found: dict[str, Any] = {}
    for each in document.inputs:
        value = given.get(each.name)
        if value not in (None, "", [], {}):
            found[each.name] = msgspec.to_builtins(value)
        elif each.default is not None:
            found[each.name] = each.default.value
    return found
