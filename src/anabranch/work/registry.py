"""The kinds of work an engine starts with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.kinds.artifact import Artifact, ArtifactOptions
from anabranch.work.kinds.buckets.buckets import BucketOptions, Buckets
from anabranch.work.kinds.buckets.gcs import Gcs
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.commands.container import Container, ContainerOptions
from anabranch.work.kinds.commands.script import ScriptPerformer
from anabranch.work.kinds.commands.shell import Shell, ShellOptions
from anabranch.work.kinds.http.performer import Http, HttpOptions
from anabranch.work.kinds.nats.performer import Nats, NatsOptions
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.python.processes import ProcessOptions
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.kinds.secrets import SecretsPerformer
from anabranch.work.kinds.switched_off import SwitchedOff
from anabranch.work.kinds.threads import Threads
from anabranch.work.kinds.transfer import Transfer
from anabranch.work.loops.results import Loops
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.sql.duckdb import DuckDb
from anabranch.work.sql.duckdb_flows import DuckDbFlows
from anabranch.work.sql.flows import Flowing
from anabranch.work.sql.postgres import Postgres
from anabranch.work.sql.postgres_flows import PostgresFlows
from anabranch.work.sql.sqlite import Sqlite
from anabranch.work.sql.sqlite_flows import SqliteFlows
from anabranch.work.sql.task import SqlOptions
from anabranch.work.values.payloads import PayloadPort


class WorkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the standard kinds. Each has a default that suits one machine."""

    python: ProcessOptions = ProcessOptions()
    http: HttpOptions = HttpOptions()
    shell: ShellOptions = ShellOptions()
    container: ContainerOptions = ContainerOptions()
    sql: SqlOptions = SqlOptions()
    nats: NatsOptions = NatsOptions()
    buckets: BucketOptions = BucketOptions()
    artifact: ArtifactOptions = ArtifactOptions()
    threads: int | None = None  # for blocking tools
    without: frozenset[str] = frozenset()  # kinds that are switched off


def standard_performers(
    settings: WorkSettings | None = None,
    *,
    toolbox: Toolbox | None = None,
    payloads: PayloadPort | None = None,
    loops: Loops | None = None,
    redactor: Redactor | None = None,
) -> dict[str, Performer]:
    """A performer per kind, tools included. Nothing is started or opened before its first task."""
    chosen = settings or WorkSettings()
    known = redactor or Redactor()
    off: dict[str, Performer] = {kind: SwitchedOff(kind) for kind in chosen.without}
    http = off.get("http") or Http(chosen.http)
    buckets = Buckets(chosen.buckets, http, chosen.without)
    scripts = ScriptSources(http, buckets)
    sqlite, postgres = Sqlite(chosen.sql, scripts), Postgres(chosen.sql, scripts)
    duckdb = DuckDb(chosen.sql, scripts)
    flows: dict[str, Flowing] = {
        "sqlite": SqliteFlows(sqlite),
        "postgres": PostgresFlows(postgres),
        "duckdb": DuckDbFlows(duckdb),
    }
    performers: dict[str, Performer] = {
        "noop": Noop(),
        "python": Python(chosen.python, scripts),
        "http": http,
        "shell": Shell(chosen.shell),
        "script": ScriptPerformer(chosen.shell, scripts),
        "container": Container(chosen.container, scripts),
        "sqlite": sqlite,
        "postgres": postgres,
        "duckdb": duckdb,
        "transfer": Transfer(flows, http, chosen.without),
        "nats": Nats(chosen.nats),
        "gcs": Gcs(buckets, chosen.artifact.bytes_max),
        "secrets": SecretsPerformer(known),
        "artifact": Artifact(payloads, chosen.artifact, loops=loops, buckets=buckets),
    }
    performers |= off
    tools = {} if toolbox is None else toolbox.performers(Threads(chosen.threads))
    if taken := sorted(tools.keys() & performers.keys()):
        raise InputError(f"tool '{taken[0]}' has the name of a standard kind; choose another")
    return performers | tools


async def close_all(performers: Mapping[str, Performer]) -> None:
    """Closes what is open, all at once; one that fails does not keep the others from it."""
    results = await asyncio.gather(*_closings(performers.values()), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _closings(performers: Iterable[Performer]) -> Iterable[Any]:
    return [performer.close() for performer in performers if hasattr(performer, "close")]
