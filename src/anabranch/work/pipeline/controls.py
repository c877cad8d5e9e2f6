"""What the rules after a task say in numbers, and the faults a pipeline itself can come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from anabranch.errors import ExpressionError, InputError
from anabranch.expressions.port import Expression
from anabranch.kernel.jobs import INTERNAL_DELAY_MS
from anabranch.kernel.values import INTERNAL, Answer, Fault, failed
from anabranch.net.program import Rule, TaskSpec
from anabranch.work.faults import OUT_OF_FILES, out_of_files
from anabranch.work.kinds import inputs
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.secrets.redaction import brief

DELAY_SECONDS = 1.0
ATTEMPTS_MAX = 1_000_000
_CONTINUE = Rule(None, "continue")
_FAIL = Rule(None, "fail")


def rule_for(spec: TaskSpec, names: Mapping[str, Any], fine: bool) -> Rule:
    """The first rule that matches, or what is meant where none does."""
    matching = []
    for rule in spec.rules:
        if not _matches(rule, names):
            continue
        if not spec.inclusive:
            return rule
        matching.append(rule)
    if matching:
        return together(matching)
    return _CONTINUE if fine or spec.on_unmatched_error == "continue" else _FAIL


def rule_after(
    spec: TaskSpec, names: Mapping[str, Any], attempt: int, *, fine: bool
) -> tuple[Rule, bool]:
    """The rule that decides after this attempt, and whether there is another one."""
    rule = rule_for(spec, names, fine)
    return rule, rule.do == "retry" and attempt < attempts_of(rule, names)


def _matches(rule: Rule, names: Mapping[str, Any]) -> bool:
    try:
        return rule.when is None or bool(rule.when.evaluate(names))
    except ExpressionError:
        return False  # it asks about something this outcome does not have


def together(rules: list[Rule]) -> Rule:
    """All of them in one: each writes, in order, and the first that leads away decides. `else` is
    for when no other matches."""
    chosen = [rule for rule in rules if rule.when is not None] or rules
    decides = next((rule for rule in chosen if rule.do != "continue"), chosen[0])
    last = next((rule.set_prev for rule in reversed(chosen) if rule.set_prev is not None), None)
    return replace(
        decides,
        set_ctx=tuple(write for rule in chosen for write in rule.set_ctx),
        set_iter=tuple(write for rule in chosen for write in rule.set_iter),
        set_shared=tuple(write for rule in chosen for write in rule.set_shared),
        set_prev=last,
    )


def attempts_of(rule: Rule, names: Mapping[str, Any]) -> int:
    """How often the task may be executed in all."""
    given = rule.attempts
    if isinstance(given, int):
        return given
    found = given.evaluate(names)
    if isinstance(found, str) and found.isascii() and found.strip().isdecimal():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= ATTEMPTS_MAX:
        raise InputError(f"attempts must be a whole number from 1 up, not {brief(found)}")
    return found


def delay_seconds(
    rule: Rule, names: Mapping[str, Any], retry: int, fault: Fault | None = None
) -> float:
    """How long to wait before the retry with that number, after this fault."""
    delay = _delay_seconds(rule, names, retry)
    internal = fault is not None and fault.kind == INTERNAL
    return max(delay, INTERNAL_DELAY_MS / 1000) if internal else delay


def _delay_seconds(rule: Rule, names: Mapping[str, Any], retry: int) -> float:
    base = DELAY_SECONDS
    if rule.delay is not None:
        base = _evaluate_time(inputs.delay, rule.delay, names, "delay")
    match rule.backoff:
        case "none" | "constant":
            return base
        case "linear":
            return base * retry
        case "exponential":
            grown = float(base * rule.multiplier ** min(retry - 1, 40))
            if rule.delay_max is None:
                return grown
            return min(grown, _evaluate_time(inputs.seconds, rule.delay_max, names, "max_delay"))


def limit_seconds(spec: TaskSpec, names: Mapping[str, Any]) -> float | None:
    """How long one attempt of the task may take."""
    if spec.timeout is None:
        return None if spec.timeout_ms is None else spec.timeout_ms / 1000
    return _evaluate_time(inputs.seconds, spec.timeout, names, f"`timeout` of task {spec.label}")


def _evaluate_time(
    read: Callable[[Any, str], float], time: Expression, names: Mapping[str, Any], what: str
) -> float:
    """In seconds. What gives no duration is a mistake of whoever wrote the template."""
    try:
        return read(time.evaluate(names), what)
    except InputError as error:
        raise InputError(error.message, code="config") from None


async def carried_out(performer: Performer, task: Task) -> Answer | Parked:
    """The answer, also where the performer has none because it is broken."""
    now = getattr(performer, "perform_now", None)
    if now is not None:
        return done_now(now, task)
    try:
        return _checked(await performer.perform(task), task)
    except Exception as defect:
        return _broken(defect, task)


def done_now(now: Callable[[Task], object], task: Task) -> Answer | Parked:
    """The same, for work that never waits."""
    try:
        return _checked(now(task), task)
    except Exception as defect:
        return _broken(defect, task)


def _checked(answer: object, task: Task) -> Answer | Parked:
    if isinstance(answer, Answer | Parked):
        return answer
    message = f"the {task.kind} performer gave a {type(answer).__name__} for an answer"
    return failed("defect", message, retryable=False)


def _broken(defect: Exception, task: Task) -> Answer:
    if isinstance(defect, TimeoutError):  # a performer's own; the task's limit is a cancel
        return failed("timeout", str(defect) or f"the {task.kind} work ran out of time")
    if out_of_files(defect):
        return failed(OUT_OF_FILES, f"the {task.kind} work could not open a file: {defect}")
    return failed("defect", f"the {task.kind} performer failed: {defect!r}", retryable=False)


def not_enough(spec: TaskSpec, attempts: int) -> Fault:
    message = f"task {spec.label}: {attempts} attempts were not enough"
    return Fault("retries", message, "", False)


def told_to_fail(spec: TaskSpec, rule: Rule | None = None) -> Fault:
    if rule is not None and rule.asserts:
        return Fault("assertion", f"task {spec.label}: {rule.asserts}", "", False)
    return Fault("policy", f"task {spec.label}: a rule said fail", "", False)


def endless(rule: Rule, jumps: int) -> Fault:
    message = f"more than {jumps:,} jumps, the last to task {rule.to}: this looks endless"
    return Fault("jump_limit", message, "", False)


def cannot_wait(spec: TaskSpec) -> Fault:
    """Inside a hook or an inner loop nothing could go on when the answer has come."""
    message = (
        f"task {spec.label} ({spec.kind}) waits for an answer from outside inside a hook or an "
        "inner loop; put it into the pipeline itself, or into a loop of its own step"
    )
    return Fault("config", message, "", False)
