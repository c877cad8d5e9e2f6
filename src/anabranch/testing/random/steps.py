"""One random step: work, fan-out, loop, decision, gates, timing; `random_nets` wires them up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.errors import ExpressionError
from anabranch.expressions.port import Constant, Expression
from anabranch.kernel.tracker import ItemFailure, Shard, ShardReport
from anabranch.kernel.values import (
    Answer,
    ContextPatch,
    WakeRequest,
    aborted,
    cancels_run,
    failed,
    succeeded,
)
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Decision,
    Fan,
    GatherRule,
    Loop,
    Patch,
    Retry,
    Step,
    Work,
)

#: The kind of work that random nets do; the simulator answers it with `random_answer`.
RANDOM_WORK = "random"
RANDOM_RUN = "simulated"  # the run of a simulation, whose sleepers such work may wake
#: What people may write to the context of a random net; its admission gates look at it.
RANDOM_PATCHES: tuple[Mapping[str, Any], ...] = ({"open": 1}, {"open": 2}, {"open": 3})

#: The key of a collection in a random net that only a reader knows the size of.
UNREAD = "unread"

Names = Mapping[str, Any]


class PythonExpression(msgspec.Struct, frozen=True):
    """An expression written in Python."""

    text: str
    function: Callable[[Names], Any]

    def evaluate(self, names: Names) -> Any:
        try:
            return self.function(names)
        except (LookupError, TypeError, ValueError) as error:
            raise ExpressionError(f"{self.text}: {error!r}") from None


#: An expression that cannot be evaluated.
_BROKEN = PythonExpression("args.missing", lambda names: names["args"]["missing"])


#: Steps whose names end so are for workers elsewhere.
POOLED = "147"


def random_step(dice: Random, name: str) -> Step:
    """A step without routes. One that has to be a barrier or a join target stays plain."""
    many = dice.random()
    fan = random_fan(dice) if many < 0.2 else None
    loop = random_loop(dice) if 0.2 <= many < 0.35 else None
    work = random_work(dice) if many < 0.35 or dice.random() < 0.85 else None
    if work is not None and name[-1] in POOLED:
        work = replace(work, pool="far")
    decision = None
    if dice.random() < (0.3 if work is None else 0.06):
        decision = random_decision(dice)
    return Step(
        name=name,
        work=work,
        fan=fan,
        loop=loop,
        decision=decision,
        admission=random_admission(dice) if dice.random() < 0.08 else None,
        patches=random_patches(dice) if dice.random() < 0.25 else (),
        timeout_ms=dice.randint(1, 90) * 1000 if dice.random() < 0.12 else None,
        on_timeout=dice.choice(("fail", "fail", "skip", "abort_run")),
    )


def random_work(dice: Random) -> Work:
    return Work(
        kind=RANDOM_WORK,
        inputs=Constant({"n": 1}) if dice.random() < 0.3 else None,
        timeout_ms=dice.randint(1, 40) * 1000 if dice.random() < 0.2 else None,
        retry=random_retry(dice) if dice.random() < 0.5 else Retry(),
        error_aborts=dice.random() < 0.1,
        finishes_when_killed=dice.random() < 0.15,
        losses_max=dice.choice((20, 20, 20, 2, 0)),
    )


def random_retry(dice: Random) -> Retry:
    return Retry(
        attempts=dice.randint(2, 4),
        delay_ms=dice.choice((0, 0, 1, 500, 5_000)),
        backoff=dice.choice(("constant", "linear", "exponential")),
        multiplier=dice.choice((1.5, 2.0, 3.0)),
        delay_ms_max=dice.choice((None, 2_000, 20_000)),
    )


def random_fan(dice: Random) -> Fan:
    size = dice.choice((0, 1, 2, 3, 3, 4, 5))
    labels: list[Any] = [f"party-{number}" for number in range(size)]
    if dice.random() < 0.3:
        labels = [{"item": number} for number in range(size)]
    scored = dice.random() < 0.4
    return Fan(
        over=_over(dice, labels),
        rule=random_rule(dice, size, scored=scored),
        window=dice.choice((None, None, 1, 2)),
        score=PythonExpression("answer.score", _score) if scored else None,
        usable=dice.choice((None, None, None, PythonExpression("answer.n % 5", _usable))),
    )


def random_loop(dice: Random) -> Loop:
    """Any policy over a list, or over a collection that somebody has to read."""
    size = dice.choice((0, 1, 2, 3, 5, 8, 13, 21))
    unread = dice.random() < 0.4
    window = dice.choice((None, 1, 2, 3, 5, 8))
    return Loop(
        over=Constant({UNREAD: size}) if unread else _over(dice, list(range(size))),
        mode=dice.choice(("local", "fanout")),
        window=None if window is None else Constant(window),
        shard_size=dice.choice((None, 1, 1, 2, 3, 5)),
        fail_fast=dice.random() < 0.3,
        allow_partial=dice.random() < 0.4,
        tolerate=dice.choice((0, 0, 0, 1, 2)),
        tolerate_percent=dice.choice((0.0, 0.0, 25.0, 50.0)),
        item_retries=dice.choice((0, 0, 1, 2)),
        shards_max=dice.choice((10_000,) * 6 + (2, 5)),
        keep_results=dice.random() < 0.8,
        reducers={"sum": "sum", "list": "append"} if dice.random() < 0.5 else {},
        queue_ttl_ms=dice.choice((None, None, None, 0, 1_000, 20_000, 90_000)),
    )


def random_cut(dice: Random, source: Mapping[str, Any], first: int, error: float) -> Answer:
    """What the reader of an unread collection finds next; now and then how large it is."""
    if dice.random() < error / 2:
        return failed("collection", "simulated failure", retryable=dice.random() < 0.8)
    total, shards = source[UNREAD], list[list[Any]]()
    if first == 0 and dice.random() < 0.2:
        return succeeded({"shards": [], "cursor": None, "end": True, "size": total})
    for _ in range(dice.choice((0, 1, 1, 2, 4)) if first else 1):
        count = min(dice.choice((1, 1, 2, 3)), total - first)
        if count:
            shards.append([first, count, {"at": first}])
            first += count
    return succeeded({"shards": shards, "cursor": first, "end": first >= total})


def random_shard(dice: Random, shard: Shard, error: float) -> Answer:
    """A report of every item: those that fail, and the sum and list of those that do not.

    Now and then it stops at the first one that fails.
    """
    items = list(shard.only or range(shard.first, shard.first + shard.count))
    bad = {item for item in items if dice.random() < error}
    unbegun: list[int] = []
    if bad and dice.random() < 0.2:
        end = items.index(min(bad)) + 1
        items, unbegun, bad = items[:end], items[end:], {min(bad)}
    good = [item for item in items if item not in bad]
    failures = tuple(
        ItemFailure(item, str(item), "boom", "simulated failure", dice.random() < 0.8)
        for item in sorted(bad)
    )
    shared: dict[str, Any] = {"sum": sum(good), "list": good} if good else {}
    milliseconds = dice.choice((0, 1, 20, 400, 5_000))
    report = ShardReport(len(good), failures, milliseconds, shared, tuple(unbegun))
    by_index: Any = {str(item): {"item": item} for item in good}
    whole: Any = [None if item in bad else {"item": item} for item in items]
    patches = (ContextPatch("said", 1, "sum"),) if dice.random() < 0.05 else ()
    return Answer(
        status="ok",
        outcome="ok",
        result=by_index if shard.only else whole,
        patches=patches,
        shard=report,
    )


def _over(dice: Random, labels: list[Any]) -> Expression:
    if dice.random() < 0.05:
        return _BROKEN
    return Constant("no list") if dice.random() < 0.03 else Constant(labels)


def _score(names: Names) -> Any:
    """None is no score; 2 cannot be scored at all."""
    score = names["answer"]["score"]
    return score if score != 2 else names["answer"]["none"]


def _usable(names: Names) -> bool:
    return bool(names["answer"]["n"] % 5)


def random_rule(dice: Random, slots: int, *, scored: bool = False) -> GatherRule:
    """Any way to close; now and then one that cannot be met."""
    return GatherRule(
        mode=dice.choice(("any", "quorum", "quorum", "all", "all", "best_of")),
        k=dice.randint(1, max(1, slots) + (dice.random() < 0.1)),
        select="score" if scored else dice.choice(("slot", "arrival")),
        order=dice.choice(("asc", "desc")),
        combine=dice.choice(("one", "list", "merge", "counts")),
        losers=dice.choice(("kill", "drain")),
        tolerate=dice.choice((0, 0, 0, 1, 2)),
        tolerate_percent=dice.choice((0.0, 0.0, 0.0, 50.0)),
        exclude_lost=dice.random() < 0.3,
        partial_on_expiry=dice.random() < 0.4,
        empty_closes=dice.random() < 0.5,
    )


def random_decision(dice: Random) -> Decision:
    return Decision(
        ask="go on?",
        actors=dice.choice(((), (), ("ann",), ("ann", "bob"))),
        on_reject=dice.choice(("fail", "retry", "pause")),
        when=dice.choice((None, None, PythonExpression("ctx.open >= 2", _is_open(2)), _BROKEN)),
    )


def random_admission(dice: Random) -> Admission:
    need = dice.randint(1, 3)
    rules = [AdmitRule(PythonExpression(f"ctx.open >= {need}", _is_open(need)), True)]
    if dice.random() < 0.4:
        rules.append(AdmitRule(None, dice.random() < 0.5))
    return Admission(tuple(rules), dice.choice(("pending", "pending", "discard", "skip")))


def _is_open(need: int) -> Callable[[Names], bool]:
    return lambda names: bool(names["ctx"].get("open", 0) >= need)


def random_patches(dice: Random) -> tuple[Patch, ...]:
    options = (
        Patch("sum", Constant(1), "sum"),
        Patch("least", Constant(dice.randint(0, 9)), "min"),
        Patch("most", Constant(dice.randint(0, 9)), "max"),
        Patch(
            "list", PythonExpression("event.step", lambda names: names["event"]["step"]), "append"
        ),
        Patch("map", Constant({"a": 1}), "merge"),
        Patch("open", Constant(dice.randint(0, 2))),
        Patch("list", Constant(1), "sum"),  # may not fit what is there: the step fails
    )
    return tuple(dice.sample(options, dice.choice((1, 1, 2))))


def random_answer(dice: Random, error: float) -> Answer:
    """What a job of a random net reports; `error` is the share of failures."""
    if dice.random() < error:
        kind = dice.choice(("boom", "timeout", "unreachable"))
        answer = failed(kind, "simulated failure", retryable=dice.random() < 0.8)
        said = (ContextPatch("said", 1, "sum"),) if dice.random() < 0.1 else ()
        return msgspec.structs.replace(answer, patches=said)
    if dice.random() < 0.02:
        counted = (ContextPatch("said", 1, "sum"),) if dice.random() < 0.5 else ()
        return msgspec.structs.replace(aborted("simulated", "simulated abort"), patches=counted)
    if dice.random() < 0.002:
        return cancels_run("simulated", "simulated end of the run")
    score = dice.choice((None, 1, 1, 2, dice.random() * 10))
    outcome = dice.choice(("ok", "ok", "ok", "valid", "invalid"))
    patches = (ContextPatch("said", 1, "sum"),) if dice.random() < 0.1 else ()
    wait_ms = dice.randint(1, 20_000) if dice.random() < 0.1 else 0
    result: dict[str, Any] = {"n": dice.randint(0, 9), "score": score}
    if dice.random() < 0.05:
        result["text"] = "long " * 150  # travels as a ref
    answer = succeeded(result, outcome=outcome, patches=patches, wait_ms=wait_ms)
    if dice.random() < 0.1:  # for whoever sleeps there, in this run or in that of its parent
        woken = WakeRequest(RANDOM_RUN, f"s{dice.randint(1, 9)}", payload={"woken": "by a job"})
        answer = msgspec.structs.replace(answer, wakes=(woken,))
    return answer
