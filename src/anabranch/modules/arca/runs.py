"""Runs at the surface of Arca: started, looked at, paused, ended, confirmed.

The node serves them as `/v1/enact/arca/…`. What an operator decides is recorded with his name; a
module may look at runs and start them, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import Mover, explain
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.market.node.parameters import Parameter
from anabranch.modules.arca.engine import ArcaEngine
from anabranch.modules.arca.host_runs import CLOSED_RUNS, HostRuns
from anabranch.modules.arca.listing import listed
from anabranch.modules.arca.order_waits import of_orders
from anabranch.modules.arca.starting import Started, Starter
from anabranch.modules.kit.host import HostRefused, HostUnavailable
from anabranch.modules.kit.module import MessageHandler
from anabranch.net.problems import Problem
from anabranch.operations.read.waiting import Waiting, in_words
from anabranch.operations.runs.verbs import decision
from anabranch.runtime.messages.codec import Sayable

Actor = Annotated[str, msgspec.Meta(max_length=256)]
Reason = Annotated[str, msgspec.Meta(max_length=4096)]
#: Makes a definition of a template: (template id, parameters).
Materialise = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
#: The newest state of a run, as the host is shown it.
Look = Callable[[str], dict[str, Any]]


class StartRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A definition, or a template with its parameters. Without `start` the definition that the
    template comes to is answered, and nothing is begun."""

    definition: Any = None
    template_id: str | None = None
    parameters: dict[str, Any] = {}
    input: dict[str, Any] = {}
    run_id: str | None = None
    start: bool = True


class Say(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    actor: Actor = ""
    reason: Reason = ""


class Confirm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fulfilled: bool
    actor: Actor = ""
    reason: Reason = ""
    evidence: Any = None


class RunsPart:
    """A part of the module Arca."""

    def __init__(
        self,
        engine: ArcaEngine,
        starter: Starter,
        runs: HostRuns,
        look: Look,
        materialise: Materialise | None = None,
    ) -> None:
        self._engine = engine
        self._starter = starter
        self._host = runs
        self._look = look
        self.materialise = materialise

    def endpoints(self) -> Sequence[Endpoint]:
        one = "/v1/arca/runs/{run}"
        rows: list[tuple[str, str, Any, str, dict[str, Any]]] = [
            ("POST", "/v1/arca/runs", self._start, "Start a run", {"body": StartRun}),
            ("GET", "/v1/arca/runs", self._list, "Runs, newest first",
             {"query": ("status", "limit", "before"), "parameters": _LIST}),
            ("GET", one, self._show, "One run with its steps", {}),
            ("GET", f"{one}/dispatches", self._dispatches, "Who was asked, and what came of it",
             {}),
            ("GET", f"{one}/explain", self._explain, "What a run waits for", {}),
            ("POST", f"{one}/pause", self._pause, "Begin nothing new", {"body": Say | None}),
            ("POST", f"{one}/resume", self._resume, "Go on", {"body": Say | None}),
            ("POST", f"{one}/cancel", self._cancel, "End a run", {"body": Say | None}),
            ("POST", f"{one}/steps/{{step}}/confirm", self._confirm,
             "Say whether the task of a step is fulfilled", {"body": Confirm}),
        ]  # fmt: skip
        return [
            Endpoint(
                method=method, path=path, scopes=("operator",), handler=handler, summary=summary,
                **more,
            )
            for method, path, handler, summary, more in rows
        ]  # fmt: skip

    def local_routes(self) -> Sequence[str]:
        return [f"{row.method} {row.path.removeprefix('/v1/')}" for row in self.endpoints()]

    def messages(self) -> Mapping[str, MessageHandler]:
        return {}

    async def start(self) -> None:
        """The engine is opened by the module."""

    async def close(self) -> None:
        """And closed by it."""

    # -- starting ----------------------------------------------------------------------------

    async def start_run(
        self, definition: Any, given: Mapping[str, Any] | None = None, run: str | None = None
    ) -> str:
        """The id of the run. Raises `NodeError` with all problems of a definition."""
        return (await self._begun(definition, given or {}, run)).run

    async def _start(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, StartRun)
        if (wanted.definition is None) == (wanted.template_id is None):
            raise InputError("give either `definition` or `template_id`", code="schema")
        definition = wanted.definition
        if wanted.template_id is not None:
            definition = await self._materialised(wanted.template_id, wanted.parameters)
            if not wanted.start:
                return Answer(body={"definition": definition})
        elif not wanted.start or wanted.parameters:
            raise InputError("`start` and `parameters` go with `template_id`", code="schema")
        begun = await self._begun(definition, wanted.input, wanted.run_id)
        return Answer(status=201 if begun.new else 200, body=await self._document(begun.run))

    async def _materialised(
        self, template_id: str, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if self.materialise is None:
            raise NotFound(f"there is no template {template_id[:200]!r}")
        try:
            return await self.materialise(template_id, parameters)
        except DefinitionError as error:
            raise refused_definition(error.problems) from None

    async def _begun(self, definition: Any, given: Mapping[str, Any], run: str | None) -> Started:
        try:
            return await self._starter.start(definition, given, run)
        except DefinitionError as error:
            raise refused_definition(error.problems) from None

    # -- looking -----------------------------------------------------------------------------

    async def _list(self, call: Call) -> Answer:
        return Answer(body=listed(self._engine.store, call.query))

    async def _show(self, call: Call) -> Answer:
        return Answer(body=await self._document(call.params["run"]))

    async def _document(self, run: str) -> dict[str, Any]:
        """As it stands. A run that has ended is shown as the host keeps it: with its orders."""
        known = self._look(run) if self._engine.loop.known(run) else None
        if known is not None and known["status"] not in CLOSED_RUNS:
            return known
        try:
            found = await self._host.find(run)
        except HostUnavailable:
            found = None
        if found is not None and (known is None or found["status"] in CLOSED_RUNS):
            return found
        if known is None:
            raise NotFound(f"there is no run {run[:200]!r}")
        return known

    def _known(self, call: Call) -> str:
        run = call.params["run"]
        if not self._engine.loop.known(run):
            raise NotFound(f"there is no run {run[:200]!r}")
        return run

    async def _dispatches(self, call: Call) -> Answer:
        found = self._engine.read.dispatches(self._known(call))
        return Answer(body={"items": [one.inspection() for one in found]})

    async def _explain(self, call: Call) -> Answer:
        run = self._known(call)
        head = self._engine.read.find(run)
        net, state = self._engine.read.net(head), self._engine.read.state_of(head)
        waiting = [
            Waiting(
                **msgspec.structs.asdict(one)
                | {"movers": tuple(_moved(mover, one.step) for mover in one.movers)}
            )
            for one in explain(net, state)
        ]
        shown = self._look(run)
        waiting = of_orders(waiting, await self._open_orders(shown))
        return Answer(
            body={"run_id": run, "status": shown["status"], "waiting": msgspec.to_builtins(waiting)}
        )

    async def _open_orders(self, shown: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """The executions of steps that wait for theirs; none where the host cannot be asked."""
        found: dict[str, Mapping[str, Any]] = {}
        for step in shown["steps"]:
            if step["status"] != "awaiting_execution" or not step.get("execution_id"):
                continue
            try:
                execution = await self._host.execution(step["execution_id"])
            except (HostUnavailable, HostRefused):
                continue
            if execution is not None:
                found[step["step_id"]] = execution
        return found

    # -- what operators do -------------------------------------------------------------------

    async def _pause(self, call: Call) -> Answer:
        said = _said(call)
        return await self._told(call, s.Pause(_actor(call, said.actor), said.reason))

    async def _resume(self, call: Call) -> Answer:
        return await self._told(call, s.Resume(_actor(call, _said(call).actor)))

    async def _cancel(self, call: Call) -> Answer:
        said = _said(call)
        return await self._told(call, s.Cancel(_actor(call, said.actor), said.reason))

    async def _confirm(self, call: Call) -> Answer:
        said = msgspec.convert(call.body, Confirm)
        verdict = "fulfil" if said.fulfilled else "reject"
        actor = _actor(call, said.actor)
        step = call.params["step"]
        return await self._told(call, decision(step, verdict, actor, said.reason, said.evidence))

    async def _told(self, call: Call, stimulus: Sayable) -> Answer:
        if call.caller.module:
            raise NodeError(403, "forbidden", "a module decides nothing about runs; operators do")
        run = self._known(call)
        await self._engine.verbs.send(run, stimulus)
        return Answer(body=self._look(run))


_LIST: Mapping[str, Parameter] = {
    "workflow_id": Parameter(summary="runs of this workflow alone"),
}


def refused_definition(problems: Sequence[Problem]) -> NodeError:
    """400 with everything that is wrong with a definition."""
    listed_problems = [
        {
            "code": one.code,
            "line": one.position.line,
            "column": one.position.column,
            "message": one.message,
            "hint": one.hint,
        }
        for one in problems
    ]
    said = "; ".join(f"line {one.position.line}: {one.message}" for one in problems[:5])
    return NodeError(400, "definition", said, more={"problems": listed_problems})


def _said(call: Call) -> Say:
    return Say() if call.body is None else msgspec.convert(call.body, Say)


def _actor(call: Call, named: str) -> str:
    return named.strip() or call.caller.actor or "operator"


def _moved(mover: Mover, step: str) -> str:
    """In the words of the commands for a node."""
    if mover.verb == "decide":
        reject = " --reject" if "reject" in mover.arguments[1:] else ""
        return f"anabranch arca confirm {mover.target} {step}{reject}"
    if mover.verb == "resume":
        return f"anabranch arca resume {mover.target}"
    return in_words(mover)
