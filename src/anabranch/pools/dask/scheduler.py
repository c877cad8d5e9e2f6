"""What a Dask scheduler runs for us: it passes answers on, repeats no job whose worker died, and
does not keep what was sent.

Dask runs such a task again at once, on the next worker, until `allowed-failures` of them are dead.
Whether a job is done again is for the log to say. So when a worker goes, its tickets that had begun
are dropped in the same moment; the engine hears that the worker went, and counts the loss.

For its developers a scheduler keeps the last 1,000 messages to each worker, with the jobs in them:
7 KB a job and up to 1 MB each, which with many workers is gigabytes. We have it keep a few.

A client fetches a result when it is told that there is one: a question to the scheduler, and one of
the scheduler to the worker. Small answers come with the news instead, in the streams that are open
anyway.
"""

from __future__ import annotations

from collections import deque
from importlib.util import find_spec
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin

NAME = "anabranch"
TOPIC = "anabranch-"  # and the id of a client: events about its tickets
MESSAGES_KEPT = 10  # of those to a worker


ANSWER = "anabranch-answer"  # a message of a worker that is passed on to a client


def introduce_scheduler(dask_scheduler: Any) -> dict[str, Any]:
    """The first of its own pages: without Bokeh it has tables instead of charts. And whether it
    passes answers on: an engine of another version may have installed what is below."""
    page = "/status" if find_spec("bokeh") else "/info/main/workers.html"
    return {"page": page, "passes": ANSWER in dask_scheduler.stream_handlers}


class NoRepeats(SchedulerPlugin):
    """One per scheduler, for the tickets of all engines."""

    name = NAME
    idempotent = True

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._begun: dict[str, dict[str, str]] = {}  # address → ticket → client

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        scheduler.stream_handlers[ANSWER] = self._pass_on
        for address in list(scheduler.stream_comms):
            self.add_worker(scheduler, address)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        sent = scheduler.stream_comms.get(worker)
        kept = getattr(sent, "recent_message_log", None)
        if isinstance(kept, deque):  # a version of Dask may do without
            sent.recent_message_log = deque(kept, maxlen=MESSAGES_KEPT)

    def _pass_on(self, client: str, ticket: str, answer: Any, **_more: Any) -> None:
        """It must not raise: that would end the connection of the worker. Whoever waits for the
        answer hears of its end in the same stream, and later."""
        stream = self._scheduler.client_comms.get(client)
        if stream is not None and not stream.closed():
            if stream.recent_message_log.maxlen:
                stream.recent_message_log = deque(maxlen=0)  # Dask would keep a thousand answers
            stream.send({"op": ANSWER, "ticket": ticket, "answer": answer})

    def log_event(self, topic: str, msg: Any) -> None:
        """Called by the scheduler before it decides what follows from the event."""
        if topic.startswith(TOPIC):
            if msg["kind"] == "started":
                self._note(msg["address"], msg["ticket"], topic.removeprefix(TOPIC))
        elif topic == "all" and msg.get("action") == "remove-worker":
            self._drop(self._begun.pop(msg["worker"], {}), msg["stimulus_id"])

    def _note(self, address: str, ticket: str, client: str) -> None:
        known = self._scheduler.tasks
        begun = self._begun.get(address, {})
        self._begun[address] = {one: who for one, who in begun.items() if one in known}
        self._begun[address][ticket] = client

    def _drop(self, begun: dict[str, str], stimulus: str) -> None:
        clients = self._scheduler.clients
        for ticket, client in begun.items():
            if client in clients:
                self._scheduler.client_releases_keys(
                    keys=[ticket], client=client, stimulus_id=stimulus
                )
