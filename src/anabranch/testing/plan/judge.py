"""Whether a session came to what a plan expects: which expectation holds, and what came instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec

from anabranch.operations.read.processes import Process
from anabranch.testing.plan.documents import Alternative, Assertion, Expectation, Expectations

Verdict = Literal["passed", "failed", "pending"]
LIVE = ("waiting", "running")


class Seen(msgspec.Struct, frozen=True):
    """A session as it stands: its processes in order, what each was given, whether it is over."""

    processes: Sequence[Process]
    inputs: Mapping[int, Mapping[str, Any]]
    over: bool  # nothing of it will change any more
    killed: bool = False

    @property
    def statuses(self) -> tuple[str, ...]:
        """What the session as a whole can be called. One that ended with some processes aborted is
        both done and aborted: public plans do not say which is meant."""
        found = {one.status for one in self.processes}
        if "running" in found:
            return ("running",)
        if "waiting" in found:
            return ("waiting",)
        if self.killed or found == {"aborted"}:
            return ("aborted",)
        return ("done", "aborted") if "aborted" in found else ("done",)


class Judged(msgspec.Struct, frozen=True):
    expectation: str
    verdict: Verdict
    expected: str
    came: str


def judge(expects: Expectations, seen: Seen) -> list[Judged]:
    found = [_entry(one, seen) for one in expects.timeline]
    if expects.final_statuses:
        found.append(_final_status(expects.final_statuses, seen))
    if expects.final_step and expects.final_step.lower() != "any":
        found.append(_final_step(expects.final_step, seen))
    return found


def verdict_of(judged: Sequence[Judged]) -> Verdict:
    """One that failed decides; one that is open keeps the others waiting."""
    found = {one.verdict for one in judged}
    return "failed" if "failed" in found else "pending" if "pending" in found else "passed"


def _entry(entry: Expectation, seen: Seen) -> Judged:
    each = [_alternative(one, seen) for one in entry.alternatives]
    verdicts = [verdict for verdict, _, _ in each]
    if entry.mode == "anyOf":
        order: tuple[Verdict, ...] = ("passed", "pending", "failed")
    else:
        order = ("failed", "pending", "passed")
    verdict = next(word for word in order if word in verdicts)
    told = next((one for one in each if one[0] == verdict), each[0])
    if entry.mode == "anyOf" and verdict != "passed" and len(each) > 1:
        expected = " or ".join(expected for _, expected, _ in each)
        came = "; ".join(
            f"{one.step}: {came}"
            for one, (_, _, came) in zip(entry.alternatives, each, strict=True)
        )
        return Judged(entry.label, verdict, expected, came)
    return Judged(entry.label, verdict, told[1], told[2])


def _alternative(wanted: Alternative, seen: Seen) -> tuple[Verdict, str, str]:
    runs = [one for one in seen.processes if one.step == wanted.step]
    name = f"step {wanted.step}" + (f" #{wanted.occurrence}" if wanted.occurrence > 1 else "")
    if not wanted.exist:
        if len(runs) >= wanted.occurrence:
            return "failed", f"{name} does not run", f"it ran {_times(len(runs))}"
        return ("passed" if seen.over else "pending"), f"{name} does not run", "it did not run"
    expected = f"{name} {_wish(wanted)}"
    if len(runs) < wanted.occurrence:
        return ("failed" if seen.over else "pending"), expected, _never(wanted, runs, seen)
    return _of_process(wanted, runs[wanted.occurrence - 1], seen, expected)


def _of_process(
    wanted: Alternative, one: Process, seen: Seen, expected: str
) -> tuple[Verdict, str, str]:
    over = one.status not in LIVE
    came = f"it is {one.status}{_validity(one)}"
    later: Verdict = "failed" if over or seen.over else "pending"
    if wanted.status and wanted.status not in statuses_of(one):
        return later, expected, came
    if wanted.valid is not None and one.valid is not wanted.valid:
        return later, expected, came
    for assertion in wanted.assertions:
        place = _place(assertion, one, seen)
        if not over and not place:
            return later, expected, came
        value = place.get(assertion.field)
        if not holds(assertion, assertion.field in place, value):
            words = f"{expected}, {_PLACES[assertion.where]} {_said(assertion)}"
            shown = repr(value) if assertion.field in place else "nothing"
            return "failed", words, f"{assertion.field} is {shown}"
    if not over and wanted.status not in LIVE and not seen.over:
        return "pending", expected, came
    return "passed", expected, came


def statuses_of(one: Process) -> set[str]:
    """Every status that the process has had; each begins by waiting for its turn."""
    return {"waiting", one.status} | (set() if one.status == "waiting" else {"running"})


def _validity(one: Process) -> str:
    why = f" ({one.error.kind}: {one.error.message})" if one.error is not None else ""
    return why if one.valid is None else f", {'valid' if one.valid else 'invalid'}"


def _wish(wanted: Alternative) -> str:
    words = [wanted.status] if wanted.status else []
    if wanted.valid is not None:
        words.append("valid" if wanted.valid else "invalid")
    return f"is {', '.join(words)}" if words else "runs"


def _never(wanted: Alternative, runs: Sequence[Process], seen: Seen) -> str:
    if runs:
        return f"it ran {_times(len(runs))}"
    others = list(dict.fromkeys(one.step for one in seen.processes if one.step != wanted.step))
    return f"it did not run; {', '.join(others[:8]) or 'nothing'} did"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _final_status(wanted: Sequence[str], seen: Seen) -> Judged:
    came = " and ".join(seen.statuses)
    expected = f"the session ends {' or '.join(wanted)}"
    good = any(status in wanted for status in seen.statuses)
    settled = seen.over or (good and any(status in LIVE for status in wanted))
    verdict: Verdict = ("passed" if good else "failed") if settled else "pending"
    return Judged("finalStatuses", verdict, expected, f"it is {came}")


def _final_step(wanted: str, seen: Seen) -> Judged:
    done = sorted(
        (one for one in seen.processes if one.status == "done"),
        key=lambda one: (one.updated, one.token),
    )
    last = done[-1].step if done else "none"
    verdict: Verdict = "pending"
    if seen.over:
        verdict = "passed" if last == wanted else "failed"
    return Judged("finalStep", verdict, f"the last step is {wanted}", f"it is {last}")


# -- assertions ------------------------------------------------------------------------------------

_PLACES = {"input": "its input", "api": "its call gives", "read": "its read gives"}


def _place(assertion: Assertion, one: Process, seen: Seen) -> Mapping[str, Any]:
    receipt = one.receipt or {}
    if assertion.where == "input":
        return seen.inputs.get(one.token, {})
    found = receipt.get("apiSaves" if assertion.where == "api" else "contractSaves")
    return found if isinstance(found, Mapping) else {}


def _said(assertion: Assertion) -> str:
    if assertion.op in ("exists", "missing"):
        return f"{assertion.field} {assertion.op}"
    return f"{assertion.field} {assertion.op} {assertion.value!r}"


def holds(assertion: Assertion, there: bool, value: Any) -> bool:
    op, wanted = assertion.op, assertion.value
    if op in ("exists", "missing"):
        return there == (op == "exists")
    if not there:
        return op in ("ne", "notContains")
    if op in ("eq", "ne"):
        return _equal(value, wanted, assertion.value_type) == (op == "eq")
    if op in ("gt", "gte", "lt", "lte"):
        return _compared(op, value, wanted)
    return _texts(op, str(value), str(wanted))


def _equal(value: Any, wanted: Any, value_type: str) -> bool:
    if value == wanted and isinstance(value, bool) == isinstance(wanted, bool):
        return True
    if isinstance(value, bool) or isinstance(wanted, bool):
        return str(value).lower() == str(wanted).lower()
    left, right = _number(value), _number(wanted)
    if left is not None and right is not None:
        return left == right
    return bool(value_type) and str(value).lower() == str(wanted).lower()


def _compared(op: str, value: Any, wanted: Any) -> bool:
    left, right = _number(value), _number(wanted)
    if left is None or right is None:
        return False
    return {
        "gt": left > right,
        "gte": left >= right,
        "lt": left < right,
        "lte": left <= right,
    }[op]


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not value.isascii():
        return None  # digits of other scripts are no numbers in JSON
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _texts(op: str, value: str, wanted: str) -> bool:
    match op:
        case "contains":
            return wanted in value
        case "notContains":
            return wanted not in value
        case "startsWith":
            return value.startswith(wanted)
        case "endsWith":
            return value.endswith(wanted)
        case _:
            return re.search(wanted, value) is not None
