"""The limits of the kinds of work, as the settings of a process say them: an engine, a worker, or a
process of a compute cluster."""

from __future__ import annotations

from dataclasses import replace

from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.store.location import on_postgres
from anabranch.work.file_policy import policy_of
from anabranch.work.kind_options import (
    ArtifactOptions,
    BucketOptions,
    ContainerOptions,
    HttpOptions,
    NatsOptions,
    ProcessOptions,
    ShellOptions,
    SqlOptions,
    WorkSettings,
)
from anabranch.work.kinds.commands.isolation import KeptNames, isolation_of
from anabranch.work.kinds.switched_off import SWITCHABLE_KINDS, switched_off
from anabranch.work.logs.limits import LogLimits
from anabranch.work.network.addresses import read_policy

LOG_BYTES_LEAST = 4096
ROOM = 1024 * 1024  # a result a little over the limit still gets to the engine, which says so


def work_settings(settings: Settings) -> WorkSettings:
    without = switched_off(settings.no_inline, SWITCHABLE_KINDS)
    own = own_variables(settings)
    isolation = isolation_of(
        settings.inline_environment,
        settings.inline_user,
        own=own,
        python="python" not in without,
    )
    allowed = policy_of(settings)
    return WorkSettings(
        python=ProcessOptions(
            limit=settings.processes_max,
            result_bytes=settings.result_bytes_max + ROOM,
            isolation=isolation,
        ),
        shell=ShellOptions(isolation=isolation),
        container=ContainerOptions(isolation=isolation, command=settings.container_command),
        http=http_options(settings),
        sql=SqlOptions(
            rows_max=settings.sql_rows_max,
            result_bytes=settings.sql_result_bytes,
            files=allowed,
            login_of_machine=login_of_machine(settings),
            own=own,
        ),
        nats=NatsOptions(
            bytes_max=settings.http_body_bytes, addresses=read_policy(settings.http_addresses)
        ),
        buckets=BucketOptions(addresses=read_policy(settings.http_addresses)),
        artifact=ArtifactOptions(bytes_max=settings.artifact_bytes, files=allowed),
        files=allowed,
        own=own,
        without=without,
        threads=settings.threads_max,
    )


def own_variables(settings: Settings) -> KeptNames:
    """What the process reads itself and hands to nobody: the key of the wallet, and the password of
    a store whose address has none."""
    named = {settings.chain_signer_key_env} - {""}
    if on_postgres(settings.store):
        named.add("PGPASSWORD")
    return KeptNames(frozenset(named))


def login_of_machine(settings: Settings) -> bool:
    """Whether tasks may log in to PostgreSQL as this machine does."""
    text = settings.postgres_identity
    if text not in ("", "task", "machine"):
        raise InputError(f"postgres_identity must be task or machine, not {text!r}")
    return text != "task"


def for_others(settings: Settings) -> Settings:
    """Of a server or a worker: whoever writes what it does is not always the one whose machine it
    is, so tasks log in with what they were given."""
    if settings.postgres_identity:
        return settings
    return replace(settings, postgres_identity="task")


def log_limits(settings: Settings) -> LogLimits:
    """Less than a page of text says nothing: that much is kept in any case."""
    attempt = max(settings.work_log_bytes_max, LOG_BYTES_LEAST)
    return LogLimits(attempt, max(settings.run_work_log_bytes_max, attempt))


def http_options(settings: Settings) -> HttpOptions:
    return HttpOptions(
        body_bytes=settings.http_body_bytes, addresses=read_policy(settings.http_addresses)
    )
