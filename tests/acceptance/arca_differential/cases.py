"""Random workflow definitions, with what participants, decision sources and people answer to them.

A case is fixed by its number. Every participant has a delay of its own, so that no two of them
answer at one instant, and time limits lie between the instants at which answers come.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Literal, NamedTuple

SUMMARIES, DRAWINGS = "text/summarise", "image/draw"
CAPABILITY = "publication.verify"
CATALOG = "offer-catalog"
#: Those with offers, one whose node is down, one without offers, and one that nobody knows.
SELLING = ("anna", "bert", "carl")
AWAY, EMPTY, UNKNOWN = "dora", "emil", "fred"
DRAWING = ("anna", "carl")
EVERYBODY = (*SELLING, AWAY, EMPTY, UNKNOWN)

OWN_MS = 40  # by which the answers of two participants differ
#: Kinds of answers: to a fan-out, and to an order.
FanAnswer = Literal["offer", "no", "error", "odd", "silent"]
OrderAnswer = Literal["completed", "failed", "rejected", "silent"]


class Told(NamedTuple):
    """What a participant does when it is asked for the n-th time in a step."""

    does: str
    after_ms: int
    value: Any = None


class Case(NamedTuple):
    number: int
    definition: dict[str, Any]
    told: dict[tuple[str, str], list[Told]]  # by step and participant
    verdicts: dict[str, list[Told]]  # of the decision source, by step
    people: dict[str, list[bool]]  # what people say at the gate of a step

    @property
    def run(self) -> str:
        return f"run:case-{self.number}"

    def step(self, name: str) -> Mapping[str, Any]:
        steps = self.definition["plan"]["steps"]
        return next(one for one in steps if one["step_id"] == name)

    def fans_out(self, step: str) -> bool:
        return "fan_in" in self.step(step)


class Script:
    """Goes through the answers of a case: the same request gets the same answer again."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[tuple[str, str], list[str]] = {}
        self._judged: dict[str, int] = {}
        self._decided: dict[str, int] = {}

    def answer(self, step: str, participant: str, request: str) -> Told:
        known = self._known.setdefault((step, participant), [])
        if request not in known:
            known.append(request)
        entries = self.case.told[step, participant]
        return entries[min(known.index(request), len(entries) - 1)]

    def verdict(self, step: str) -> Told:
        entries = self.case.verdicts[step]
        number = self._judged[step] = self._judged.get(step, 0) + 1
        return entries[min(number, len(entries)) - 1]

    def decision(self, step: str) -> bool | None:
        """None is the end of the run: nobody decides for ever."""
        number = self._decided[step] = self._decided.get(step, 0) + 1
        entries = self.case.people[step]
        return entries[number - 1] if number <= len(entries) else None


def case_of(number: int, names: Mapping[str, str]) -> Case:
    """`names` are the ids of those who can be asked."""
    return _Maker(number, names).make()


class _Maker:
    def __init__(self, number: int, names: Mapping[str, str]) -> None:
        self.number = number
        self.names = names
        self.dice = Random(f"hosted {number}")
        self.told: dict[tuple[str, str], list[Told]] = {}
        self.verdicts: dict[str, list[Told]] = {}
        self.people: dict[str, list[bool]] = {}
        self.steps: list[dict[str, Any]] = []

    def chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def make(self) -> Case:
        for place in range(self.dice.randint(1, 5)):
            self.steps.append(self.step(f"s{place}"))
        definition: dict[str, Any] = {
            "workflow_id": "random",
            "input": {"text": "long", "n": self.dice.randint(0, 9)},
            "plan": {"steps": self.steps},
        }
        if self.chance(0.5):
            definition["max_parallel_steps"] = self.dice.randint(1, 3)
        if self.chance(0.2):
            definition["deadline"] = f"PT{self.dice.choice((2, 6, 20, 45))}.613S"
        return Case(self.number, definition, self.told, self.verdicts, self.people)

    # -- a step ------------------------------------------------------------------------------

    def step(self, name: str) -> dict[str, Any]:
        before = [one["step_id"] for one in self.steps]
        spec: dict[str, Any] = {"step_id": name, "service_type": SUMMARIES}
        if before and self.chance(0.8):
            self.after(spec, before)
        soliciting = [
            one["step_id"]
            for one in self.steps
            if one.get("fan_in", {}).get("policy") in ("best_of", "any_one")
        ]
        if soliciting and self.chance(0.5):
            self.order_of(spec, self.dice.choice(soliciting))
        elif self.chance(0.5):
            self.fan_out(spec)
        else:
            self.ordinary(spec)
        self.timing(spec)
        if self.chance(0.3):
            spec["max_retries"] = self.dice.randint(0, 2)
            spec["retry_delay_ms"] = self.dice.choice((0, 1_300))
        if self.chance(0.5):
            spec["fail_policy"] = self.dice.choice(("abort_workflow", "skip", "skip", "pause"))
        if self.chance(0.35):
            spec["fulfillment"] = self.fulfilment(name)
        if "fan_in" not in spec:
            self.terms(spec)
        self.people[name] = [self.chance(0.6) for _ in range(3)]
        self.answers(spec)
        return spec

    def after(self, spec: dict[str, Any], before: list[str]) -> None:
        chosen = self.dice.sample(before, self.dice.randint(1, min(2, len(before))))
        spec["depends_on"] = chosen
        given: dict[str, Any] = {"text": "{{input.text}}", "run": "{{run.id}}"}
        if self.chance(0.4):
            spec["input_from"] = chosen[:1]
        elif self.chance(0.3):
            given["first"] = {"from": f"/steps/{chosen[0]}/output"}
        spec["input"] = given

    def fan_out(self, spec: dict[str, Any]) -> None:
        policy = self.dice.choice(("any_one", "all", "quorum", "best_of"))
        fan_in: dict[str, Any] = {"policy": policy}
        if policy == "quorum":
            fan_in["min_responses"] = self.dice.randint(1, 3)
        if policy == "best_of":
            fan_in |= {"score_field": "/offer/pricing~1amount", "score_order": "asc"}
            if self.chance(0.3):
                fan_in["score_order"] = "desc"
            if self.chance(0.3):
                fan_in["max_score"] = self.dice.choice((40, 70, 200))
        spec["target"] = self.target(many=True)
        spec["fan_in"] = fan_in

    def ordinary(self, spec: dict[str, Any]) -> None:
        drawn = self.chance(0.2)
        if self.chance(0.75) and not drawn:
            spec["target"] = self.target(many=False)
        elif drawn:
            spec["service_type"] = DRAWINGS
            if self.chance(0.5):
                spec["target"] = {"resolve": "task_type", "task_type": DRAWINGS}

    def order_of(self, spec: dict[str, Any], solicited: str) -> None:
        """Of the offer that an earlier step chose."""
        spec["depends_on"] = sorted({*spec.get("depends_on", ()), solicited})
        spec["offer_ref"] = {"from": f"/steps/{solicited}/output/offer"}

    def target(self, *, many: bool) -> dict[str, Any]:
        resolve = self.dice.choice(("static", "static", "capability", "task_type"))
        target: dict[str, Any] = {"resolve": resolve}
        if resolve == "static":
            known = EVERYBODY if many else (*SELLING, AWAY, UNKNOWN)
            count = self.dice.randint(1, 4 if many else 2)
            chosen = self.dice.sample(known, count)
            target["participants"] = [self.names[one] for one in chosen]
        elif resolve == "capability":
            target["capability_id"] = CATALOG
        else:
            target["task_type"] = SUMMARIES
        if resolve != "static" and self.chance(0.3):
            target["filter"] = {"service/type": SUMMARIES}
        if many and self.chance(0.3):
            target["limit"] = self.dice.randint(1, 3)
            if resolve != "static" and self.chance(0.5):
                target["order"] = "least_recently_asked"
        return target

    def timing(self, spec: dict[str, Any]) -> None:
        timing: dict[str, Any] = {}
        if self.chance(0.6):
            timing["timeout"] = f"PT{self.dice.choice((2, 5, 12))}.517S"
            if self.chance(0.6):
                timing["on_timeout"] = self.dice.choice(("fail", "skip", "abort_workflow"))
        if self.chance(0.35):
            timing["retry"] = {"max_attempts": self.dice.randint(0, 2)}
            if self.chance(0.7):
                timing["retry"] |= {"backoff": "PT1.1S", "backoff_multiplier": 2}
        if timing:
            spec["timing"] = timing

    def terms(self, spec: dict[str, Any]) -> None:
        if self.chance(0.3):
            spec["request_units"] = self.dice.randint(1, 3)
        tries = "max_retries" in spec or "retry" in spec.get("timing", {})
        if self.chance(0.25):
            spec["max_amount"] = 1_000 if tries else self.dice.choice((1_000, 60, 1))
            spec["currency"] = "ORC"

    # -- who decides -------------------------------------------------------------------------

    def fulfilment(self, name: str) -> dict[str, Any]:
        policy = self.dice.choice(
            ("output_match", "external_decision", "requester_confirmation", "never")
        )
        rule: dict[str, Any] = {"policy": policy}
        if policy in ("output_match", "external_decision"):
            words = ("fail", "continue", "retry", "pause")
            rule["on_not_fulfilled"] = self.dice.choice(words)
            rule["on_error"] = self.dice.choice(("fail", "pause", "retry"))
        if policy == "output_match":
            rule["result_match"] = {
                "path": "/verdict", "fulfilled_values": ["good"], "not_fulfilled_values": ["bad"],
            }  # fmt: skip
        if policy == "external_decision":
            self.decided_elsewhere(rule, name)
        if policy == "requester_confirmation" and self.chance(0.3):
            timing = {"timeout": "PT0.419S", "on_timeout": self.dice.choice(("fail", "skip"))}
            rule["decision_source"] = {"kind": "requester", "timing": timing}
        return rule

    def decided_elsewhere(self, rule: dict[str, Any], name: str) -> None:
        rule["decision_source"] = {
            "kind": "capability", "capability_id": CAPABILITY,
            "input": {"run": "{{run.id}}", "step": name},
        }  # fmt: skip
        rule["result_match"] = {
            "path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False],
        }  # fmt: skip
        envelope = {"schema": "arca-task-fulfillment-decision.v1", "reason": "seen"}
        entries: tuple[Any, ...] = (
            {"ok": True}, {"ok": False}, {"ok": "?"},
            {**envelope, "fulfillment/status": "fulfilled"},
            {**envelope, "fulfillment/status": "not_fulfilled"}, None,
        )  # fmt: skip
        self.verdicts[name] = [
            Told("away" if value is None else "says", self.dice.choice((0, 900)), value)
            for value in self.dice.choices(entries, (6, 2, 1, 3, 1, 2), k=3)
        ]

    # -- who answers -------------------------------------------------------------------------

    def answers(self, spec: dict[str, Any]) -> None:
        for place, name in enumerate((*SELLING, AWAY, EMPTY)):
            make = self.fan_answer if "fan_in" in spec else self.order_answer
            self.told[spec["step_id"], name] = [
                make(name, place, number) for number in range(self.dice.randint(1, 3))
            ]

    def after_ms(self, place: int) -> int:
        return self.dice.choice((0, 0, 1, 3, 7)) * 1_000 + (place + 1) * OWN_MS

    def fan_answer(self, name: str, place: int, _number: int) -> Told:
        """One without offers has none to answer with."""
        kinds: tuple[FanAnswer, ...] = ("offer", "no", "error", "odd", "silent")
        likely = (0, 8, 2, 1, 1) if name == EMPTY else (9, 2, 1, 1, 2)
        return Told(self.dice.choices(kinds, likely)[0], self.after_ms(place))

    def order_answer(self, _name: str, place: int, number: int) -> Told:
        kinds: tuple[OrderAnswer, ...] = ("completed", "failed", "rejected", "silent")
        does = self.dice.choices(kinds, (8, 3, 1, 2))[0]
        output = {"n": number, "verdict": self.dice.choice(("good", "good", "bad", "odd", 1))}
        value = output if does == "completed" else self.dice.choice(("no_paper", "too_hard"))
        return Told(does, self.after_ms(place), value)
