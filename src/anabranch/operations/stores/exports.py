"""Writes runs that have ended to a file: their logs, definitions and payloads, and no secret.

What is sealed for a run is not part of its log, and is gone when it has ended. Memory holds one
row of a log, and one payload, at a time.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from anabranch.errors import DamagedRun, InputError, Refused
from anabranch.operations.stores.export_file import (
    FORMAT,
    LINE_BYTES,
    PART_BYTES,
    VERSION,
    Header,
    Line,
    LogHash,
    encoded,
)
from anabranch.store.damage import damage_of
from anabranch.store.ports import Head, Hold, Record, Store
from anabranch.store.private_file import PRIVATE
from anabranch.version import __version__
from anabranch.work.values.payloads import PLACE

ROWS = 200  # of a log that are read at once
JOB = "job"  # the scope of what work has stored and nothing recorded: over with the run
_REF = re.compile(re.escape(PLACE).encode() + rb"([0-9a-f]{64})(?![0-9a-f])")


class Exported(msgspec.Struct, kw_only=True):
    runs: int = 0
    events: int = 0
    definitions: int = 0
    payloads: int = 0
    missing: int = 0  # payloads that the runs name and that were deleted before


def export_runs(store: Store, runs: Sequence[str], file: BinaryIO, now: int) -> Exported:
    """Write these runs; all of them must have ended."""
    heads = [_ended(store, run) for run in dict.fromkeys(runs)]
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=now // 1000) as packed:
        out = cast(BinaryIO, packed)
        made_by = f"anabranch {__version__}"
        out.write(encoded(Header(anabranch=FORMAT, version=VERSION, made_at=now, made_by=made_by)))
        writer = _Writer(store, out)
        for head in heads:
            writer.write(head)
        out.write(encoded(Line(finished=len(heads))))
    return writer.told


def _ended(store: Store, run: str) -> Head:
    head = store.head(run)
    if head is None:
        raise InputError(f"there is no run {run}", code="not_found")
    if damage := damage_of(head):
        raise DamagedRun(run, damage)
    if not head.finished:
        message = f"run {run} is {head.status}: only runs that have ended are exported"
        raise Refused(f"{message}, or they would go on in two places", code="unfinished")
    return head


class _Writer:
    def __init__(self, store: Store, out: BinaryIO) -> None:
        self._store, self._out = store, out
        self.told = Exported()
        self._definitions: set[str] = set()

    def _put(self, line: Line, run: str = "") -> None:
        text = encoded(line)
        if len(text) > LINE_BYTES:
            message = f"a row of the log of run {run} takes {len(text):,} bytes"
            raise Refused(f"{message}, and {LINE_BYTES:,} is the most", code="too_large")
        self._out.write(text)

    def write(self, head: Head) -> None:
        self._definition(head)
        self._put(Line(run=head))
        for hold in self._holds(head):
            self._payload(hold)
        digest = LogHash()
        for record in _records(self._store, head.run):
            digest.add(record)
            row = (record.first_seq, record.count, record.at)
            self._put(Line(row=row, events=msgspec.Raw(record.events)), head.run)
            self.told.events += record.count
        self._put(Line(end=digest.hexdigest()))
        self.told.runs += 1

    def _definition(self, head: Head) -> None:
        if head.definition in self._definitions:
            return
        found = self._store.definition(head.definition)
        if found is None:
            raise DamagedRun(head.run, f"the store has no definition {head.definition:.16}")
        self._put(Line(definition=found))
        self._definitions.add(head.definition)
        self.told.definitions += 1

    def _holds(self, head: Head) -> Iterator[Hold]:
        """What the run holds, and what its log names and others hold: for that it gets a hold."""
        held, after = set(), ""
        while page := self._store.held(head.run, after):
            after = page[-1].sha256
            held |= {hold.sha256 for hold in page}
            yield from (hold for hold in page if hold.scope != JOB)
        for sha256 in sorted(self._named(head.run) - held):
            yield Hold(sha256, head.run)

    def _named(self, run: str) -> set[str]:
        found: set[str] = set()
        for record in _records(self._store, run):
            found |= {name.decode() for name in _REF.findall(record.events)}
        return found

    def _payload(self, hold: Hold) -> None:
        """Each with its content: a hash that has several holds comes several times, and is rare."""
        content = self._store.payload(hold.sha256)
        if content is None:  # its time was over, or it was deleted with the run that made it
            self.told.missing += 1
            self._put(Line(hold=hold, size=-1))
            return
        self._put(Line(hold=hold, size=len(content)))
        for start in range(0, len(content), PART_BYTES):
            self._put(Line(part=content[start : start + PART_BYTES]))
        self.told.payloads += 1


def _records(store: Store, run: str) -> Iterator[Record]:
    after = 0
    while rows := store.read(run, after, ROWS):
        yield from rows
        after = rows[-1].first_seq + rows[-1].count - 1


def log_hash(store: Store, run: str) -> str:
    digest = LogHash()
    for record in _records(store, run):
        digest.add(record)
    return digest.hexdigest()


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that only its owner reads, and that is there when it is whole or not at all."""
    if os.path.lexists(path):
        message = f"{path} is there already: nothing was written"
        raise InputError(f"{message}; name another file, or move it away", code="exists")
    begun = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(begun, path)  # unlike a rename, it overwrites nothing
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror}", code="no_file") from None
    finally:
        with suppress(OSError):
            begun.unlink()
