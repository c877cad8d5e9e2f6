"""The desk of a server: the same questions as at a store, over the HTTP API."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from anabranch.dialects.port import RegisteredTool
from anabranch.dialects.source import SourceLimits
from anabranch.dialects.xrc729.words import DIALECT as ORCHESTRATION
from anabranch.dialects.xrc729.words import OWNER, SESSION
from anabranch.errors import AnabranchError, DefinitionError, InputError, NotFound, Refused
from anabranch.kernel import stimuli as s
from anabranch.net.problems import Problem
from anabranch.operations.definitions.bundles import with_rules
from anabranch.operations.definitions.prepare import TEXT, canonical_text
from anabranch.operations.definitions.prepare import check as check_definition
from anabranch.operations.read.items import Page, Wanted
from anabranch.operations.read.processes import pid_of, run_and_token
from anabranch.operations.read.references import Referred
from anabranch.operations.runs.purge import Purged, added, age_ms
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.operations.sessions.sessions import LIVE, require_owner
from anabranch.runtime.messages.codec import Sayable
from anabranch.settings import Settings
from anabranch.store.ports import Forgotten, Head, HeadFilter, Space
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.backend import Row, SessionBackend, Told, token_of, who
from anabranch.surfaces.client import Client, checked_url, problem_of
from anabranch.surfaces.http.guard.auth import LOOPBACK_NAMES

PAGE = 500  # the most that one page of a list has
EVENTS = 1000


@asynccontextmanager
async def http_backend(
    options: argparse.Namespace, settings: Settings
) -> AsyncIterator[HttpBackend]:
    _refuse_what_is_local(options)
    token = token_of(settings)
    if token and _in_the_clear(settings.server):
        print(f"anabranch: the token goes to {settings.server} unencrypted", file=sys.stderr)
    # A token says by itself who asks; without one the server takes our word for it.
    actor = getattr(options, "actor", "") if token else who(options)
    async with Client(settings.server, token=token, actor=actor) as client:
        yield HttpBackend(client)


def _in_the_clear(url: str) -> bool:
    parts = urlsplit(checked_url(url))
    return parts.scheme == "http" and parts.hostname not in LOOPBACK_NAMES


#: What is chosen where the work is done.
LOCAL = (
    ("tools", "tools are registered where the work is done: leave --tools to the server"),
    ("participants", "participants are asked by the server: start that with --participants"),
    ("no_inline", "the server decides what it does: start that with --no-inline"),
    ("inline_user", "the server decides who its work runs as: start that with --inline-user"),
)


def _refuse_what_is_local(options: argparse.Namespace) -> None:
    for name, said in LOCAL:
        if getattr(options, name, None):
            raise InputError(said, code="usage")


class HttpBackend:
    def __init__(self, client: Client) -> None:
        self.client = client

    # -- definitions -------------------------------------------------------------------------

    async def check(
        self, file: str, _tools: Sequence[RegisteredTool], rules: str | None
    ) -> list[Problem]:
        text = sendable(file, rules)
        if text is None:  # it does not even get as far as a server
            return list(check_definition(values.source(file), (), rules).problems)
        return await self.problems(text, file)

    async def problems(self, text: str, file: str) -> list[Problem]:
        told = await self.client.post("definitions", "check", body=posted(text, file))
        return named([problem_of(one) for one in told["problems"]], file)

    async def respell(self, file: str) -> tuple[str, str]:
        text = sendable(file, None) if file != "-" else None
        if text is None:
            return canonical_text(Path(file))  # says what is wrong with the file
        try:
            told = await self.client.post("definitions", "format", body=posted(text, file))
        except DefinitionError as error:
            raise renamed(error, file) from None
        return text, told["definition"]

    async def draw(
        self, file: str, form: str, _tools: Sequence[RegisteredTool], rules: str | None
    ) -> str:
        text = sendable(file, rules)
        if text is None:  # says what is wrong with the file
            raise DefinitionError(check_definition(values.source(file), (), rules).errors)
        body = posted(text, file)
        try:
            told = await self.client.post("definitions", "graph", body=body, format=form)
        except DefinitionError as error:
            raise renamed(error, file) from None
        return str(told["graph"])

    # -- looking -----------------------------------------------------------------------------

    async def runs(self, wanted: HeadFilter) -> list[Row]:
        found: list[Row] = []
        cursor: str | None = None
        while len(found) < wanted.limit:
            page = await self.client.get(
                "runs",
                status=list(wanted.statuses),
                name=wanted.name,
                label=[f"{key}={value}" for key, value in wanted.labels.items()],
                limit=min(PAGE, wanted.limit - len(found)),
                cursor=cursor,
            )
            found += [_head_fields(card) for card in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        return found

    async def show(self, run: str) -> Row:
        shown: Row = await self.client.get("runs", run)
        return {key: value for key, value in shown.items() if key not in ("created", "updated")}

    async def items(self, run: str, step: str, wanted: Wanted) -> Page:
        fields = msgspec.structs.asdict(wanted)
        page = await self.client.get("runs", run, "loops", step, "items", **fields)
        page["more_after"] = page.pop("next")
        return msgspec.convert(page, Page)

    async def explain(self, run: str) -> Row:
        told: Row = await self.client.get("runs", run, "explain")
        return told

    async def referred(self, ref: str, offset: int, limit: int) -> Referred:
        found = await self.client.get("results", ref=ref, offset=offset, limit=limit)
        return msgspec.convert(found, Referred)

    async def plan_redrive(self, run: str) -> RedrivePlan:
        return msgspec.convert(await self.client.get("runs", run, "redrive"), RedrivePlan)

    async def graph(self, run: str, form: str) -> str:
        return str((await self.client.get("runs", run, "graph", format=form))["graph"])

    async def events(self, run: str, after: int, *, follow: bool) -> AsyncIterator[tuple[Row, int]]:
        shown = await self.show(run)
        run, began = shown["run"], shown["created_at"]
        while True:
            page = await self.client.get("runs", run, "events", after=after, limit=EVENTS)
            for record in page["items"]:
                after = record["seq"]
                yield record, began
            if page["next"] is None:
                break
        if follow and not page["finished"]:
            async for record in self.client.stream("runs", run, "events", "stream", after=after):
                yield record, began

    # -- saying ------------------------------------------------------------------------------

    async def say(self, run: str, said: Sayable) -> Told:
        path, body = route_of(said)
        told = await self.client.post("runs", run, *path, body=body)
        return Told(told["run"], "engine", told["status"])

    async def purge(self, wanted: HeadFilter, older_than: str, *, dry_run: bool) -> Purged:
        age_ms(older_than)  # what is not an age is told here as there
        which = {
            "status": list(wanted.statuses),
            "dialect": wanted.dialect,
            "name": wanted.name,
            "labels": dict(wanted.labels),
            "prefix": wanted.run_prefix,
        }
        body = {"older_than": older_than, "filter": which, "dry_run": dry_run}
        gone = Forgotten()
        while True:
            page = await self.client.post("runs", "purge", body=body)
            gone = added(gone, Forgotten(page["runs"], page["payloads"], page["bytes"]))
            if page["next"] is None:
                return Purged(
                    runs=gone.runs,
                    payloads=gone.payloads,
                    bytes=gone.bytes,
                    space=msgspec.convert(page["space"], Space),
                )
            body["cursor"] = page["next"]

    @property
    def sessions(self) -> SessionBackend:
        return HttpSessionBackend(self)


def route_of(said: Sayable) -> tuple[tuple[str, ...], Row]:
    """Where a stimulus is posted, and as what. Who says it is known from the request."""
    match said:
        case s.Pause():
            return ("pause",), {"reason": said.reason}
        case s.Resume():
            return ("resume",), {}
        case s.Cancel():
            return ("cancel",), {"reason": said.reason}
        case s.PatchContext():
            given = {patch.key: patch.value for patch in said.patches}
            return ("patch",), {"values": given, "reducer": said.patches[0].reducer}
        case s.TuneLoop():
            body = {"window": said.window, "stop": said.stop, "reason": said.reason}
            return ("loops", said.loop), body
        case s.Decide():
            body = {"verdict": said.verdict, "reason": said.reason, "evidence": said.evidence}
            if said.override:
                body["override"] = True
            return ("gates", said.gate, "decide"), body
        case _:
            raise AnabranchError(f"{type(said).__name__} cannot be said to a server")


class HttpSessionBackend:
    def __init__(self, at: HttpBackend) -> None:
        self._target = at
        self._client = at.client

    async def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[Row]:
        if run is not None:
            rows: list[Row] = (await self._client.get("runs", run, "processes"))["items"]
            return rows
        rows, cursor = [], None
        while last > 0:  # so many sessions, each of any number of rows
            some = min(PAGE, last)
            page = await self._client.get("sessions", owner=owner, limit=some, cursor=cursor)
            rows, cursor, last = rows + page["items"], page["next"], last - some
            if cursor is None:
                break
        return rows

    async def receipts(self, run: str, *, step: str | None, iteration: int | None) -> list[Row]:
        page = await self._client.get("runs", run, "receipts", step=step, iteration=iteration)
        rows: list[Row] = page["items"]
        return rows

    async def find(self, name: str, owner: str | None) -> str:
        told = await self._client.get("sessions", "find", session=name, owner=owner)
        return str(told["run"])

    async def next_number(self, owner: str) -> int:
        return int((await self._client.get("sessions", "next", owner=owner))["next"])

    async def wakeable(self, who: str, **only: Any) -> list[Row]:
        asked = {"address": who, **only, "session": only.pop("run", None)}
        asked["limit"] = asked.pop("last", None)
        asked.pop("run", None)
        rows: list[Row] = (await self._client.get("sessions", "wakeable", **asked))["items"]
        return rows

    async def alive(self, run: str) -> bool:
        try:
            shown = await self._session(run)
        except NotFound:
            return False
        return shown["finished_at"] is None

    async def executed(self, run: str, iteration: int) -> bool | None:
        try:
            rows = await self.list_sessions(run=run)
        except NotFound:
            return None
        found = [row["status"] for row in rows if row["iterationStep"] == iteration]
        return found[0] not in LIVE if found else None

    async def wake(
        self, process: str, *, step: str, payload: Mapping[str, Any], runner: str
    ) -> Row:
        name, token = run_and_token(process)
        if bool(token) == bool(step):
            raise InputError("name a process (RUN:NUMBER) or a session and its step", code="usage")
        shown = await self._session(name)
        body = {"process": token, "step": step, "payload": payload, "runner": runner}
        told = await self._client.post("runs", shown["run"], "wake", body=body, once=True)
        return {
            "ok": True,
            "owner": shown["labels"].get(OWNER, ""),
            "sessionId": _session_id(shown),
            "rootPid": pid_of(_session_id(shown), 1),
            "mode": "pid" if token else "step",
            "woken": told["woken"],
        }

    async def kill(self, run: str, reason: str, runner: str) -> Row:
        shown = await self._session(run)
        require_owner(shown["labels"], runner)
        killed: set[int] = set()
        try:
            await self._target.say(shown["run"], s.Cancel("", reason or "killed"))
        except Refused as refusal:
            if refusal.code not in ("run_finished", "ending"):
                raise
        else:
            async for record, _ in self._target.events(shown["run"], shown["events"], follow=False):
                killed |= _killed(record)
        after = await self._target.show(shown["run"])
        return {
            "ok": True,
            "owner": shown["labels"].get(OWNER, ""),
            "processId": _session_id(shown),
            "action": "kill",
            "status": after["status"],
            "affected": len(killed),
        }

    async def gas(self, rule: str, **counts: Any) -> Row:
        told: Row = await self._client.post("sessions", "gas", body={"rule": rule, **counts})
        return told

    async def _session(self, run: str) -> Row:
        shown = await self._target.show(run)
        if shown["dialect"] != ORCHESTRATION:
            raise InputError(
                f"run {shown['run']} is no session: only orchestrations have processes",
                code="not_a_session",
            )
        return shown


def _session_id(shown: Row) -> str:
    return str(shown["labels"].get(SESSION) or shown["run"])


def _killed(record: Row) -> set[int]:
    fields = record["fields"]
    if record["kind"] == "token.doomed":
        return {fields["token"]}
    if record["kind"] == "token.finished" and fields.get("end") == "killed":
        return {fields["token"]}
    return set()


def _head_fields(card: Row) -> Row:
    """A card of the API as the index card it was made from."""
    fields = {**card, "seq": card["events"]}
    if not fields.get("damage"):
        fields.pop("damage", None)  # as it is left out where the store is read here
    wanted = (*Head.__struct_fields__, "missing")
    return {name: fields[name] for name in wanted if name in fields}


def sendable(file: str, rules: str | None) -> str | None:
    """The text of a definition with its rules; None for a file that cannot be read as one."""
    source = values.source(file)
    if isinstance(source, str):
        text = source
    else:
        try:
            data = Path(str(source)).read_bytes()
            text = data.decode("utf-8")
        except (OSError, ValueError):
            return None
        if len(data) > SourceLimits().bytes_max:
            return None
    return with_rules(text, file, rules) if rules is not None else text


def posted(text: str, file: str) -> Row:
    """A definition as it is sent, with the bare name of its file."""
    return {"definition": text, "file": label_of(file)}


def label_of(file: str) -> str:
    name = Path(file).name[-200:].replace("\\", "_")
    return name if file != "-" and name and name.isprintable() else TEXT


def named(problems: Sequence[Problem], file: str) -> list[Problem]:
    """Problems at their places in the file that was sent."""
    label, shown = label_of(file), TEXT if file == "-" else file

    def place(there: str) -> str:
        head, hash_, rest = there.partition("#")
        return f"{shown}{hash_}{rest}" if head == label else there

    return [
        replace(one, position=replace(one.position, file=place(one.position.file)))
        for one in problems
    ]


def renamed(error: DefinitionError, file: str) -> DefinitionError:
    return DefinitionError(named(error.problems, file))
