"""One session played by the oracle and by the kernel, compared after every action."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from anabranch.net.net import Net

from . import oracle
from .kernel_run import KernelRun
from .lower import compiled
from .oracle import Action, Process, Session
from .schedules import Walk

ACTIONS_MAX = 600


@dataclass(frozen=True)
class Pair:
    """One orchestration with one schedule."""

    document: dict[str, Any]
    start: str
    actions: list[Action]
    payload: dict[str, Any]


def walked(
    document: dict[str, Any],
    net: Net,
    start: str,
    rng: Random,
    kind: type[KernelRun] = KernelRun,
) -> tuple[Pair, str]:
    """A random schedule, and the first thing on which oracle and kernel differ ("" if none)."""
    payload = {"p": "start", "__s": "secret"} if rng.random() < 0.5 else {}
    session = Session(document, start, payload)
    kernel = kind(net, start, payload)
    walk = Walk(rng, session)
    actions: list[Action] = []
    while (action := walk.next()) is not None:
        assert len(actions) < ACTIONS_MAX, "this session does not come to an end"
        actions.append(action)
        session.act(action)
        difference = _act(kernel, action) or compare(session, kernel)
        if difference:
            return Pair(document, start, actions, payload), f"after {action}: {difference}"
    return Pair(document, start, actions, payload), compare_end(session, kernel)


def replayed(pair: Pair, kind: type[KernelRun] = KernelRun) -> str:
    """The first difference when this very schedule is played again."""
    session = Session(pair.document, pair.start, pair.payload)
    kernel = kind(compiled(pair.document), pair.start, pair.payload)
    for action in pair.actions:
        session.act(action)
        difference = _act(kernel, action) or compare(session, kernel)
        if difference:
            return f"after {action}: {difference}"
    return compare_end(session, kernel)


def _act(kernel: KernelRun, action: Action) -> str:
    try:
        kernel.act(action)
    except Exception as error:  # whatever it is, it is a difference worth shrinking
        return f"the kernel raised {error!r}"
    return ""


def compare(session: Session, kernel: KernelRun) -> str:
    """What differs now."""
    if kernel.state.next_token != len(session.processes) + 1:
        return f"{len(session.processes)} processes, but {kernel.state.next_token - 1} tokens"
    for process in session.processes:
        if process.pid in kernel.ended and process.state == kernel.ended[process.pid]:
            continue
        if kernel.seen(process.pid) != expected(process):
            return f"{oracle.name(process)}: {expected(process)} != {kernel.seen(process.pid)}"
    return ""


def compare_end(session: Session, kernel: KernelRun) -> str:
    """What differs when all is over, joins included."""
    if session.verdict() != kernel.verdict():
        return f"the session is {session.verdict()}, the run {kernel.verdict()}"
    for process in session.processes:
        join, pid = process.join, process.pid
        selected, late = (join.selected, join.late) if join is not None else ([], [])
        if kernel.selected.get(pid, []) != selected:
            return f"{oracle.name(process)} selected {selected}, not {kernel.selected.get(pid)}"
        if kernel.late.get(pid, []) != late:
            return f"{oracle.name(process)} had late {late}, not {kernel.late.get(pid, [])}"
    return ""


def expected(process: Process) -> tuple[Any, ...]:
    if process.state in ("done", "aborted"):
        return (process.state,)
    state = "open" if oracle.is_open(process) else process.state
    return (process.step, process.group, state, process.payload)
