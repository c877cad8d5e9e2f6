"""Notifications between the servers of a store: they make news quick, polling makes them sure.

`NOTIFY` inside the transaction that writes would take a lock over the whole database server at its
commit. So it is sent afterwards, by a thread with a connection of its own, once for all commits
that happened meanwhile. It says who has written and what kind of thing (`log`, `mail`, `servers`),
never what: that is in the tables.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from threading import Event, Lock, Thread
from zlib import crc32

import psycopg

from anabranch.errors import StoreError
from anabranch.store.cluster_ports import ALL_NEWS
from anabranch.store.postgres.address import Address
from anabranch.store.postgres.connections import connect

AGAIN_SECONDS = 1.0
GATHER_SECONDS = 0.01  # between two notifications; what was written meanwhile is told together
WAIT_SECONDS = 0.5  # for a notification, before looking whether to stop

log = logging.getLogger("anabranch.store")


def channel(address: Address) -> str:
    """One for each schema: names of channels are short, and seen by every user of a database."""
    return f"anabranch_{crc32(address.schema.encode()):08x}"


class Notifier:
    """Tells the other servers that something was written."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.server = ""  # who tells
        self._kinds: set[str] = set()
        self._changing = Lock()
        self._wanted = Event()
        self._stopping = False
        self._thread: Thread | None = None

    def tell(self, kind: str) -> None:
        """Returns at once."""
        with self._changing:
            self._kinds.add(kind)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="anabranch-notify", daemon=True)
                self._thread.start()
        self._wanted.set()

    def stop(self) -> None:
        """What was told before is sent first, if that can be."""
        self._stopping = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                with connect(self._address) as db:
                    # A notification writes nothing that would have to survive a crash.
                    db.execute("SET synchronous_commit TO off")
                    self._tell_on(db)
            except (StoreError, psycopg.Error) as error:
                log.debug("notifications cannot be sent: %s", error)
                if not self._stopping:
                    Event().wait(AGAIN_SECONDS)
            if self._stopping:
                return

    def _tell_on(self, db: psycopg.Connection[tuple[object, ...]]) -> None:
        name, told_at = channel(self._address), 0.0
        while True:
            self._wanted.wait()
            Event().wait(max(0.0, told_at + GATHER_SECONDS - time.monotonic()))
            self._wanted.clear()
            with self._changing:
                kinds, self._kinds = self._kinds, set()
            if kinds:
                said = f"{self.server} {','.join(sorted(kinds))}"
                db.execute("SELECT pg_notify(%s, %s)", (name, said))
                told_at = time.monotonic()
            if self._stopping:
                return


class Listener:
    """Calls `heard`, from its own thread, when another server has told something."""

    def __init__(
        self, address: Address, server: str, heard: Callable[[Collection[str]], None]
    ) -> None:
        self._address = address
        self._server = server
        self._heard = heard
        self._stopping = False
        self._thread = Thread(target=self._run, name="anabranch-listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                with connect(self._address) as db:
                    self._listen_on(db)
            except (StoreError, psycopg.Error) as error:
                log.debug("notifications cannot be heard: %s", error)
                with suppress(Exception):
                    Event().wait(AGAIN_SECONDS)

    def _listen_on(self, db: psycopg.Connection[tuple[object, ...]]) -> None:
        db.execute(f"LISTEN {channel(self._address)}")
        self._heard(ALL_NEWS)  # what was told while nobody listened
        while not self._stopping:
            for told in db.notifies(timeout=WAIT_SECONDS, stop_after=1):
                server, _, kinds = told.payload.partition(" ")
                if server != self._server:
                    self._heard(frozenset(kinds.split(",")))
