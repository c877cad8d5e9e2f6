"""The mail of an engine: stimuli that other processes have posted to its store."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel.stimuli import Stimulus
from anabranch.runtime.core import Core
from anabranch.runtime.messages.codec import (
    StartRun,
    answer_bytes,
    audit_in,
    elsewhere,
    read_message,
)
from anabranch.store.access_ports import RequestRecord
from anabranch.store.outages import passes
from anabranch.store.ports import Message

MAIL_AT_ONCE = 100


class Mailbox:
    def __init__(self, core: Core, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when another process has written something."""
        self._core = core
        self._on_change = on_change
        self._store = core.store
        self._taken: set[int] = set()  # their answers are on the way
        self._more = True  # what was posted before we came

    def read(self) -> None:
        """Offer what has come to the next turn."""
        self.take(self.look())

    def look(self) -> list[Message] | None:
        """What waits for an answer; None where nothing has come. Any thread may look.

        On a store that servers share, a message can become visible after one with a higher number
        that another server posted: nothing but what is unanswered tells of it."""
        alone = self._store.cluster is None
        changed = alone and self._store.changed()
        if changed:
            self._on_change()
        if alone and not changed and not self._more:
            return None
        self._more = True  # until it has been read
        found = self._store.unanswered(MAIL_AT_ONCE)
        self._more = len(found) == MAIL_AT_ONCE
        return found

    def take(self, found: list[Message] | None) -> None:
        if found is None:
            return
        self._taken.intersection_update([message.id for message in found])
        for message in found:
            if message.id in self._taken or not self._core.here(message.run):
                continue
            try:
                audit, said = audit_in(message), self._read(message)
            except AnabranchError as error:
                if isinstance(error, StoreError) and passes(error):
                    self._more = True
                    raise  # the store is away; the message stays
                self._taken.add(message.id)
                self._core.answer_message(message.id, answer_bytes(error))
                continue
            self._taken.add(message.id)
            request = RequestRecord(audit=audit) if audit is not None else None
            self._core.offer(message.run, said, message=message.id, request=request)

    def forget(self) -> None:
        """No answer is on its way to the store: what is not in the inbox is to be read again."""
        self._taken = self._core.messages_in_hand()
        self._more = True

    def _read(self, message: Message) -> Stimulus:
        said = read_message(message)
        if not isinstance(said, StartRun):
            return said
        self._require_family(said)
        self._core.open_stored(message.run, said.definition, said.sealed_as, message.id)
        return said.start

    def _require_family(self, said: StartRun) -> None:
        """A child is written where its parent is. To take it elsewhere would cost this engine its
        partitions, each time it reads the message again."""
        parent = (said.start.parent or "").partition("/")[0]
        if parent and not self._core.here(parent):
            raise elsewhere(parent)
