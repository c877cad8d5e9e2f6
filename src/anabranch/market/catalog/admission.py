"""Admitting offers: what was checked, decided and written in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from anabranch.market.catalog.relays import SKEW_MS, encoded, problem_of, route_of
from anabranch.market.catalog.room import Kept, Leaving, share_of
from anabranch.market.catalog.routes import Route, Trust, expires_at, trust_of
from anabranch.market.catalog.rules import Keep, Known, Refuse, decide
from anabranch.market.documents import check

AT_ONCE = 400  # rows of one statement, and relays that are checked in one go
Status = Literal["stored", "stale", "rejected"]

_PUT = """
INSERT OR REPLACE INTO offers (
    offer_id, source, trust_level, provider, provider_node, service_type, amount, sequence,
    withdrawn, expires_at, source_node_id, relay_origin_node_id, relay_hops, do_not_forward,
    observed_at, agora_record_id, body
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REVIEW = """
UPDATE offers SET trust_level = ?, source_node_id = ?, relay_origin_node_id = ?, relay_hops = ?,
    do_not_forward = ? WHERE offer_id = ?
"""
_KEPT = """
SELECT observed_at, offer_id, trust_level, provider, source_node_id, expires_at
FROM offers WHERE source = 'observed'
"""
#: Late, or from a clock that was set back since.
_PURGE_UNSEEN = """
DELETE FROM offers WHERE trust_level = 'untrusted' AND (observed_at <= ? OR observed_at > ?)
"""
_PURGE_ENDED = "DELETE FROM offers WHERE source = 'observed' AND expires_at <= ?"
#: Its provider alone says when an offer expires. Whoever still has it tells it again.
_PURGE_OLD = "DELETE FROM offers WHERE source = 'observed' AND observed_at <= ?"
_TRUSTED = """
SELECT participant FROM trust_facts
WHERE number IN (SELECT max(number) FROM trust_facts GROUP BY participant) AND fact = 'added'
"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_rows: int
    offer_bytes: int
    untrusted_ms: int
    expired_ms: int
    observed_ms: int


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a relay; unpacks as `status, reason = …`. What was stored and is hidden has
    the reason `untrusted`."""

    status: Status
    reason: str = ""  # a class
    message: str = ""
    offer_id: str = ""

    def __iter__(self) -> Iterator[str]:
        yield self.status
        yield self.reason


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An offer that was checked, with the way on which it came; or why it cannot be taken."""

    offer: dict[str, Any] = {}
    route: Route = Route(source="", origin="", hops=0)
    problem: tuple[str, str] = ("", "")
    offer_id: str = ""
    record_id: str = ""  # of Agora

    @classmethod
    def of_relay(
        cls,
        relay: Any,
        source: str,
        me: str,
        now: int,
        limits: Limits,
        known: Mapping[str, bytes],
        by_peer: bool,
    ) -> Candidate:
        name = offer_id_in(relay)
        code, message = problem_of(
            relay, source, me, now,
            by_peer=by_peer, offer_bytes=limits.offer_bytes, known=known.get(name, b""),
        )  # fmt: skip
        if code:
            return cls(problem=(code, message), offer_id=name[:200])
        return cls(offer=relay["offer"], route=route_of(relay, source), offer_id=name)


class Admitting:
    """One transaction of admissions."""

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        now: int,
        limits: Limits,
        known_peers: Collection[str],
        trusted: Collection[str],
    ) -> None:
        self._db = db
        self._now = now
        self._limits = limits
        self._known_peers = frozenset(known_peers)
        self._given = frozenset(trusted)
        self._trusted: frozenset[str] | None = None
        self._rows = -1  # of others; counted when it matters
        self._leaving: Leaving | None = None

    def all_of(self, candidates: Sequence[Candidate]) -> list[Admission]:
        self.purge()
        found = [self._one(candidate) for candidate in candidates]
        self.purge()  # what is not trusted any more may be late already
        return found

    def purge(self) -> int:
        times = self._now - self._limits.untrusted_ms, self._now + SKEW_MS
        unseen = self._db.execute(_PURGE_UNSEEN, times)
        ended = self._db.execute(_PURGE_ENDED, (self._now - self._limits.expired_ms,))
        old = self._db.execute(_PURGE_OLD, (self._now - self._limits.observed_ms,))
        gone = unseen.rowcount + ended.rowcount + old.rowcount
        if gone:
            self._rows = -1
        return gone

    # -- one offer -----------------------------------------------------------------------------

    def _one(self, candidate: Candidate) -> Admission:
        name, offer = candidate.offer_id, candidate.offer
        if candidate.problem[0]:
            return _rejected(name, *candidate.problem)
        row = self._db.execute("SELECT * FROM offers WHERE offer_id = ?", (name,)).fetchone()
        if row is not None and row["source"] == "local":
            return _rejected(name, "local-offer", "the node itself has an offer of this id")
        known = None if row is None else _known(row)
        decision = decide(known, offer, candidate.route, self._judge)
        if isinstance(decision, Refuse):
            return _rejected(name, decision.reason, decision.message)
        if isinstance(decision, Keep):
            self._review(name, known, decision)
            message = f"version {row['sequence']} is known; only a greater number replaces it"
            return Admission(status="stale", reason="sequence", message=message, offer_id=name)
        if decision.is_new and not self._make_room(offer, decision.trust, decision.route.source):
            message = f"the catalog keeps {self._limits.max_rows:,} offers of others"
            return _rejected(name, "catalog-full", message)
        self._put(offer, "observed", decision.trust, decision.route, candidate.record_id)
        return Admission(
            status="stored",
            reason="untrusted" if decision.trust == "untrusted" else "",
            offer_id=name,
        )

    def _judge(self, provider: str, route: Route) -> Trust:
        if self._trusted is None:
            self._trusted = self._given | {one for (one,) in self._db.execute(_TRUSTED)}
        return trust_of(
            route,
            is_trusted=provider in self._trusted,
            is_known=lambda node: node in self._known_peers,
        )

    def _review(self, name: str, known: Known | None, now: Keep) -> None:
        assert known is not None
        if (now.trust, now.route) != (known.trust, known.route):
            route = now.route
            values = route.source, route.origin, route.hops, route.do_not_forward
            self._db.execute(_REVIEW, (now.trust, *values, name))

    def _put(
        self, offer: Mapping[str, Any], source: str, trust: str, route: Route, record: str = ""
    ) -> None:
        values = (
            offer["offer/id"], source, trust, offer["provider/participant-id"],
            offer["provider/node-id"], offer["service/type"], offer["pricing/amount"],
            offer["sequence/no"], offer.get("offer/status") == "withdrawn",
            expires_at(dict(offer)), route.source, route.origin, route.hops, route.do_not_forward,
            self._now, record, encoded(offer),
        )  # fmt: skip
        self._db.execute(_PUT, values)

    # -- room ----------------------------------------------------------------------------------

    def _make_room(self, offer: Mapping[str, Any], trust: Trust, source: str) -> bool:
        """For one more."""
        share = share_of(trust, offer["provider/participant-id"], source)
        if self._rows < 0:
            counted = "SELECT count(*) FROM offers WHERE source = 'observed'"
            (self._rows,) = self._db.execute(counted).fetchone()
        if self._rows < self._limits.max_rows:
            self._rows += 1
        elif not self._leave(trust, share):
            return False
        if self._leaving is not None:
            self._leaving.add(offer["offer/id"], trust, share)
        return True

    def _leave(self, trust: Trust, share: str) -> bool:
        if self._leaving is None:
            self._leaving = Leaving(
                Kept(at, name, level, share_of(level, provider, node), ends <= self._now)
                for at, name, level, provider, node, ends in self._db.execute(_KEPT)
            )
        while name := self._leaving.first_for(trust, share):
            if self._db.execute("DELETE FROM offers WHERE offer_id = ?", (name,)).rowcount:
                return True
        return False

    # -- offers of the node itself ---------------------------------------------------------------

    def replace_local(self, offers: Iterable[Mapping[str, Any]], node_id: str) -> None:
        route = Route(source=node_id, origin="", hops=0)
        known = local_bodies(self._db)
        for offer in offers:
            if known.pop(offer["offer/id"], b"") != encoded(offer):
                self._put(offer, "local", "local", route)
        gone = [(name,) for name in known]
        self._db.executemany("DELETE FROM offers WHERE offer_id = ?", gone)


def is_sound(offer: Any, known: Mapping[str, bytes]) -> bool:
    """Whether it is an offer of the node: as it is kept already, or sound."""
    name = offer_id_in({"offer": offer})
    if name in known and encoded(offer) == known[name]:
        return True
    return not check(offer, kind="service-offer.v1")


# -- before the transaction ------------------------------------------------------------------


def offer_id_in(relay: Any) -> str:
    offer = relay.get("offer") if isinstance(relay, dict) else None
    name = offer.get("offer/id") if isinstance(offer, dict) else None
    # No text of the file has half of a character; such an id is wrong, and is told as that.
    return name if isinstance(name, str) and (name.isascii() or _is_whole(name)) else ""


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def bodies_of(db: sqlite3.Connection, relays: Sequence[Any]) -> dict[str, bytes]:
    """The kept versions of these offers."""
    return {row["offer_id"]: row["body"] for row in _kept(db, relays, "offer_id, body")}


def local_bodies(db: sqlite3.Connection) -> dict[str, bytes]:
    """The offers of the node itself as they are kept."""
    rows = db.execute("SELECT offer_id, body FROM offers WHERE source = 'local'").fetchall()
    return {row["offer_id"]: row["body"] for row in rows}


def parties_in(
    db: sqlite3.Connection, relays: Sequence[Any], source: str
) -> tuple[set[str], set[str]]:
    """Participants and nodes, each by a text of the length that an id has."""
    participants: list[Any] = []  # anything: nothing was checked yet
    nodes: list[Any] = [source]
    for relay in relays:
        if isinstance(relay, dict):
            nodes.append(relay.get("relay/origin-node-id"))
            offer = relay.get("offer")
            participants.append(offer.get("provider/participant-id") if type(offer) is dict else "")
    columns = "provider, source_node_id, relay_origin_node_id"
    for row in _kept(db, relays, columns):
        participants.append(row["provider"])
        nodes += [row["source_node_id"], row["relay_origin_node_id"]]
    return _ids(participants), _ids(nodes)


def _ids(found: Iterable[Any]) -> set[str]:
    return {one for one in found if isinstance(one, str) and one.isascii() and 0 < len(one) <= 200}


def _kept(db: sqlite3.Connection, relays: Sequence[Any], columns: str) -> Iterator[sqlite3.Row]:
    names = sorted({name for relay in relays if (name := offer_id_in(relay)) and len(name) <= 512})
    for at in range(0, len(names), AT_ONCE):
        part = names[at : at + AT_ONCE]
        marks = ", ".join("?" * len(part))
        yield from db.execute(f"SELECT {columns} FROM offers WHERE offer_id IN ({marks})", part)


def _known(row: sqlite3.Row) -> Known:
    return Known(
        provider=row["provider"],
        sequence=row["sequence"],
        trust=row["trust_level"],
        route=stored_route(row),
    )


def stored_route(row: sqlite3.Row) -> Route:
    return Route(
        source=row["source_node_id"],
        origin=row["relay_origin_node_id"],
        hops=row["relay_hops"],
        do_not_forward=bool(row["do_not_forward"]),
    )


def _rejected(name: str, reason: str, message: str) -> Admission:
    return Admission(status="rejected", reason=reason, message=message, offer_id=name)
