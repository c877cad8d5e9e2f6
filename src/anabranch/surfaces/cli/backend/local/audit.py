"""Changes that verbs make to a store of this machine leave a line in its audit trail, too.

They are called as over HTTP, and their address is the command line. There is no token here: who
can write to the file says who they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.operations.access.tokens import Caller, entry
from anabranch.store.access_ports import AuditEntry
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.access")

ADDRESS = "command line"
#: What is said to a run → what that is called.
SAID: Mapping[type, str] = {
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


@contextmanager
def noted(store: Store, actor: str, action: str, subject: str = "") -> Iterator[None]:
    """Around a change: how it came out is written down, also when it was refused."""
    outcome = "failed"
    try:
        yield
        outcome = "done"
    except AnabranchError as error:
        outcome = f"refused: {error.code}"
        raise
    finally:
        note(store, actor, action, subject, outcome)


def note(store: Store, actor: str, action: str, subject: str = "", outcome: str = "done") -> None:
    """What was done is done: a trail that cannot be written is only told of."""
    line = line_of(actor, action, subject, outcome)
    try:
        store.add_audit([line])
    except AnabranchError as error:
        log.error("not in the audit trail: %r (%s)", line, error.message)


def line_of(actor: str, action: str, subject: str, outcome: str = "done") -> AuditEntry:
    now, caller = int(time.time() * 1000), Caller(actor, frozenset())
    return entry(caller, action, now, subject=subject, outcome=outcome, address=ADDRESS)
