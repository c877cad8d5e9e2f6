"""The sessions of orchestrations at a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError, NotFound, Refused
from anabranch.kernel import stimuli as s
from anabranch.operations.read.processes import run_and_token
from anabranch.operations.sessions.sessions import (
    require_owner,
    require_session,
    told_of_kill,
    told_of_wake,
)
from anabranch.surfaces.cli.backend.http.runs import HttpRunBackend
from anabranch.surfaces.cli.backend.http.topic import HttpTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.client import Client


class HttpSessionBackend(HttpTopic):
    def __init__(self, client: Client, runs: HttpRunBackend) -> None:
        super().__init__(client)
        self._runs = runs

    async def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[Row]:
        if run is not None:
            return list((await self._client.get("runs", run, "processes"))["items"])
        # So many sessions, each of any number of rows.
        return await self._all("sessions", most=last, owner=owner)

    async def receipts(self, run: str, *, step: str | None, iteration: int | None) -> list[Row]:
        page = await self._client.get("runs", run, "receipts", step=step, iteration=iteration)
        return list(page["items"])

    async def find(self, name: str, owner: str | None) -> str:
        told = await self._client.get("sessions", "find", session=name, owner=owner)
        return str(told["run"])

    async def next_number(self, owner: str) -> int:
        return int((await self._client.get("sessions", "next", owner=owner))["next"])

    async def wakeable(self, who: str, **only: Any) -> list[Row]:
        renamed = {"run": "session", "last": "limit"}
        asked = {renamed.get(key, key): value for key, value in only.items()}
        return list((await self._client.get("sessions", "wakeable", address=who, **asked))["items"])

    async def alive(self, run: str) -> bool:
        try:
            shown = await self._session(run)
        except NotFound:
            return False
        return shown["finished_at"] is None

    async def wake(
        self, process: str, *, step: str, payload: Mapping[str, Any], runner: str
    ) -> Row:
        name, token = run_and_token(process)
        if bool(token) == bool(step):
            raise InputError("name a process (RUN:NUMBER) or a session and its step", code="usage")
        shown = await self._session(name)
        body = {"process": token, "step": step, "payload": payload, "runner": runner}
        told = await self._client.post("runs", shown["run"], "wake", body=body, once=True)
        mode = "pid" if token else "step"
        return told_of_wake(shown["labels"], shown["run"], mode, told["woken"])

    async def kill(self, run: str, reason: str, runner: str) -> Row:
        shown = await self._session(run)
        require_owner(shown["labels"], runner)
        killed: set[int] = set()
        try:
            await self._runs.say(shown["run"], s.Cancel("", reason or "killed"))
        except Refused as refusal:
            if refusal.code not in ("run_finished", "ending"):
                raise
        else:
            async for record, _ in self._runs.events(shown["run"], shown["events"], follow=False):
                killed |= _killed(record)
        after = await self._runs.show(shown["run"])
        return told_of_kill(shown["labels"], shown["run"], after["status"], len(killed))

    async def gas(self, rule: str, **counts: Any) -> Row:
        return await self._client.post("sessions", "gas", body={"rule": rule, **counts})

    async def _session(self, run: str) -> Row:
        shown = await self._runs.show(run)
        require_session(shown["run"], shown["dialect"])
        return shown


def _killed(record: Row) -> set[int]:
    fields = record["fields"]
    if record["kind"] == "token.doomed":
        return {fields["token"]}
    if record["kind"] == "token.finished" and fields.get("end") == "killed":
        return {fields["token"]}
    return set()
