"""The store in a PostgreSQL database, for as many servers as there are.

Everything that writes goes through one connection, one caller at a time, as in the SQLite store;
reads have a few of their own. Runs are spread over partitions, which servers own by lease: the
commit of a batch moves the numbers of its partitions, and only their owner can (`commits`). A
partition that nobody owns can be written by a command, which holds it for as long as its
transaction takes.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import get_ident
from typing import Any

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from anabranch.errors import Conflict, StoreError, StoreInUse
from anabranch.store.cluster_ports import LOG, MAIL, PARTITION_LOST, RECORDS, Owned
from anabranch.store.hook_ports import WebhookDelivery
from anabranch.store.outages import AWAY, UNSURE, passes
from anabranch.store.partition_moves import happened, taken_by_others
from anabranch.store.ports import Batch, Forgotten, Head, Message, RunHistory, Space
from anabranch.store.postgres import commits, schema
from anabranch.store.postgres.address import read_address
from anabranch.store.postgres.cluster import PostgresCluster
from anabranch.store.postgres.commits import Numbered
from anabranch.store.postgres.connections import (
    DRIVER_ERRORS,
    Connections,
    Plain,
    connect,
    in_driver_form,
)
from anabranch.store.postgres.errors import translate
from anabranch.store.postgres.notifications import Notifier
from anabranch.store.postgres.one_statement import OneStatement
from anabranch.store.relational.commits import Fold
from anabranch.store.relational.connection import Connection, Row
from anabranch.store.relational.history import history_of
from anabranch.store.relational.hooks import delivery_of
from anabranch.store.relational.rows import head_of, message_of, regex_word
from anabranch.store.relational.store import PAYLOADS, RelationalStore
from anabranch.store.statements import load_statements

LEASE_SECONDS = 15.0
STATEMENTS = in_driver_form(load_statements("postgres"))


def lock_key(*what: str) -> int:
    """The number of an advisory lock: all schemas of a database share them."""
    return int.from_bytes(sha256("\0".join(what).encode()).digest()[:8], "big", signed=True)


class _Block:
    """What one thread writes together. Its transaction begins with its first write: one that does
    nothing for a few seconds is ended by the server."""

    def __init__(self, db: Plain) -> None:
        self.db = db
        self.thread = get_ident()
        self.news: set[str] = set()  # for the other servers, once it is durable

    @property
    def reads(self) -> bool:
        """Whether there is something to be read that others do not see; not after a failure."""
        return self.db.info.transaction_status == TransactionStatus.INTRANS

    def begin(self) -> None:
        if self.db.info.transaction_status == TransactionStatus.IDLE:
            self.db.execute("BEGIN")

    def commit(self) -> None:
        if self.db.info.transaction_status == TransactionStatus.INERROR:
            raise StoreError("one of several writes that are one has failed; none was made")
        if self.db.info.transaction_status != TransactionStatus.IDLE:
            self.db.execute("COMMIT")


class PostgresStore(RelationalStore):
    """`partitions` is how many a new store gets; one that exists must have as many, if given.
    Without `new` none is made."""

    sql = STATEMENTS
    pattern_of_letters = staticmethod(regex_word)

    def __init__(
        self,
        address: str,
        *,
        read_only: bool = False,
        partitions: int | None = None,
        new: bool = True,
    ) -> None:
        self._address = read_address(address)
        self._connections = Connections(self._address, writable=not read_only)
        self._read_only = read_only
        self._block: _Block | None = None  # of the thread whose writes are one at present
        self._seen: tuple[int, int] | None = None  # what `changed` saw last
        self._own_numbers = 0  # what of it we have written since
        self._unsure: Batch | None = None  # perhaps written: the connection was lost meanwhile
        self._statement = OneStatement()
        self._notifier = Notifier(self._address)
        self.partitions = self._prepare(partitions, new=new)
        self.cluster = PostgresCluster(
            self._address,
            self.sql,
            self.partitions,
            self._rows,
            self._tell,
            writable=not read_only,
            write=self._transaction,
            joined=self._joined,
        )
        self._notifier.server = self.cluster.server

    def _prepare(self, partitions: int | None, *, new: bool) -> int:
        """Returns how many partitions the store has."""
        create = not self._read_only
        with connect(self._address, writable=create) as db:
            return schema.prepare(db, self._address, create=create, partitions=partitions, new=new)

    def _placed(self, fold: Fold) -> dict[str, int]:
        """The partitions of the runs of a batch. Children live with their parents."""
        known: dict[str, int] = {}
        if not fold.born and len(known := self.cluster.find(fold.runs)) == len(fold.runs):
            return known
        parents = {row[0]: str(row[10] or "").partition("/")[0] for row in fold.born}
        roots = {run for run, parent in parents.items() if not parent}
        asked = [run for run in (*fold.runs, *parents.values()) if run and run not in roots]
        known = self.cluster.find(asked)
        places: dict[str, int] = {}
        for run in fold.runs:
            place = known.get(run)
            if place is None:
                parent = parents.get(run, "")
                root = self.cluster.partition_of(run)
                place = places.get(parent, known.get(parent, root))
            places[run] = place
        return places

    # -- writing ---------------------------------------------------------------------------------

    def _write_all(self, fold: Fold, batch: Batch) -> bool:
        self._require_writable()
        places = self._placed(fold)
        with self._connections.writer() as db:
            self._statement.prepare(db)
            owned = self.cluster.owned
            answered = self.cluster.places_of_messages(batch.answers)
            unowned = sorted({*places.values(), *answered}.difference(owned))
            if unowned and self.cluster.joined:
                raise self._lost(unowned[0])
            if unowned:
                return self._write_unowned(db, fold, batch, places, unowned)
            rows = commits.numbered(fold, places, owned, answered)
            fits = self._written_before(batch, rows) or self._write_once(
                db, fold, batch, rows, places
            )
        if fits:
            self._note(rows, places)
            self.cluster.forget_messages(batch.answers)
            self._tell_of(batch)
        return fits

    def _write_once(
        self, db: Plain, fold: Fold, batch: Batch, rows: Numbered, places: Mapping[str, int]
    ) -> bool:
        """Where the connection is lost on the way, nobody knows what became of it; the next try of
        the same batch finds out before it writes anything."""
        unsure, self._unsure = self._unsure, batch
        fits = self._write_rows(db, fold, batch, rows, places)
        if not fits and unsure is batch:  # the first try was late, and has happened meanwhile
            fits = self._written_before(batch, rows)
        self._unsure = None
        return fits

    def _written_before(self, batch: Batch, rows: Numbered) -> bool:
        """Whether a try whose end was not seen has happened. Numbers move with every commit, and
        nobody but the owner of this epoch moves them."""
        if self._unsure is not batch:
            return False
        wanted = {"wanted": msgspec.json.encode(list(rows.moves)).decode()}
        found = self._rows(self.sql["numbers"], wanted)
        if taken := taken_by_others(rows.moves, found, self.cluster.server):
            raise self._lost(taken[0])  # what happened is in the log; memory is not to be used
        return happened(rows.moves, found)

    def _write_rows(
        self, db: Plain, fold: Fold, batch: Batch, rows: Numbered, places: Mapping[str, int]
    ) -> bool:
        first, *more = commits.parts_of(fold, batch, rows, places, self.cluster)
        if not more and not _locks_payloads(batch):
            fits = self._statement.write(db, first)
        else:
            db.execute("BEGIN")
            self._begin_payloads(db, batch)
            fits = all(self._statement.write(db, part) for part in (first, *more))
            db.execute("COMMIT" if fits else "ROLLBACK")
        if not fits:
            self._require_owned(rows)
        return fits

    def _begin_payloads(self, db: Plain, batch: Batch) -> None:
        if _locks_payloads(batch):
            self._beside_others(commits.Statements(db), *PAYLOADS)

    def _require_owned(self, rows: Numbered) -> None:
        """Raises when a partition is not ours any more: nothing of it may be believed."""
        wanted = {"wanted": msgspec.json.encode(list(rows.moves)).decode()}
        found = self._rows(self.sql["numbers"], wanted)
        if taken := taken_by_others(rows.moves, found, self.cluster.server):
            self.cluster.owned.pop(taken[0], None)
            raise self._lost(taken[0])

    def _lost(self, partition: int) -> Conflict:
        return Conflict(
            f"this server does not own partition {partition} of store {self._address.shown} any "
            "more; nothing was written",
            code=PARTITION_LOST,
        )

    def _write_unowned(
        self, db: Plain, fold: Fold, batch: Batch, places: Mapping[str, int], unowned: list[int]
    ) -> bool:
        """A command writes on its own: it owns the partitions within its transaction."""
        mine = dict(self.cluster.owned)
        with db.transaction() as transaction:
            db.execute(self.sql["remove_expired"])
            for place in unowned:  # in their order, so that two of us cannot wait for each other
                now = db.execute(self.sql["own_for_now"], [self.cluster.server, place]).fetchone()
                if now is None:
                    raise self._in_use()
                mine[place] = Owned(*now)
            answered = self.cluster.places_of_messages(batch.answers)
            rows = commits.numbered(fold, places, mine, answered)
            self._begin_payloads(db, batch)
            parts = commits.parts_of(fold, batch, rows, places, self.cluster)
            fits = all(self._statement.write(db, some) for some in parts)
            if not fits:
                raise psycopg.Rollback(transaction)
            for place in unowned:
                db.execute(self.sql["disown"], [place, self.cluster.server])
        if fits:
            self._own_numbers += sum(after - before for _, before, after in rows.moves.values())
            self.cluster.remember(places)
            self._tell_of(batch)
        return fits

    def _note(self, rows: Numbered, places: Mapping[str, int]) -> None:
        for partition, (epoch, before, after) in rows.moves.items():
            self.cluster.owned[partition] = Owned(epoch, after)
            self._own_numbers += after - before
        self.cluster.remember(places)

    def _tell_of(self, batch: Batch) -> None:
        if batch.messages:
            self._tell(MAIL)
        if (batch.commits or batch.answers) and not self.cluster.alone:
            self._tell(LOG)  # a server that joins reads the store

    # -- the ports that need to know the database -------------------------------------------------

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:
        root, nonce = self.cluster.partition_of(run), nonce or secrets.token_hex(12)
        given = {"run": run, "nonce": nonce, "body": body, "now": now, "partition": root}
        try:
            message_id = self._post(given)
        except StoreError as error:
            if error.code not in (AWAY, UNSURE):
                raise
            message_id = self._post_again(given, error)
        self._posted = True
        self._tell(MAIL)
        return message_id

    def _post(self, given: Mapping[str, Any]) -> int:
        sent = False
        try:
            with self._transaction() as db:
                message_id = int(db.execute(self.sql["post"], given).fetchone()[0])
                sent = True  # what remains is its COMMIT
        except StoreError as error:
            if not sent or error.code != AWAY:
                raise
            raise StoreError(
                f"{error.message} The message to run {given['run']} may have been posted all the "
                "same: look at the run before you send it again.",
                code=UNSURE,
            ) from error
        return message_id

    def _post_again(self, given: Mapping[str, Any], before: StoreError) -> int:
        """On another connection, at once. The nonce tells whether it was written."""
        try:
            return self._post(given)
        except StoreError as error:
            if before.code == UNSURE and passes(error):
                raise before from error
            raise

    def _records_written(self) -> None:
        self._tell(RECORDS)

    def unanswered(self, limit: int = 100) -> list[Message]:
        owned = msgspec.json.encode(sorted(self.cluster.owned)).decode()
        given = {"limit": max(limit, 0), "owned": owned}
        if not self.cluster.joined:  # a command looks at all of them
            return [message_of(row) for row in self._rows(self.sql["unanswered"], given)]
        rows = self._rows(self.sql["unanswered_in"], given)
        for row in rows:
            self.cluster.found_message(row[0], row[5])
        return [message_of(row[:5]) for row in rows]

    def unfinished(
        self, after: str = "", limit: int = 1000, partitions: Collection[int] | None = None
    ) -> list[Head]:
        if partitions is None:
            return super().unfinished(after, limit)
        wanted = msgspec.json.encode(sorted(partitions)).decode()
        given = {"after": after, "limit": max(limit, 0), "partitions": wanted}
        rows = self._rows(self.sql["unfinished_in"], given)
        self.cluster.remember({row[0]: row[-1] for row in rows})
        return [head_of(row[:-1]) for row in rows]

    def run_history(self, since: int, width: int) -> RunHistory:
        given = {"since": since}
        with self._view() as db:  # both of the same runs
            counts = db.execute(self.sql["history_counts"], {**given, "width": width}).fetchall()
            took = db.execute(self.sql["history_durations"], given).fetchall()
        return history_of(counts, took)

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        if not self.cluster.joined:
            return super().due_deliveries(hook_id, now, limit)
        owned = msgspec.json.encode(sorted(self.cluster.owned)).decode()
        given = {"hook": hook_id, "now": now, "limit": max(limit, 0), "owned": owned}
        rows = self._rows(self.sql["due_deliveries_in"], {**given, "partitions": self.partitions})
        self.cluster.remember({row[1]: row[-1] for row in rows if row[-1] is not None})
        self.cluster.forget_places(row[1] for row in rows if row[-1] is None)  # they were purged
        return [delivery_of(row[:-1]) for row in rows]

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        forgotten = super().forget(runs, dry_run=dry_run)
        self.cluster.forget_places(runs)
        return forgotten

    def probe_write(self) -> None:
        with self._transaction() as db:
            db.execute("SAVEPOINT probe")
            db.execute(self.sql["probe_room"])
            db.execute("ROLLBACK TO SAVEPOINT probe")

    def give_back(self, most: int) -> Space:  # noqa: ARG002
        return Space()  # PostgreSQL's autovacuum does

    def changed(self) -> bool:
        posted, self._posted = self._posted, False
        ((numbers, message),) = self._rows(self.sql["news"], {})
        now = (int(numbers) - self._own_numbers, int(message))
        before, self._seen = self._seen, now
        return posted or now != before

    def statistics(self) -> Mapping[str, Any]:
        given = {"schema": self._address.schema}
        ((size,),) = self._rows(self.sql["bytes"], given)
        return {**self._counts(), "bytes": int(size)}

    # -- ownership -------------------------------------------------------------------------------

    def acquire(self, owner: str) -> None:
        """Become the only server: own every partition."""
        self._connections.require_open()
        self._require_writable()
        if self.cluster.owned or self.cluster.owners():
            raise self._in_use()
        self.cluster.join(owner, "", LEASE_SECONDS, draining=True, takes_share=False)
        if len(self.cluster.claim(self.partitions)) < self.partitions:
            error = self._in_use()
            self.release()
            raise error

    def release(self) -> None:
        if not self._connections.closed:
            self.cluster.leave()

    def owner(self) -> str | None:
        return ", ".join(self.cluster.owners()) or None

    def _in_use(self) -> StoreInUse:
        who = self.owner() or "another server"
        return StoreInUse(f"store {self._address.shown} is in use by {who}")

    def close(self) -> None:
        if self._connections.closed:
            return
        try:
            self.release()
        except StoreError as error:
            if not passes(error):
                raise
        finally:
            self._notifier.stop()
            self.cluster.close()
            self._connections.close()

    # -- plumbing --------------------------------------------------------------------------------

    def _tell(self, kind: str) -> None:
        """Other servers look when they are told: not before there is something to be seen."""
        block = self._own_block()
        if block is None:
            self._notifier.tell(kind)
        else:
            block.news.add(kind)

    def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Row]:
        if (joined := self._joined()) is not None:
            with self._telling():
                return joined.execute(statement, parameters).fetchall()
        try:
            return self._connections.read(statement, parameters)
        except StoreError as error:
            self._missed(error)
            raise

    def _alone(self, db: Connection, *what: str) -> None:
        db.execute(self.sql["lock_alone"], {"key": lock_key(self._address.schema, *what)})

    def _alone_soon(self, db: Connection, *what: str) -> None:
        """Who waits for this lock holds up its own commits, and those behind it in the queue."""
        db.execute(self.sql["wait_a_moment_for_locks"], {})
        self._alone(db, *what)

    def _beside_others(self, db: Connection, *what: str) -> None:
        db.execute(self.sql["lock_beside_others"], {"key": lock_key(self._address.schema, *what)})

    @contextmanager
    def _view(self) -> Iterator[Connection]:
        if (joined := self._joined()) is not None:
            with self._telling():
                yield commits.Statements(joined)
            return
        try:
            with self._connections.view() as db:
                yield commits.Statements(db)
        except StoreError as error:
            self._missed(error)
            raise

    def _missed(self, error: StoreError) -> None:
        if passes(error):
            self.cluster.missed()

    @contextmanager
    def _transaction(self, *, wipe: bool = False) -> Iterator[Connection]:  # noqa: ARG002
        """`wipe` has no effect: PostgreSQL overwrites what it frees when it comes to it."""
        self._require_writable()
        if (block := self._own_block()) is not None:
            with self._telling():
                block.begin()
                yield commits.Statements(block.db)
            return
        with self._connections.writer() as db:
            db.execute("BEGIN")
            yield commits.Statements(db)
            if db.info.transaction_status != 0:  # whoever rolls back inside has changed their mind
                db.execute("COMMIT")

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:  # noqa: ARG002
        if self._own_block() is not None:
            yield
            return
        with self._connections.writer() as db:
            block = self._block = _Block(db)
            try:
                yield
            finally:
                self._block = None
            block.commit()
        for kind in block.news:
            self._tell(kind)

    def _own_block(self) -> _Block | None:
        """The block of `together` that this thread is in."""
        block = self._block
        return block if block is not None and block.thread == get_ident() else None

    def _joined(self) -> Plain | None:
        """The connection that sees what this thread has written, and others do not see yet."""
        block = self._own_block()
        return block.db if block is not None and block.reads else None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Errors of the driver leave as errors of the store."""
        try:
            yield
        except DRIVER_ERRORS as error:
            raise translate(error, self._address.shown) from error

    def _require_writable(self) -> None:
        self._connections.require_open()
        if self._read_only:
            raise StoreError(
                f"store {self._address.shown} was opened for reading only", code="store_read_only"
            )


def _locks_payloads(batch: Batch) -> bool:
    """Payloads that come and are held must not meet the sweep of those that are not."""
    return bool(batch.payloads or batch.holds)
