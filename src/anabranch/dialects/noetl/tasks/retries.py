"""`retry` of a task: the older way to say how often it is tried, as rules before its own.

    retry: true                              three executions, one second, twice that, …
    retry: 5                                 five of them
    retry: {max_attempts, initial_delay, backoff_multiplier, max_delay, retry_when, stop_when}
    retry: [{when: …, then: {max_attempts: …}}, …]        the first that matches

It is tried again while `retry_when` holds (without it: after an error) and `stop_when` does not.
When the attempts are used up the rules of its policy decide, and without any the outcome stands: a
success goes on, an error fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.names import Names
from anabranch.dialects.noetl.outcomes import DONE, EMPTY, FAILED, Given, as_result, is_response
from anabranch.dialects.noetl.tasks.durations import seconds
from anabranch.dialects.noetl.tasks.rules import BACKOFFS
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.errors import ExpressionError
from anabranch.expressions.port import Constant, Expression, Paths
from anabranch.net.program import Rule

ATTEMPTS = 3
ATTEMPTS_MAX = 1_000_000
#: Left the word of `retry`, right another that means the same.
OTHER_NAMES = {
    "max_attempts": "attempts",
    "initial_delay": "delay",
    "backoff_multiplier": "multiplier",
}
#: Repeating a call with other inputs is what rules with `jump` and collections are for.
PAGES = ("next_call", "collect", "per_iteration")


class RetryCondition(msgspec.Struct, frozen=True):
    """Whether the task is to be tried once more."""

    attempts: int
    when: Expression | None  # None: after an error
    stop: Expression | None = None

    @property
    def text(self) -> str:
        return "after an error" if self.when is None else self.when.text

    @property
    def reads(self) -> Paths | None:
        found: Paths = frozenset()
        for one in (self.when, self.stop):
            asked: Paths | None = found if one is None else getattr(one, "reads", None)
            if asked is None:
                return None
            found |= asked
        return found

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        local = names["local"]
        if local["attempt"] >= self.attempts:
            return False
        if self.stop is not None and _holds(self.stop, names):
            return False
        if self.when is None:
            return bool(local["outcome"]["status"] == "error")
        return _holds(self.when, names)


def _holds(condition: Expression, names: Mapping[str, Any]) -> bool:
    try:
        return bool(condition.evaluate(names))
    except ExpressionError:  # it asks about something this outcome does not have
        return False


def read_retry(task: Section, templates: TemplateCompiler) -> tuple[Rule, ...]:
    node = task.ask("retry")
    if node is None:
        return ()
    conditions = templates.viewed(retry_view, RETRY_NAMES)
    if isinstance(node, Items):
        found = [_listed(task, each, conditions) for each in node]
        return tuple(rule for rule in found if rule is not None)
    if isinstance(node, Fields):
        return (_rule(Section(node, f"`retry` of {task.what}", task.findings), conditions),)
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, bool):
        return (_again(ATTEMPTS, None),) if value else ()
    if isinstance(value, int):
        return (_again(task.whole("retry", ATTEMPTS, least=1, most=ATTEMPTS_MAX), None),)
    expected = "true, a number of attempts, a mapping or a list of {when, then}"
    task.findings.wrong_type(node, f"`retry` of {task.what}", expected)
    return ()


def _again(attempts: int, when: Expression | None, **more: Any) -> Rule:
    more.setdefault("delay", Constant(1.0))
    more.setdefault("backoff", "exponential")
    stop = more.pop("stop", None)
    return Rule(RetryCondition(attempts, when, stop), "retry", attempts=attempts, **more)


def _listed(task: Section, node: Node, conditions: TemplateCompiler) -> Rule | None:
    entry = task.findings.section(node, f"an entry of `retry` of {task.what}")
    if entry is None:
        return None
    when = entry.needed("when", "say after what it is tried again")
    then = entry.section("then")
    entry.require("then", "write `then: {max_attempts: 3}`")
    entry.finish()
    if when is None or then is None:
        return None
    return _rule(then, conditions, conditions.condition(when, f"`when` of {entry.what}"))


def _rule(retry: Section, conditions: TemplateCompiler, when: Expression | None = None) -> Rule:
    attempts = retry.whole(_named(retry, "max_attempts"), ATTEMPTS, least=1, most=ATTEMPTS_MAX)
    delay = seconds(retry, _named(retry, "initial_delay"), conditions, zero=True)
    longest = seconds(retry, "max_delay", conditions)
    grows = retry.number(_named(retry, "backoff_multiplier"), 2.0, least=1.0, most=1_000.0)
    backoff = retry.choice("backoff", tuple(BACKOFFS), "exponential")
    stop = retry.ask("stop_when")
    if when is None and (node := retry.ask("retry_when")) is not None:
        when = conditions.condition(node, f"`retry_when` of {retry.what}")
    if (jitter := retry.ask("jitter")) is not None and not _is_false(jitter):
        retry.ignored("jitter", "pauses are as long as they are said to be")
    hint = "write a rule that jumps back, or loop over `pages`"
    retry.not_yet(*PAGES, hint=hint)
    made = _again(
        attempts,
        when,
        stop=None if stop is None else conditions.condition(stop, f"`stop_when` of {retry.what}"),
        delay=Constant(1.0) if delay is None else delay,
        backoff=BACKOFFS[backoff],
        multiplier=grows,
        delay_max=longest,
        position=retry.position,
    )
    retry.finish()
    return made


def _named(retry: Section, name: str) -> str:
    """The name the author uses for it; both at once are one too many."""
    other = OTHER_NAMES[name]
    if name in retry and other in retry:
        retry.conflict(name, other)
        retry.ask(other)
    return other if other in retry and name not in retry else name


def _is_false(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is False


# -- what its conditions see -----------------------------------------------------------------


def _outcome(given: Given) -> Given:
    found: Given = given.get("local", EMPTY).get("outcome") or EMPTY
    return found


def _status_code(given: Given) -> Any:
    outcome = _outcome(given)
    result, error = outcome.get("result"), outcome.get("error")
    if is_response(result):
        return result["status_code"]
    return error.get("http_status") if isinstance(error, Mapping) else None


def _error(given: Given) -> Any:
    error = _outcome(given).get("error")
    if not isinstance(error, Mapping):
        return None
    return {"type": error.get("exception_type", error.get("kind")), **error}


def _response(given: Given) -> Any:
    """The body of an HTTP answer, the result of anything else."""
    result = _outcome(given).get("result")
    return as_result(result["data"] if is_response(result) else result)


def _event(given: Given) -> Given:
    """A task has no events of a step; conditions of old ask which one this would be."""
    return {"name": DONE if _outcome(given).get("status") == "ok" else FAILED}


RETRY_NAMES: Mapping[str, Callable[[Given], Any]] = {
    "event": _event,
    "status_code": _status_code,
    "error": _error,
    "response": _response,
    "page": _response,
    "data": _response,
    "result": lambda given: as_result(_outcome(given).get("result")),
    "success": lambda given: _outcome(given).get("status") == "ok",
    "attempt": lambda given: given["local"]["attempt"],
}


class RetryNames(Names):
    """The names of rules, and those that conditions of a `retry` have of old."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        make = RETRY_NAMES.get(key)
        return super().__getitem__(key) if make is None else make(self._given)


def retry_view(names: Given) -> Given:
    return RetryNames(names._given if isinstance(names, Names) else names)
