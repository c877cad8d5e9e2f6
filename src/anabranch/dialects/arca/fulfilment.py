"""`fulfillment`: what makes the task of a step count as done, and what happens when it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from anabranch.dialects.arca.requests import Inputs, StepInput
from anabranch.dialects.arca.timing import Timing, read_timing
from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Scalar, kind_of, plain
from anabranch.errors import ExpressionError
from anabranch.expressions.pointer import MISSING, Path, parse_path, same
from anabranch.expressions.port import NOTHING, Constant, Paths
from anabranch.expressions.references import References, compile_references
from anabranch.net.net import Decision, Retry, Work

Policy = Literal["auto", "output_match", "external_decision", "requester_confirmation", "never"]
POLICIES: tuple[Policy, ...] = (
    "auto",
    "output_match",
    "external_decision",
    "requester_confirmation",
    "never",
)
NOT_FULFILLED: tuple[Literal["pause", "fail", "retry", "continue"], ...] = (
    "pause",
    "fail",
    "retry",
    "continue",
)
ERROR: tuple[Literal["fail", "pause", "retry"], ...] = ("fail", "pause", "retry")
SOURCES = ("capability", "operator", "requester")
ENVELOPE = "arca-task-fulfillment-decision.v1"
#: How often a decision source is asked that could not be reached or read, with `on_error: retry`.
SOURCE_RETRY = Retry(attempts=3, delay_ms=1_000, backoff="exponential")

SOURCE_TIMEOUT_MS = 60_000  # where its `timing` says nothing else

AUTO = Decision(policy="auto", when=Constant(True))


class Match(msgspec.Struct, frozen=True):
    """`result_match`: which values at a path mean yes, and which mean no."""

    path: Path
    yes: tuple[Any, ...]
    no: tuple[Any, ...]

    def judge(self, value: Any) -> bool:
        found = self.path.find(value)
        if found is MISSING:
            raise ExpressionError(f"there is nothing at {self.path.text}")
        if any(same(found, wanted) for wanted in self.yes):
            return True
        if any(same(found, wanted) for wanted in self.no):
            return False
        raise ExpressionError(
            f"{found!r} at {self.path.text} is neither a fulfilled nor a not fulfilled value"
        )


class OutputMatch(msgspec.Struct, frozen=True):
    """Judges the output of the step itself."""

    match: Match
    reads: ClassVar[Paths] = NOTHING

    @property
    def text(self) -> str:
        return f"output matches {self.match.path.text}"

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return self.match.judge(names["answer"])


class ReplyMatch(msgspec.Struct, frozen=True):
    """Judges the reply of the declared source: its envelope, or a dull shape by the matcher."""

    match: Match | None
    reads: ClassVar[Paths] = NOTHING

    @property
    def text(self) -> str:
        return "the reply of the decision source"

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        reply = names["reply"]
        if isinstance(reply, Mapping) and reply.get("schema") == ENVELOPE:
            return _from_envelope(reply)
        if self.match is None:
            raise ExpressionError(
                f"the reply is no {ENVELOPE} and the definition has no `result_match`"
            )
        return {"fulfilled": self.match.judge(reply), "evidence": reply}


def _from_envelope(reply: Mapping[str, Any]) -> dict[str, Any]:
    status = reply.get("fulfillment/status")
    if status not in ("fulfilled", "not_fulfilled"):
        raise ExpressionError(f"`fulfillment/status` is {status!r}")
    return {
        "fulfilled": status == "fulfilled",
        "reason": str(reply.get("reason") or ""),
        "evidence": reply.get("evidence"),
    }


def read_fulfilment(section: Section | None, step_id: str) -> Decision:
    """The decision of a step; without a block its work is its task."""
    if section is None:
        return AUTO
    policy = section.choice("policy", POLICIES, "auto")
    source = section.section("decision_source")
    match = _match(section.section("result_match"))
    rejected = section.choice("on_not_fulfilled", NOT_FULFILLED, "pause")
    error = section.choice("on_error", ERROR, "fail")
    if section.sound:
        _check(section, policy, "decision_source" in section, "result_match" in section)
    section.finish()
    more = {"on_reject": rejected, "on_error": error, "policy": policy}
    match policy:
        case "auto":
            return AUTO
        case "output_match":
            when = OutputMatch(match) if match is not None else None
            return Decision(when=when, **more)  # type: ignore[arg-type]
        case "external_decision":
            return _external(source, match, step_id, more)
        case "requester_confirmation":
            return _by_people(source, step_id, more)
        case "never":
            ask = f"step {step_id} is never fulfilled by itself: complete it or give it up"
            return Decision(ask, **{**more, "on_reject": "fail"})  # type: ignore[arg-type]


def _check(section: Section, policy: Policy, source: bool, match: bool) -> None:
    if policy == "output_match" and not match:
        section.missing("result_match", "say which values of the output mean that it is done")
    if policy == "external_decision" and not source:
        section.missing("decision_source", "name the capability that decides")
    if match and policy not in ("output_match", "external_decision"):
        _ignored(section, "result_match", policy)
    if source and policy in ("auto", "output_match", "never"):
        _ignored(section, "decision_source", policy)


def _ignored(section: Section, key: str, policy: Policy) -> None:
    message = f"`{key}` has no effect with the policy {policy!r}"
    section.warn(key, "ignored-key", message, "remove it")


def _external(
    source: Section | None, match: Match | None, step_id: str, more: Mapping[str, Any]
) -> Decision:
    """Somebody else decides: a capability by a job, people at a gate."""
    if source is None:
        return Decision(**more)
    kind = source.choice("kind", SOURCES, "capability")
    if kind != "capability":
        return _by_people(source, step_id, more)
    timing = read_timing(source.section("timing"))
    capability = source.string("capability_id")
    if not capability:
        source.missing("capability_id", "name the capability that decides")
    given = _references(source, "input")
    source.finish()
    work = Work(
        kind="capability",
        inputs=Inputs(
            StepInput(given), {"capability_id": capability, "step_id": step_id}, own=step_id
        ),
        retry=timing.retry or (SOURCE_RETRY if more["on_error"] == "retry" else Retry()),
        timeout_ms=timing.timeout_ms or SOURCE_TIMEOUT_MS,
    )
    return Decision(
        f"capability {capability}",
        when=ReplyMatch(match),
        source=work,
        on_timeout=_then(source, timing),
        **more,
    )


def _by_people(source: Section | None, step_id: str, more: Mapping[str, Any]) -> Decision:
    """Somebody says so at a gate, perhaps within a time limit."""
    ask = f"is the task of step {step_id} fulfilled?"
    if source is None:
        return Decision(ask, **more)
    source.choice("kind", SOURCES, "requester")
    actors = _texts(source, "actors")
    said = source.string("ask", ask)
    given = source.section("timing")
    timing = read_timing(given)
    if given is not None and timing.retry is not None:
        message = "`retry` has no effect where people decide: they are asked once"
        given.warn("retry", "ignored-key", message, "remove it")
    source.finish()
    return Decision(
        said, actors, timeout_ms=timing.timeout_ms, on_timeout=_then(source, timing), **more
    )


def _then(source: Section, timing: Timing) -> Literal["", "fail", "skip", "abort_run"]:
    """`on_timeout` where it is written; else a source that is late is an error like any other."""
    given = source.node.get("timing")
    return timing.on_timeout if isinstance(given, Fields) and "on_timeout" in given else ""


def _match(section: Section | None) -> Match | None:
    if section is None:
        return None
    node = section.text("path")
    if node is None:
        section.missing("path", "write the pointer to the value, such as /status")
    yes, no = _values(section, "fulfilled_values"), _values(section, "not_fulfilled_values")
    if not yes:
        section.missing("fulfilled_values", "list the values that mean yes, such as [true]")
    section.finish()
    if node is None:
        return None
    try:
        return Match(parse_path(str(node.value)), yes, no)
    except ExpressionError as error:
        section.findings.add(node.position, "bad-template", str(error))
        return None


def _values(section: Section, key: str) -> tuple[Any, ...]:
    items = section.items(key)
    return () if items is None else tuple(plain(item) for item in items)


def _texts(section: Section, key: str) -> tuple[str, ...]:
    node = section.ask(key)
    items = node if isinstance(node, Items) else ()
    if node is not None and not isinstance(node, Items):
        section.findings.wrong_type(node, f"`{key}` of {section.what}", "a list of names")
    found = []
    for item in items:
        if isinstance(item, Scalar) and isinstance(item.value, str) and item.value:
            found.append(item.value)
        else:
            message = f"`{key}` of {section.what} has {kind_of(item)} in it"
            section.findings.add(item.position, "wrong-type", message, "write names as text")
    return tuple(found)


def _references(section: Section, key: str) -> References:
    node = section.ask(key)
    try:
        return compile_references(plain(node) if node is not None else {})
    except ExpressionError as error:
        at = node.position if node is not None else section.position
        section.findings.add(at, "bad-template", str(error))
        return References({}, "{}")
