"""The kinds of work an engine starts with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.errors import InputError
from anabranch.work.kind_options import WorkSettings
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.python.places import Places
from anabranch.work.kinds.secrets import SecretsPerformer
from anabranch.work.kinds.switched_off import SwitchedOff
from anabranch.work.kinds.threads import Threads
from anabranch.work.kinds.wait import WaitPerformer
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.values.payloads import PayloadPort

if TYPE_CHECKING:
    from anabranch.work.kinds.buckets.buckets import Buckets
    from anabranch.work.kinds.script_sources import ScriptSources
    from anabranch.work.loops.results import Loops
    from anabranch.work.sql.duckdb import DuckDb
    from anabranch.work.sql.flows import Flowing
    from anabranch.work.sql.postgres import Postgres
    from anabranch.work.sql.sqlite import Sqlite


def standard_performers(
    settings: WorkSettings | None = None,
    *,
    toolbox: Toolbox | None = None,
    payloads: PayloadPort | None = None,
    loops: Loops | None = None,
    redactor: Redactor | None = None,
) -> dict[str, Performer]:
    """A performer per kind, tools included. Nothing is loaded, started or opened before its first
    task."""
    chosen = settings or WorkSettings()
    performers: dict[str, Performer] = {
        "noop": Noop(),
        "wait": WaitPerformer(),
        "secrets": SecretsPerformer(redactor or Redactor(), allowed=chosen.files, own=chosen.own),
        **_Kinds(chosen, payloads, loops).performers,
    }
    performers |= {kind: SwitchedOff(kind) for kind in chosen.without}
    tools = {} if toolbox is None else toolbox.performers(Threads(chosen.threads))
    if taken := sorted(tools.keys() & performers.keys()):
        raise InputError(f"tool '{taken[0]}' has the name of a standard kind; choose another")
    return performers | tools


class _Kinds:
    """Makes the performer of a kind when its first task comes. Each method imports what its kind
    needs: nobody uses all kinds in one process, and together they are a hundred modules."""

    def __init__(
        self, settings: WorkSettings, payloads: PayloadPort | None, loops: Loops | None
    ) -> None:
        self._settings = settings
        self._payloads = payloads
        self._loops = loops
        self._places = Places(settings.python.limit)
        off = "http" in settings.without
        self._http: Performer = SwitchedOff("http") if off else LazyPerformer(self._make_http)
        self._databases = {
            "sqlite": LazyPerformer(lambda: self._sqlite),
            "postgres": LazyPerformer(lambda: self._postgres),
            "duckdb": LazyPerformer(lambda: self._duckdb),
        }
        self.performers: dict[str, Performer] = {
            "http": self._http,
            "python": LazyPerformer(self._python, places=self._places),
            "shell": LazyPerformer(self._shell),
            "script": LazyPerformer(self._script),
            "container": LazyPerformer(self._container),
            **self._databases,
            "transfer": LazyPerformer(self._transfer),
            "nats": LazyPerformer(self._nats),
            "gcs": LazyPerformer(self._gcs),
            "artifact": LazyPerformer(self._artifact),
        }

    @cached_property
    def _buckets(self) -> Buckets:
        from anabranch.work.kinds.buckets.buckets import Buckets

        return Buckets(self._settings.buckets, self._http, self._settings.without)

    @cached_property
    def _scripts(self) -> ScriptSources:
        from anabranch.work.kinds.script_sources import ScriptSources

        return ScriptSources(self._http, lambda: self._buckets, self._settings.files)

    @cached_property
    def _sqlite(self) -> Sqlite:
        from anabranch.work.sql.sqlite import Sqlite

        return Sqlite(self._settings.sql, self._scripts)

    @cached_property
    def _postgres(self) -> Postgres:
        from anabranch.work.sql.postgres import Postgres

        return Postgres(self._settings.sql, self._scripts)

    @cached_property
    def _duckdb(self) -> DuckDb:
        from anabranch.work.sql.duckdb import DuckDb

        return DuckDb(self._settings.sql, self._scripts)

    def _make_http(self) -> Performer:
        from anabranch.work.kinds.http.performer import Http

        return Http(self._settings.http)

    def _python(self) -> Performer:
        from anabranch.work.kinds.python.performer import Python

        return Python(self._settings.python, self._scripts, self._places)

    def _shell(self) -> Performer:
        from anabranch.work.kinds.commands.shell import Shell

        return Shell(self._settings.shell)

    def _script(self) -> Performer:
        from anabranch.work.kinds.commands.script import ScriptPerformer

        return ScriptPerformer(self._settings.shell, self._scripts)

    def _container(self) -> Performer:
        from anabranch.work.kinds.commands.container import Container

        return Container(self._settings.container, self._scripts)

    def _transfer(self) -> Performer:
        from anabranch.work.kinds.transfer import Transfer
        from anabranch.work.sql.duckdb_flows import DuckDbFlows
        from anabranch.work.sql.postgres_flows import PostgresFlows
        from anabranch.work.sql.sqlite_flows import SqliteFlows

        for database in self._databases.values():
            database.made()  # so that they are closed, also when nobody else used them
        flows: dict[str, Flowing] = {
            "sqlite": SqliteFlows(self._sqlite),
            "postgres": PostgresFlows(self._postgres),
            "duckdb": DuckDbFlows(self._duckdb),
        }
        return Transfer(flows, self._http, self._settings.without)

    def _nats(self) -> Performer:
        from anabranch.work.kinds.nats.performer import Nats

        return Nats(self._settings.nats)

    def _gcs(self) -> Performer:
        from anabranch.work.kinds.buckets.gcs import Gcs

        return Gcs(self._buckets, self._settings.artifact.bytes_max, self._settings.files)

    def _artifact(self) -> Performer:
        from anabranch.work.kinds.artifact import Artifact

        return Artifact(
            self._payloads, self._settings.artifact, loops=self._loops, buckets=self._buckets
        )


def make_all(performers: Mapping[str, Performer]) -> None:
    """Make what would be made with its first task. A server does so before it has any, in a thread:
    the event loop would stand still meanwhile."""
    for performer in performers.values():
        inner = getattr(performer, "inner", performer)  # of one that waits for a rate
        if isinstance(inner, LazyPerformer):
            inner.made()


async def close_all(performers: Mapping[str, Performer]) -> None:
    """Closes what is open, all at once; one that fails does not keep the others from it."""
    results = await asyncio.gather(*_closings(performers.values()), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _closings(performers: Iterable[Performer]) -> Iterable[Any]:
    return [performer.close() for performer in performers if hasattr(performer, "close")]
