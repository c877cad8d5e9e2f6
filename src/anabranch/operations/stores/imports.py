"""Reads runs from a file of `export` into a store: checked as a whole first, then written.

Every line, hash and definition is looked at, and every log is replayed by the kernel, before the
store changes. A run that is there with the same history stays as it is; with another history
everything is refused. No engine may be at work on the store, and webhooks and triggers, also those
that are off, are not told of what happened elsewhere long ago. Memory holds the log of one run, and
one payload, at a time.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec
from msgspec.structs import replace

from anabranch.errors import DamagedRun, InputError, Refused
from anabranch.ids import checked_run_id
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State
from anabranch.operations.stores.check import differences, wrong_with
from anabranch.operations.stores.export_file import (
    FORMAT,
    LINE_BYTES,
    VERSION,
    Header,
    Line,
    LogHash,
    shown,
)
from anabranch.operations.stores.exports import log_hash
from anabranch.runtime.nets import Compile
from anabranch.store.damage import events_of, require_next
from anabranch.store.hook_ports import INTERNAL, Hook
from anabranch.store.ports import Batch, Commit, Definition, Head, Hold, Record, Store
from anabranch.work.values.payloads import is_packed, unpack

DAY_MS = 86_400_000
LEASE_SECONDS = 60.0  # for one run
SCOPES = ("job", "step", "execution", "workflow", "permanent")
_LINE: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_HEADER: msgspec.json.Decoder[Header] = msgspec.json.Decoder(Header)


class Imported(msgspec.Struct, kw_only=True):
    runs: int = 0  # written, or with `dry_run` those that would be
    there: int = 0  # runs that the store has already, with the same history
    definitions: int = 0
    payloads: int = 0


class Limits(msgspec.Struct, frozen=True):
    """What the settings of the store allow."""

    payload_bytes: int
    log_bytes: int


def import_runs(
    store: Store,
    path: Path,
    compile_definition: Compile,
    now: int,
    limits: Limits,
    *,
    dry_run: bool = False,
) -> Imported:
    """Take the runs of this file into the store; raises without having changed anything."""
    try:
        with path.open("rb") as file:
            store.acquire("import")
            try:
                return _imported(store, file, path, compile_definition, now, limits, dry_run)
            finally:
                store.release()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", code="no_file") from None


def _imported(
    store: Store,
    file: BinaryIO,
    path: Path,
    compile_definition: Compile,
    now: int,
    limits: Limits,
    dry_run: bool,
) -> Imported:
    checking = _Checking(store, compile_definition)
    _Reading(path, file, limits).each(checking)
    if dry_run or not checking.told.runs:
        return checking.told
    seen = _hooks_at_the_end(store)
    file.seek(0)
    writing = _Writing(store, now, checking.there)
    try:
        _Reading(path, file, limits).each(writing)
    finally:
        _pass_over(store, seen)
    return writing.told


# -- what is read ----------------------------------------------------------------------------


class _Run(msgspec.Struct):
    """A run of the file, complete when its log is."""

    head: Head
    holds: list[Hold] = []
    records: list[Record] = []
    digest: str = ""


class _Sink(Protocol):
    """What is done with the parts of a file."""

    def definition(self, definition: Definition) -> None: ...

    def payload(self, hold: Hold, content: bytes) -> None: ...

    def run(self, run: _Run) -> None: ...


class _Reading:
    """The grammar of the file; every complaint names the line."""

    def __init__(self, path: Path, file: BinaryIO, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._number = 0
        self._lines = self._read(file)

    def each(self, sink: _Sink) -> None:
        try:
            self._header()
            runs = 0
            while (line := self._next()).finished is None:
                if line.definition is not None:
                    sink.definition(line.definition)
                elif line.run is not None:
                    runs += 1
                    self._run(line.run, sink)
                else:
                    raise self._wrong("stands where a run begins")
            if line.finished != runs:
                raise self._wrong(f"says {line.finished} runs, and there were {runs}")
            if next(self._lines, None) is not None:
                raise self._wrong("stands behind the end")
        except (DamagedRun, InputError) as error:
            if error.code == "export_file":
                raise
            raise self._wrong(error.message) from None

    def _read(self, file: BinaryIO) -> Iterator[bytes]:
        """Bounded, whatever the file says: a few bytes of gzip may stand for gigabytes."""
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                while line := packed.readline(LINE_BYTES + 1):
                    self._number += 1
                    if len(line) > LINE_BYTES:
                        raise self._wrong(f"has more than {LINE_BYTES:,} bytes")
                    yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            said = "the file ends too early" if isinstance(error, EOFError) else str(error)
            raise self._wrong(f"cannot be unpacked: {said:.120}") from None

    def _wrong(self, what: str) -> InputError:
        message = f"{self._path}: line {self._number}: {what}"
        return InputError(f"{message}. Nothing was imported", code="export_file")

    def _header(self) -> None:
        try:
            header = _HEADER.decode(next(self._lines, b""))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._wrong("this is no file of `anabranch export`") from None
        if header.anabranch != FORMAT:
            raise self._wrong(f"{shown(header.anabranch)} is no export")
        if header.version != VERSION:
            said = f"the file has version {header.version}, this Anabranch reads {VERSION}"
            raise self._wrong(said)

    def _next(self) -> Line:
        text = next(self._lines, None)
        if text is None:
            raise self._wrong("the file ends too early")
        try:
            return _LINE.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(f"cannot be read: {error!s:.200}") from None

    def _run(self, head: Head, sink: _Sink) -> None:
        checked_run_id(head.run)
        if not head.finished:
            raise self._wrong(f"run {head.run} has not ended")
        run = _Run(head)
        while (line := self._next()).hold is not None:
            content = self._payload(head, line.hold, line.size)
            if content is not None:
                sink.payload(line.hold, content)
                run.holds.append(line.hold)
        run.records, run.digest = self._log(head, line)
        sink.run(run)

    def _payload(self, head: Head, hold: Hold, size: int) -> bytes | None:
        most = self._limits.payload_bytes
        if hold.run != head.run or hold.scope not in SCOPES:
            raise self._wrong(f"a payload of run {head.run} is expected")
        if size < 0:
            return None
        if size > most:
            said = f"a payload takes {size:,} bytes, and {most:,} is the most here"
            raise self._wrong(f"{said} (settings result_bytes_max and artifact_bytes)")
        found = bytearray()
        while len(found) < size:
            part = self._next().part
            if not part or len(found) + len(part) > size:
                raise self._wrong(f"a part of the payload {hold.sha256:.16} is expected")
            found += part
        content = bytes(found)
        if hashlib.sha256(content).hexdigest() != hold.sha256:
            raise self._wrong(f"the payload {hold.sha256:.16} has another hash: it was changed")
        if is_packed(content):
            try:
                unpack(content, most, f"the payload {hold.sha256:.16}")
            except InputError as error:
                raise self._wrong(error.message) from None
        return content

    def _log(self, head: Head, line: Line) -> tuple[list[Record], str]:
        records: list[Record] = []
        digest, size, most = LogHash(), 0, self._limits.log_bytes
        while line.end is None:
            if line.row is None:
                raise self._wrong(f"a row of the log of run {head.run} is expected")
            record = Record(*line.row, bytes(line.events))
            size += len(record.events)
            if size > most:
                said = f"the log of run {head.run} takes more than {most:,} bytes"
                raise self._wrong(f"{said} (setting run_log_bytes_max)")
            digest.add(record)
            records.append(record)
            line = self._next()
        if line.end != digest.hexdigest():
            raise self._wrong(f"the log of run {head.run} has another hash: it was changed")
        return records, digest.hexdigest()


# -- looked at first ---------------------------------------------------------------------------


class _Checking:
    """Changes nothing; raises where something is not what an export writes."""

    def __init__(self, store: Store, compile_definition: Compile) -> None:
        self.told = Imported()
        self._store, self._compile = store, compile_definition
        self._definitions: set[str] = set()
        self._runs: set[str] = set()
        self._payloads = 0
        self.there: set[str] = set()

    def definition(self, definition: Definition) -> None:
        if wrong := wrong_with(definition, self._compile):
            raise InputError(f"definition {definition.fingerprint:.16} {wrong}")
        self._definitions.add(definition.fingerprint)
        self.told.definitions += self._store.definition(definition.fingerprint) is None

    def payload(self, _hold: Hold, _content: bytes) -> None:
        self._payloads += 1  # of the run that they come with

    def run(self, run: _Run) -> None:
        head = run.head
        if head.run in self._runs:
            raise InputError(f"run {head.run} comes twice")
        self._runs.add(head.run)
        if head.definition not in self._definitions:
            raise InputError(f"the definition of run {head.run} does not come before it")
        for what in differences(head, _replayed(head, run.records)):
            raise InputError(f"run {head.run}: {what}")
        payloads, self._payloads = self._payloads, 0
        if self._store.head(head.run) is None:
            self.told.runs += 1
            self.told.payloads += payloads
            return
        if log_hash(self._store, head.run) != run.digest:
            message = f"the store has a run {head.run} with another history"
            raise Refused(f"{message}: nothing was imported", code="other_history")
        self.there.add(head.run)
        self.told.there += 1


def _replayed(head: Head, records: list[Record]) -> State:
    state = State()
    for record in records:
        require_next(head.run, record, state.seq)
        for event in events_of(head.run, record):
            try:
                evolve(state, event, record.at)
            except Exception as error:  # an event that never follows the ones before it
                what = f"event {state.seq + 1} cannot be replayed ({error!r:.120})"
                raise DamagedRun(head.run, what) from error
    return state


# -- then written ------------------------------------------------------------------------------


class _Writing:
    """A run in one transaction: half a run would be taken for one that goes on."""

    def __init__(self, store: Store, now: int, there: set[str]) -> None:
        self.told = Imported()
        self._store, self._now, self._there = store, now, there
        self.told.there = len(there)

    def definition(self, definition: Definition) -> None:
        self.told.definitions += self._store.definition(definition.fingerprint) is None
        self._store.put_definition(definition)

    def payload(self, hold: Hold, content: bytes) -> None:
        """Until its run is there it is held for a day, and would go without it."""
        if hold.run in self._there:
            return
        until = Hold(hold.sha256, hold.run, "job", self._now + DAY_MS)
        self._store.put_payload(hold.sha256, content, until)
        self.told.payloads += 1

    def run(self, run: _Run) -> None:
        head, records = run.head, run.records
        if head.run in self._there:
            return
        commits = [
            Commit(
                head=replace(head, seq=record.first_seq + record.count - 1, finished=last),
                at=record.at,
                events=record.events,
                count=record.count,
            )
            for record in records
            for last in [record is records[-1]]
        ]
        self._place(head)
        self._store.commit(Batch(commits=commits, holds=run.holds))
        self.told.runs += 1

    def _place(self, head: Head) -> None:
        """On a shared store a run is in the partition of its parent."""
        cluster = self._store.cluster
        if cluster is None:
            return
        cluster.extend_lease(LEASE_SECONDS)
        if head.parent:
            cluster.place_with(head.run, head.parent.partition("/")[0])
        else:
            cluster.place_root(head.run)


# -- webhooks ----------------------------------------------------------------------------------


def _hooks_at_the_end(store: Store) -> Mapping[str, Mapping[int, int]]:
    """By webhook how far it has looked: to the end, or what it still has to say would be lost. One
    that is off, or that of a paused trigger, goes on from its place later."""
    ends = store.positions()
    seen: dict[str, Mapping[int, int]] = {}
    for hook in store.hooks():
        seen[hook.id] = cursors = store.cursors(hook.id)
        if any(cursors.get(at, 0) < end for at, end in ends.items()):
            raise _behind(hook)
    return seen


def _behind(hook: Hook) -> Refused:
    called = f"webhook {hook.id}"
    if hook.internal:
        called = f"trigger {hook.url.removeprefix(INTERNAL)}"
    hint = "start a server until it has, or delete it"
    if not hook.enabled:
        hint = "resume it and start a server until it has, or delete it"
    message = f"{called} has yet to look at events of this store: {hint}. Nothing was imported"
    return Refused(message, code="webhook_behind")


def _pass_over(store: Store, seen: Mapping[str, Mapping[int, int]]) -> None:
    ends = store.positions()
    for hook, cursors in seen.items():
        for partition, end in ends.items():
            before = cursors.get(partition, 0)
            if end > before:
                store.advance_hook(hook, before, end, [], partition)
