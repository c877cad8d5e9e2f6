"""The join rules of XRC-729 once more, as plainly as they can be written.

This file is the second opinion on the kernel: it imports nothing from the program, keeps every
process in one list and works out everything anew from that list after each action. It is slow on
purpose; if a rule is hard to see here, this file is wrong. A session is played with
`play(document, start, actions)`; an action is a tuple:

    ("start", pid)                                a waiting process is leased
    ("finish", pid, outcome, result, wait_ms)     a running one ends "valid" or "invalid"
    ("error", pid) ("abort", pid)                 a hard error; an abortStep rule that fired
    ("cancel", pid)                               a cancelSession rule that fired
    ("tick", ms)                                  time passes
    ("wake", step or pid, payload)                whoever waits there for its time is woken
    ("kill",)                                     the whole session is killed

An action that does not fit the moment changes nothing: whatever is left of a schedule is still a
schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROOT = 0
"""The first process' group. Others are named by the pid of the target that reads from them."""

Action = tuple[Any, ...]
Offer = tuple[int, str, str, dict[str, Any]]
"""A producer, its step, its outcome, and its payload at that moment."""


@dataclass
class Join:
    """What a join target was opened with, and what it got."""

    needs: int
    entries: list[tuple[str, str]]
    kills: bool
    open: bool = True
    offers: list[Offer] = field(default_factory=list)
    """Every offer some entry asks for, in order of arrival."""

    late: list[int] = field(default_factory=list)
    """Producers that would have filled an entry, had the join still been open."""

    selected: list[int] = field(default_factory=list)


@dataclass
class Process:
    """One execution of one step."""

    pid: int
    step: str
    group: int
    payload: dict[str, Any]
    due: int
    state: str = "waiting"
    why: str = ""
    join: Join | None = None


class Session:
    """All processes of one session, and the rules that move them."""

    def __init__(
        self, document: dict[str, Any], start: str, payload: dict[str, Any] | None = None
    ) -> None:
        self.structure = document["structure"]
        self.now = 0
        self.killed = False
        self.processes: list[Process] = []
        self.killed_groups: set[int] = set()
        self.log: list[str] = []
        self._create(start, ROOT, dict(payload or {}), 0)

    # What can be asked

    def process(self, pid: int) -> Process | None:
        return self.processes[pid - 1] if 0 < pid <= len(self.processes) else None

    def startable(self) -> list[Process]:
        return [
            p
            for p in self.processes
            if p.state == "waiting" and not is_open(p) and p.due <= self.now
        ]

    def running(self) -> list[Process]:
        return [p for p in self.processes if p.state == "running"]

    def alive(self) -> bool:
        return any(p.state in ("waiting", "running") for p in self.processes)

    def verdict(self) -> str:
        if self.alive():
            return "alive"
        if self.killed:
            return "killed"
        return (
            "finished_with_aborts" if any(p.state == "aborted" for p in self.processes) else "done"
        )

    # What can happen

    def act(self, action: Action) -> None:
        verb, *rest = action
        getattr(self, f"_{verb}")(*rest)

    def _tick(self, ms: int) -> None:
        self.now += ms

    def _start(self, pid: int) -> None:
        process = self.process(pid)
        if process in self.startable():
            process.state = "running"

    def _wake(self, where: int | str, payload: dict[str, Any]) -> None:
        public = {key: value for key, value in payload.items() if not key.startswith("_")}
        for process in self.processes:
            asleep = process.state == "waiting" and not is_open(process) and process.due > self.now
            if asleep and where in (process.pid, process.step):
                process.due = self.now
                process.payload.update(public)

    def _kill(self) -> None:
        if not self.alive():
            return
        self.killed = True
        for process in self.processes:
            if process.state == "waiting":
                self._abort_process(process, "killed")

    def _cancel(self, pid: int) -> None:
        """A killed process that still runs decides nothing for others any more."""
        process = self.process(pid)
        if process in self.running():
            self._abort_process(process, "cancelled")
            if process.group not in self.killed_groups:
                self._kill()
                self.killed = True

    def _error(self, pid: int) -> None:
        process = self.process(pid)
        if process in self.running():
            self._abort_process(process, "error")
            self._settle()

    _abort = _error

    def _finish(self, pid: int, outcome: str, result: dict[str, Any], wait_ms: int) -> None:
        process = self.process(pid)
        if process not in self.running():
            return
        if self.killed:
            self._abort_process(process, "killed")
            return
        process.payload.update(result)
        if process.group not in self.killed_groups:
            self._branch(process, outcome, wait_ms)
        process.state = "done"
        self.log.append(f"{name(process)} done, {outcome}")
        self._deliver(process, outcome)
        self._settle()

    # Branch actions

    def _create(self, step: str, group: int, payload: dict[str, Any], due: int) -> Process:
        process = Process(len(self.processes) + 1, step, group, payload, due)
        self.processes.append(process)
        self.log.append(f"{name(process)} created in group {group}")
        return process

    def _branch(self, parent: Process, outcome: str, wait_ms: int) -> None:
        branch = self.structure[parent.step].get(
            "onValid" if outcome == "valid" else "onInvalid", {}
        )
        group = parent.group
        declared = branch.get("join")
        if declared is not None:
            hidden = {key: value for key, value in parent.payload.items() if key.startswith("__")}
            target = self._create(declared["joinid"], parent.group, hidden, self.now + wait_ms)
            target.join = Join(
                needed(declared), entries(declared), declared.get("waitonjoin", "drain") == "kill"
            )
            group = target.pid
        for step in branch.get("spawns", []):
            self._create(step, group, dict(parent.payload), self.now + wait_ms)

    # Delivering and closing

    def _deliver(self, producer: Process, outcome: str) -> None:
        if producer.group == ROOT:
            return
        target = self.processes[producer.group - 1]
        join = opened(target)
        if not any(fits(entry, producer.step, outcome) for entry in join.entries):
            return
        if not join.open:
            join.late.append(producer.pid)
            return
        join.offers.append((producer.pid, producer.step, outcome, dict(producer.payload)))
        filled = fill(join)
        if len(filled) < join.needs:
            return
        chosen = [filled[place] for place in sorted(filled)][: join.needs]
        for _, _, _, payload in chosen:
            target.payload.update({k: v for k, v in payload.items() if not k.startswith("__")})
        join.selected = [pid for pid, _, _, _ in chosen]
        join.open = False
        self.log.append(f"{name(target)} closed with {join.selected}")
        if join.kills:
            self._kill_group(target.pid)

    # Killing and impossibility

    def _kill_group(self, group: int) -> None:
        """Waiting members end now; running ones go on, but bring forth nothing more here."""
        self.killed_groups.add(group)
        for process in self.processes:
            if process.group == group and process.state == "waiting":
                was_open = is_open(process)
                self._abort_process(process, "killed")
                if was_open:
                    self._kill_group(process.pid)

    def _abort_process(self, process: Process, why: str) -> None:
        process.state, process.why = "aborted", why
        if process.join is not None:
            process.join.open = False
        self.log.append(f"{name(process)} aborted: {why}")

    def _settle(self) -> None:
        """End the joins that can no longer close, the innermost first."""
        while True:
            hopeless = [p for p in self.processes if is_open(p) and not self.can_close(p)]
            if not hopeless:
                return
            target = hopeless[-1]
            self._abort_process(target, "impossible")
            if opened(target).kills:
                self._kill_group(target.pid)

    def can_close(self, target: Process) -> bool:
        join = opened(target)
        filled = fill(join)
        reachable: set[str] = set()
        for process in self.processes:
            if process.group == target.pid and process.state in ("waiting", "running"):
                reachable |= reachable_within_group(self.structure, process.step)
        possible = [
            i for i, (node, _) in enumerate(join.entries) if i not in filled and node in reachable
        ]
        return len(filled) + len(possible) >= join.needs


# The small words


def is_open(process: Process) -> bool:
    return process.join is not None and process.join.open


def opened(target: Process) -> Join:
    """The join of a process that is a join target."""
    assert target.join is not None
    return target.join


def name(process: Process) -> str:
    return f"{process.step}#{process.pid}"


def needed(declared: dict[str, Any]) -> int:
    mode = declared.get("mode", "any")
    if isinstance(mode, dict):
        [k] = mode.values()
        return int(k)
    return {"any": 1, "all": len(declared["from"]), "kofn": int(declared.get("k", 0))}[mode]


def entries(declared: dict[str, Any]) -> list[tuple[str, str]]:
    spelled = {"": "any", "both": "any"}
    return [
        (e["node"], spelled.get(e.get("when", "any"), e.get("when", "any")))
        for e in declared["from"]
    ]


def fits(entry: tuple[str, str], step: str, outcome: str) -> bool:
    return entry[0] == step and entry[1] in (outcome, "any")


def fill(join: Join) -> dict[int, Offer]:
    """Which entry holds which offer: an entry takes one, and those that ask for an outcome before
    those that take any."""
    filled: dict[int, Offer] = {}
    for offer in join.offers:
        _, step, outcome, _ = offer
        free = [
            i
            for i, entry in enumerate(join.entries)
            if i not in filled and fits(entry, step, outcome)
        ]
        picky = [i for i in free if join.entries[i][1] != "any"]
        for place in (picky or free)[:1]:
            filled[place] = offer
    return filled


def reachable_within_group(structure: dict[str, Any], step: str) -> set[str]:
    """The steps a process standing at `step` can still bring about without leaving its group."""
    seen: set[str] = set()
    todo = [step]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        for side in ("onValid", "onInvalid"):
            branch = structure[here].get(side, {})
            declared = branch.get("join")
            todo += branch.get("spawns", []) if declared is None else [declared["joinid"]]
    return seen


def play(
    document: dict[str, Any],
    start: str,
    actions: list[Action],
    payload: dict[str, Any] | None = None,
) -> Session:
    session = Session(document, start, payload)
    for action in actions:
        session.act(action)
    return session
