"""Random workflow definitions with random behaviour, and what the engine makes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer
from anabranch.operations.read.dispatches import dispatches_of
from anabranch.operations.read.snapshots import snapshot_of
from anabranch.runtime.live_run import history
from anabranch.runtime.values.payloads import resolve
from anabranch.testing.play import RUN, Theatre
from anabranch.testing.scripted.answers import after, error, never, ok, stubborn, unreachable
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.simulated.chaos import Chaos
from anabranch.testing.simulated.faults import Faults
from anabranch.testing.simulated.parties import RUN as SIMULATED
from anabranch.testing.virtual.world import EPOCH, JobKey

from .fan_in_model import Behaviour, Definition, Model

VERDICTS = ("good", "good", "good", "bad", "odd", 1)
POLICIES = ("any_one", "all", "quorum", "best_of")


@dataclass
class Case:
    definition: Definition
    behaviours: dict[tuple[str, str], list[Behaviour]]
    found: dict[str, list[list[str]]]

    def script(self) -> dict[str, Any]:
        entries: dict[str, Any] = {
            f"{step}/{target}": [scripted(does) for does in entries]
            for (step, target), entries in self.behaviours.items()
            if step not in self.found or any(target in names for names in self.found[step])
        }
        for step, lists in self.found.items():
            entries[f"find-{step}"] = [ok(names) for names in lists]
        return entries


def scripted(does: Behaviour) -> Any:
    match does["does"]:
        case "answers":
            said: Any = ok(does["value"])
        case "refuses":
            said = ok(does["value"])  # what it says is a no, whoever reads it
        case "talks nonsense":
            said = ok(None) if does["value"] is None else error("garbage", "not JSON")
        case "is away":
            said = unreachable()
        case _:
            return never()
    said = after(does["after"] / 1000, said)
    return stubborn(said) if does.get("deaf") else said


#: Answers that cannot be used, however good they look.
NOS: tuple[dict[str, Any], ...] = (
    {"status": "no_offer_available"},
    {"status": "error"},
    {"status": "rejected-invalid-request", "score": 99, "verdict": "good"},
    {"status": "offer", "score": 99, "verdict": "good", "error": {"code": "sold_out"}},
)

# -- what may be -------------------------------------------------------------------------------


class Cases:
    """The case of a seed. `calm` ones come to the same whatever the order of things is."""

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        self.dice = Random(f"case {seed}")
        self.calm = calm
        self.odd = 0
        self.behaviours: dict[tuple[str, str], list[Behaviour]] = {}
        self.found: dict[str, list[list[str]]] = {}

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def make(self) -> Case:
        names = [f"s{number}" for number in range(self.dice.randint(1, 6))]
        steps = [self.step(name, names[:place]) for place, name in enumerate(names)]
        definition: Definition = {"workflow_id": "random", "plan": {"steps": steps}}
        if self.chance(0.6):
            definition["max_parallel_steps"] = self.dice.randint(1, 4)
        if self.chance(0.25) and not self.calm:
            definition["deadline"] = self.span(2, 90)
        return Case(definition, self.behaviours, self.found)

    def span(self, least: int, most: int) -> str:
        """Of some seconds; odd milliseconds keep two limits from falling on one instant."""
        return f"PT{self.dice.randint(least, most)}.{self.dice.randint(1, 999):03}S"

    def step(self, name: str, before: list[str]) -> dict[str, Any]:
        spec: dict[str, Any] = {"step_id": name, "service_type": "test/random"}
        if before and self.chance(0.7):
            most = min(len(before), 3)
            spec["depends_on"] = self.dice.sample(before, self.dice.randint(1, most))
        fans_out = self.chance(0.6)
        spec["target"] = self.target(name, fans_out)
        if fans_out:
            spec["fan_in"] = self.fan_in()
        timing = self.timing()
        if timing:
            spec["timing"] = timing
        if self.chance(0.3):
            spec["max_retries"] = self.dice.randint(0, 2)
            spec["retry_delay_ms"] = self.dice.choice((0, self.dice.randint(1, 9_999)))
        if self.chance(0.6):
            words = ("abort_workflow", "skip", "skip", "skip" if self.calm else "pause")
            spec["fail_policy"] = self.dice.choice(words)
        if self.chance(0.3):
            spec["fulfillment"] = self.fulfilment()
        return spec

    def target(self, name: str, fans_out: bool) -> dict[str, Any]:
        people = [f"p{number}" for number in range(self.dice.randint(1, 5))]
        # Odd milliseconds for each step: of one step much happens at one instant, of two seldom.
        self.odd = self.dice.randint(1, 499)
        for person in people:
            some = 1 if self.calm else self.dice.randint(1, 3)
            self.behaviours[name, person] = [self.behaviour() for _ in range(some)]
        limit = {"limit": self.dice.randint(1, 4)} if self.chance(0.2) and fans_out else {}
        if self.chance(0.6):
            return {"resolve": "static", "participants": people, **limit}
        rounds = 1 if self.calm else self.dice.randint(1, 2)
        least = 1 if self.calm else 0
        self.found[name] = [
            self.dice.sample(people, self.dice.randint(least, len(people))) for _ in range(rounds)
        ]
        return {"resolve": "capability", "capability_id": f"find-{name}", **limit}

    def fan_in(self) -> dict[str, Any]:
        policy = self.dice.choice(POLICIES if not self.calm else ("all", "best_of"))
        fan_in: dict[str, Any] = {"policy": policy}
        if policy == "quorum":
            fan_in["min_responses"] = self.dice.randint(1, 4)
        if policy == "best_of":
            fan_in["score_field"] = self.dice.choice(("/score", "score", "$.score"))
            if fan_in["score_field"] == "$.score" and not self.calm:
                fan_in["min_responses"] = 2
            if self.chance(0.5):
                fan_in["score_order"] = self.dice.choice(("asc", "desc"))
        if policy == "any_one" and self.chance(0.4):
            del fan_in["policy"]
        return fan_in

    def timing(self) -> dict[str, Any]:
        timing: dict[str, Any] = {}
        if self.chance(0.6) and not self.calm:
            timing["timeout"] = self.span(1, 20)
            if self.chance(0.2):  # at the very instant of an answer
                timing["timeout"] = f"PT{self.dice.choice((1, 2, 5, 8))}.{self.odd:03}S"
            if self.chance(0.7):
                timing["on_timeout"] = self.dice.choice(("fail", "skip", "abort_workflow"))
        if self.chance(0.35):
            timing["retry"] = {"max_attempts": self.dice.randint(0, 2)}
            if self.chance(0.8):
                timing["retry"]["backoff"] = self.span(1, 9)
            if self.chance(0.5):
                timing["retry"]["backoff_multiplier"] = self.dice.choice((1.0, 2.0, 1.5))
        return timing

    def behaviour(self) -> Behaviour:
        does = self.dice.choices(
            ("answers", "refuses", "talks nonsense", "is away", "is silent"), (12, 3, 2, 3, 3)
        )[0]
        if does == "is silent":
            return {"does": "answers" if self.calm else does, "after": 0, "value": self.value()}
        seconds = self.dice.choice((0, 1, 2, 5, 8, 25))
        behaviour: Behaviour = {"does": does, "after": seconds * 1000 + self.odd}
        if does == "answers":
            behaviour["value"] = self.value()
        elif does == "refuses":
            behaviour["value"] = self.dice.choice(NOS)
        elif does == "talks nonsense":
            detail = {"code": "garbage", "message": "not JSON"}
            behaviour["value"] = self.dice.choice((None, {"status": "error", "error": detail}))
        if self.chance(0.1) and not self.calm:
            behaviour["deaf"] = True
        return behaviour

    def value(self) -> dict[str, Any]:
        # In a calm world the best one must not depend on who was first.
        score = self.dice.random() if self.calm else self.dice.choice((1, 2, 2, 2.5, -1))
        odd = self.dice.choice((None, True, "9"))
        value: dict[str, Any] = {"verdict": self.dice.choice(VERDICTS)}
        if self.chance(0.9):
            value["score"] = odd if self.chance(0.1) else score
        return value

    def fulfilment(self) -> dict[str, Any]:
        people = 0 if self.calm else 1
        policy = self.dice.choices(
            ("auto", "output_match", "requester_confirmation", "never"), (2, 12, people, people)
        )[0]
        if policy == "output_match":
            match = {
                "path": "/verdict",
                "fulfilled_values": ["good"],
                "not_fulfilled_values": ["bad", False],
            }
            rule: dict[str, Any] = {"policy": policy, "result_match": match}
            pause = "fail" if self.calm else "pause"
            if self.calm or self.chance(0.8):
                words = (pause, "fail", "retry", "continue", "retry", "continue")
                rule["on_not_fulfilled"] = self.dice.choice(words)
            if self.chance(0.8):
                rule["on_error"] = self.dice.choice(("fail", pause, "retry"))
            return rule
        return {"policy": policy}


def case_of(seed: int, *, calm: bool = False) -> Case:
    return Cases(seed, calm=calm).make()


# -- what is compared --------------------------------------------------------------------------


def expected(case: Case) -> dict[str, Any]:
    model = Model(case.definition, case.behaviours, case.found).play()
    over = model.finished_at is not None
    return {
        "status": model.status or ("running" if _moves(model) else "paused"),
        "finished_at": model.finished_at,
        "steps": {
            name: (
                step.status if over else "",
                step.executed,
                step.fulfilled,
                step.output if step.status == "completed" else None,
            )
            for name, step in model.steps.items()
            if over or step.status == "completed"
        },
        "dispatches": sorted(
            (r.step, r.target, r.asked_at, r.attempt, r.status, r.outcome, _or_never(r.answered_at),
             json.dumps(r.value), r.chosen)
            for r in model.requests
        ),
    }  # fmt: skip


def _moves(model: Model) -> bool:
    """It waits for participants rather than for people."""
    return not model.paused and any(step.status == "active" for step in model.steps.values())


def _or_never(moment: int | None) -> int:
    return -1 if moment is None else moment


def timeless(what: dict[str, Any]) -> dict[str, Any]:
    """The same without any moment in it."""
    dispatches = sorted((*d[:2], *d[3:6], *d[7:]) for d in what["dispatches"])
    return {**what, "finished_at": 0, "dispatches": dispatches}


class Twice(Theatre):
    """Some participants say everything twice: what they said, and at once something else."""

    def report(self, key: JobKey, answer: Answer, delay_ms: int = 0) -> None:
        super().report(key, answer, delay_ms)
        if sum(key[1].encode()) % 3 == 0:
            super().report(key, ok({"score": 99, "verdict": "good"}), delay_ms)


def played(case: Case) -> dict[str, Any]:
    net = compiled(json.dumps(case.definition), ())
    script = Script(net, prepared(net, case.script()))
    theatre = Twice(net, Scripts(script, Script(net, {}, "decisions")))
    theatre.begin(s.Start(run=RUN))
    state = theatre.perform(100_000).state
    return seen(theatre, state)


#: Everything that may go wrong, except what would be another story: people and their cancels.
STORMY = Faults.only(
    *("crash", "slow_disk", "restart", "evict", "lost_job", "outside", "silent", "duplicate"),
    *("stale", "late", "slow_stop", "lost_wake", "spurious_tick", "clock_jump", "pause"),
)


class LargeChaos(Chaos):
    """Nothing but numbers travels with the log."""

    inline_bytes_max = 1


def stormy(case: Case, seed: int) -> tuple[dict[str, Any], Chaos]:
    """The same in a hostile world."""
    net = compiled(json.dumps(case.definition), ())
    script = Script(net, prepared(net, case.script()))
    scripts = Scripts(script, Script(net, {}, "decisions"))
    kind = LargeChaos if seed % 2 else Chaos
    world = kind(net, scripts, dice=Random(f"storm {seed}"), faults=STORMY, patches=())
    world.run_to_the_end(s.Start(run=SIMULATED), 20_000, None)
    return seen(world, world.audit.state, SIMULATED), world


def seen(world: Any, state: Any, run: str = RUN) -> dict[str, Any]:
    log = history(world.store.read(run))
    snapshot = resolve(snapshot_of(world.net, state, log), world.store.payload)
    over = state.finished
    return {
        "status": snapshot["status"],
        "finished_at": state.finished_at - EPOCH if over else None,
        "steps": {
            step["step_id"]: (
                step["status"] if over else "",
                step["execution"]["completed"],
                step["task"].get("fulfilled"),
                step.get("output"),
            )
            for step in snapshot["steps"]
            if over or step["status"] == "completed"
        },
        "dispatches": sorted(
            (d.record.step_id, d.record.target, _ms(d.record.dispatched_at), d.attempt,
             d.record.status, d.outcome, _ms(d.record.responded_at),
             json.dumps(resolve(d.record.response, world.store.payload)), d.selected)
            for d in dispatches_of(world.net, run, log)
        ),
    }  # fmt: skip


def _ms(moment: str | None) -> int:
    """Milliseconds since the run began."""
    if moment is None:
        return -1
    return round(datetime.fromisoformat(moment).timestamp() * 1000) - EPOCH
