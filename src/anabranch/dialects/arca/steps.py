"""One step of a plan, read and lowered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.dialects.arca.fulfilment import read_fulfilment
from anabranch.dialects.arca.orders import OrderTerms, check_terms, read_terms
from anabranch.dialects.arca.requests import Inputs, StepInput
from anabranch.dialects.arca.targets import (
    FanIn,
    Target,
    choice_of,
    fan_of,
    order_of,
    read_fan_in,
    read_references,
    read_target,
)
from anabranch.dialects.arca.timing import (
    FAIL_POLICY,
    Timing,
    read_older_retry,
    read_timing,
    refuse_seconds,
)
from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, kind_of, plain
from anabranch.expressions.references import References
from anabranch.net.net import Decision, Fan, Retry, Step, Work
from anabranch.net.problems import Position

STEP_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ON_FAILURE: Mapping[str, Literal["abort_run", "skip", "pause"]] = {
    "abort_workflow": "abort_run",
    "skip": "skip",
    "pause": "pause",
}


class PlanStep(msgspec.Struct, frozen=True):
    """A step as it was read; `named` says where its dependencies are written."""

    step_id: str
    position: Position
    service_type: str
    given: References
    input_from: tuple[str, ...]
    depends_on: tuple[str, ...]
    named: Mapping[str, Position]
    target: Target | None
    fan_in: FanIn | None
    timing: Timing
    older: Retry | None
    fail_policy: str
    decision: Decision
    reads_at: tuple[Position, Position]  # where its input stands, and its fulfilment
    terms: OrderTerms = OrderTerms()
    description: str = ""
    is_new: bool = False  # it uses what proposal 033 brought
    sound: bool = True  # all of it could be read

    def lowered(self) -> Step:
        """The step without its routes, which are the plan's affair."""
        step_input = StepInput(self.given, self.input_from)
        facts: dict[str, Any] = {"step_id": self.step_id, "service_type": self.service_type}
        if self.timing.timeout_ms is not None:
            facts["timeout_ms"] = self.timing.timeout_ms
        if self._is_looked_into:
            facts["whole"] = True
        on_failure = _ON_FAILURE[self.fail_policy]
        common: dict[str, Any] = {
            "decision": self.decision,
            "on_timeout": self.timing.on_timeout,
            "on_failure": on_failure,
            "description": self.description,
            "position": self.position,
        }
        if self.fan_in is None or self.target is None:
            inputs = Inputs(step_input, facts, "target", terms=self.terms)
            return Step(self.step_id, self._request(inputs), fan=self._provider(), **common)
        inputs = Inputs(step_input, facts, "target", filter=self.target.filter)
        rounds = self.timing.retry or self.older or Retry()
        return Step(
            self.step_id,
            Work(kind="dispatch", inputs=inputs),
            fan=fan_of(self.target, self.fan_in, self.service_type, rounds),
            timeout_ms=self.timing.timeout_ms,
            **common,
        )

    def _provider(self) -> Fan:
        """The one that an ordinary step asks: that of its offer, or the one it chooses."""
        again = self.older or self.timing.retry or Retry()
        if self.terms.offer is not None:
            return order_of(self.terms.offer, self.service_type, again)
        return choice_of(self.target, self.service_type, again)

    @property
    def _is_looked_into(self) -> bool:
        """Its answers are scored or matched, which cannot be done with a ref to a large one."""
        scored = self.fan_in is not None and self.fan_in.is_scored
        return scored or self.decision.policy == "output_match"

    def _request(self, inputs: Inputs) -> Work:
        """Of one provider, which stays the same however often it is asked."""
        return Work(
            kind="request",
            inputs=inputs,
            timeout_ms=self.timing.timeout_ms,
            retry=self.older or self.timing.retry or Retry(),
            retry_timeouts=self.timing.retry or Retry(),
            one_budget=self.older is None,
        )


def read_step(node: Fields, findings: Findings) -> PlanStep | None:
    step_id = _step_id(node, findings)
    section = Section(node, f"step {step_id!r}" if step_id else "a step", findings)
    section.ask("step_id")
    refuse_seconds(section)
    target = read_target(section.section("target"))
    fan_in = read_fan_in(_fan_in(section))
    if fan_in is not None:
        section.require("target", "say whom it asks: `fan_in` needs a `target`")
    named: dict[str, Position] = {}
    input_from = _names(section, "input_from", named)
    depends_on = _names(section, "depends_on", named)
    timing = read_timing(section.section("timing"))
    older = read_older_retry(section)
    decision = read_fulfilment(section.section("fulfillment"), step_id)
    new = ("target", "fan_in", "timing", "fulfillment")
    step = PlanStep(
        step_id=step_id,
        position=node.position,
        service_type=_service_type(section, target),
        given=read_references(section, "request_input") or References({}, "{}"),
        input_from=input_from,
        depends_on=tuple(dict.fromkeys([*depends_on, *input_from])),
        named=named,
        target=target,
        fan_in=fan_in,
        timing=timing,
        older=older,
        fail_policy=section.choice("fail_policy", FAIL_POLICY, "abort_workflow"),
        decision=decision,
        reads_at=(_place(section, "request_input"), _place(section, "fulfillment")),
        terms=read_terms(section),
        description=_said(section),
        is_new=any(key in section for key in new),
        sound=section.sound,
    )
    check_terms(section)
    if section.sound:
        _check_budgets(section, step)
    section.finish()
    return step if step_id else None


def _said(section: Section) -> str:
    """What a person reads: the longer text, where there are both."""
    label, description = section.string("label"), section.string("description")
    return description or label


def _place(section: Section, key: str) -> Position:
    return section.key_position(key) if key in section else section.position


def _step_id(node: Fields, findings: Findings) -> str:
    named = node.get("step_id")
    if named is None:
        findings.add(node.position, "missing-key", "a step has no `step_id`", "give it one")
        return ""
    if not _can_be_called(named):
        message = f"a step cannot be called {kind_of(named)}"
        hint = "use up to 128 letters, digits and . _ : -"
        findings.add(named.position, "bad-name", message, hint)
        return ""
    return str(plain(named))


def _can_be_called(named: Node) -> bool:
    if not isinstance(named, Scalar) or isinstance(named.value, bool):
        return False
    return isinstance(named.value, str | int) and bool(STEP_ID.fullmatch(str(named.value)))


def _fan_in(section: Section) -> Section | None:
    """`fan_in: {}` counts: its presence is what makes a fan-out."""
    return section.section("fan_in")


def _service_type(section: Section, target: Target | None) -> str:
    given = section.string("service_type")
    if given or (target is not None and target.task_type):
        return given or (target.task_type if target is not None else "")
    if target is None and "target" in section:
        return ""  # it may be there, where nobody can read it
    section.missing("service_type", "name the service that it needs, such as text/summarise")
    return ""


def _names(section: Section, key: str, named: dict[str, Position]) -> tuple[str, ...]:
    """Step ids: one as text, or a list of them."""
    node = section.ask(key)
    if node is None:
        return ()
    found = []
    for item in node.items if isinstance(node, Items) else (node,):
        if isinstance(item, Scalar) and isinstance(item.value, str) and item.value:
            named.setdefault(item.value, item.position)
            found.append(item.value)
        else:
            section.findings.wrong_type(item, f"`{key}` of {section.what}", "a step id")
    return tuple(dict.fromkeys(found))


def _check_budgets(section: Section, step: PlanStep) -> None:
    """Say what has no effect, rather than let somebody wait for it."""
    if step.fan_in is not None and step.older is not None and step.timing.retry is not None:
        older = "max_retries" if "max_retries" in section else "retry_delay_ms"
        message = "a fan-out with `timing.retry` does not use `max_retries`"
        section.warn(older, "ignored-key", message, "keep `timing.retry`")
    if _is_without_timeout(step):
        message = "`max_retries` is for failures, and `timing.retry` for a `timeout` it has not"
        hint = "keep one of them, or add `timing.timeout`"
        section.warn("timing", "ignored-key", message, hint)
    decision = step.decision
    if decision.on_reject == "retry" and decision.policy in ("output_match", "external_decision"):
        fans_out = step.fan_in is not None
        rounds = step.timing.retry or step.older if fans_out else step.older or step.timing.retry
        if rounds is None or rounds.attempts < 2:
            message = f"{section.what} is to be tried again when not fulfilled, and has no tries"
            section.warn("fulfillment", "unmeetable-policy", message, "add `timing.retry`")


def _is_without_timeout(step: PlanStep) -> bool:
    """It has a budget for each of two things, and only one of them can happen."""
    both = step.older is not None and step.timing.retry is not None
    return step.fan_in is None and both and step.timing.timeout_ms is None
