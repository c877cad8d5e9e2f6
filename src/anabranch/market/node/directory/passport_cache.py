"""The cache that every question about nodes is answered from; nothing is asked of the network then.

It has what the directory of this node holds and what each seed said when it was read last. What a
seed said counts for `stale_ms`: where no word of it comes any more, its revocations may be missed.
The answer for a capability is kept until the next instant at which it could change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from anabranch.clock import Clock
from anabranch.market.node.directory.artifacts import (
    CheckedPassport,
    endpoints_of,
    presented_by,
    published_at,
    url_of,
)
from anabranch.market.node.directory.operators import Operators
from anabranch.market.node.directory.policy import NOTHING, IssuerPolicy, Presented
from anabranch.market.node.directory.revocations import Revocations
from anabranch.market.passports import Key, Passport
from anabranch.work.participants.performers import rfc3339

NEVER = 2**62
#: Rows of one participant that are looked at for the nodes that it runs; more it has made itself.
ROWS_OF_A_PARTICIPANT = 2000
PARTICIPANTS_REMEMBERED = 1000
REBUILT_FROM = 200  # nodes of which a source says something else: then all is worked out anew
HERE = ""  # the source that is the directory of this node


class CachedPassport(msgspec.Struct, frozen=True):
    """A row of a directory, checked."""

    checked: CheckedPassport
    sequence: int
    published_at: int
    endorsement: Mapping[str, Any] | None = None

    @property
    def capability_id(self) -> str:
        return self.checked.passport.capability_id

    @property
    def node_id(self) -> str:
        return self.checked.passport.node_id


_Rows = dict[tuple[str, str], CachedPassport]  # for one capability, by source and node
_Rank = tuple[bool, bytes, str]  # trusted ones come first
_FIRST = itemgetter(0)


class SourceContent(msgspec.Struct):
    """What one directory says."""

    rows: dict[str, dict[str, CachedPassport]] = {}  # node → capability
    advertisements: dict[str, Mapping[str, Any]] = {}
    read_at: int | None = None
    revoked: Revocations = msgspec.field(default_factory=Revocations)  # that found no room here


class Holder(NamedTuple):
    """A node with a passport that counts."""

    node_id: str
    participant_id: str
    row: Mapping[str, Any]
    trusted: bool = False


class _Nodes(NamedTuple):
    """Of a participant, between two instants."""

    names: list[str]
    since: int
    until: int


class _Answer:
    """For one capability, between two instants: who counts, by node, and the lists of them."""

    def __init__(self, found: dict[str, tuple[_Rank, Holder]], since: int, until: int) -> None:
        self._found = found
        self.since = since
        self.until = until  # not for this instant any more
        self._by_name: list[Holder] | None = None
        self._ranked: list[Mapping[str, Any]] | None = None

    def put(self, node_id: str, entry: tuple[_Rank, Holder] | None, since: int, until: int) -> None:
        """What is known of one node has changed; the others are as they were."""
        self._found.pop(node_id, None)
        if entry is not None:
            self._found[node_id] = entry
        self.since, self.until = max(self.since, since), min(self.until, until)
        self._by_name = self._ranked = None

    @property
    def holders(self) -> list[Holder]:
        if self._by_name is None:
            self._by_name = [one for _, (_, one) in sorted(self._found.items(), key=_FIRST)]
        return self._by_name

    @property
    def ranked(self) -> list[Mapping[str, Any]]:
        if self._ranked is None:
            ordered = sorted(self._found.values(), key=_FIRST)
            self._ranked = [{**one.row, "trusted": one.trusted} for _, one in ordered]
        return self._ranked


class PassportCache:
    def __init__(
        self,
        clock: Clock,
        policy: IssuerPolicy,
        revoked: Revocations,
        stale_ms: int,
        *,
        named: Collection[str] = (),
        secret: str = "",
    ) -> None:
        """`named` are nodes that the operator trusts whatever passports they have; `secret` is
        where others have their place from in a list that is cut off."""
        self._clock = clock
        self.policy = policy
        self._revoked = revoked
        self._stale_ms = stale_ms
        self._named = frozenset(named)
        self._secret = secret.encode()
        self.sources: dict[str, SourceContent] = {HERE: SourceContent()}
        self._by_capability: dict[str, _Rows] = {}
        self._answers: dict[str, _Answer] = {}
        self._newest: dict[str, Mapping[str, Any]] = {}  # advertisements
        self._urls: dict[str, str] = {}  # of the newest advertisements
        self._presented: dict[str, Presented] = {}  # in them
        self._nodes: dict[str, _Nodes] = {}  # by participant
        #: By issuer: anyone can register, so no question about one goes through the rows of all.
        self._by_issuer: dict[str, dict[tuple[str, str, str], CachedPassport]] = {}
        self.operators = Operators(policy)  # as the directory of this node knows
        self.version = 0  # grows with every change

    # -- asking ------------------------------------------------------------------------------

    def holders(self, capability_id: str) -> list[Holder]:
        return list(self._answer(capability_id).holders)

    def rows(self, capability_id: str) -> list[Mapping[str, Any]]:
        return [one.row for one in self._answer(capability_id).holders]

    def ranked(self, capability_id: str) -> list[Mapping[str, Any]]:
        """For lists that are cut off: those first whom this node trusts, in order of their names.
        Anyone can make keys until one sorts first, so the others are in an order of our own."""
        return list(self._answer(capability_id).ranked)

    def capabilities(self) -> list[str]:
        return sorted(self._by_capability)

    def url(self, node_id: str) -> str:
        return self._urls.get(node_id, "")

    def advertisement(self, node_id: str) -> Mapping[str, Any] | None:
        return self._newest.get(node_id)

    def nodes_of(self, participant_id: str) -> list[str]:
        """Nodes of a participant: those it was bound to, and those with a passport that counts."""
        now = self._clock.now()
        found = self._nodes.get(participant_id)
        if found is None or not found.since <= now < found.until:
            if len(self._nodes) >= PARTICIPANTS_REMEMBERED:
                self._nodes.clear()
            found = self._nodes[participant_id] = self._count_nodes(participant_id, now)
        return list(found.names)

    def every(self) -> Iterator[tuple[str, CachedPassport]]:
        for source, content in self.sources.items():
            for of_node in content.rows.values():
                for row in of_node.values():
                    yield source, row

    def problem_of(self, one: CachedPassport, now: int) -> str:
        """Why the passport does not count now, or nothing. Revocation comes first."""
        passport = one.checked.passport
        if self._revoked.covers(one.checked) or any(
            content.revoked.covers(one.checked) for content in self.sources.values()
        ):
            return "it is revoked"
        if passport.issued_at > now:
            return "it is not valid yet"
        if passport.expires_at is not None and passport.expires_at <= now:
            return "it has expired"
        if not self.policy.is_allowed(one.checked, self._presented_by(one.node_id)):
            return f"{passport.issuer} may not issue it here"
        return ""

    def is_vouched_for(self, node_id: str) -> bool:
        """Whether an issuer whom the operator has named gave it a passport that counts now."""
        now = self._clock.now()
        return any(
            self.policy.vouches(row.checked) and not self.problem_of(row, now)
            for source, content in self.sources.items()
            if self.is_fresh(source, now)
            for row in content.rows.get(node_id, {}).values()
        )

    def vouched(self) -> Iterator[Passport]:
        """Those that count now, of issuers whom the operator has named."""
        now = self._clock.now()
        for _, row in self.every():
            if self.policy.vouches(row.checked) and not self.problem_of(row, now):
                yield row.checked.passport

    def is_fresh(self, source: str, now: int) -> bool:
        return source == HERE or now < self._stale_at(source)

    # -- what a directory says ---------------------------------------------------------------

    def replace(
        self, source: str, content: SourceContent, changed: Collection[str] | None = None
    ) -> None:
        """What was read from a source now, in place of what it said before. `changed` are the nodes
        of which it says something else, where that is known."""
        before = self.sources.get(source, SourceContent())
        if changed is None:
            changed = changes(before, content)
        counted = self.is_fresh(source, self._clock.now())
        self.sources[source] = content
        if len(changed) > REBUILT_FROM:
            self._rebuild()
            return
        for node_id in changed:
            for row in before.rows.get(node_id, {}).values():
                self._unlist(source, row)
            for row in content.rows.get(node_id, {}).values():
                self._list(source, row)
            self._renew_newest(node_id)
            self._changed_at(node_id)
        if not counted or before.revoked != content.revoked:
            self.changed()

    def _renew_newest(self, node_id: str) -> None:
        """Of those of one instant, that of the own directory: it knows their numbers."""
        for known in (self._newest, self._urls, self._presented):
            known.pop(node_id, None)
        for content in reversed(self.sources.values()):  # the own directory is the first
            if (one := content.advertisements.get(node_id)) is not None:
                self._keep_newest(node_id, one)

    def update_here(
        self,
        node_id: str,
        rows: Mapping[str, CachedPassport],
        advertisement: Mapping[str, Any] | None,
    ) -> None:
        """What the directory of this node says of one node now."""
        here = self.sources[HERE]
        for row in here.rows.pop(node_id, {}).values():
            self._unlist(HERE, row)
        if rows:
            here.rows[node_id] = dict(rows)
        if advertisement is not None:
            here.advertisements[node_id] = advertisement
        else:
            here.advertisements.pop(node_id, None)
        self._renew_newest(node_id)
        for row in rows.values():
            self._list(HERE, row)
        presented = NOTHING if advertisement is None else presented_by(advertisement)
        self.operators.update(node_id, [row.checked for row in rows.values()], presented)
        self._changed_at(node_id)

    def _list(self, source: str, row: CachedPassport) -> None:
        node, capability = row.node_id, row.capability_id
        self._by_capability.setdefault(capability, {})[source, node] = row
        issuer = row.checked.passport.issuer
        self._by_issuer.setdefault(issuer, {})[source, node, capability] = row

    def _unlist(self, source: str, row: CachedPassport) -> None:
        node, capability, issuer = row.node_id, row.capability_id, row.checked.passport.issuer
        del self._by_capability[capability][source, node]
        if not self._by_capability[capability]:
            del self._by_capability[capability]
        del self._by_issuer[issuer][source, node, capability]
        if not self._by_issuer[issuer]:
            del self._by_issuer[issuer]

    def add_advertisement(
        self, source: str, node_id: str, advertisement: Mapping[str, Any]
    ) -> None:
        """What a source said of one node since it was read."""
        content = self.sources.setdefault(source, SourceContent())
        content.advertisements[node_id] = advertisement
        self._keep_newest(node_id, advertisement)
        self._changed_at(node_id)

    def _changed_at(self, node_id: str) -> None:
        """Something of one node: anyone can publish, so no answer is worked out anew for that."""
        now = self._clock.now()
        self._nodes.clear()
        self.version += 1
        for capability, answer in list(self._answers.items()):
            known = self._by_capability.get(capability)
            if known is None:
                del self._answers[capability]
                continue
            rows = self._rows_of(known, node_id)
            best = self._best(rows, now).get(node_id)
            entry = None if best is None else self._ranked(best)
            answer.put(node_id, entry, *self._window(rows, now))

    def _rows_of(self, known: _Rows, node_id: str) -> list[tuple[str, CachedPassport]]:
        found = ((source, known.get((source, node_id))) for source in self.sources)
        return [(source, row) for source, row in found if row is not None]

    def changed(self) -> None:
        """Something was revoked."""
        self._answers.clear()
        self._nodes.clear()
        self.version += 1

    def _rebuild(self) -> None:
        self._by_capability, self._by_issuer = {}, {}
        self._newest, self._urls, self._presented = {}, {}, {}
        for source, content in self.sources.items():
            for of_node in content.rows.values():
                for row in of_node.values():
                    self._list(source, row)
        for content in reversed(self.sources.values()):
            for node, one in content.advertisements.items():
                self._keep_newest(node, one)
        self.changed()

    def _keep_newest(self, node_id: str, advertisement: Mapping[str, Any]) -> None:
        known = self._newest.get(node_id)
        if known is None or published_at(advertisement) >= published_at(known):
            self._newest[node_id] = advertisement
            self._urls[node_id] = url_of(advertisement)
            self._presented.pop(node_id, None)

    def _presented_by(self, node_id: str) -> Presented:
        """Worked out once for each advertisement that is the newest of its node."""
        known = self._presented.get(node_id)
        if known is None:
            newest = self._newest.get(node_id)
            known = NOTHING if newest is None else presented_by(newest)
            self._presented[node_id] = known
        return known

    # -- answers -----------------------------------------------------------------------------

    def _answer(self, capability_id: str) -> _Answer:
        now = self._clock.now()
        found = self._answers.get(capability_id)
        if found is None or not found.since <= now < found.until:
            found = self._compute(capability_id, now)
            if capability_id in self._by_capability:  # names that nothing has are not remembered
                self._answers[capability_id] = found
        return found

    def _compute(self, capability_id: str, now: int) -> _Answer:
        known = self._by_capability.get(capability_id, {})
        rows = [(source, one) for (source, _), one in known.items()]
        best = self._best(rows, now)
        found = {node: self._ranked(one) for node, one in best.items()}
        return _Answer(found, *self._window(rows, now))

    def _window(self, rows: Iterable[tuple[str, CachedPassport]], now: int) -> tuple[int, int]:
        """Between which instants what these rows come to stays as it is now."""
        since, until = 0, NEVER
        for source, one in rows:
            for instant in self._boundaries(source, one):
                if instant <= now:
                    since = max(since, instant)
                else:
                    until = min(until, instant)
        return since, until

    def _best(
        self, rows: Iterable[tuple[str, CachedPassport]], now: int
    ) -> dict[str, CachedPassport]:
        """Of the rows for one capability, the one that counts for each node."""
        newest: dict[Key, CachedPassport] = {}
        for source, one in rows:
            key = one.checked.passport.key
            if self.is_fresh(source, now) and (key not in newest or _newer(one, newest[key])):
                newest[key] = one  # one that was issued anew does not count as it was before
        best: dict[str, CachedPassport] = {}
        for one in newest.values():
            if self.problem_of(one, now):
                continue
            if one.node_id not in best or _newer(one, best[one.node_id]):
                best[one.node_id] = one
        return best

    def place_of(self, name: str) -> bytes:
        """Where somebody stands among those whom this node does not trust: anyone can make keys
        until one sorts first, so that is for this node alone to tell."""
        return hashlib.sha256(self._secret + name.encode()).digest()

    def _ranked(self, one: CachedPassport) -> tuple[_Rank, Holder]:
        holder = self._holder(one)
        place = b"" if holder.trusted else self.place_of(holder.node_id)
        return (not holder.trusted, place, holder.node_id), holder

    def _boundaries(self, source: str, one: CachedPassport) -> Iterator[int]:
        """Instants at which what is known of it could count or count no more."""
        passport = one.checked.passport
        yield passport.issued_at
        if passport.expires_at is not None:
            yield passport.expires_at
        if source != HERE:
            yield self._stale_at(source)

    def _stale_at(self, source: str) -> int:
        content = self.sources.get(source)
        read_at = content.read_at if content else None
        return 0 if read_at is None else read_at + self._stale_ms

    def _holder(self, one: CachedPassport) -> Holder:
        participant = self.policy.participant(one.checked)
        named = one.node_id in self._named or one.node_id in self.policy.bindings
        trusted = named or self.policy.vouches(one.checked)
        return Holder(one.node_id, participant, self.row(one), trusted)

    def row(self, one: CachedPassport) -> dict[str, Any]:
        """As a directory shows it."""
        passport = one.checked.passport
        advertisement = self._newest.get(one.node_id)
        row = {
            "node_id": one.node_id,
            "endpoints": endpoints_of(advertisement) if advertisement else [],
            "capability_id": one.capability_id,
            "passport": one.checked.document,
            "sequence/no": one.sequence,
            "published_at": rfc3339(one.published_at),
            "expires_at": None if passport.expires_at is None else rfc3339(passport.expires_at),
            "anchor_identity": self.policy.participant(one.checked),
            "informal": not self.policy.is_allowed(one.checked, self._presented_by(one.node_id)),
        }
        return row if one.endorsement is None else {**row, "endorsement": one.endorsement}

    def _count_nodes(self, participant: str, now: int) -> _Nodes:
        """Those that a passport of this participant, or of its node, counts for."""
        found = {node for node, who in self.policy.bindings.items() if who == participant}
        since, until = 0, NEVER
        known = self._by_issuer.get(participant, {})
        for _, node, capability in islice(known, ROWS_OF_A_PARTICIPANT):
            if node in found:
                continue
            rows = self._rows_of(self._by_capability[capability], node)
            begins, ends = self._window(rows, now)
            since, until = max(since, begins), min(until, ends)
            best = self._best(rows, now).get(node)
            if best is not None and self.policy.participant(best.checked) == participant:
                found.add(node)
        return _Nodes(sorted(found), since, until)


def _newer(one: CachedPassport, other: CachedPassport) -> bool:
    """Issued later; of two from the same instant the one that lasts longer."""

    def rank(each: CachedPassport) -> tuple[int, int, str]:
        passport = each.checked.passport
        ends = NEVER if passport.expires_at is None else passport.expires_at
        return passport.issued_at, ends, passport.passport_id

    return rank(one) > rank(other)


def changes(before: SourceContent, now: SourceContent) -> list[str]:
    """The nodes of which a source says something else; work for any thread."""
    nodes = {*before.rows, *before.advertisements, *now.rows, *now.advertisements}
    return [
        node
        for node in nodes
        if before.rows.get(node) != now.rows.get(node)
        or before.advertisements.get(node) != now.advertisements.get(node)
    ]
