"""Sessions: the runs of orchestrations, asked about in the words of the XRC standards.

A session is a run, a process is a step run of it, and `run:7` names the seventh. Everything is
answered from the log. What changes a session (`wake_up_process`, `control`) goes to the engine that
owns the store, in this process or in another.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import asdict

from anabranch.dialects.xrc729.bundle import ADDRESS
from anabranch.dialects.xrc729.wake_policy import PayloadWakePolicy
from anabranch.dialects.xrc729.words import DIALECT, OWNER, PRIVATE, SESSION
from anabranch.errors import DefinitionError, InputError, NotFound, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.privacy import public
from anabranch.kernel.timing import is_owner
from anabranch.operations.read.processes import (
    Process,
    group_of,
    pid_of,
    processes,
    run_and_token,
)
from anabranch.operations.read.reader import Reader
from anabranch.runtime.live_run import history
from anabranch.runtime.messages.codec import Sayable
from anabranch.store.ports import Head, HeadFilter, Store
from anabranch.work.values.json_values import require_json

LIVE = ("waiting", "running")

Send = Callable[[str, Sayable], Awaitable[Any]]


class Sessions:
    """What can be asked about sessions, and done with them."""

    def __init__(self, store: Store, read: Reader, send: Send) -> None:
        self._store = store
        self._read = read
        self._send = send

    # -- asking ------------------------------------------------------------------------------

    def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[dict[str, Any]]:
        """One row for every process, newest session first, of the `last` sessions.

        `run` names one session: by its id, or by its number and its owner.
        """
        if run is not None:
            return self._rows(self._head(run, owner))
        return self.page(owner, last)[0]

    def next_number(self, owner: str) -> int:
        """The number that the next session of this owner gets."""
        return self._store.next_session_number(_address(owner, "the owner"))

    def find(self, name: str, owner: str | None = None) -> str:
        """The run that a session is: by its id, or by its number and its owner."""
        return self._head(name, owner).run

    def wakeable(
        self,
        who: str,
        *,
        owner: str | None = None,
        run: str | None = None,
        step: str | None = None,
        last: int = 100,
    ) -> list[dict[str, Any]]:
        """The processes that sleep and that `who` may wake, newest session first."""
        asker = _address(who, "who asks")
        heads = [self._head(run, owner)] if run is not None else self._unfinished(owner)
        rows = [row for head in heads for row in self._sleeping(head, asker, step)]
        return rows[: max(last, 0)]

    def _unfinished(self, owner: str | None) -> list[Head]:
        found: list[Head] = []
        page = self._store.unfinished()
        while page:
            found += [head for head in page if head.dialect == DIALECT and _is_of(head, owner)]
            page = self._store.unfinished(page[-1].run)
        return sorted(found, key=lambda head: (head.created_at, head.run), reverse=True)

    def _sleeping(self, head: Head, asker: str, step: str | None) -> list[dict[str, Any]]:
        if head.finished:
            return []
        own, policy = is_owner(head.labels, asker), PayloadWakePolicy()
        tokens = {
            token.id
            for token in self._read.state(head.run).tokens.values()
            if token.phase == "sleeping"
            and (step is None or token.step == step)
            and (own or policy.allows(token.payload, token.step, way="rpc", asker=asker))
        }
        rows = self._rows(head) if tokens else []
        return [row for row in rows if row["iterationStep"] in tokens]

    def page(
        self, owner: str | None, limit: int, before: tuple[int, str] | None = None
    ) -> tuple[list[dict[str, Any]], tuple[int, str] | None]:
        """The rows of so many sessions, newest first, and where the next page begins."""
        found = self._of_owner(owner, limit + 1, before)
        rows = [row for head in found[:limit] for row in self._rows(head)]
        last = found[limit - 1] if 0 < limit < len(found) else None
        return rows, (last.created_at, last.run) if last is not None else None

    def _of_owner(
        self, owner: str | None, limit: int, before: tuple[int, str] | None
    ) -> list[Head]:
        """Addresses are kept in lower case; sessions from before that, as they were written."""
        spellings = [None] if owner is None else list(dict.fromkeys([owner.lower(), owner]))
        for spelling in spellings:
            labels = {OWNER: spelling} if spelling is not None else {}
            wanted = HeadFilter(dialect=DIALECT, labels=labels, before=before, limit=limit)
            if found := self._store.heads(wanted):
                return found
        return []

    def receipts(
        self,
        run: str,
        *,
        step: str | None = None,
        iteration: int | None = None,
        owner: str | None = None,
    ) -> list[dict[str, Any]]:
        """What each executed step left behind, in order; of one step, or of one process."""
        head = self._head(run, owner)
        return [
            _receipt(head, one)
            for one in self._processes(head.run).values()
            if one.receipt is not None
            and (step is None or one.step == step)
            and (iteration is None or one.token == iteration)
        ]

    def step_executed(self, run: str, iteration: int, owner: str | None = None) -> bool | None:
        """Has this process ended? None when there is no such process (yet)."""
        try:
            head = self._head(run, owner)
        except NotFound:
            return None
        one = self._processes(head.run).get(iteration)
        return None if one is None else one.status not in LIVE

    def session_alive(self, run: str, owner: str | None = None) -> bool:
        """Is any process of the session waiting or running?"""
        try:
            return not self._head(run, owner).finished
        except NotFound:
            return False

    @staticmethod
    def estimate_rule_gas(
        rule: str | Mapping[str, Any],
        *,
        valid_spawns: int = 1,
        invalid_spawns: int = 1,
        encrypted: bool = False,
    ) -> dict[str, Any]:
        """What evaluating a rule costs at most, by outcome."""
        return estimated_gas(
            rule, valid_spawns=valid_spawns, invalid_spawns=invalid_spawns, encrypted=encrypted
        )

    # -- doing -------------------------------------------------------------------------------

    async def wake_up_process(
        self,
        process: str,
        *,
        step: str = "",
        payload: Mapping[str, Any] | None = None,
        runner: str = "",
        actor: str = "",
        owner: str | None = None,
    ) -> dict[str, Any]:
        """Wake a waiting process now: `run:7`, or all of a session that wait at `step`.

        `runner` is who asks. One who is not the owner names a step, and the processes there must
        allow them. Keys of the payload that begin with an underscore are ignored. An open join is
        never woken. `owner` says whose session is meant by a number.
        """
        name, token = run_and_token(process)
        if bool(token) == bool(step):
            raise InputError("name a process (RUN:NUMBER) or a session and its step", code="usage")
        head = self._head(name, owner)
        checked = require_json(dict(payload or {}), "the payload", root="payload")
        given = {key: value for key, value in checked.items() if not key.startswith("_")}
        wake = s.Wake(
            token, step, given, actor or runner or "wake", "rpc" if runner else "", runner
        )
        woken = await self._count(head, wake, _woken)
        return told_of_wake(head.labels, head.run, "pid" if token else "step", woken)

    async def control(
        self,
        run: str,
        action: str = "kill",
        *,
        reason: str = "",
        actor: str = "",
        runner: str = "",
        owner: str | None = None,
    ) -> dict[str, Any]:
        """End a session: what waits is aborted now, what runs when it comes to its end.

        `runner` is who asks, where that matters: nobody but the owner may.
        """
        if action != "kill":
            raise InputError(f"a session can be killed, nothing else, not {action!r}", code="usage")
        head = self._head(run, owner)
        require_owner(head.labels, runner)
        affected = await self._count(head, s.Cancel(actor, reason or "killed"), _killed)
        return told_of_kill(head.labels, head.run, self._head(head.run).status, affected)

    async def _count(self, head: Head, said: Sayable, what: Callable[[e.Event], int]) -> int:
        """Say it, and count whom it reached by what was recorded since."""
        try:
            await self._send(head.run, said)
        except Refused as refusal:
            if refusal.code in ("not_sleeping", "run_finished", "ending"):
                return 0
            raise
        since = history(self._store.read(head.run, head.seq), head.seq, head.run)
        return len({token for _, event in since if (token := what(event))})

    # -- rows --------------------------------------------------------------------------------

    def _head(self, run: str, owner: str | None = None) -> Head:
        head = self._read.find(self._named(run, owner))
        require_session(head.run, head.dialect)
        return head

    def _named(self, name: str, owner: str | None) -> str:
        """A number means a session of the owner, or of the only one who has such a session."""
        if not (name.isascii() and name.isdecimal()) or len(name) > 18:
            return name
        if owner is not None:
            return self._store.session_run(owner.lower(), int(name)) or self._own(name, owner)
        if self._store.head(name) is not None:
            return name
        wanted = HeadFilter(dialect=DIALECT, labels={SESSION: name}, limit=2)
        heads = self._store.heads(wanted)
        if len(heads) > 1:
            raise NotFound(f"several owners have a session {name}: say whose with --owner")
        return heads[0].run if heads else name

    def _own(self, name: str, owner: str) -> str:
        """A session without a number is called like its run: that of nobody else."""
        head = self._store.head(name)
        if head is None or not _is_of(head, owner):
            raise NotFound(f"{owner} has no session {name}")
        return name

    def _processes(self, run: str) -> dict[int, Process]:
        return processes(history(self._store.read(run), run=run))

    def _rows(self, head: Head) -> list[dict[str, Any]]:
        return [_row(head, one) for one in self._processes(head.run).values()]


def session_id(labels: Mapping[str, str], run: str) -> str:
    """The number of the session among those of its owner; one without is called like its run."""
    return labels.get(SESSION) or run


def require_session(run: str, dialect: str) -> None:
    if dialect != DIALECT:
        raise InputError(
            f"run {run} is no session: only orchestrations have processes", code="not_a_session"
        )


def told_of_wake(
    labels: Mapping[str, str], run: str, mode: str, woken: int | None
) -> dict[str, Any]:
    session = session_id(labels, run)
    return {
        "ok": True,
        "owner": labels.get(OWNER, ""),
        "sessionId": session,
        "rootPid": pid_of(session, 1),
        "mode": mode,
        "woken": woken,
    }


def told_of_kill(labels: Mapping[str, str], run: str, status: str, affected: int) -> dict[str, Any]:
    return {
        "ok": True,
        "owner": labels.get(OWNER, ""),
        "processId": session_id(labels, run),
        "action": "kill",
        "status": status,
        "affected": affected,
    }


def require_owner(labels: Mapping[str, str], who: str) -> None:
    """What only the owner of a session may."""
    owner = labels.get(OWNER, "")
    if who and not is_owner(labels, who):
        whose = f"{owner}, who owns it" if owner else "an operator of the store: it has no owner"
        raise Refused(f"{who} may not end this session, only {whose}", code="not_allowed")


def _address(text: str, what: str) -> str:
    if not ADDRESS.fullmatch(text):
        raise InputError(
            f"{what} is an address, 0x and 40 hex digits, not {text[:80]!r}", code="usage"
        )
    return text.lower()


def _is_of(head: Head, owner: str | None) -> bool:
    return owner is None or is_owner(head.labels, owner)


def _row(head: Head, one: Process) -> dict[str, Any]:
    session = session_id(head.labels, head.run)
    return {
        "owner": head.labels.get(OWNER, ""),
        "sessionId": session,
        "run": head.run,
        "pid": pid_of(session, one.token),
        "parentPid": pid_of(session, one.parent) if one.parent else session,
        "step": one.step,
        "status": one.status,
        "outcome": one.verdict,
        "error": one.trouble,
        "updated": one.updated,
        "iterationStep": one.token,
        "xrc729": head.labels.get("registry", ""),
        "ostcId": head.labels.get("ostcId", ""),
        "joinGroupId": group_of(one.scope),
        "joinFromGroupId": group_of(one.from_scope),
    }


def _receipt(head: Head, one: Process) -> dict[str, Any]:
    """The receipt that the step wrote, with what the log knows where it wrote none."""
    known: dict[str, Any] = {
        "sessionId": session_id(head.labels, head.run),
        "iteration": one.token,
        "orchestration": head.labels.get("registry", ""),
        "ostcId": head.labels.get("ostcId", ""),
        "ostcHash": head.labels.get("ostcHash", ""),
        "stepId": one.step,
        "extras": {"valid": one.valid, "from": head.labels.get(OWNER, "")},
        "status": one.status,
    }
    if one.error is not None:
        known |= {"error_class": one.error.kind, "error_msg": one.error.message}
    written = dict(one.receipt or {})
    if one.is_taken_over and written:
        before = {name: written.pop(name, "") for name in ("sessionId", "iteration")}
        written["extras"] = {**written.get("extras", {}), "takenOverFrom": before}
    receipt: dict[str, Any] = public({**known, **written}, PRIVATE)
    return receipt


def _woken(event: e.Event) -> int:
    return event.token if isinstance(event, e.TokenWoken) and event.by != "time" else 0


def _killed(event: e.Event) -> int:
    match event:
        case e.TokenDoomed():
            return event.token
        case e.TokenFinished(end="killed"):
            return event.token
        case _:
            return 0


def estimated_gas(rule: str | Mapping[str, Any], **counts: Any) -> dict[str, Any]:
    from anabranch.dialects.xrc137.gas import estimate  # only this needs to read rules
    from anabranch.dialects.xrc137.read import read_rule

    document, problems = read_rule(rule if isinstance(rule, str) else json.dumps(rule))
    if document is None:
        raise DefinitionError(problems)
    found = estimate(document, **counts)
    return {
        "common": found.common,
        "valid": found.valid,
        "invalid": found.invalid,
        "totalValid": found.total_valid,
        "totalInvalid": found.total_invalid,
        "totalWorstCase": found.worst_case,
        "lines": [asdict(line) for line in found.lines],
    }
