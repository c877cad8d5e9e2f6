"""Everything in one store written to another that is empty, a page at a time, and gone on with
after an interrupt.

What was written and how far that is are one transaction of the target, so a page is there once,
whatever kills the process. Rows of the log are numbered anew, in an order that keeps the order of
every run and that each webhook can go on in (see `plan`).
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from anabranch.errors import StoreError, StoreInUse
from anabranch.store.relational.connection import Row
from anabranch.store.relational.plan import Numbers, Range, Step, plan
from anabranch.store.relational.tables import HEADS, LOG, NODE_TABLES, TABLES, Table, TableReader

#: Called with what is done, and of all rows how many are done and how many there are.
Progress = Callable[[str, int, int], None]
_PLACES_KEPT = 100_000


class Source(TableReader):
    """A store that no one can change as long as it is open here."""

    identity: str  # the same for the same store, whoever asks for it
    partitions: int

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def ends(self) -> Numbers:
        """The last number of each partition."""

    @abstractmethod
    def cursors(self) -> dict[str, Numbers]:
        """How far each webhook has looked: hook → partition → number."""

    @abstractmethod
    def log_page(self, partition: int, after: int, upto: int) -> tuple[list[Row], int]:
        """Rows of the log in the order of their partition, and the number of the last one."""

    @abstractmethod
    def counter(self, table: Table) -> int:
        """The last value that the counter of this table has given out."""

    @abstractmethod
    def epochs(self) -> int:
        """Grows whenever a server has owned something, where there are epochs."""

    def places(self, runs: Collection[str]) -> dict[str, int]:  # noqa: ARG002
        """The partitions of those of these runs that exist; none where there are none."""
        return {}

    def require_no_node(self, target: str) -> None:
        """Raises where it has the state of a node, which the target cannot keep."""
        for table in NODE_TABLES:
            if table in self.tables and (rows := self.count(table.name)):
                raise StoreError(
                    f"{self.shown} holds the state of a node ({rows:,} rows of {table.name}), and "
                    f"{target} cannot: several servers may share it. Copy it to a file, or name a "
                    "store without a node",
                    code="shared_store",
                )

    def stamp(self) -> dict[str, Any]:
        """What changes with nearly everything that is done to a store: how many rows there are of
        what, and what was given out. The comparison at the end finds the rest."""
        counts = {table.name: self.count(table.name) for table in self.tables}
        counters = {table.name: self.counter(table) for table in TABLES if table.counter}
        looked = msgspec.json.encode([sorted(self.cursors().items()), sorted(self.ends().items())])
        return {
            "rows": counts,
            "counters": counters,
            "feed": zlib.crc32(looked),
            "epochs": self.epochs(),
        }


class Target(TableReader):
    """A store that is being made."""

    partitions: int
    numbers: dict[int, int]  # the last one of each partition

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def put(self, table: Table, rows: Sequence[Row], places: Sequence[int]) -> None:
        """Add these rows; `places` are the partitions of rows whose table says it."""

    @abstractmethod
    def put_log(self, rows: Sequence[Row], places: Sequence[int]) -> None:
        """Add rows of the log, each with the next number of its partition."""

    @abstractmethod
    def put_cursors(self, hook: str, partitions: Collection[int]) -> None:
        """The webhook has seen all that is in these partitions by now."""

    @abstractmethod
    def put_numbers(self) -> None:
        """The partitions end where their rows do."""

    @abstractmethod
    def put_counter(self, table: Table, last: int) -> None: ...

    @abstractmethod
    def put_delivery(self, fields: Mapping[str, Any]) -> None:
        """Add a notification that waits for a webhook, unless it is there."""

    @abstractmethod
    def put_audit(self, fields: Mapping[str, Any]) -> None:
        """Add a line to the audit trail, behind those that were copied."""

    @abstractmethod
    def places(self, runs: Collection[str]) -> dict[str, int]:
        """The partitions of those of these runs that are there already."""

    @abstractmethod
    def said(self, part: str) -> str | None:
        """What was written down about the copy."""

    @abstractmethod
    def say(self, part: str, said: str) -> None: ...

    def require_empty(self) -> None:
        used = [table.name for table in self.tables if self.count(table.name)]
        if used:
            raise not_empty(self.shown, used)

    @abstractmethod
    def drop_mark(self) -> None:
        """From now on it is a store; raises when a server has begun on it meanwhile."""


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """Of what a target is the copy."""

    identity: str
    stamp: dict[str, Any]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How far a table is."""

    rows: int = 0
    after: list[Any] | None = None  # the key of the last row; of the log its step and number
    whole: bool = False


class Transfer:
    """One copy. The target says how far it is, also to the process that goes on with it."""

    def __init__(self, source: Source, target: Target, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._keeps = source.partitions == target.partitions
        self._places: dict[str, int] = {}
        self._stamp = source.stamp()
        self._total = sum(self._stamp["rows"].values())
        self._done: dict[str, Done] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows the source has of what."""
        rows: dict[str, int] = self._stamp["rows"]
        return rows

    @property
    def tables(self) -> list[Table]:
        """Those that both have."""
        return [table for table in self._source.tables if table in self._target.tables]

    def begin(self) -> bool:
        """Whether it goes on with what was begun; refuses what was begun of something else."""
        begun = self._target.said("begun")
        if begun is None:
            mark = Begun(identity=self._source.identity, stamp=self._stamp)
            with self._target.transaction():
                self._target.say("source", self._source.shown)
                self._target.say("begun", msgspec.json.encode(mark).decode())
            return False
        known = msgspec.json.decode(begun, type=Begun)
        if known.identity != self._source.identity:
            other = self._target.said("source")
            raise StoreInUse(
                f"{self._target.shown} is an unfinished copy of {other}, not of "
                f"{self._source.shown}: name another target, or remove this one",
                code="store_not_empty",
            )
        if known.stamp != self._stamp:
            raise StoreError(
                f"{self._source.shown} has changed since its copy to {self._target.shown} began: "
                "remove that unfinished copy, and copy again",
                code="copy_source_changed",
            )
        return True

    # -- rows ----------------------------------------------------------------------------------

    def copy_rows(self) -> None:
        for table in self.tables:
            if table is not LOG:
                self._copy_table(table)
        self._copy_log()
        with self._target.transaction():
            for table in TABLES:
                if table.counter:
                    self._target.put_counter(table, self._source.counter(table))
            self._target.put_numbers()

    def _copy_table(self, table: Table) -> None:
        done = self._known(table)
        after = None if done.after is None else tuple(done.after)
        if done.whole:
            return
        for rows in self._source.pages(table, after):
            places = self._placed(table, rows)
            with _naming(table, rows), self._target.transaction():
                self._target.put(table, rows, places)
                key = list(table.key_of(rows[-1]))
                self._note(table, Done(rows=self._known(table).rows + len(rows), after=key))
        self._whole(table)

    def _copy_log(self) -> None:
        steps = self.steps()
        done = self._known(LOG)
        if done.whole:
            return
        at, after = done.after or (0, None)
        for number, step in enumerate(steps[at:], at):
            if isinstance(step, Range):
                self._copy_range(number, step, after)
            else:
                with self._target.transaction():
                    self._target.put_cursors(step.hook, step.partitions)
                    rows = self._known(LOG).rows
                    self._note(LOG, Done(rows=rows, after=[number + 1, None]))
            after = None
        self._whole(LOG)

    def _copy_range(self, number: int, step: Range, after: int | None) -> None:
        at = step.after if after is None else after
        while True:
            rows, last = self._source.log_page(step.partition, at, step.upto)
            if not rows:
                return
            at = last
            places = self._places_of_log(rows, step.partition)
            with _naming(LOG, rows), self._target.transaction():
                self._target.put_log(rows, places)
                self._note(LOG, Done(rows=self._known(LOG).rows + len(rows), after=[number, at]))

    def steps(self) -> list[Step]:
        """The same for the same source: an interrupted copy goes on inside one of them."""
        return plan(
            self._source.cursors(),
            self._source.ends(),
            partitions=self._target.partitions,
            keeps=self._keeps,
        )

    # -- how far it is -------------------------------------------------------------------------

    def _known(self, table: Table) -> Done:
        if table.name not in self._done:
            said = self._target.said(table.name)
            self._done[table.name] = msgspec.json.decode(said, type=Done) if said else Done()
        return self._done[table.name]

    def _note(self, table: Table, done: Done) -> None:
        self._done[table.name] = done
        self._target.say(table.name, msgspec.json.encode(done).decode())
        rows = sum(one.rows for one in self._done.values())
        self._progress(f"of all rows copied, now {table.name}", rows, self._total)

    def _whole(self, table: Table) -> None:
        done = msgspec.structs.replace(self._known(table), whole=True)
        with self._target.transaction():
            self._target.say(table.name, msgspec.json.encode(done).decode())

    # -- where runs are ------------------------------------------------------------------------

    def _placed(self, table: Table, rows: Sequence[Row]) -> list[int]:
        if not table.placed or self._target.partitions == 1:
            return [0] * len(rows)
        runs = [row[table.columns.index("run")] for row in rows]
        if table is not HEADS:
            known = self._target.places(set(runs))
            return [known.get(run, self._hashed(run)) for run in runs]
        if self._keeps:
            known = self._source.places(runs)
            return [known[run] for run in runs]
        parent = table.columns.index("parent")
        return [self._home(run, row[parent]) for run, row in zip(runs, rows, strict=True)]

    def _places_of_log(self, rows: Sequence[Row], partition: int) -> list[int]:
        if self._keeps or self._target.partitions == 1:
            return [partition if self._keeps else 0] * len(rows)
        runs = [row[0] for row in rows]
        known = {run: self._places[run] for run in runs if run in self._places}
        read = self._target.places({run for run in runs if run not in known})
        self._remember(read)  # which may forget those that were known
        known |= read
        return [known[run] if run in known else self._hashed(run) for run in runs]

    def _home(self, run: str, parent: str | None) -> int:
        """The partition of the root of its family, as far as that is still there."""
        way = [run]
        while parent and way[-1] not in self._places:
            above = parent.partition("/")[0]
            found = self._source.ask("SELECT parent FROM heads WHERE run = ?", [above])
            if not found or above in way:
                break
            way.append(above)
            ((parent,),) = found
        place = self._places.get(way[-1], self._hashed(way[-1]))
        if len(way) > 1:
            self._remember(dict.fromkeys(way, place))
        return place

    def _remember(self, places: Mapping[str, int]) -> None:
        if len(self._places) > _PLACES_KEPT:
            self._places.clear()
        self._places.update(places)

    def _hashed(self, run: str) -> int:
        return zlib.crc32(run.encode()) % self._target.partitions


@contextmanager
def _naming(table: Table, rows: Sequence[Row]) -> Iterator[None]:
    """A value that the target cannot hold says where it is: a database may know texts, with a zero
    byte say, that another does not."""
    try:
        yield
    except StoreError as error:
        if error.code != "store_value":
            raise
        first, last = (" ".join(map(str, table.key_of(row))) for row in (rows[0], rows[-1]))
        raise StoreError(
            f"{error.message} It is in the table {table.name} of the source, in the rows from "
            f"{first:.120} to {last:.120}",
            code=error.code,
        ) from error


def not_empty(shown: str, used: Sequence[str]) -> StoreInUse:
    return StoreInUse(
        f"{shown} is not empty (it has {', '.join(used[:5])}): a copy does not mix with what is "
        "there. Name a target that is empty, or not there yet",
        code="store_not_empty",
    )
