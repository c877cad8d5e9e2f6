"""The ports of a store carried out with named statements; databases say how they connect.

A store on a database has the statements in `sql`, runs them in `_rows` and `_transaction`, writes a
whole batch in `_write_all`, and answers the rest of `Store` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from anabranch.errors import Conflict, StoreError
from anabranch.store.checks import SCOPES, check_payloads, checked_payload, no_streams, whole_hashes
from anabranch.store.ports import (
    Batch,
    Definition,
    DefinitionCard,
    DefinitionFilter,
    Forgotten,
    Head,
    Hold,
    Message,
    Record,
    StateSnapshot,
    Tail,
)
from anabranch.store.relational import retention
from anabranch.store.relational.access import RelationalAccess
from anabranch.store.relational.admissions import RelationalAdmissions
from anabranch.store.relational.catalog import RelationalCatalog
from anabranch.store.relational.commits import Fold, explain
from anabranch.store.relational.connection import Connection, Row
from anabranch.store.relational.credentials import RelationalCredentials
from anabranch.store.relational.errors import CONSTRAINT
from anabranch.store.relational.grants import RelationalGrants
from anabranch.store.relational.history import RelationalHistory
from anabranch.store.relational.hooks import RelationalHooks
from anabranch.store.relational.records import RelationalRecords
from anabranch.store.relational.rows import (
    card_of,
    definition_of,
    head_of,
    message_of,
)
from anabranch.store.relational.session_numbers import RelationalSessionNumbers
from anabranch.store.relational.work_logs import RelationalWorkLogs
from anabranch.store.stream_ports import Streams

_RUNS_AT_ONCE = 2000
#: Whoever deletes what nobody holds is alone with it: a payload that is there already could be
#: deleted while another writer counts on it.
PAYLOADS = ("payloads",)


class RelationalStore(
    RelationalCatalog,
    RelationalCredentials,
    RelationalHooks,
    RelationalAccess,
    RelationalSessionNumbers,
    RelationalGrants,
    RelationalWorkLogs,
    RelationalRecords,
    RelationalAdmissions,
    RelationalHistory,
    ABC,
):
    sql: Mapping[str, str]
    _all_rows: Any = None  # what `LIMIT` takes for all of them
    _posted = True  # what was posted before us counts as news
    cluster: Any = None  # of a database that several servers share
    node_streams: Streams | None = None  # of a store that one process writes

    # What a database provides

    @abstractmethod
    def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]: ...

    @abstractmethod
    def _transaction(self, *, wipe: bool = False) -> AbstractContextManager[Connection]:
        """All of it or nothing; with `wipe`, what it frees is overwritten where that can be."""

    def _alone(self, db: Connection, *what: str) -> None:
        """Until the end of its transaction nobody else is at this. Where there is one writer at a
        time there is nothing to do."""

    def _alone_soon(self, db: Connection, *what: str) -> None:
        """The same for what can be done another time: raises where others are at it for longer."""
        self._alone(db, *what)

    def _beside_others(self, db: Connection, *what: str) -> None:
        """The same for those who do not get in each other's way, only in that of one alone."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Connection]:
        """For reading: all statements in the block see the same state."""

    @abstractmethod
    def _write_all(self, fold: Fold, batch: Batch) -> bool:
        """False when something was not as expected, and nothing was written."""

    # Journal

    def commit(self, batch: Batch) -> None:
        if not _writes(batch):
            return
        check_payloads(batch.payloads)
        if batch.streams and self.node_streams is None:
            raise no_streams()
        fold = Fold(batch)
        refused: StoreError | None = None
        try:
            if fold.sound and self._write_all(fold, batch):
                return
        except StoreError as error:
            if error.code != CONSTRAINT:
                raise
            refused = error
        stream = self.node_streams.stream if self.node_streams else None
        reason = explain(batch, self.head, self.message, stream)
        raise reason or refused or Conflict("another writer was first; nothing was written")

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        most = self._all_rows if limit is None else max(limit, 0)
        rows = self._rows(self.sql["read"], {"run": run, "after": after, "limit": most})
        return [Record(*row) for row in rows]

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        parameters = {"run": run, "after": after, "limit": max(limit, 0)}
        ((rows, size),) = self._rows(self.sql["weight_of_log"], parameters)
        return rows, size

    def read_many(self, runs: Sequence[str]) -> Mapping[str, Tail]:
        found: dict[str, Tail] = {run: (None, []) for run in runs}
        wanted = list(found)
        for start in range(0, len(wanted), _RUNS_AT_ONCE):
            self._read_some(wanted[start : start + _RUNS_AT_ONCE], found)
        return found

    def _read_some(self, runs: list[str], found: dict[str, Tail]) -> None:
        parameters = {"runs": msgspec.json.encode(runs).decode()}
        with self._view() as db:  # a snapshot replaced in between would hide rows
            for run, seq, state in db.execute(self.sql["read_snapshots"], parameters).fetchall():
                found[run] = (StateSnapshot(seq, state), [])
            for run, *record in db.execute(self.sql["read_tails"], parameters).fetchall():
                found[run][1].append(Record(*record))

    # Heads

    def head(self, run: str) -> Head | None:
        rows = self._rows(self.sql["head"], {"run": run})
        return head_of(rows[0]) if rows else None

    def runs_known(self, runs: Sequence[str]) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        for start in range(0, len(runs), _RUNS_AT_ONCE):
            some = msgspec.json.encode(list(runs[start : start + _RUNS_AT_ONCE])).decode()
            rows = self._rows(self.sql["runs_known"], {"runs": some})
            found.update((run, bool(finished)) for run, finished in rows)
        return found

    def unfinished(
        self,
        after: str = "",
        limit: int = 1000,
        partitions: Collection[int] | None = None,  # noqa: ARG002 - there is one
    ) -> list[Head]:
        parameters = {"after": after, "limit": max(limit, 0)}
        return [head_of(row) for row in self._rows(self.sql["unfinished"], parameters)]

    def redrives(self, runs: Sequence[str]) -> list[Head]:
        given = {"runs": msgspec.json.encode(sorted(set(runs))).decode()}
        return [head_of(row) for row in self._rows(self.sql["redrives"], given)] if runs else []

    def due(self, now: int, limit: int = 1000) -> list[Head]:
        parameters = {"now": now, "limit": max(limit, 0)}
        return [head_of(row) for row in self._rows(self.sql["due"], parameters)]

    # Definitions

    def put_definition(self, definition: Definition) -> None:
        with self._transaction() as db:
            db.execute(self.sql["put_definition"], msgspec.structs.asdict(definition))

    def definition(self, fingerprint: str) -> Definition | None:
        rows = self._rows(self.sql["definition"], {"fingerprint": fingerprint})
        return definition_of(rows[0]) if rows else None

    def definitions(self, wanted: DefinitionFilter) -> list[DefinitionCard]:
        parts = [self.sql["list_definitions"]]
        parameters: dict[str, Any] = {"limit": max(wanted.limit, 0)}
        for name in ("name", "dialect"):
            if (value := getattr(wanted, name)) is not None:
                parts.append(self.sql[f"list_{name}"])
                parameters[name] = value
        if wanted.before is not None:
            parts.append(self.sql["list_definitions_before"])
            parameters |= {"before_at": wanted.before[0], "before": wanted.before[1]}
        rows = self._rows("\n".join([*parts, self.sql["list_definitions_order"]]), parameters)
        return [card_of(row) for row in rows]

    # Payloads

    def put_payload(self, sha256: str, content: bytes, hold: Hold | None = None) -> None:
        check_payloads({sha256: content})
        with self._transaction() as db:
            self._beside_others(db, *PAYLOADS)
            db.execute(self.sql["put_payload"], {"sha256": sha256, "content": content})
            if hold is not None:
                retention.write_holds(db, self.sql, [hold])

    def payload(self, sha256: str) -> bytes | None:
        rows = self._rows(self.sql["payload"], {"sha256": sha256})
        return checked_payload(sha256, rows[0][0]) if rows else None

    def holds_payload(self, sha256: str, runs: Sequence[str]) -> bool:
        given = {"sha256": sha256, "runs": msgspec.json.encode(runs).decode()}
        return bool(self._rows(self.sql["holds_payload"], given))

    def held(self, run: str, after: str = "", limit: int = 1000) -> list[Hold]:
        given = {"run": run, "after": after, "limit": max(limit, SCOPES) + 1}
        return whole_hashes([Hold(*row) for row in self._rows(self.sql["held"], given)], limit)

    # Retention

    def expire(self, now: int, limit: int = 1000) -> int:
        keys = self._rows(self.sql["over"], {"now": now, "limit": max(limit, 0)})
        if not keys:
            return 0
        with self._transaction() as db:  # asked again: somebody may have wanted one meanwhile
            self._alone_soon(db, *PAYLOADS)
            keys = db.execute(self.sql["over"], {"now": now, "limit": limit}).fetchall()
            return retention.drop(db, self.sql, keys)[0]

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        with self._transaction() as db:
            self._alone(db, *PAYLOADS)
            forgotten = retention.forget(db, self.sql, runs)
            if dry_run:
                db.execute("ROLLBACK")
        return forgotten

    # Seals

    def sealed(self, run: str) -> Mapping[str, bytes]:
        return dict(self._rows(self.sql["sealed"], {"run": run}))

    # Mailbox

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:  # noqa: ARG002
        with self._transaction() as db:
            given = {"run": run, "body": body, "now": now}
            message_id = int(db.execute(self.sql["post"], given).fetchone()[0])
        self._posted = True
        return message_id

    def unanswered(self, limit: int = 100) -> list[Message]:
        rows = self._rows(self.sql["unanswered"], {"limit": max(limit, 0)})
        return [message_of(row) for row in rows]

    def message(self, message_id: int) -> Message | None:
        rows = self._rows(self.sql["message"], {"id": message_id})
        return message_of(rows[0]) if rows else None

    def _counts(self) -> dict[str, Any]:
        runs = self._rows(self.sql["count_runs"], {})
        ((records, snapshots, definitions, payloads, holds, messages, unanswered),) = self._rows(
            self.sql["count_rows"], {}
        )
        by_status: dict[str, int] = {}
        for status, _, count, _ in runs:
            by_status[status] = by_status.get(status, 0) + count
        return {
            "runs": by_status,
            "unfinished": sum(count for _, finished, count, _ in runs if not finished),
            "events": sum(events for *_, events in runs),
            "records": records,
            "snapshots": snapshots,
            "definitions": definitions,
            "payloads": payloads,
            "holds": holds,
            "messages": messages,
            "unanswered": unanswered,
        }


def _writes(batch: Batch) -> bool:
    """Whether there is anything in it."""
    parts = (batch.commits, batch.payloads, batch.answers, batch.holds, batch.ended, batch.unsealed)
    return (
        any(parts)
        or bool(batch.messages)
        or bool(batch.streams)
        or bool(batch.requests)
        or bool(batch.to_recover)
    )
