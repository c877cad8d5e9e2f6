"""The schema of a PostgreSQL store: made, brought up to date, and refused where it is not ours.

Two servers that start at once must not both create it: an advisory lock lets one in after the
other, for as long as its transaction takes.
"""

from __future__ import annotations

import time
import zlib

import msgspec
import psycopg
from psycopg import sql

from anabranch.errors import StoreError, UnusableStore
from anabranch.store.access_ports import AuditEntry
from anabranch.store.location import SCHEMA_MARK
from anabranch.store.outages import MISSING
from anabranch.store.postgres.address import Address
from anabranch.store.postgres.connections import Plain, in_driver_form
from anabranch.store.postgres.errors import SETTING, translate
from anabranch.store.relational.errors import COPYING, SOURCE, unfinished_copy
from anabranch.store.relational.rows import LABEL_COLUMNS, label_rows, labels_in
from anabranch.store.statements import Progress, load_migrations, load_statements

PARTITIONS = 128
PARTITIONS_MAX = 4096
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")  # on every table
MIGRATIONS = load_migrations("postgres")
_ADD_AUDIT = in_driver_form(load_statements("postgres"))["add_audit"]
LABELS = 6  # the version that has a table of the labels of runs


def prepare(
    db: Plain,
    address: Address,
    *,
    create: bool,
    partitions: int | None,
    new: bool = True,
    audit: AuditEntry | None = None,
) -> int:
    """Bring the schema up to date; returns how many partitions the store has. Without `create`
    nothing is written, without `new` no store is made where there is none. The line is written in
    the transaction that changes the schema."""
    if partitions is not None and not 1 <= partitions <= PARTITIONS_MAX:
        raise StoreError(
            f"store_partitions (ANABRANCH_STORE_PARTITIONS) must be 1 to {PARTITIONS_MAX}, not "
            f"{partitions}",
            code="store_partitions",
        )
    try:
        version = _version(db, address)
        if version != len(MIGRATIONS):
            if not create or (version <= 0 and not new):
                raise _missing(address, version)
            _migrate(db, address, partitions or PARTITIONS, audit)
        _require_rights(db, address, writing=create)
        (count,) = db.execute("SELECT partitions FROM cluster").fetchone() or (0,)
    except psycopg.Error as error:
        raise translate(error, address.shown) from None
    if partitions is not None and partitions != count:
        raise StoreError(
            f"store {address.shown} was created with {count} partitions, not {partitions}: the "
            "number cannot be changed. Leave store_partitions (ANABRANCH_STORE_PARTITIONS) out, or "
            f"name another schema with ?schema= in {SETTING}",
            code="store_partitions",
        )
    _require_finished(db, address)
    return int(count)


def _require_rights(db: Plain, address: Address, *, writing: bool) -> None:
    """At once, and not when the first run has come to the table that lacks one."""
    rights = RIGHTS if writing else RIGHTS[:1]
    lacking = db.execute(
        "SELECT relname, wanted FROM pg_class, unnest(%s::text[]) AS wanted "
        "WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s) "
        "AND relkind = 'r' AND NOT has_table_privilege(pg_class.oid, wanted) "
        "ORDER BY relname, wanted LIMIT 4",
        (list(rights), address.schema),
    ).fetchall()
    if lacking:
        listed = ", ".join(f"{right} on {table}" for table, right in lacking[:3])
        more = " and more" if len(lacking) > 3 else ""
        raise _no_right(address, f"{listed}{more}")


def _no_right(address: Address, what: str) -> StoreError:
    return StoreError(
        f"store {address.shown}: the user of {SETTING} lacks {what}. docs/postgres.md lists the "
        "rights that are needed",
        code="store_rights",
    )


def _migrate(db: Plain, address: Address, partitions: int, audit: AuditEntry | None) -> None:
    key = zlib.crc32(f"anabranch {address.schema}".encode())
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        version = _version(db, address)  # another server may have been first
        if version == -1:
            name = sql.Identifier(address.schema)
            db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
        db.execute("SET LOCAL statement_timeout = 0")  # an index of many rows takes its time
        for text in MIGRATIONS[max(version, 0) :]:
            db.execute(text)
        if 0 < version < LABELS:
            _fill_labels(db, Progress(address.shown, version, len(MIGRATIONS)))
        if version <= 0:
            _fill(db, partitions)
        mark = sql.Literal(f"{SCHEMA_MARK}{len(MIGRATIONS)}")
        name = sql.Identifier(address.schema)
        db.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(name, mark))
        if audit is not None:
            db.execute(_ADD_AUDIT, msgspec.structs.asdict(audit))


def _fill_labels(db: Plain, progress: Progress) -> None:
    """Of the runs that are there. Here and not in the database, which cannot read every label."""
    page = (
        "SELECT run, created_at, labels FROM heads WHERE labels <> '{}' AND run > %s "
        "ORDER BY run LIMIT 10000"
    )
    into = f"COPY run_labels ({', '.join(LABEL_COLUMNS)}) FROM STDIN"
    after = ""
    while rows := db.execute(page, (after,)).fetchall():
        with db.cursor().copy(into) as copy:
            for run, created_at, labels in rows:
                for row in label_rows(run, created_at, labels_in(labels)):
                    copy.write_row(row)
        after = rows[-1][0]
        progress.runs += len(rows)
        progress.tell()
    db.execute("ANALYZE run_labels")


def _fill(db: Plain, partitions: int) -> None:
    now = int(time.time() * 1000)
    db.execute("INSERT INTO cluster (partitions, created_at) VALUES (%s, %s)", (partitions, now))
    db.execute(
        "INSERT INTO partitions (partition) SELECT generate_series(0, %s)", (partitions - 1,)
    )


def _require_finished(db: Plain, address: Address) -> None:
    """Raises where a copy of another store was begun, with the command that goes on with it."""
    try:
        if is_unfinished(db):
            (source,) = db.execute(SOURCE).fetchone() or ("another store",)
            raise unfinished_copy(address.shown, str(source))
    except psycopg.Error as error:
        raise translate(error, address.shown) from None


def is_unfinished(db: Plain) -> bool:
    (found,) = db.execute("SELECT to_regclass(%s) IS NOT NULL", (COPYING,)).fetchone() or (False,)
    return bool(found)


def version_of(db: Plain, address: Address) -> int:
    """The version of the schema; 0 when there is none."""
    try:
        return max(_version(db, address), 0)
    except psycopg.Error as error:
        raise translate(error, address.shown) from None


def _version(db: Plain, address: Address) -> int:
    """Of the schema; -1 when there is none, 0 when it is empty."""
    row = db.execute(
        "SELECT coalesce(obj_description(oid, 'pg_namespace'), ''), "
        "EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = pg_namespace.oid), "
        "has_schema_privilege(oid, 'USAGE') "
        "FROM pg_namespace WHERE nspname = %s",
        (address.schema,),
    ).fetchone()
    if row is None:
        return -1
    comment, used, usable = row
    if not usable:
        raise _no_right(address, f"USAGE on schema {address.schema}")
    number = str(comment).removeprefix(SCHEMA_MARK)
    if str(comment).startswith(SCHEMA_MARK) and number.isdecimal():
        return _known(int(number), address)
    if used:
        raise UnusableStore(
            f"the schema {address.schema} at {address.shown} has tables that are not Anabranch's; "
            f"nothing was changed. Name another one with ?schema= in {SETTING}"
        )
    return 0


def _known(version: int, address: Address) -> int:
    if version > len(MIGRATIONS):
        raise UnusableStore(
            f"store {address.shown} has schema version {version}; this Anabranch knows up to "
            f"{len(MIGRATIONS)}. Nothing was changed: use the newer Anabranch."
        )
    return version


def _missing(address: Address, version: int) -> StoreError:
    if version <= 0:
        words = (
            f"there is no store at {address.shown}: check database and schema in {SETTING}, or "
            "create it with `anabranch store migrate`"
        )
        return StoreError(words, code=MISSING)
    return StoreError(
        f"store {address.shown} has schema version {version}, an older one than this Anabranch "
        "reads: run `anabranch store migrate`",
        code="store_old_schema",
    )
