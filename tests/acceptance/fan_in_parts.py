"""What the model of a workflow is made of: requests, steps, and the rule for each policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

UNITS = {"D": 86_400_000, "H": 3_600_000, "M": 60_000, "S": 1_000}


def milliseconds(text: str) -> int:
    """Of `PT1M2.5S`."""
    total, number = 0.0, ""
    for letter in text.replace("P", "").replace("T", ""):
        if letter in UNITS:
            total, number = total + float(number) * UNITS[letter], ""
        else:
            number += letter
    return round(total)


@dataclass
class Request:
    """One question to one participant."""

    step: str
    target: str
    asked_at: int
    attempt: int
    status: str = "pending"
    outcome: str = ""
    answered_at: int | None = None
    value: Any = None
    chosen: bool = False
    deaf: bool = False
    order: int = 0


@dataclass
class StepRun:
    """A step of the plan, as it goes."""

    spec: dict[str, Any]
    place: int
    waits_for: set[str]
    status: str = "pending"  # pending, queued, active, deciding, or how it ended
    targets: list[str] = field(default_factory=list)
    asked: list[Request | None] = field(default_factory=list)
    open: bool = False  # a round is on
    round: int = 0
    tries: int = 0  # requests made before this round
    failures: int = 0
    timeouts: int = 0
    failed_before: int = 0  # tries of an ordinary step in earlier rounds: failed, or not accepted,
    late_before: int = 0  # and too late
    output: Any = None
    executed: bool = False
    fulfilled: bool | None = None
    code: str = ""
    begun: int = 0
    hurries: bool = False  # the deadline of the run is its time limit

    @property
    def name(self) -> str:
        return str(self.spec["step_id"])

    @property
    def fans_out(self) -> bool:
        return "fan_in" in self.spec

    @property
    def policy(self) -> str:
        return str(self.spec.get("fan_in", {}).get("policy", "any_one"))

    @property
    def timing(self) -> dict[str, Any]:
        return dict(self.spec.get("timing", {}))

    @property
    def timeout(self) -> int | None:
        return milliseconds(self.timing["timeout"]) if "timeout" in self.timing else None


def score_of(step: StepRun, request: Request) -> float | None:
    value = request.value
    score = value.get("score") if isinstance(value, dict) else None
    number = isinstance(score, int | float) and not isinstance(score, bool)
    return score if number else None


def best(step: StepRun, answers: list[Request]) -> Request:
    """The highest (or lowest) score; of equals the one that came first."""
    sign = 1 if step.spec["fan_in"].get("score_order", "desc") == "asc" else -1
    return min(answers, key=lambda r: (sign * (score_of(step, r) or 0), r.order))


@dataclass
class Count:
    """Who of a round has said what so far."""

    usable: list[Request]
    heard: list[Request]
    waiting: int
    reachable: int


def counted(step: StepRun) -> Count:
    asked = [request for request in step.asked if request is not None]
    for request in asked:
        unscored = step.policy == "best_of" and score_of(step, request) is None
        if request.outcome == "usable" and unscored:
            request.outcome = "negative"
    return Count(
        usable=[r for r in asked if r.outcome == "usable"],
        heard=[r for r in asked if r.status == "responded"],
        waiting=len(step.targets) - sum(r.status != "pending" for r in asked),
        reachable=len(step.targets) - sum(r.outcome == "unreachable" for r in asked),
    )


def answers_needed(step: StepRun, reachable: int) -> int:
    """Of a step that waits for a quorum, or for the best."""
    least: int = step.spec["fan_in"].get("min_responses", 1)
    return max(1, min(least, reachable))


def measure(step: StepRun, count: Count) -> tuple[bool, bool]:
    """Whether that is enough; and if not, whether it still can be."""
    usable, waiting = len(count.usable), count.waiting
    match step.policy:
        case "any_one":
            return usable >= 1, usable + waiting >= 1
        case "quorum":
            need = answers_needed(step, count.reachable)
            return usable >= need, usable + waiting >= need
        case "all":
            return len(count.heard) == count.reachable, True
        case _:
            need = answers_needed(step, count.reachable)
            return waiting == 0 and usable >= need, usable + waiting >= need


def output_of(step: StepRun, answers: list[Request]) -> Any:
    """What the step hands on, and whose it is."""
    chosen = answers
    if step.policy == "best_of" and step.fans_out:
        chosen = [best(step, answers)]
    elif step.policy == "any_one" or not step.fans_out:
        chosen = answers[:1]
    for request in chosen:
        request.chosen = True
    values = [request.value for request in step.asked if request in chosen]
    many = step.fans_out and step.policy in ("all", "quorum")
    return {"responses": values} if many else values[0]


def delay_of(step: StepRun, number: int) -> int | None:
    """How long to wait before the try with that number after the first; None: it is over."""
    if "retry" in step.timing:
        retry = step.timing["retry"]
        first = milliseconds(retry.get("backoff", "PT0S"))
        growth = retry.get("backoff_multiplier", 1.0) ** (number - 1)
        return int(first * growth) if number <= retry["max_attempts"] else None
    return older_delay(step, number) if step.fans_out else None


def older_delay(step: StepRun, number: int) -> int | None:
    tries = step.spec.get("max_retries", 0)
    return step.spec.get("retry_delay_ms", 0) if number <= tries else None


def accepted_delay(step: StepRun, number: int) -> int | None:
    """Of an ordinary step: `max_retries` where it has them, else `timing.retry`."""
    older = "max_retries" in step.spec
    return older_delay(step, number) if older else delay_of(step, number)


def failure_delay(step: StepRun, failures: int) -> int | None:
    """`timing.retry` alone is one budget for what failed, also where it was done and not accepted,
    and for what took too long."""
    late = 0 if "max_retries" in step.spec else step.timeouts + step.late_before
    return accepted_delay(step, failures + step.failed_before + late)


def timeout_delay(step: StepRun) -> int | None:
    failed = 0 if "max_retries" in step.spec else step.failures + step.failed_before
    return delay_of(step, step.timeouts + step.late_before + failed)


def verdict_of(step: StepRun, rule: dict[str, Any]) -> bool | None:
    """Whether the task is done; None where that cannot be told."""
    if rule["policy"] == "auto":
        return True
    match, output = rule["result_match"], step.output
    value = output.get("verdict") if isinstance(output, dict) else None
    if not isinstance(value, str):
        return None
    if value in match["fulfilled_values"]:
        return True
    return False if value in match["not_fulfilled_values"] else None
