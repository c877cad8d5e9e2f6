"""The reference store: plain dictionaries, nothing clever, gone with the process.

It is the oracle the other stores are compared with, so every method does the obvious thing.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from fractions import Fraction
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from anabranch.errors import StoreInUse
from anabranch.store.checks import (
    answer_refusal,
    check_payloads,
    checked_payload,
    refusal,
    whole_hashes,
)
from anabranch.store.cluster_ports import Cluster
from anabranch.store.grant_ports import Grant
from anabranch.store.memory.access import MemoryAccess
from anabranch.store.memory.admissions import MemoryAdmissions
from anabranch.store.memory.catalog import MemoryCatalog
from anabranch.store.memory.credentials import MemoryCredentials
from anabranch.store.memory.hooks import MemoryHooks
from anabranch.store.memory.records import MemoryRecords
from anabranch.store.memory.streams import MemoryStreams
from anabranch.store.memory.work_logs import MemoryWorkLogs
from anabranch.store.ports import (
    Batch,
    Commit,
    Definition,
    DefinitionCard,
    DefinitionFilter,
    DefinitionRuns,
    Forgotten,
    Head,
    HeadFilter,
    Hold,
    Message,
    Record,
    RunHistory,
    Space,
    StateSnapshot,
    Tail,
)
from anabranch.store.relational.rows import regex_word

#: What writes of features change, and `together` takes back where they fail.
_OF_FEATURES = (
    "_definitions", "_catalog", "_records", "_hooks", "_deliveries", "_credentials", "_grants",
    "_tokens", "_audit", "_last_entry", "_kept", "_mailbox", "_last_message",
)  # fmt: skip


class MemoryStore(
    MemoryCatalog, MemoryCredentials, MemoryHooks, MemoryAccess, MemoryWorkLogs, MemoryRecords,
    MemoryAdmissions,
):  # fmt: skip
    """One store per instance; two threads may use it, two processes cannot."""

    cluster: Cluster | None = None
    answered_by_others = False  # messages that wait: other servers may be about to

    def __init__(self) -> None:
        super().__init__()
        self.node_streams = MemoryStreams(self._open)
        self._log: dict[str, list[Record]] = {}
        self._heads: dict[str, Head] = {}
        self._snapshots: dict[str, StateSnapshot] = {}
        self._definitions: dict[str, Definition] = {}
        self._payloads: dict[str, bytes] = {}
        self._holds: dict[tuple[str, str, str], int] = {}  # sha256, run, scope → until
        self._sealed: dict[str, dict[str, bytes]] = {}
        self._grants: dict[tuple[str, int, str], Grant] = {}
        self._grant_ids = itertools.count(1)
        self._session_runs: dict[str, dict[int, str]] = {}
        self._mailbox: dict[int, Message] = {}
        self._last_message = 0
        self._posted = False
        self._owner: str | None = None

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:  # noqa: ARG002 - memory forgets
        with self._open():
            before = {name: copy(getattr(self, name)) for name in _OF_FEATURES}
            try:
                yield
            except BaseException:
                vars(self).update(before)
                raise

    # Journal

    def commit(self, batch: Batch) -> None:
        with self._open():
            self._check(batch)
            for commit in batch.commits:
                self._apply(commit)
            for sha256, content in batch.payloads.items():
                self._payloads.setdefault(sha256, content)
            for message_id, answer in batch.answers.items():
                self._mailbox[message_id] = replace(self._mailbox[message_id], answer=answer)
            for run, body, now in batch.messages:
                self.post(run, body, now)
            for hold in batch.holds:
                self._hold(hold)
            for run, (now, until) in batch.ended.items():
                self._end(run, now, until)
            for run, values in batch.sealed.items():
                self._sealed[run] = {**self._sealed.get(run, {}), **values}
            for run in batch.unsealed:
                self._sealed.pop(run, None)
            self.node_streams.apply(batch.streams)
            self._write_requests(batch.requests)
            for run in batch.to_recover:
                self._let_recover(run)

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        with self._open():
            rows = self._log.get(run, [])
            found = [row for row in rows if row.first_seq + row.count - 1 > after]
            return found if limit is None else found[: max(limit, 0)]

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        rows = self.read(run, after, limit)
        return len(rows), sum(len(row.events) for row in rows)

    def read_many(self, runs: Sequence[str]) -> Mapping[str, Tail]:
        with self._open():
            return {run: self._tail(run) for run in runs}

    def _let_recover(self, run: str) -> None:
        head = self._heads.get(run)
        if head is not None and head.status == "waiting":
            self._heads[run] = replace(head, status="running")

    def _check(self, batch: Batch) -> None:
        """Everything that can be wrong is found before anything is written."""
        check_payloads(batch.payloads)
        heads: dict[str, Head] = {}
        for commit in batch.commits:
            run = commit.head.run
            refused = refusal(heads.get(run) or self._heads.get(run), commit)
            if refused is not None:
                raise refused
            heads[run] = commit.head
        for message_id in batch.answers:
            message = self._mailbox.get(message_id)
            if message is None or message.answer is not None:
                raise answer_refusal(message_id, known=message is not None)
        self.node_streams.check(batch.streams)

    def _apply(self, commit: Commit) -> None:
        head = commit.head
        self._heads[head.run] = head
        if commit.count:
            first_seq = head.seq - commit.count + 1
            record = Record(first_seq, commit.count, commit.at, commit.events)
            self._log.setdefault(head.run, []).append(record)
            self._note(head.run, record)
        if commit.snapshot is not None:
            self._snapshots[head.run] = StateSnapshot(head.seq, commit.snapshot)

    def _tail(self, run: str) -> Tail:
        snapshot = self._snapshots.get(run)
        return snapshot, self.read(run, snapshot.seq if snapshot else 0)

    # Heads

    def head(self, run: str) -> Head | None:
        with self._open():
            return self._heads.get(run)

    def heads(self, wanted: HeadFilter) -> list[Head]:
        with self._open():
            found = self._fitting(wanted)
        found.sort(key=lambda head: (head.created_at, head.run), reverse=True)
        return found[: max(wanted.limit, 0)]

    def runs_known(self, runs: Sequence[str]) -> Mapping[str, bool]:
        with self._open():
            return {run: self._heads[run].finished for run in runs if run in self._heads}

    def unfinished(
        self,
        after: str = "",
        limit: int = 1000,
        partitions: Collection[int] | None = None,  # noqa: ARG002 - there is one
    ) -> list[Head]:
        with self._open():
            found = [h for h in self._heads.values() if not h.finished and h.run > after]
        return sorted(found, key=lambda head: head.run)[: max(limit, 0)]

    def redrives(self, runs: Sequence[str]) -> list[Head]:
        with self._open():
            found = [head for head in self._heads.values() if head.origin in set(runs)]
        return sorted(found, key=lambda head: (head.created_at, head.run), reverse=True)

    def run_slots(self, wanted: HeadFilter, width: int) -> Mapping[tuple[int, str], int]:
        asked = replace(wanted, before=None)
        with self._open():
            found = self._fitting(asked)
        return Counter((head.created_at // width, head.status) for head in found)

    def _fitting(self, wanted: HeadFilter) -> list[Head]:
        found = [head for head in self._heads.values() if _fits(head, wanted)]
        if wanted.redriven is None:
            return found
        origins = {head.origin for head in self._heads.values()}
        return [head for head in found if (head.run in origins) == wanted.redriven]

    def run_history(self, since: int, width: int) -> RunHistory:
        with self._open():
            found = [head for head in self._heads.values() if head.created_at >= since]
        return RunHistory(
            slots=Counter((head.created_at // width, head.status) for head in found),
            definitions=[
                _runs_of(name, [head for head in found if head.name == name])
                for name in sorted({head.name for head in found})
            ],
        )

    def unfinished_counts(self) -> Mapping[str, int]:
        with self._open():
            return Counter(head.status for head in self._heads.values() if not head.finished)

    def waiting_longest(self, limit: int) -> list[Head]:
        with self._open():
            found = [h for h in self._heads.values() if not h.finished and _waits(h)]
        return sorted(found, key=lambda head: (head.updated_at, head.run))[: max(limit, 0)]

    def due(self, now: int, limit: int = 1000) -> list[Head]:
        with self._open():
            alive = [head for head in self._heads.values() if not head.finished]
        due = [head for head in alive if head.next_wake is not None and head.next_wake <= now]
        due.sort(key=lambda head: (head.next_wake or 0, head.run))
        return due[: max(limit, 0)]

    # Definitions

    def put_definition(self, definition: Definition) -> None:
        with self._open():
            self._definitions.setdefault(definition.fingerprint, definition)

    def definition(self, fingerprint: str) -> Definition | None:
        with self._open():
            return self._definitions.get(fingerprint)

    def definitions(self, wanted: DefinitionFilter) -> list[DefinitionCard]:
        with self._open():
            found = [_card(one) for one in self._definitions.values()]
        found = [card for card in found if _listed(card, wanted)]
        found.sort(key=lambda card: (card.created_at, card.fingerprint), reverse=True)
        return found[: max(wanted.limit, 0)]

    # Payloads

    def put_payload(self, sha256: str, content: bytes, hold: Hold | None = None) -> None:
        check_payloads({sha256: content})
        with self._open():
            self._payloads.setdefault(sha256, content)
            if hold is not None:
                self._hold(hold)

    def payload(self, sha256: str) -> bytes | None:
        with self._open():
            content = self._payloads.get(sha256)
        return None if content is None else checked_payload(sha256, content)

    def held(self, run: str, after: str = "", limit: int = 1000) -> list[Hold]:
        with self._open():
            keys = sorted(key for key in self._holds if key[1] == run and key[0] > after)
            return whole_hashes([Hold(*key, self._holds[key]) for key in keys], limit)

    def holds_payload(self, sha256: str, runs: Sequence[str]) -> bool:
        with self._open():
            return any(key[0] == sha256 and key[1] in runs for key in self._holds)

    # Retention

    def expire(self, now: int, limit: int = 1000) -> int:
        with self._open():
            over = [key for key, until in self._holds.items() if 0 < until <= now]
            over.sort(key=lambda key: (self._holds[key], key))
            return len(self._let_go(over[: max(limit, 0)]))

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        with self._open():
            gone = {run for run in runs if run in self._heads and self._heads[run].finished}
            held = [key for key in self._holds if key[1] in gone]
            before = dict(self._holds), dict(self._payloads)
            payloads = self._let_go(held)
            size = sum(map(len, payloads))
            size += sum(len(row.events) for run in gone for row in self._log.get(run, ()))
            size += sum(len(self._snapshots[run].state) for run in gone & self._snapshots.keys())
            size += self._weight_of_logs(gone)
            if dry_run:
                self._holds, self._payloads = before
                return Forgotten(len(gone), len(payloads), size)
            for run in gone:
                del self._heads[run]
                self._log.pop(run, None)
                self._snapshots.pop(run, None)
            self._unnote(gone)
            self._forget_logs(gone)
            self._forget_places(gone)
            for message in [m for m in self._mailbox.values() if m.run in gone]:
                if message.answer is not None or not self.answered_by_others:
                    del self._mailbox[message.id]
            return Forgotten(len(gone), len(payloads), size)

    def give_back(self, most: int) -> Space:  # noqa: ARG002 - the port's signature
        with self._open():
            return Space()  # what is forgotten is gone at once

    def _hold(self, hold: Hold) -> None:
        key = hold.sha256, hold.run, hold.scope
        before = self._holds.get(key, hold.until)
        self._holds[key] = max(before, hold.until) if before and hold.until else 0

    def _end(self, run: str, now: int, until: int) -> None:
        for key, before in self._holds.items():
            if key[1] == run and key[2] in ("job", "step", "execution"):
                end = until if key[2] == "execution" else now
                self._holds[key] = min(before, end) if before else end

    def _let_go(self, keys: Sequence[tuple[str, str, str]]) -> list[bytes]:
        """Drop holds; the payloads that were deleted because these were the last."""
        for key in keys:
            del self._holds[key]
        left = {sha256 for sha256, _, _ in self._holds}
        unheld = dict.fromkeys(sha256 for sha256, _, _ in keys if sha256 not in left)
        return [self._payloads.pop(sha256) for sha256 in unheld if sha256 in self._payloads]

    # Seals

    def sealed(self, run: str) -> Mapping[str, bytes]:
        with self._open():
            return dict(self._sealed.get(run, {}))

    # Session numbers

    def next_session_number(self, owner: str) -> int:
        with self._open():
            return max(self._session_runs.get(owner, ()), default=0) + 1

    def take_session_number(self, owner: str, run: str, wanted: int | None = None) -> int | None:
        with self._open():
            number = max(self._session_runs.get(owner, ()), default=0) + 1
            if wanted is not None and wanted != number:
                return None
            self._session_runs.setdefault(owner, {})[number] = run
            return number

    def give_back_session_number(self, owner: str, number: int, run: str) -> None:
        begun = self.head(run) is not None
        with self._open():
            taken = self._session_runs.get(owner, {})
            if not begun and taken.get(number) == run and number == max(taken):
                del taken[number]

    def session_run(self, owner: str, number: int) -> str | None:
        with self._open():
            return self._session_runs.get(owner, {}).get(number)

    # Grants

    def put_grants(self, grants: Sequence[Grant]) -> None:
        with self._open():
            for grant in grants:
                key = (grant.rid, grant.scope, grant.grantee)
                known = self._grants.get(key)
                number = known.id if known is not None else next(self._grant_ids)
                owner = known.owner if known is not None else grant.owner
                first = known.is_owner if known is not None else grant.is_owner
                self._grants[key] = replace(grant, id=number, owner=owner, is_owner=first)

    def forget_grants(self, owner: str, before: int) -> None:
        with self._open():
            for key, one in list(self._grants.items()):
                if one.owner == owner and one.expires_at < before and not one.is_owner:
                    del self._grants[key]

    def count_grants(self, owner: str) -> int:
        with self._open():
            return sum(one.owner == owner for one in self._grants.values())

    def grants_of(self, rid: str, scope: int) -> list[Grant]:
        with self._open():
            found = [one for one in self._grants.values() if (one.rid, one.scope) == (rid, scope)]
        return sorted(found, key=lambda one: one.id)

    def grants_for(self, who: str, after: int = 0, limit: int = 100) -> list[Grant]:
        with self._open():
            found = [
                one
                for one in self._grants.values()
                if who in (one.grantee, one.owner) and one.id > after
            ]
        return sorted(found, key=lambda one: one.id)[: max(limit, 0)]

    # Mailbox

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:  # noqa: ARG002
        with self._open():
            self._last_message += 1
            message_id = self._last_message
            self._mailbox[message_id] = Message(id=message_id, run=run, body=body, posted_at=now)
            self._posted = True
            return message_id

    def unanswered(self, limit: int = 100) -> list[Message]:
        with self._open():
            waiting = [m for m in self._mailbox.values() if m.answer is None]
        return waiting[: max(limit, 0)]

    def message(self, message_id: int) -> Message | None:
        with self._open():
            return self._mailbox.get(message_id)

    def changed(self) -> bool:
        with self._open():
            posted, self._posted = self._posted, False
            return posted

    # Store

    def acquire(self, owner: str) -> None:
        with self._open():
            if self._owner is not None:
                raise StoreInUse(f"this store is in use by {self._owner}: stop that engine first")
            self._owner = owner

    def release(self) -> None:
        with self._lock:
            self._owner = None

    def owner(self) -> str | None:
        with self._open():
            return self._owner

    def statistics(self) -> Mapping[str, Any]:
        with self._open():
            heads = self._heads.values()
            logs = self._log.values()
            return {
                "runs": dict(Counter(head.status for head in heads)),
                "unfinished": sum(not head.finished for head in heads),
                "events": sum(head.seq for head in heads),
                "records": sum(len(rows) for rows in logs),
                "snapshots": len(self._snapshots),
                "definitions": len(self._definitions),
                "payloads": len(self._payloads),
                "holds": len(self._holds),
                "messages": len(self._mailbox),
                "unanswered": sum(m.answer is None for m in self._mailbox.values()),
                "bytes": sum(len(row.events) for rows in logs for row in rows)
                + sum(len(snapshot.state) for snapshot in self._snapshots.values())
                + sum(len(content) for content in self._payloads.values()),
            }

    def close(self) -> None:
        self.release()
        self._closed = True


def _fits(head: Head, wanted: HeadFilter) -> bool:
    return (
        (not wanted.statuses or head.status in wanted.statuses)
        and (wanted.dialect is None or head.dialect == wanted.dialect)
        and (wanted.name is None or head.name == wanted.name)
        and all(head.labels.get(key) == value for key, value in wanted.labels.items())
        and head.run.startswith(wanted.run_prefix)
        and (not wanted.search or _has_words(head, wanted.search))
        and (wanted.parent is None or head.parent == wanted.parent)
        and (wanted.before is None or (head.created_at, head.run) < tuple(wanted.before))
        and (wanted.ended_before is None or _ended_before(head, wanted.ended_before))
        and (wanted.created_after is None or head.created_at >= wanted.created_after)
        and (wanted.created_before is None or head.created_at < wanted.created_before)
    )


def _waits(head: Head) -> bool:
    return bool(head.reason) or head.status in ("waiting", "paused", "queued")


def _runs_of(name: str, heads: list[Head]) -> DefinitionRuns:
    spans = sorted(head.updated_at - head.created_at for head in heads if head.finished)
    half, most = (
        next((span for n, span in enumerate(spans, 1) if n >= len(spans) * part), None)
        for part in (Fraction(1, 2), Fraction(19, 20))
    )
    counts = Counter(head.status for head in heads)
    return DefinitionRuns(name=name, statuses=counts, p50_ms=half, p95_ms=most)


def _has_words(head: Head, search: str) -> bool:
    labels = msgspec.json.encode(dict(head.labels)).decode() if head.labels else ""
    lines = labels.strip('{}"').replace('":"', "=").replace('","', "\n")
    text = "\n".join((head.run, head.name, head.reason, lines))
    return all(re.search(regex_word(word), text) for word in search.split())


def _card(one: Definition) -> DefinitionCard:
    fields = asdict(one)
    del fields["source"]
    return DefinitionCard(**fields)


def _listed(card: DefinitionCard, wanted: DefinitionFilter) -> bool:
    key = card.created_at, card.fingerprint
    return (
        (wanted.name is None or card.name == wanted.name)
        and (wanted.dialect is None or card.dialect == wanted.dialect)
        and (wanted.before is None or key < tuple(wanted.before))
    )


def _ended_before(head: Head, instant: int) -> bool:
    return head.finished and head.updated_at < instant
