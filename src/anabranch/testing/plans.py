"""Plays test plans and scenarios, and reports which expectation did not hold and what came instead.

    report = play_tests({"orders.json": text})
    assert report.ok, report

Nothing outside is reached: see `plan_stage.Mocks`. Time is virtual: a wait of an hour takes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.net.net import Net
from anabranch.operations.definitions.preflight import Available, Preflight
from anabranch.operations.definitions.prepare import prepare
from anabranch.testing.plan.documents import (
    Expectations,
    Plan,
    Scenario,
    ScenarioStep,
    address_of,
    read_tests,
)
from anabranch.testing.plan.judge import LIVE, Judged, judge, statuses_of, verdict_of
from anabranch.testing.plan.stage import Mocks, Stage, StartedSession
from anabranch.testing.virtual.world import EPOCH

TIMEOUT_MS = 60_000


class Result(msgspec.Struct, frozen=True):
    """What became of one plan or scenario."""

    title: str
    kind: str  # "plan" or "scenario"
    judged: tuple[Judged, ...]
    seconds: float  # virtual
    missing: tuple[str, ...] = ()  # what nobody mocked

    @property
    def ok(self) -> bool:
        return verdict_of(self.judged) == "passed"

    @property
    def failed(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.judged if one.verdict != "passed")


class Report(msgspec.Struct, frozen=True):
    results: tuple[Result, ...] = ()

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.results)

    def __str__(self) -> str:
        lines = [line for one in self.results for line in _lines(one)]
        passed = sum(one.ok for one in self.results)
        return "\n".join([*lines, f"{passed} of {len(self.results)} passed"])


def _lines(result: Result) -> list[str]:
    mark = "✓" if result.ok else "✗"
    lines = [f"{mark} {result.kind} {result.title} ({result.seconds:g} s)"]
    for one in result.failed:
        lines.append(f"    {one.expectation}: expected: {one.expected}; instead: {one.came}")
    lines += [f"    not mocked: {one}" for one in result.missing]
    return lines


def play_tests(files: Mapping[str, str], mocks: Mocks | None = None) -> Report:
    """Every plan and scenario of the files; raises for what cannot be played at all."""
    tests = read_tests(files)
    if not tests.plans and not tests.scenarios:
        raise InputError(
            f"{', '.join(files)}: there are no plans and no scenarios to play", code="no_plans"
        )
    outside = mocks or Mocks()
    results = [_played(plan, outside) for plan in tests.plans]
    results += [_acted(scenario, outside) for scenario in tests.scenarios]
    return Report(tuple(results))


def _net(plan: Plan) -> Net:
    net = prepare(plan.text, file=plan.title).net
    Preflight(Available(chain=False)).require(net)
    if plan.start and plan.start not in net.steps:
        raise InputError(
            f"{plan.title}: there is no step {plan.start!r} to start with: {', '.join(net.steps)}",
            code="plan",
        )
    return net


def _fresh(mocks: Mocks) -> Mocks:
    return Mocks(mocks.api, mocks.reads)


# -- plans -----------------------------------------------------------------------------------------


def _played(plan: Plan, mocks: Mocks) -> Result:
    net, outside = _net(plan), _fresh(mocks)
    stage = Stage(net, outside)
    refused = _refusal(plan, plan.starter)
    if refused is not None:
        return Result(plan.title, "plan", (refused,), 0)
    begun = stage.start(
        net, address_of(plan.starter), plan.payload, step=plan.start, max_gas=plan.max_gas
    )
    judged = _judged(stage, begun, plan.expects)
    seconds = (stage.clock.now() - EPOCH) / 1000
    return Result(plan.title, "plan", tuple(judged), seconds, tuple(outside.missing))


def _refusal(plan: Plan, starter: str) -> Judged | None:
    """Owners start their own; others have to be executors."""
    if starter == plan.owner or starter in plan.executors:
        return None
    who = f"{starter} is neither the owner ({plan.owner}) nor an executor"
    return Judged("start", "failed", f"{starter} may start it", who)


def _judged(stage: Stage, begun: StartedSession, expects: Expectations) -> list[Judged]:
    """Time passes until it is decided; not where the session is expected to stand still."""
    wanted = set(expects.final_statuses)
    if wanted and wanted <= set(LIVE):
        return judge(expects, stage.seen(begun.run, still=True))
    while True:
        judged = judge(expects, stage.seen(begun.run))
        if verdict_of(judged) != "pending" or not stage.pass_time():
            break
    if verdict_of(judged) == "pending":  # nothing will change any more
        judged = judge(expects, stage.seen(begun.run, still=True))
    return judged


# -- scenarios -------------------------------------------------------------------------------------


def _acted(scenario: Scenario, mocks: Mocks) -> Result:
    nets = {key: _net(plan) for key, plan in scenario.plans.items()}
    if not nets:
        raise InputError(f"{scenario.title}: a scenario needs `plans`", code="plan")
    outside = _fresh(mocks)
    stage = Stage(next(iter(nets.values())), outside)
    acting = _Acting(scenario, nets, stage)
    judged: list[Judged] = []
    for step in scenario.steps:
        judged += acting.do(step)
        if verdict_of(judged) != "passed":
            break  # what follows counts on it
    seconds = (stage.clock.now() - EPOCH) / 1000
    return Result(scenario.title, "scenario", tuple(judged), seconds, tuple(outside.missing))


class _Acting:
    def __init__(self, scenario: Scenario, nets: Mapping[str, Net], stage: Stage) -> None:
        self._scenario = scenario
        self._nets = nets
        self._stage = stage
        self._sessions: dict[str, StartedSession] = {}

    def do(self, step: ScenarioStep) -> list[Judged]:
        match step.kind:
            case "startSession":
                return self._start(step)
            case "waitForStep":
                return self._wait(step)
            case _:
                judged = _judged(self._stage, self._session(step), step.expects)
                return [
                    Judged(f"{step.id}, {one.expectation}", one.verdict, one.expected, one.came)
                    for one in judged
                ]

    def _start(self, step: ScenarioStep) -> list[Judged]:
        given = step.given
        key = str(given.get("bundleKey") or next(iter(self._nets)))
        if key not in self._nets:
            raise self._wrong(step, f"there is no plan {key!r}: {', '.join(self._nets)}")
        plan, runtime = self._scenario.plans[key], given.get("runtime") or {}
        alias = self._alias(str(given.get("starter") or ""), plan)
        refused = _refusal(plan, alias)
        if refused is not None:
            return [refused]
        payload = {**plan.payload, **(given.get("payload") or {})}
        if "wakeUp" in runtime:
            base = payload.get("__wakeUp") or {}
            payload["__wakeUp"] = {**base, **runtime["wakeUp"]}
        expected = f"a session of {key!r} starts"
        try:
            begun = self._stage.start(
                self._nets[key],
                address_of(alias),
                self._filled(payload, step),
                step=str(runtime.get("stepId") or plan.start),
                max_gas=plan.max_gas,
            )
        except AnabranchError as error:
            if isinstance(error, InputError) and error.code == "plan":
                raise
            return [Judged(step.id, "failed", expected, error.message)]
        self._sessions[str(given.get("saveAs") or step.id)] = begun
        return [Judged(step.id, "passed", expected, "it did")]

    def _alias(self, actor: str, plan: Plan) -> str:
        return self._scenario.actors.get(actor, actor) if actor else plan.starter

    def _wait(self, step: ScenarioStep) -> list[Judged]:
        begun, given = self._session(step), step.given
        name, status = str(given.get("stepId", "")), str(given.get("status") or "done")
        until = self._stage.clock.now() + int(given.get("timeoutMs") or TIMEOUT_MS)
        expected = f"step {name} is {status}"
        while True:
            runs = [one for one in self._stage.of(begun.run).values() if one.step == name]
            if any(status in statuses_of(one) for one in runs):
                return [Judged(step.id, "passed", expected, "it was")]
            if not self._stage.pass_time(until):
                break
        came = ", ".join(one.status for one in runs) or "it did not run"
        return [Judged(step.id, "failed", f"{expected} in time", came)]

    def _session(self, step: ScenarioStep) -> StartedSession:
        name = str(step.given.get("session", ""))
        name = name.removeprefix("$session.id:")
        if name not in self._sessions:
            known = ", ".join(self._sessions) or "none was started yet"
            raise self._wrong(step, f"there is no session {name!r} ({known})")
        return self._sessions[name]

    # -- placeholders --------------------------------------------------------------------------

    def _filled(self, value: Any, step: ScenarioStep) -> Any:
        match value:
            case dict():
                return {key: self._filled(one, step) for key, one in value.items()}
            case list():
                return [self._filled(one, step) for one in value]
            case str() if value.startswith("$"):
                return self._placeholder(value, step)
        return value

    def _placeholder(self, text: str, step: ScenarioStep) -> Any:
        kind, _, name = text.partition(":")
        if kind in ("$session.id", "$session.owner"):
            if name not in self._sessions:
                raise self._wrong(step, f"{text}: no session {name!r} was started before")
            begun = self._sessions[name]
            return str(begun.number) if kind == "$session.id" else begun.owner
        if kind == "$actor.address":
            if name not in self._scenario.actors:
                raise self._wrong(step, f"{text}: there is no actor {name!r}")
            return address_of(self._scenario.actors[name])
        if kind == "$contract.address":
            key, _, alias = name.partition(":")
            plan = self._scenario.plans.get(key)
            if plan is None or alias not in plan.contracts:
                raise self._wrong(step, f"{text}: there is no such contract")
            return plan.contracts[alias]
        if kind == "${addr":
            name = name.removesuffix("}")
            for plan in self._scenario.plans.values():
                if name in plan.contracts:
                    return plan.contracts[name]
            raise self._wrong(step, f"{text}: there is no such contract")
        return text

    def _wrong(self, step: ScenarioStep, what: str) -> InputError:
        return InputError(f"{self._scenario.title}, step {step.id}: {what}", code="plan")
