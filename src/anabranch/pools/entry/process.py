"""A process of the cluster: built by its first job, found by the later ones.

Jobs are done in an event loop in a thread of its own, with the performers of a worker. The thread
that the cluster calls waits for its job and tells what there is to tell, so that whatever a cluster
binds to that thread is there, and an interrupt that it sends there is heard soon.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import platform
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty

from anabranch.errors import InputError
from anabranch.kernel.values import failed
from anabranch.pools.answers import JobAnswer, worded
from anabranch.pools.assignment import Assignment, Outcome, SealedBlob, encode_outcome
from anabranch.pools.entry.environments import Environments
from anabranch.pools.entry.job import EntryJob
from anabranch.pools.entry.tools import ToolModules, ToolsUnfit
from anabranch.pools.parts import PartsCache
from anabranch.version import __version__

log = logging.getLogger("anabranch.pools")

#: Tells the engine something while the job is done: "started" or "progress", and the words. It is
#: called in the thread that called `perform`.
Tell = Callable[[str, bytes], None]

POLL_SECONDS = 0.1  # how soon the calling thread hears an interrupt
STOPS_KEPT = 1000  # of tickets that have not begun here
CLOSE_SECONDS = 5.0  # for what is open when the process ends


class EntryProcess:
    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.id = f"{self.name}-{secrets.token_hex(4)}"
        self._parts = PartsCache()
        self._tools = ToolModules(self.name)
        self._environments = Environments()
        self._jobs: dict[str, EntryJob] = {}
        self._stopped: OrderedDict[str, None] = OrderedDict()  # before they began
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="anabranch", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def probe(self) -> dict[str, str]:
        return {
            "python": platform.python_version(),
            "anabranch": __version__,
            "platform": platform.platform(),
            "name": self.name,
            "process": self.id,
        }

    def refuse(self, message: str) -> SealedBlob:
        """The outcome of bytes that are no job for this process."""
        verb, body = worded(JobAnswer(failed("config", message, retryable=False)))
        return encode_outcome(Outcome(verb=verb, body=body, process=self.id))

    def perform(self, given: Assignment, tell: Tell) -> SealedBlob:
        """In the thread that the cluster calls."""
        job = EntryJob(given, self.id, self._parts, self._environments)
        with self._lock:
            if given.ticket in self._jobs:  # the cluster runs it a second time
                return encode_outcome(job.released("the same ticket is at work in this process"))
            if given.ticket in self._stopped:
                del self._stopped[given.ticket]
                return encode_outcome(job.released())
            self._jobs[given.ticket] = job
        try:
            if not self._prepared(job, tell):
                return encode_outcome(job.released())
            self._loop.call_soon_threadsafe(job.begin)
            return self._outcome(job, tell)
        except (ToolsUnfit, InputError) as error:
            return encode_outcome(job.failed("config", str(error)))
        except BaseException:  # of the cluster: nobody waits for the job any more
            self._loop.call_soon_threadsafe(job.cancel)
            raise
        finally:
            with self._lock:
                del self._jobs[given.ticket]

    def _prepared(self, job: EntryJob, tell: Tell) -> bool:
        """Import what it needs and keep what came along; False where an interrupt comes first."""
        try:
            self._tools.require(job.given.tools)
            self._parts.keep(job.given.parts)
            if job.look_for_parts():
                self._tell(job, tell, "started", job.started)
        except KeyboardInterrupt:
            return False
        return True

    def _outcome(self, job: EntryJob, tell: Tell) -> SealedBlob:
        """What the job came to; an interrupt, which is how Ray tells a task to stop, may come at
        any place in here."""
        while True:
            try:
                return self._heard(job, tell)
            except KeyboardInterrupt:
                if job.stopping:
                    raise
                self.stop([job.ticket])

    def _heard(self, job: EntryJob, tell: Tell) -> SealedBlob:
        """The outcome; what the job says before that is told as it comes."""
        while job.outcome is None or not job.words.empty():
            try:
                verb, said = job.words.get(timeout=POLL_SECONDS)
            except Empty:
                continue
            if verb != "outcome":
                self._tell(job, tell, verb, said)
        return job.outcome

    @staticmethod
    def _tell(job: EntryJob, tell: Tell, verb: str, said: SealedBlob) -> None:
        try:
            tell(verb, said)
        except Exception:  # of the cluster: the work does not depend on it
            log.warning("ticket %s: what it tells is not heard", job.ticket, exc_info=True)

    def stop(self, tickets: Sequence[str]) -> None:
        """From any thread."""
        with self._lock:
            for ticket in tickets:
                job = self._jobs.get(ticket)
                if job is not None:
                    job.stopping = True
                    asyncio.run_coroutine_threadsafe(job.stop(), self._loop)
                    continue
                self._stopped[ticket] = None
                while len(self._stopped) > STOPS_KEPT:
                    self._stopped.popitem(last=False)

    def close(self) -> None:
        """The process ends: what its work has started ends with it."""
        atexit.unregister(self.close)
        with suppress(Exception):
            closing = self._environments.close_unused(kept=0)
            asyncio.run_coroutine_threadsafe(closing, self._loop).result(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
