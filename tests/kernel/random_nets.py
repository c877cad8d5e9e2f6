"""Random nets: every feature of the kernel, in combinations nobody would write by hand.

The same seed gives the same net. Edges lead forward, except in nets that may loop, so that a net
without loops ends by itself once everybody answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from anabranch.expressions.port import Constant, Expression
from anabranch.literals import Reducer
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Arc,
    Barrier,
    Branch,
    Decision,
    Fan,
    GatherRule,
    Join,
    Loop,
    Net,
    Patch,
    Retry,
    RunPolicy,
    Slot,
    Step,
    Work,
)
from anabranch.testing.random.arca import soliciting, with_room
from anabranch.testing.random.waits import waiting

from .nets import Fn, Wrong, ctx

OUTCOMES = ("ok", "alt")
GATES = ("north", "south")
Losers = Literal["kill", "drain"]


class RandomNet:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"net {seed}")
        self.loops = self.random.random() < 0.25
        self.count = self.random.randint(2, 10)
        self.names = [f"s{number}" for number in range(self.count)]
        self.works = [self.loops or self._chance(0.75) for _ in self.names]

    def net(self) -> Net:
        steps = {
            name: waiting(self.seed, soliciting(self.seed, self._step(number, name), 10))
            for number, name in enumerate(self.names)
        }
        final = None
        if self._chance(0.3):
            final = "final"
            steps[final] = Step(final, self._work(), timeout_ms=self._maybe(0.2, 300))
        return Net(
            name="random",
            dialect="test",
            fingerprint="f" * 64,
            steps=steps,
            entry=self.names[0],
            final=final,
            policy=with_room(self.seed, self._policy()),
            carries_payload=self._chance(0.5),
            workload={"base": {"a": 1}},
        )

    # -- chance --------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def _maybe(self, probability: float, value: Any) -> Any:
        return value if self._chance(probability) else None

    def _pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    # -- parts ---------------------------------------------------------------------------------

    def _policy(self) -> RunPolicy:
        return RunPolicy(
            deadline_ms=self._maybe(0.15, self.random.randint(200, 3_000)),
            no_route_is_error=self._chance(0.1),
            on_failure=self._pick("fail", "handled", "partial"),
            fail_fast=self._chance(0.15),
            held=self._pick("wait", "wait", "discard"),
            on_final_failure=self._pick("fail", "partial"),
            timeouts_have_own_status=self._chance(0.5),
        )

    def _step(self, number: int, name: str) -> Step:
        many = self.random.random()
        fan = self._fan() if many < 0.2 else None
        return Step(
            name,
            work=self._work() if many < 0.35 or self.works[number] else None,
            admission=self._admission() if self._chance(0.15) else None,
            barrier=Barrier(self._pick("reached", "all")) if self._chance(0.25) else None,
            fan=fan,
            loop=self._loop() if 0.2 <= many < 0.35 else None,
            decision=self._decision() if self._chance(0.12) else None,
            patches=self._patches(),
            branches=self._branches(number),
            timeout_ms=self._maybe(0.2, self.random.randint(5, 400)),
            on_timeout=self._pick("fail", "skip", "abort_run"),
        )

    def _work(self) -> Work:
        retry = Retry(
            attempts=self._pick(1, 1, 2, 3),
            delay_ms=self._pick(0, 10, 50),
            backoff=self._pick("constant", "linear", "exponential"),
            delay_ms_max=self._maybe(0.3, 60),
        )
        return Work(
            kind="test",
            timeout_ms=self._maybe(0.25, self.random.randint(5, 100)),
            retry=retry,
            error_aborts=self._chance(0.1),
            losses_max=self._pick(1, 20),
        )

    def _fan(self) -> Fan:
        slots = self.random.randint(0, 5)
        over: Any = [f"p{slot}" for slot in range(slots)]
        if self._chance(0.3):
            over = [{"n": slot} for slot in range(slots)]
        if self._chance(0.03):
            over = "not a list"
        rule = self._rule(max(slots, 1))
        scored = rule.select == "score"
        return Fan(
            Constant(over) if self._chance(0.97) else Wrong(),
            rule,
            window=self._maybe(0.4, self.random.randint(1, 3)),
            score=Fn(_score, "score") if scored else None,
            usable=self._maybe(0.2, Fn(lambda n: bool(n["answer"]), "answer")),
        )

    def _loop(self) -> Loop:
        """Over a list, or over a collection of which a reader has to say what is in it."""
        items = self.random.randint(0, 9)
        over: Any = self._pick(list(range(items)), {"items": items})
        if self._chance(0.03):
            over = "not a list"
        window = Constant(self._pick(1, 2, 3, 0 if self._chance(0.1) else 1))
        return Loop(
            Constant(over) if self._chance(0.97) else Wrong(),
            mode=self._pick("local", "fanout"),
            window=self._maybe(0.8, window),
            shard_size=self._pick(None, 1, 2, 3),
            fail_fast=self._chance(0.4),
            allow_partial=self._chance(0.4),
            tolerate=self._pick(0, 0, 1),
            tolerate_percent=self._pick(0.0, 0.0, 50.0),
            item_retries=self._pick(0, 0, 1, 2),
            shards_max=self._pick(1000, 1000, 3),
            keep_results=self._chance(0.8),
            reducers=self._pick({}, {"total": "sum"}, {"list": "append"}),
            queue_ttl_ms=self._maybe(0.3, self.random.randint(1, 100)),
        )

    def _rule(self, slots: int, combine: Any = None) -> GatherRule:
        return GatherRule(
            mode=self._pick("any", "quorum", "all", "best_of"),
            k=self.random.randint(1, slots),
            select=self._pick("slot", "arrival", "score"),
            order=self._pick("asc", "desc"),
            combine=combine or self._pick("one", "list", "merge", "counts"),
            losers=self._pick("kill", "drain"),
            tolerate=self._pick(0, 0, 1),
            tolerate_percent=self._pick(0.0, 0.0, 50.0),
            exclude_lost=self._chance(0.3),
            partial_on_expiry=self._chance(0.4),
            empty_closes=self._chance(0.5),
        )

    def _admission(self) -> Admission:
        gate: Expression = ctx(self._pick(*GATES)) if self._chance(0.9) else Wrong()
        rules = (AdmitRule(gate, True), AdmitRule(None, self._chance(0.3)))
        skip = "pending" if self.loops else "skip"
        return Admission(rules, self._pick("pending", "pending", "discard", skip))

    def _decision(self) -> Decision:
        when: Expression | None = self._pick(None, None, Constant(True), Constant(False), Wrong())
        on_reject = self._pick("fail", "retry", "pause")
        return Decision("go on?", self._pick((), ("alice",)), on_reject, when)

    def _patches(self) -> tuple[Patch, ...]:
        if not self._chance(0.3):
            return ()
        key: str = self._pick("total", "north", "south", "list")
        reducer: Reducer = self._pick("set", "sum", "max", "append", "merge")
        value: Any = {"merge": {"k": 1}}.get(reducer, 1)
        return (Patch(key, Constant(value), reducer),)

    # -- routes --------------------------------------------------------------------------------

    def _branches(self, number: int) -> tuple[Branch, ...]:
        if number == self.count - 1 and not self.loops:
            return ()
        wanted: list[str | None] = [*self.random.sample(["ok", "alt", "error"], 2), None]
        return tuple(self._branch(number, outcome) for outcome in wanted if self._chance(0.85))

    def _targets(self, number: int) -> list[str]:
        later = self.names[number + 1 :]
        if self.loops and (not later or self._chance(0.2)):
            later = self.names
        return later

    def _branch(self, number: int, outcome: str | None) -> Branch:
        later = self._targets(number)
        most = 3 if self.works[number] else 1
        some = 0 if self._chance(0.1) else self.random.randint(1, most)
        chosen = self.random.choices(later, k=some)
        join = self._join(later, chosen) if self._chance(0.45) else None
        mode = self._pick("inclusive", "inclusive", "exclusive")
        arcs = tuple(self._arc(target) for target in chosen)
        return Branch(outcome, mode, arcs, join, carry_payload=self._chance(0.5))

    def _arc(self, target: str) -> Arc:
        guard: Expression | None = self._pick(None, None, None, Constant(True), Constant(False))
        if self._chance(0.02):
            guard = Wrong()
        args = self._pick(None, None, Constant({"x": 1}), Constant(None))
        return Arc(target, guard, Constant([1]) if self._chance(0.02) else args)

    def _join(self, later: list[str], chosen: list[str]) -> Join:
        """Mostly over steps that can come, sometimes over any."""
        pool = chosen + later if self._chance(0.8) else self.names
        nodes = self.random.choices(pool, k=self.random.randint(1, 4))
        whens = ("any", "any", "ok", "alt")
        slots = tuple(Slot(node, self._pick(*whens)) for node in nodes)
        rule = self._rule(len(slots), self._pick("merge", "merge", "list", "counts", "one"))
        return Join(self.random.choice(later), rule, slots)


def _score(names: Mapping[str, Any]) -> Any:
    answer = names["answer"]
    return answer.get("score") if isinstance(answer, dict) else None


def random_net(seed: int) -> tuple[Net, bool]:
    """The net, and whether it may loop."""
    made = RandomNet(seed)
    return made.net(), made.loops
