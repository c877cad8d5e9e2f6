"""Random workflows in which values flow, for comparing how they are run.

They are those of `fan_in_cases`, with what these leave out: inputs that read the input of the run
and the outputs of other steps, decision sources, and people who say yes or no. What a participant
answers follows from what it was asked, so a value that arrives changed changes all that follows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.net.net import Net
from anabranch.testing.play import RUN
from anabranch.testing.scripted.answers import After, Stubborn, error, ok, unreachable
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.work.port import Task
from testing.support import BEFORE, DyingTheatre

from .fan_in_cases import NOS, Case, Twice, case_of, seen

INLINE = 10_000_000
EVENTS_MAX = 100_000
#: Of references to other steps: the whole output and who gave it, a field of it.
_LIKELY = {"whole": 0.6, "who": 0.3, "score": 0.15}
MATCH = {
    "path": "/deep/verdict",
    "fulfilled_values": ["good"],
    "not_fulfilled_values": ["bad"],
}


@dataclass
class Flowing:
    """A workflow, how everybody behaves, and what people decide."""

    case: Case
    given: dict[str, Any]
    decisions: dict[str, Any] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)

    @cached_property
    def net(self) -> Net:
        return compiled(json.dumps(self.case.definition), ())

    def script(self, broken: str = "") -> dict[str, Any]:
        """`broken` is a step whose participants all say no, or are not there."""
        entries: dict[str, Any] = {}
        no = ok(NOS[0]) if len(self.given["text"]) % 2 else unreachable()
        for name, usual in self.case.script().items():
            answers = [no] if name.partition("/")[0] == broken else usual
            entries[name] = [_echoing(answer) for answer in answers] if "/" in name else answers
        return {**entries, **dict.fromkeys(self.sources, _verifies)}


def flowing(seed: int, *, calm: bool = False) -> Flowing:
    """The workflow of a seed. A `calm` one comes to the same whatever the order of things is."""
    case, dice = case_of(seed, calm=calm), Random(f"flow {seed}")
    pad = "x" * dice.choice((0, 5, 300))
    given = {"text": pad + "t", "rows": list(range(dice.choice((1, 40)))), "p0": "p0"}
    made = Flowing(case, given)
    if dice.random() < 0.6:
        _be_kind(dice, case)
    before: list[str] = []
    for spec in case.definition["plan"]["steps"]:
        _reads(dice, spec, before)
        _judged(dice, made, spec, calm=calm)
        before.append(spec["step_id"])
    return made


def _be_kind(dice: Random, case: Case) -> None:
    """Everybody answers: with a few refusals here and there most workflows end at once."""
    for entries in case.behaviours.values():
        for does in entries:
            if does["does"] != "answers":
                value = {"verdict": "good", "score": dice.random()}
                does.update({"does": "answers", "after": does.get("after", 0), "value": value})


def _reads(dice: Random, spec: dict[str, Any], before: list[str]) -> None:
    """References to the input, and to steps that are over by then."""
    fields: dict[str, Any] = {
        "text": "{{input.text}}",
        "said": "run with {{input.rows}} and {{input.text}}",
        "rows": {"from": "/input/rows"},
        "last": "{{input.rows[0]}}",
    }
    known = spec.get("depends_on", [])
    for step in known:
        fields[f"whole-{step}"] = {"from": f"/steps/{step}/output"}
        fields[f"who-{step}"] = f"{{{{steps.{step}.participant}}}}"
        fields[f"score-{step}"] = f"{{{{steps.{step}.output.score}}}}"
    chosen = dice.sample(list(fields), dice.randint(0, len(fields)))
    # Mostly what is there for sure: a reference that finds nothing fails its step.
    likely = [name for name in chosen if dice.random() < _LIKELY.get(name.split("-")[0], 1)]
    spec["input"] = {name: fields[name] for name in likely}
    if known and dice.random() < 0.4:
        spec["input_from"] = dice.sample(known, dice.randint(1, len(known)))
    people = spec["target"].get("participants")
    if people and people[0] == "p0" and dice.random() < 0.3:
        spec["target"] = {**spec["target"], "participants": ["{{input.p0}}", *people[1:]]}


def _judged(dice: Random, made: Flowing, spec: dict[str, Any], *, calm: bool) -> None:
    name, roll = spec["step_id"], dice.random()
    words = ("fail", "continue", "retry") if calm else ("fail", "continue", "retry", "pause")
    then = {"on_not_fulfilled": dice.choice(words)}
    if roll < 0.2:
        reads = {"output": {"from": f"/steps/{name}/output"}, "rows": "{{input.rows}}"}
        source = {"kind": "capability", "capability_id": f"verify-{name}", "input": reads}
        spec["fulfillment"] = {
            "policy": "external_decision",
            "decision_source": source,
            "result_match": MATCH,
            **then,
        }
        made.sources.append(f"verify-{name}")
    elif roll < 0.35:
        spec["fulfillment"] = {"policy": "requester_confirmation", **then}
    if spec.get("fulfillment", {}).get("policy") in ("requester_confirmation", "never"):
        yes, no = ok({"seen": True}), error("rejected", "not like this")
        answers = (yes, yes, no, [no, yes])
        made.decisions[name] = _later(dice.randint(1, 5), dice.choice(answers))


def _later(seconds: int, said: Any) -> Any:
    return [After(seconds, each) for each in (said if isinstance(said, list) else [said])]


# -- behaviour that follows from what was asked ------------------------------------------------


def _echoing(entry: Any) -> Any:
    """The same answer, with what its giver has heard."""
    match entry:
        case After():
            return After(entry.seconds, _echoing(entry.answer))
        case Stubborn():
            return Stubborn(_echoing(entry.answer))
    result = getattr(entry, "result", None)
    if not isinstance(result, dict):
        return entry

    def answer(task: Task) -> Any:
        heard = digest(task.inputs.get("input"))
        pad = "y" * (int(heard[:2], 16) * 3)
        return ok({**result, "heard": heard, "input": task.inputs.get("input"), "pad": pad})

    return answer


def _verifies(task: Task) -> Any:
    """A source that says yes or no by what it is told."""
    told = digest(task.inputs.get("input"))
    verdict = "good" if int(told[:2], 16) % 4 else "bad"
    return ok({"deep": {"verdict": verdict}, "log": told * 10})


def digest(value: Any) -> str:
    said = json.dumps(value, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


# -- running them ------------------------------------------------------------------------------


class Stage(Twice, DyingTheatre):
    """Participants that say everything twice, an engine that may die."""


def staged(
    flow: Flowing,
    *,
    inline_bytes: int = INLINE,
    dies_at: int = 0,
    place: str = BEFORE,
    broken: str = "",
    start: s.Start | None = None,
    payloads: dict[str, bytes] | None = None,
) -> Stage:
    net, script = flow.net, flow.script(broken)
    kind = type("Staged", (Stage,), {"inline_bytes_max": inline_bytes})
    answers = Script(net, prepared(net, script))
    for step, _, person in (name.partition("/") for name in script):
        answers.saw_slots(step, [person])  # some are named by the input of the run
    made: Stage = kind(net, Scripts(answers, Script(net, flow.decisions, "decisions")))
    made.dies_at, made.place = dies_at, place
    for sha256, content in (payloads or {}).items():
        made.store.put_payload(sha256, content)
    made.begin(start or s.Start(run=RUN, input=flow.given))
    made.perform(EVENTS_MAX)
    return made


def outcome(stage: Stage) -> dict[str, Any]:
    """All that a reader can see in the end."""
    state = stage.final or stage.core.run(RUN).state
    return seen(stage, state)
