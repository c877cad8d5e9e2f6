"""The mail of an engine: stimuli that other processes have posted to its store."""

from __future__ import annotations

from anabranch.errors import InputError
from anabranch.runtime.core import Core
from anabranch.runtime.messages.codec import answer_bytes, read_message

MAIL_AT_ONCE = 100


class Mailbox:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = core.store
        self._last = 0
        self._more = True  # what was posted before we came

    def read(self) -> None:
        """Offer what has come to the next turn."""
        if not (self._store.changed() or self._more):
            return
        found = self._store.unanswered(MAIL_AT_ONCE)
        self._more = len(found) == MAIL_AT_ONCE
        for message in found:
            if message.id <= self._last:
                continue  # taken already; its answer is on the way
            self._last = message.id
            try:
                stimulus = read_message(message)
            except InputError as error:
                self._core.answer_message(message.id, answer_bytes(error))
                continue
            self._core.offer(message.run, stimulus, message=message.id)
