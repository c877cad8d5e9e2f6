"""A PostgreSQL store as it is at one moment, for whoever checks it: every row, one after the other.

All of it is read in one transaction, beside the servers that write. While that lasts, PostgreSQL
keeps what they replace: a check of a large store is better made of a copy or of a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.store.credential_ports import StoredCredential
from anabranch.store.hook_ports import Hook
from anabranch.store.inspection import Disagreement, Tick
from anabranch.store.ports import Definition, Head, Message, Record, StateSnapshot
from anabranch.store.postgres import schema
from anabranch.store.postgres.address import read_address
from anabranch.store.postgres.transfer import PostgresTables
from anabranch.store.record_ports import NamedRecord
from anabranch.store.relational.credentials import credential_of
from anabranch.store.relational.hooks import hook_of
from anabranch.store.relational.records import record_of
from anabranch.store.relational.rows import definition_of, head_of, message_of
from anabranch.store.relational.tables import DEFINITIONS, HEADS, PAYLOADS, TABLES
from anabranch.store.stream_ports import StreamCard, StreamEvents

RECORDS_AT_ONCE = 200
_MAILBOX = next(table for table in TABLES if table.name == "mailbox")
_RECORDS = next(table for table in TABLES if table.name == "named_records")
_DISAGREEMENTS = ("places", "order", "cursors", "deliveries", "mailbox")


class PostgresInspection(PostgresTables):
    """Use it as a context manager. An `unfinished` copy is looked at by the copy that makes it."""

    cluster = True  # servers share it, so no key lies beside it

    def __init__(self, text: str, *, unfinished: bool = False) -> None:
        super().__init__(read_address(text))
        try:
            if not unfinished:
                schema.prepare(self.db, self.address, create=False, partitions=None)
            with self.reporting():
                self.db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PostgresInspection:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- the server ----------------------------------------------------------------------------

    def integrity(self, tick: Tick) -> list[str]:  # noqa: ARG002
        """PostgreSQL checks a page whenever it is read, and here all of them are."""
        return []

    def notes(self) -> list[str]:
        ((checksums,),) = self.named("inspect_checksums")
        if checksums == "on":
            return []
        return [
            "the server keeps no checksums of its pages, so a bad disk is noticed late: "
            "`pg_checksums --enable` adds them while the server is stopped"
        ]

    # -- its rows ------------------------------------------------------------------------------

    def heads(self) -> Iterator[Head]:
        for row in self.rows(HEADS):
            yield head_of(row)

    def records(self, run: str) -> Iterator[Record]:
        after = -(2**62)
        while True:
            given = {"run": run, "after": after, "limit": RECORDS_AT_ONCE}
            rows = self.named("read", given)
            for row in rows:
                record = Record(*row)
                after = record.first_seq + record.count - 1
                yield record
            if len(rows) < RECORDS_AT_ONCE:
                return

    def snapshot(self, run: str) -> StateSnapshot | None:
        rows = self.named("inspect_snapshot", {"run": run})
        return StateSnapshot(*rows[0]) if rows else None

    def sealed(self, run: str) -> Mapping[str, bytes]:
        return dict(self.named("sealed", {"run": run}))

    def definitions(self) -> Iterator[Definition]:
        for row in self.rows(DEFINITIONS):
            yield definition_of(row)

    def has_definition(self, fingerprint: str) -> bool:
        return bool(self.ask("SELECT 1 FROM definitions WHERE fingerprint = ?", (fingerprint,)))

    def payloads(self) -> Iterator[tuple[str, bytes]]:
        for row in self.rows(PAYLOADS):
            yield row[0], row[1]

    def holders(self, sha256: str, limit: int = 5) -> list[str]:
        rows = self.named("inspect_holders", {"sha256": sha256, "limit": limit})
        return [run for (run,) in rows]

    def headless(self, limit: int) -> list[tuple[str, str]]:
        return [(table, run) for table, run in self.named("inspect_headless", {"limit": limit})]

    def holds_on_nothing(self, limit: int) -> list[tuple[str, str]]:
        return [(run, sha256) for run, sha256 in self.named("inspect_holds", {"limit": limit})]

    def messages(self) -> Iterator[Message]:
        for row in self.rows(_MAILBOX):
            if (message := message_of(row)).answer is None:
                yield message

    def credentials(self) -> list[StoredCredential]:
        return [credential_of(row) for row in self.named("credentials")]

    def hooks(self) -> list[Hook]:
        return [hook_of(row) for row in self.named("hooks")]

    def has_streams(self) -> bool:
        return False

    def streams(self) -> Iterator[StreamCard]:
        return iter(())

    def stream_events(self, stream: str) -> Iterator[StreamEvents]:  # noqa: ARG002
        return iter(())

    def cardless_streams(self, limit: int) -> list[str]:  # noqa: ARG002
        return []

    def named_records(self) -> Iterator[NamedRecord]:
        for row in self.rows(_RECORDS):
            yield record_of(row)

    def disagreements(self, limit: int) -> list[Disagreement]:
        found = [Disagreement(*row) for row in self.named("inspect_partitions")]
        for what in _DISAGREEMENTS:
            rows = self.named(f"inspect_{what}", {"limit": limit})
            found += [Disagreement(*row) for row in rows]
        for table in TABLES:
            found += self._counter_behind(table.name, table.counter) if table.counter else []
        return found

    def _counter_behind(self, table: str, column: str) -> list[Disagreement]:
        ((sequence,),) = self.ask("SELECT pg_get_serial_sequence(?, ?)", (table, column))
        ((last, newest),) = self.ask(
            f"SELECT last_value, (SELECT coalesce(max({column}), 0) FROM {table}) FROM {sequence}"
        )
        if newest <= last:
            return []
        what = f"the counter of {table} is at {last}, and its rows go up to {newest}"
        return [Disagreement("counter", "", what)]
