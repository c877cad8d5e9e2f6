"""Where the verbs of the command line are asked: at a store of this machine, or at a server.

A verb parses and prints. What it asks in between is the same wherever the runs are: a `Desk`. There
are two, `LocalDesk` over a store and `RemoteDesk` over the HTTP API, and they answer alike, so a
verb prints the same and ends with the same exit code at either.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from anabranch.clock import SystemClock
from anabranch.dialects.port import Compiled, RegisteredTool
from anabranch.dialects.registry import in_order
from anabranch.errors import InputError
from anabranch.net.problems import Problem
from anabranch.operations.access.credentials import Credentials, StoreSource, looked_up
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.available import ENGINE_KINDS, available_in
from anabranch.operations.definitions.catalog import SCHEME, Catalog, file_key
from anabranch.operations.definitions.preflight import Preflight
from anabranch.operations.definitions.prepare import Source, canonical_text, compiler, prepare
from anabranch.operations.definitions.prepare import check as check_definition
from anabranch.operations.read.items import Page, Wanted
from anabranch.operations.read.reader import Reader, draw
from anabranch.operations.read.references import Referred, read_reference
from anabranch.operations.runs.purge import Purged, age_ms, purge
from anabranch.operations.runs.redrive_plan import RedrivePlan, prepare_redrive
from anabranch.operations.sessions.sessions import Sessions, estimated_gas
from anabranch.runtime.messages.codec import Sayable
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import HeadFilter, Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import SAID, note, noted
from anabranch.work.kinds.callables import default_toolbox
from anabranch.work.secrets.credential_sources import outside_sources

if TYPE_CHECKING:
    from anabranch.app import Parts

FOLLOW_SECONDS = 0.1

Row = dict[str, Any]


class Told(NamedTuple):
    """What became of something that was said to a run."""

    run: str
    how: str  # "engine": one was there and took it; "recorded": it is in the log, nobody runs
    status: str


class SessionBackend(Protocol):
    """What `anabranch session` asks."""

    async def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[Row]: ...

    async def receipts(self, run: str, *, step: str | None, iteration: int | None) -> list[Row]: ...

    async def find(self, name: str, owner: str | None) -> str: ...

    async def next_number(self, owner: str) -> int: ...

    async def wakeable(self, who: str, **only: Any) -> list[Row]: ...

    async def alive(self, run: str) -> bool: ...

    async def executed(self, run: str, iteration: int) -> bool | None: ...

    async def wake(
        self, process: str, *, step: str, payload: Mapping[str, Any], runner: str
    ) -> Row: ...

    async def kill(self, run: str, reason: str, runner: str) -> Row: ...

    async def gas(self, rule: str, **counts: Any) -> Row: ...


class Backend(Protocol):
    async def check(
        self, file: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> list[Problem]: ...

    async def respell(self, file: str) -> tuple[str, str]:
        """The text of a playbook as it is, and in the canonical spelling."""
        ...

    async def draw(
        self, file: str, form: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> str: ...

    async def runs(self, wanted: HeadFilter) -> list[Row]: ...

    async def show(self, run: str) -> Row: ...

    async def items(self, run: str, step: str, wanted: Wanted) -> Page: ...

    async def explain(self, run: str) -> Row: ...

    async def referred(self, ref: str, offset: int, limit: int) -> Referred: ...

    async def plan_redrive(self, run: str) -> RedrivePlan: ...

    async def graph(self, run: str, form: str) -> str: ...

    def events(self, run: str, after: int, *, follow: bool) -> AsyncIterator[tuple[Row, int]]:
        """Each record with the instant at which the run began."""
        ...

    async def say(self, run: str, said: Sayable) -> Told: ...

    async def purge(self, wanted: HeadFilter, older_than: str, *, dry_run: bool) -> Purged: ...

    @property
    def sessions(self) -> SessionBackend: ...


@asynccontextmanager
async def backend(options: argparse.Namespace, settings: Settings) -> AsyncIterator[Backend]:
    if not settings.server:
        yield LocalBackend(settings, who(options))
        return
    from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

    async with http_backend(options, settings) as remote:
        yield remote


def who(options: argparse.Namespace) -> str:
    """Who is recorded as the one that did it."""
    if getattr(options, "actor", ""):
        return str(options.actor)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in a bare container
        return "somebody"


def token_of(settings: Settings) -> str:
    """From the environment, or from a file: a command line can be read by everybody here."""
    if settings.token:
        return settings.token.strip()
    if not settings.token_file:
        return ""
    try:
        return Path(settings.token_file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(
            f"the token cannot be read from {settings.token_file}: {reason}", code="usage"
        ) from None


class LocalBackend:
    """A store of this machine; an engine elsewhere may be at work on it."""

    def __init__(self, settings: Settings, actor: str = "") -> None:
        self._settings = settings
        self._actor = actor

    # -- looking -----------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        with self._looking() as store:
            elsewhere = store.owner() is not None  # what that engine has is not known here
            preflight = None if elsewhere else self._preflight()
            yield Reader(store, Nets(store, compiler()), preflight)

    @contextmanager
    def _looking(self) -> Iterator[Store]:
        values.require_store(self._settings)
        store = open_store(self._settings, read_only=True)
        try:
            yield store
        finally:
            store.close()

    async def check(
        self, file: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> list[Problem]:
        source: Source = values.source(file)
        compiled = self._checked(source, tools, rules)
        found = self._with_credentials(compiled)
        if compiled.net is None:
            return [*found]
        preflight = self._preflight()
        here = [*preflight.kinds_off(compiled.net), *preflight.missing_extras(compiled.net)]
        return [*found, *here]

    def _checked(
        self, source: Source, tools: Sequence[RegisteredTool], rules: str | None
    ) -> Compiled:
        """With what the folder and the store of the settings have under paths."""
        with self._catalog() as catalog:
            compiled = check_definition(source, tools, rules, knows=catalog.knows)
            if compiled.net is None or not isinstance(source, Path):
                return compiled
            key = f"{SCHEME}{compiled.net.path}" if compiled.net.path else file_key(source)
            cycles = catalog.cycles(compiled.net, key)
            return replace(compiled, problems=in_order((*compiled.problems, *cycles)))

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        if self._settings.store == ":memory:" or not Path(self._settings.store).exists():
            yield Catalog(None, self._settings.catalog)
            return
        with self._looking() as store:
            yield Catalog(store, self._settings.catalog)

    def _with_credentials(self, compiled: Compiled) -> Sequence[Problem]:
        """Without a store nobody can say which credentials there will be."""
        named = compiled.net is not None and compiled.net.credentials
        if (
            not named
            or self._settings.store == ":memory:"
            or not Path(self._settings.store).exists()
        ):
            return compiled.problems
        with self._looking() as store:
            kept = Credentials(store, SystemClock().now, key_of(store, self._settings))
            sources = [StoreSource(kept), *outside_sources(self._settings)]
            return looked_up(compiled.problems, compiled.net, sources)

    def _preflight(self) -> Preflight:
        """Of an engine that this command line would open."""
        tools = [tool.name for tool in default_toolbox]
        return Preflight(available_in(self._settings, (*ENGINE_KINDS, *tools), workers=False))

    async def respell(self, file: str) -> tuple[str, str]:
        return canonical_text(Path(file))

    async def draw(
        self, file: str, form: str, tools: Sequence[RegisteredTool], rules: str | None
    ) -> str:
        return draw(prepare(values.source(file), tools, rules).net, form)

    async def runs(self, wanted: HeadFilter) -> list[Row]:
        with self.reading() as read:
            await read.look_at_files(read.store.heads(wanted))
            return read.runs(wanted)

    async def show(self, run: str) -> Row:
        with self.reading() as read:
            await read.look_at_files([read.find(run)])
            return read.show(run)

    async def items(self, run: str, step: str, wanted: Wanted) -> Page:
        with self.reading() as read:
            return read.items(run, step, **msgspec.structs.asdict(wanted))

    async def explain(self, run: str) -> Row:
        with self.reading() as read:
            await read.look_at_files([read.find(run)])
            return read.explain(run)

    async def referred(self, ref: str, offset: int, limit: int) -> Referred:
        with self.reading() as read:
            return await read_reference(read, ref, offset=offset, limit=limit)

    async def plan_redrive(self, run: str) -> RedrivePlan:
        with self.reading() as read:
            return prepare_redrive(read, run).plan()

    async def graph(self, run: str, form: str) -> str:
        with self.reading() as read:
            return read.graph(run, form)

    async def events(self, run: str, after: int, *, follow: bool) -> AsyncIterator[tuple[Row, int]]:
        with self.reading() as read:
            head = read.find(run)
            while True:
                records = read.events(head.run, after)
                for record in records:
                    after = record.seq
                    yield msgspec.to_builtins(record), head.created_at
                done = any(record.kind == "run.finished" for record in records)
                if not follow or done or (read.find(head.run).finished and not records):
                    return
                await asyncio.sleep(FOLLOW_SECONDS)

    # -- saying ------------------------------------------------------------------------------

    async def say(self, run: str, said: Sayable) -> Told:
        values.require_store(self._settings)
        store = open_store(self._settings)
        parts = _engine_parts(store, self._settings)
        try:
            found = parts.verbs.read.find(run).run
            with noted(store, self._actor, SAID[type(said)], found):
                how = await _say(store, parts, found, said)
            return Told(found, how, parts.verbs.read.find(found).status)
        finally:
            await parts.close()
            store.close()

    async def purge(self, wanted: HeadFilter, older_than: str, *, dry_run: bool) -> Purged:
        values.require_store(self._settings)
        age = age_ms(older_than)
        store = open_store(self._settings)
        try:
            now = int(time.time() * 1000)
            gone = purge(store, age, now, dry_run=dry_run, wanted=wanted)
            if not dry_run:
                note(store, self._actor, "runs.purge")
            return gone
        finally:
            store.close()

    @property
    def sessions(self) -> SessionBackend:
        return LocalSessionBackend(self._settings, self._actor)


class LocalSessionBackend:
    def __init__(self, settings: Settings, actor: str = "") -> None:
        self._settings = settings
        self._actor = actor

    @contextmanager
    def _looking(self) -> Iterator[Sessions]:
        values.require_store(self._settings)
        store = open_store(self._settings, read_only=True)
        try:
            yield Sessions(store, Reader(store, Nets(store, compiler())), _cannot_say)
        finally:
            store.close()

    @asynccontextmanager
    async def _doing(self, action: str, subject: str) -> AsyncIterator[Sessions]:
        values.require_store(self._settings)
        store = open_store(self._settings)
        parts = _engine_parts(store, self._settings)
        try:
            with noted(store, self._actor, action, subject):
                yield Sessions(
                    store, parts.verbs.read, lambda run, said: _say(store, parts, run, said)
                )
        finally:
            await parts.close()
            store.close()

    async def list_sessions(
        self, *, owner: str | None = None, run: str | None = None, last: int = 100
    ) -> list[Row]:
        with self._looking() as sessions:
            return sessions.list_sessions(owner=owner, run=run, last=last)

    async def receipts(self, run: str, *, step: str | None, iteration: int | None) -> list[Row]:
        with self._looking() as sessions:
            return sessions.receipts(run, step=step, iteration=iteration)

    async def find(self, name: str, owner: str | None) -> str:
        with self._looking() as sessions:
            return sessions.find(name, owner)

    async def next_number(self, owner: str) -> int:
        with self._looking() as sessions:
            return sessions.next_number(owner)

    async def wakeable(self, who: str, **only: Any) -> list[Row]:
        with self._looking() as sessions:
            return sessions.wakeable(who, **only)

    async def alive(self, run: str) -> bool:
        with self._looking() as sessions:
            return sessions.session_alive(run)

    async def executed(self, run: str, iteration: int) -> bool | None:
        with self._looking() as sessions:
            return sessions.step_executed(run, iteration)

    async def wake(
        self, process: str, *, step: str, payload: Mapping[str, Any], runner: str
    ) -> Row:
        async with self._doing("sessions.wake", process) as sessions:
            return await sessions.wake_up_process(
                process, step=step, payload=payload, runner=runner
            )

    async def kill(self, run: str, reason: str, runner: str) -> Row:
        async with self._doing("sessions.end", run) as sessions:
            return await sessions.control(run, "kill", reason=reason, runner=runner)

    async def gas(self, rule: str, **counts: Any) -> Row:
        return estimated_gas(rule, **counts)


def _engine_parts(store: Store, settings: Settings) -> Parts:
    from anabranch.app import Parts  # everything an engine is made of: verbs that look need none

    return Parts(store, settings, default_toolbox)


async def _say(store: Store, parts: Parts, run: str, said: Sayable) -> str:
    from anabranch.operations.runs.verbs import say

    return await say(store, lambda: parts.engine, run, said)


async def _cannot_say(_run: str, _said: object) -> None:
    raise AssertionError("looking changes nothing")
