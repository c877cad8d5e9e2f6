"""Participants, capabilities and searches in a play.

A script names participants by their id, as the labels of a fan-out's slots, and capabilities by
theirs: for a search its answer is the list of participants found, for a decision source its reply.
A search that nobody scripted finds every participant that the script knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from anabranch.kernel.values import Answer, succeeded
from anabranch.net.net import Net, Step
from anabranch.testing.scripted.answers import After, Planned, Scripted, Stubborn, ok
from anabranch.testing.scripted.script import Script
from anabranch.work.participants.performers import UNREACHABLE, refused
from anabranch.work.participants.port import BadReply, is_negative, nonsense
from anabranch.work.port import Task, whole

SEARCH, SOURCE = "targets", "capability"
_ASKING = ("dispatch", "request")


def names_in(net: Net) -> dict[str, str]:
    """The capabilities and services that a definition names, and the kind of work behind each."""
    found: dict[str, str] = {}
    for step in net.steps.values():
        for name, kind in _named(step):
            found[name] = kind
    return found


def _named(step: Step) -> Iterable[tuple[str, str]]:
    for work in (
        step.fan.targets if step.fan is not None else None,
        step.decision.source if step.decision is not None else None,
    ):
        facts: Mapping[str, Any] = getattr(getattr(work, "inputs", None), "facts", {})
        if work is not None and (name := name_of(facts)):
            yield name, work.kind


def name_of(inputs: Mapping[str, Any]) -> str:
    """By which name a search or a decision source is scripted; "" where nobody is looked for."""
    if inputs.get("resolve") == "offer":
        return ""  # whose offer it is says whom to ask
    for key in ("capability_id", "task_type", "service_type"):
        if inputs.get(key):
            return str(inputs[key])
    return ""


def see_participants(net: Net, script: Script) -> None:
    """Tell the script of all who might be asked, whether they will be or not."""
    for step in net.steps.values():
        if step.fan is not None:
            script.saw_slots(step.name, getattr(step.fan.over, "participants", ()))
        for name, kind in _named(step):
            script.saw_slots(step.name, [name])
            for entry in script.entries(name) if kind == SEARCH else ():
                script.saw_slots(step.name, found_by(entry))


def found_by(entry: Scripted) -> list[str]:
    """Whom a scripted search finds, before any limit."""
    while isinstance(entry, After | Stubborn):
        entry = entry.answer
    result = entry.result if isinstance(entry, Answer) else None
    names = result.get("targets") if isinstance(result, Mapping) else result
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def prepared(net: Net, script: Mapping[str, Scripted]) -> dict[str, Scripted]:
    """A list of names for a search is one answer, not a sequence of them."""
    searches = {name for name, kind in names_in(net).items() if kind == SEARCH}
    return {
        name: ok(list(entry)) if name in searches and _names(entry) else entry
        for name, entry in script.items()
    }


def _names(entry: Scripted) -> bool:
    return isinstance(entry, list | tuple) and all(isinstance(each, str) for each in entry)


def outsiders(net: Net, names: Iterable[str]) -> list[str]:
    """Those in a script that are neither steps nor capabilities: participants."""
    known = names_in(net)
    return [name for name in names if name not in net.steps and name not in known]


def everybody(net: Net, names: Iterable[str], task: Task) -> Answer:
    """What a search finds that nobody scripted."""
    one, scripted = task.inputs.get("one"), list(names)
    if offer := task.inputs.get("offer"):
        return succeeded({"targets": [offer["provider/participant-id"]]})
    named = task.inputs.get("participants")  # of a static target, whose turn is found out
    if named:
        return succeeded({"targets": list(named)[: 1 if one else task.inputs.get("limit")]})
    found = [] if one and task.step in scripted else outsiders(net, scripted)
    found = found or [f"a provider for {task.step}"]  # whose answers stand under the step
    return succeeded({"targets": found[: 1 if one else task.inputs.get("limit")]})


def as_participant(task: Task, plan: Planned) -> Planned:
    """A scripted reply is taken as a real one would be: a no is a no, and so is nonsense."""
    if task.kind not in _ASKING or plan.answer is None:
        return plan
    answer = _taken(task, plan.answer)
    return plan._replace(answer=whole(answer) if task.inputs.get("whole") else answer)


def _taken(task: Task, answer: Answer) -> Answer:
    if answer.status != "ok":
        return _blunder(task, answer)
    if answer.outcome != "negative" and not is_negative(answer.result):
        return answer
    if task.kind == "request":
        return refused(task, answer.result)
    return succeeded(answer.result, outcome="negative")


def _blunder(task: Task, answer: Answer) -> Answer:
    """Who fails has answered with an error, unless nobody is there."""
    fault = answer.fault
    if answer.status != "error" or fault is None or fault.kind == UNREACHABLE:
        return answer
    reply = nonsense(BadReply(fault.message, code=fault.code or fault.kind))
    if task.kind == "dispatch":
        return succeeded(reply, outcome="negative")
    return replace(answer, fault=replace(fault, details=reply))
