"""Replaying Agora: signed `offer-snapshot` records, read from a file or a folder of JSON lines.

A batch of records is admitted in one transaction with the place up to which its file was read, so a
crash between two batches loses nothing and repeats nothing. A last line without its end is left for
the next time. No peer vouches for such an offer: it is seen where its provider is trusted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from io import SEEK_END
from pathlib import Path
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.catalog.admission import Admission, Admitting, Candidate
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.facts import Counts, move_cursor, note
from anabranch.market.catalog.relays import SKEW_MS, size_problem
from anabranch.market.catalog.routes import Route
from anabranch.market.documents import DocumentProblem, check
from anabranch.market.documents.agora import OFFER_SNAPSHOT

KIND = "agora-record.v1"
CHUNK_BYTES = 1024 * 1024  # read at once; no line is longer
RECORDS_AT_ONCE = 200
HEAD_BYTES = 1024  # at the beginning of a file, by which it is known
FILES_MAX = 10_000
_SUFFIXES = (".jsonl", ".ndjson")


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a file, from where its cursor stands."""

    file: str  # its name
    cursor: int  # where it stood
    end: int  # where it stands when these are admitted
    head: str  # of the file, up to there
    records: list[Any]  # None for what is no JSON
    restarted: bool = False  # the file is another one, or shorter than it was


class Replay:
    def __init__(self, catalog: OfferCatalog, path: str | Path) -> None:
        self._catalog = catalog
        self.path = Path(path)

    def files(self) -> list[Path]:
        """In the order of their names. Raises `InputError` where there is nothing to read."""
        try:
            if self.path.is_dir():
                found = [one for one in self.path.iterdir() if one.suffix in _SUFFIXES]
                return sorted(one for one in found if one.is_file())[:FILES_MAX]
            if self.path.is_file():
                return [self.path]
        except OSError as error:
            raise self._unreadable(error) from None
        raise InputError(f"there is no file or folder {self.path}", code="agora_source")

    def read(self) -> Batch | None:
        """The next lines that were not replayed; None where all were. Raises `InputError`."""
        cursors = self._catalog.facts.cursors()
        for path in self.files():
            known = cursors.get(path.name, {})
            try:
                batch = _batch(path, known.get("position", 0), known.get("head", ""))
            except OSError as error:
                raise self._unreadable(error) from None
            if batch is not None:
                return batch
        return None

    def contents(self, batch: Batch) -> list[Any]:
        """The offers of a batch as `OfferCatalog.parties` takes them."""
        return [{"offer": one.get("content")} for one in batch.records if isinstance(one, dict)]

    def admit(
        self,
        batch: Batch,
        known_peers: Collection[str] | None = None,
        trusted: Collection[str] = (),
    ) -> Counts | None:
        """Admit its records and move the cursor; None where another process was first."""
        catalog = self._catalog
        now = catalog.clock.now()
        candidates = [_candidate(one, catalog, now) for one in batch.records]
        offers = [one for one in candidates if one is not None]
        with catalog.file.change() as db:
            sql = "SELECT position FROM replay_cursors WHERE file = ?"
            row = db.execute(sql, (batch.file,)).fetchone()
            if (row["position"] if row else 0) != batch.cursor:
                return None
            admitting = Admitting(
                db,
                now=now,
                limits=catalog.limits,
                known_peers=catalog.known_peers if known_peers is None else known_peers,
                trusted=trusted,
            )
            found = admitting.all_of(offers)
            counts = Counts.of(found, ignored=len(candidates) - len(offers))
            move_cursor(db, batch.file, batch.end, batch.head, counts, now)
            note(db, f"replay:{batch.file}", _refused(batch, found), now)
        return counts

    def state(self) -> list[dict[str, Any]]:
        """By file: its size, how far it was read, and what came of it. Raises `InputError`."""
        cursors, found = self._catalog.facts.cursors(), []
        for path in self.files():
            known = cursors.get(path.name, {})
            counts = {name: known.get(name, 0) for name in Counts.__struct_fields__}
            try:
                position, size = known.get("position", 0), path.stat().st_size
            except OSError as error:
                raise self._unreadable(error) from None
            found.append({"file": path.name, "size": size, "position": position, **counts})
        return found

    def _unreadable(self, error: OSError) -> InputError:
        return InputError(f"{self.path} cannot be read: {error.strerror}", code="agora_source")


def _batch(path: Path, cursor: int, head: str) -> Batch | None:
    with path.open("rb") as file:
        start = file.read(HEAD_BYTES)
        size = file.seek(0, SEEK_END)
        is_same = cursor <= size and (not cursor or _head(start, cursor) == head)
        begin = cursor if is_same else 0  # it was written anew
        if begin == size:
            return None
        file.seek(begin)
        chunk = file.read(CHUNK_BYTES)
    lines = chunk.split(b"\n")[:-1][:RECORDS_AT_ONCE]
    if not lines:
        if len(chunk) < CHUNK_BYTES:
            return None  # somebody is writing it
        lines = [b"a line that is too long"]
        end = begin + len(chunk)
    else:
        end = begin + sum(len(line) + 1 for line in lines)
    records = [_record(line) for line in lines if line.strip()]
    return Batch(
        file=path.name,
        cursor=cursor,
        end=end,
        head=_head(start, end),
        records=records,
        restarted=begin != cursor,
    )


def _head(start: bytes, position: int) -> str:
    """The beginning of a file that was read up to there."""
    return hashlib.sha256(start[:position]).hexdigest()


def _record(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _candidate(record: Any, catalog: OfferCatalog, now: int) -> Candidate | None:
    """None for a record that is about something else."""
    if not isinstance(record, dict):
        return Candidate(problem=("not-json", "the line is no JSON object"))
    if record.get("record/kind") != OFFER_SNAPSHOT:
        return None
    named = record.get("record/id")
    name = named[:200] if isinstance(named, str) else ""
    code, message = _problem(record, catalog, now)
    if code:
        return Candidate(problem=(code, message), offer_id=name)
    offer = record["content"]
    route = Route(source="", origin="", hops=0)
    return Candidate(offer=offer, route=route, offer_id=offer["offer/id"], record_id=name)


def _problem(record: dict[str, Any], catalog: OfferCatalog, now: int) -> tuple[str, str]:
    if message := size_problem(record.get("content"), catalog.limits.offer_bytes):
        return "too-large", message
    problems = check(record, kind=KIND, at=now)
    if any(map(_is_early, problems)):  # the clock of its author may be a little ahead
        others = [one for one in problems if not _is_early(one)]
        later = check(record, kind=KIND, at=now + SKEW_MS)
        problems = others + [one for one in later if _is_early(one)]
    if problems:
        return problems[0].code, str(problems[0])
    if catalog.node_id and record["content"]["provider/node-id"] == catalog.node_id:
        return "local-offer", "offers of this node are published here, not observed"
    return "", ""


def _is_early(problem: DocumentProblem) -> bool:
    return problem.code == "not-yet-valid"


def _refused(batch: Batch, found: list[Admission]) -> list[tuple[str, str, str]]:
    rows = [(one.offer_id, one.reason, one.message) for one in found if one.status == "rejected"]
    if batch.restarted:
        rows.append(
            (batch.file, "file-restarted", "another file, or shorter than before: read anew")
        )
    return rows
