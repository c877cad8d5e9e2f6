"""Parts that many jobs share, on both sides: a process of the cluster keeps those it has seen, and
the dispatcher knows which process has which, as far as it was told.

A part that a process lacks costs one more trip: it says so, and gets the job again with the part.
So the dispatcher may be wrong about what a process has, and may forget it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from anabranch.errors import InputError
from anabranch.work.values.payloads import hash_of

CACHE_BYTES = 256 * 1024 * 1024  # of parts that a process of the cluster keeps
SMALL_BYTES = 16 * 1024  # sending such a part in vain costs less than being asked for it
CARRIED_BYTES = 256 * 1024 * 1024  # of larger parts that are on their way with jobs at once
PARTS_KNOWN = 10_000  # of which the dispatcher knows who has them
PROCESSES_KNOWN = 10_000
WORDS_UNTIL_GONE = 16  # from each of the others: a process that said nothing meanwhile is gone


class PartsCache:
    """The parts that a process has seen last. Safe to use from all of its threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, sha256: str) -> bytes | None:
        with self._lock:
            found = self._kept.get(sha256)
            if found is not None:
                self._kept.move_to_end(sha256)
            return found

    def keep(self, parts: Mapping[str, bytes]) -> None:
        """Keep what came along; raises `InputError` where a part is not what its hash says."""
        for sha256, content in parts.items():
            if sha256 in self._kept:
                continue
            if hash_of(content) != sha256:
                raise InputError(
                    f"the part {sha256:.12} was damaged on its way to the cluster", code="checksum"
                )
            with self._lock:
                self._add(sha256, content)

    def _add(self, sha256: str, content: bytes) -> None:
        if sha256 in self._kept or len(content) > self._bytes_max:
            return
        self._kept[sha256] = content
        self.size += len(content)
        while self.size > self._bytes_max:
            self.size -= len(self._kept.popitem(last=False)[1])

    def has(self, hashes: Iterable[str]) -> list[str]:
        """Those of them that are here."""
        return [sha256 for sha256 in hashes if sha256 in self._kept]


class PartsKnown:
    """For the dispatcher of one pool: which parts travel with the next job.

    A small part goes along until every known process has it, a larger one until half of them have
    it; the others ask. No more jobs carry a larger part at once than processes lack it, so what is
    on its way stays small at the start, when nothing is known of the cluster.
    """

    def __init__(self, *, carried_bytes: int = CARRIED_BYTES) -> None:
        self._carried_max = carried_bytes
        self.forget()

    def forget(self) -> None:
        """Another cluster, perhaps: nothing is known of its processes, and nothing is out."""
        self._carried_bytes = 0
        self._bits: OrderedDict[str, int] = OrderedDict()  # process → its bit, the last heard last
        self._heard: dict[str, int] = {}  # process → when it said something, counted in words
        self._free: list[int] = []  # bits of processes that are gone
        self._holders: OrderedDict[str, int] = OrderedDict()  # part → the bits of who has it
        self._carriers: dict[str, int] = {}  # part → tickets that carry it now
        self._tickets: dict[str, dict[str, int]] = {}  # ticket → larger parts it carries
        self._words = 0

    # -- what is heard -----------------------------------------------------------------------

    def heard(self, process: str, had: Iterable[str] = (), lacks: Iterable[str] = ()) -> None:
        """What the process said of itself with an outcome, or when it asked for parts."""
        self._words += 1
        if process not in self._bits:
            self._bits[process] = self._free.pop() if self._free else 1 << len(self._bits)
        self._bits.move_to_end(process)
        self._heard[process] = self._words
        bit = self._bits[process]
        for sha256 in had:
            self._holders[sha256] = self._holders.pop(sha256, 0) | bit
        for sha256 in lacks:
            if sha256 in self._holders:
                self._holders[sha256] &= ~bit
        while len(self._holders) > PARTS_KNOWN:
            self._holders.popitem(last=False)
        self._forget_the_gone()

    def over(self, ticket: str) -> None:
        """The cluster no longer has the job: what went with it is not on its way any more."""
        for sha256, size in self._tickets.pop(ticket, {}).items():
            self._carried_bytes -= size
            self._carriers[sha256] -= 1
            if not self._carriers[sha256]:
                del self._carriers[sha256]

    def _forget_the_gone(self) -> None:
        """Who said nothing for long is gone; or has had nothing to do, and will ask."""
        while self._bits:
            process = next(iter(self._bits))
            silent = self._words - self._heard[process]
            if silent <= WORDS_UNTIL_GONE * len(self._bits) and len(self._bits) <= PROCESSES_KNOWN:
                return
            bit = self._bits.pop(process)
            del self._heard[process]
            self._free.append(bit)
            for sha256 in self._holders:
                self._holders[sha256] &= ~bit

    # -- what is sent ------------------------------------------------------------------------

    def choose(
        self, ticket: str, sizes: Mapping[str, int], asked: Collection[str] = ()
    ) -> list[str]:
        """Of the parts that a job needs, those that are to go along with it. `asked` are those that
        a process has asked for."""
        chosen = [one for one, size in sizes.items() if one in asked or self._goes(one, size)]
        carried = {one: sizes[one] for one in chosen if sizes[one] > SMALL_BYTES}
        self.over(ticket)
        if carried:
            self._tickets[ticket] = carried
            for one, size in carried.items():
                self._carriers[one] = self._carriers.get(one, 0) + 1
                self._carried_bytes += size
        return chosen

    def _goes(self, sha256: str, size: int) -> bool:
        processes = len(self._bits)
        lacking = processes - self._holders.get(sha256, 0).bit_count()
        if size <= SMALL_BYTES:
            return not processes or lacking > 0
        if processes and 2 * lacking <= processes:
            return False
        if self._carried_bytes and self._carried_bytes + size > self._carried_max:
            return False
        return self._carriers.get(sha256, 0) < max(1, lacking)
