"""Changes that verbs make to a store of this machine leave a line in its audit trail, too.

They are called as over HTTP, and their address is the command line. There is no token here: who
can write to the file says who they are. A change and its line are one commit, so that neither is
there without the other: of this process (`commit`), or of the engine that is told (`send`). What
takes many commits is written down before the first of them (`announce`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel import stimuli as s
from anabranch.operations.access.tokens import Caller, entry
from anabranch.store.access_ports import AuditEntry
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.access")

T = TypeVar("T")
ADDRESS = "command line"
BEGUN = "begun"
#: A stimulus → what saying it to a run is called.
ACTIONS: Mapping[type, str] = {
    s.Decide: "runs.gates.decide",
    s.PatchContext: "runs.patch",
    s.Pause: "runs.pause",
    s.Resume: "runs.resume",
    s.Cancel: "runs.cancel",
    s.Wake: "runs.wake",
    s.Signal: "runs.signals.create",
    s.TuneLoop: "runs.loops.change",
    s.RetryNow: "runs.steps.retry",
    s.Skip: "runs.steps.skip",
}


class AuditLine:
    """The line of one verb. `subject` may become known only while the verb is carried out."""

    def __init__(self, store: Store, actor: str, action: str, subject: str = "") -> None:
        self._store = store
        self._actor = actor
        self._action = action
        self.subject = subject
        self._is_settled = False  # it is written, or cannot be

    def entry(self, outcome: str = "done") -> AuditEntry:
        return entry_of(self._actor, self._action, self.subject, outcome)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Around what this process changes in the store. Without the line nothing is changed."""
        with self.follow(), self._store.together():
            yield
            self._write("done")

    async def send(self, hand_in: Callable[[AuditEntry], Awaitable[T]]) -> T:
        """Hand something in to an engine, whose commit has the line as well."""
        answer = await hand_in(self.entry())
        self._is_settled = True
        return answer

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Around what takes many commits. Without the line that it begins, it does not."""
        self._write(BEGUN)
        self._is_settled = False
        try:
            yield
        except BaseException as error:
            self._try_to_write(_outcome_of(error))
            raise
        self._try_to_write("done")

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Around a verb: how it came out is written by itself where no commit has the line."""
        try:
            yield
        except BaseException as error:
            self._try_to_write(_outcome_of(error))
            raise
        if not self._is_settled:
            self._write("done")

    def _write(self, outcome: str) -> None:
        self._is_settled = True
        try:
            self._store.add_audit([self.entry(outcome)])
        except StoreError as error:
            message = "nothing was changed, because the audit trail cannot be written"
            raise StoreError(f"{message}: {error.message}", code=error.code) from error

    def _try_to_write(self, outcome: str) -> None:
        """Nothing depends on this line: a trail that does not take it is told of."""
        if self._is_settled:
            return
        self._is_settled, line = True, self.entry(outcome)
        try:
            self._store.add_audit([line])
        except AnabranchError as error:
            log.error("not in the audit trail: %r (%s)", line, error.message)


def entry_of(actor: str, action: str, subject: str = "", outcome: str = "done") -> AuditEntry:
    now, caller = int(time.time() * 1000), Caller(actor, frozenset())
    return entry(caller, action, now, subject=subject, outcome=outcome, address=ADDRESS)


def _outcome_of(error: BaseException) -> str:
    return f"refused: {error.code}" if isinstance(error, AnabranchError) else "failed"
