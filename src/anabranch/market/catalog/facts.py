"""What a catalog knows besides offers: whom it trusts, its sources, cursors, what was refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from anabranch.clock import Clock
from anabranch.errors import InputError, NotFound
from anabranch.market.catalog.admission import Admission
from anabranch.market.catalog.database import CatalogFile
from anabranch.market.identities import public_key
from anabranch.work.participants.performers import rfc3339

DIAGNOSTICS_KEPT = 500
SOURCES_KEPT_MS = 30 * 24 * 3_600_000  # of nodes that were not asked since
_NOTED_AT_ONCE = 20  # of one message; a flood of wrong offers does not push out everything else
_LAST_FACT = "SELECT * FROM trust_facts WHERE participant = ? ORDER BY number DESC LIMIT 1"
_TRUSTED = """
SELECT * FROM trust_facts
WHERE number IN (SELECT max(number) FROM trust_facts GROUP BY participant) AND fact = 'added'
ORDER BY participant
"""
_MOVE = """
INSERT INTO replay_cursors (file, position, head, stored, stale, rejected, ignored, at)
VALUES (:file, :position, :head, :stored, :stale, :rejected, :ignored, :at)
ON CONFLICT (file) DO UPDATE SET position = :position, head = :head, stored = stored + :stored,
    stale = stale + :stale, rejected = rejected + :rejected, ignored = ignored + :ignored, at = :at
"""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many relays or records were stored, stale and rejected, or of another kind."""

    stored: int = 0
    stale: int = 0
    rejected: int = 0
    ignored: int = 0

    @classmethod
    def of(cls, admissions: Iterable[Admission], ignored: int = 0) -> Counts:
        found = {"stored": 0, "stale": 0, "rejected": 0}
        for one in admissions:
            found[one.status] += 1
        return cls(**found, ignored=ignored)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            stored=self.stored + other.stored,
            stale=self.stale + other.stale,
            rejected=self.rejected + other.rejected,
            ignored=self.ignored + other.ignored,
        )

    def shown(self) -> dict[str, int]:
        return {"stored": self.stored, "stale": self.stale, "rejected": self.rejected}


class Facts:
    def __init__(self, file: CatalogFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    # -- trusted providers ---------------------------------------------------------------------

    def trust(self, participant: str, *, by: str = "operator", note: str = "") -> bool:
        """Trust the offers of a participant that come in from now on; whether that is new. Raises
        `InputError` where it is no participant."""
        require_participant(participant)
        return self._say(participant, "added", by, note)

    def distrust(self, participant: str, *, by: str = "operator") -> None:
        """Trust them no more, from the next time that they come in. Raises `NotFound`."""
        require_participant(participant)
        if not self._say(participant, "removed", by, ""):
            raise NotFound(f"{participant} is not trusted in this catalog")

    def _say(self, participant: str, fact: str, by: str, note: str) -> bool:
        with self._file.change() as db:
            last = db.execute(_LAST_FACT, (participant,)).fetchone()
            if (last["fact"] if last else "removed") == fact:
                return False
            db.execute(
                "INSERT INTO trust_facts (participant, fact, at, said_by, note)"
                " VALUES (?, ?, ?, ?, ?)",
                (participant, fact, self._clock.now(), by, note),
            )
        return True

    def trusted(self) -> list[dict[str, Any]]:
        """A `trusted-provider.v1` for each."""
        with self._file.look() as db:
            rows = db.execute(_TRUSTED).fetchall()
        return [_entry(row) for row in rows]

    # -- sources -------------------------------------------------------------------------------

    def synced(
        self,
        node_id: str,
        status: Literal["ok", "partial", "failed"],
        counts: Counts,
        reason: str = "",
    ) -> None:
        """How the last exchange with a node went."""
        with self._file.change() as db:
            db.execute(
                "DELETE FROM sources WHERE synced_at < ?", (self._clock.now() - SOURCES_KEPT_MS,)
            )
            db.execute(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    node_id, self._clock.now(), status, reason[:1000], counts.stored, counts.stale,
                    counts.rejected,
                ),
            )  # fmt: skip

    def sources(self) -> list[dict[str, Any]]:
        with self._file.look() as db:
            rows = db.execute("SELECT * FROM sources ORDER BY node_id").fetchall()
        return [{**dict(row), "synced_at": rfc3339(row["synced_at"])} for row in rows]

    # -- the replay ----------------------------------------------------------------------------

    def cursors(self) -> dict[str, dict[str, Any]]:
        """By file: how far it was read, and what came of it."""
        with self._file.look() as db:
            rows = db.execute("SELECT * FROM replay_cursors ORDER BY file").fetchall()
        return {row["file"]: {key: row[key] for key in row.keys() if key != "file"} for row in rows}  # noqa: SIM118

    def reset_cursors(self) -> None:
        """Every file is read from its beginning again."""
        with self._file.change() as db:
            db.execute("DELETE FROM replay_cursors")

    # -- diagnostics ---------------------------------------------------------------------------

    def refused(self, origin: str, admissions: Iterable[Admission]) -> None:
        """Note what was rejected; of many the first."""
        wrong = [one for one in admissions if one.status == "rejected"]
        if not wrong:
            return
        rows = [(one.offer_id, one.reason, one.message) for one in wrong[:_NOTED_AT_ONCE]]
        if len(wrong) > len(rows):
            rows.append(("", "more", f"{len(wrong) - len(rows):,} more were rejected"))
        with self._file.change() as db:
            note(db, origin, rows, self._clock.now())

    def diagnostics(self, limit: int = 100) -> list[dict[str, Any]]:
        """What was refused, newest first."""
        with self._file.look() as db:
            sql = "SELECT * FROM diagnostics ORDER BY number DESC LIMIT ?"
            rows = db.execute(sql, (limit,)).fetchall()
        return [{**dict(row), "at": rfc3339(row["at"])} for row in rows]


def require_participant(text: str) -> None:
    public_key(text)
    if not text.startswith("participant:"):
        raise InputError(f"{text} is no participant: participant:did:key:z6Mk…")


def move_cursor(
    db: sqlite3.Connection, file: str, position: int, head: str, counts: Counts, at: int
) -> None:
    """As part of a transaction that has admitted what was read up to there. By its `head` a file
    is known."""
    values: Mapping[str, Any] = {
        "file": file, "position": position, "head": head, "at": at, **msgspec.to_builtins(counts)
    }  # fmt: skip
    db.execute(_MOVE, values)


def note(
    db: sqlite3.Connection, origin: str, rows: Iterable[tuple[str, str, str]], at: int
) -> None:
    """Rows of subject, code and message; the oldest of all leave."""
    db.executemany(
        "INSERT INTO diagnostics (at, origin, subject, code, message) VALUES (?, ?, ?, ?, ?)",
        [(at, origin[:300], name[:300], code, message[:1000]) for name, code, message in rows],
    )
    db.execute(
        "DELETE FROM diagnostics WHERE number <= (SELECT max(number) FROM diagnostics) - ?",
        (DIAGNOSTICS_KEPT,),
    )


def _entry(row: sqlite3.Row) -> dict[str, Any]:
    entry = {
        "schema/v": 1,
        "entry/participant-id": row["participant"],
        "entry/added-at": rfc3339(row["at"]),
        "entry/added-by": row["said_by"],
    }
    return entry | {"entry/note": row["note"]} if row["note"] else entry
