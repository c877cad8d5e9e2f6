"""The limits of the standard kinds of work, each with a default that suits one machine.

They stand apart from the kinds: who only says the limits loads none of the work.
"""

from __future__ import annotations

import os

import msgspec

from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds.commands.isolation import SETTINGS, Isolation, KeptNames
from anabranch.work.network.addresses import ANY, AddressPolicy


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout_seconds: float = 60.0
    body_bytes: int = 16 * 1024 * 1024
    connections: int = 4096  # open at once; further calls wait for one
    proxies_from_environment: bool = False  # a proxy then decides what can be reached
    addresses: AddressPolicy = ANY


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    capture_bytes: int = 1024 * 1024  # kept of each stream: the last so many
    grace_seconds: float = 1.0  # between SIGTERM and SIGKILL
    isolation: Isolation = Isolation()


class ShellOptions(CommandOptions, frozen=True, kw_only=True):
    """Of the kind `shell`."""


class ContainerOptions(CommandOptions, frozen=True, kw_only=True):
    command: str = ""  # with its options; empty: podman or docker, whichever is there


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the pool and of each of its processes."""

    limit: int = max(2, os.cpu_count() or 1)  # processes at most
    recycle_after: int = 10_000  # jobs
    grace_seconds: float = 1.0  # between SIGTERM and SIGKILL
    output_bytes: int = 64 * 1024
    result_bytes: int = 32 * 1024 * 1024
    memory_bytes: int = 0  # address space of one process; 0 sets no limit
    isolation: Isolation = Isolation()


class SqlOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the SQL kinds."""

    rows_max: int = 100_000
    result_bytes: int = 32 * 1024 * 1024
    threads: int = 8  # for databases that block
    connections: int = 10  # per PostgreSQL address
    idle_seconds: float = 60.0  # then a connection that nobody uses is closed
    connect_seconds: float = 10.0
    file_keep_seconds: float = 1.0  # then a DuckDB file that nobody uses is closed
    busy_seconds: float = 5.0  # how long to wait for a SQLite file that somebody else writes to
    files: FilePolicy = EVERYWHERE  # that may be opened
    login_of_machine: bool = True  # whether PostgreSQL tasks may use what libpq finds here
    own: KeptNames = SETTINGS  # which the process of DuckDB does not inherit


class NatsOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout_seconds: float = 30.0
    bytes_max: int = 16 * 1024 * 1024
    addresses: AddressPolicy = ANY


class BucketOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout_seconds: float = 60.0
    addresses: AddressPolicy = ANY


class ArtifactOptions(msgspec.Struct, frozen=True, kw_only=True):
    bytes_max: int = 64 * 1024 * 1024
    files: FilePolicy = EVERYWHERE


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
    files: FilePolicy = EVERYWHERE  # that tasks may name
    own: KeptNames = SETTINGS  # variables that they may not read
    threads: int | None = None  # for blocking tools
    without: frozenset[str] = frozenset()  # kinds that are switched off
