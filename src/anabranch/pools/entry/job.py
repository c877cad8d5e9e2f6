"""One job in a process of the cluster, from its parts to its outcome.

It runs in the loop of the process; what it says goes into a queue, from which the calling thread
takes it. Told to stop, it says once more how far it is, stops the work and hands the job back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from queue import SimpleQueue
from typing import Any

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError
from anabranch.kernel.values import failed
from anabranch.pools.answers import JobAnswer, worded
from anabranch.pools.assignment import (
    Assignment,
    Missing,
    Outcome,
    Progress,
    SealedBlob,
    encode_outcome,
)
from anabranch.pools.entry.environments import Environment, Environments
from anabranch.pools.entry.job_services import JobParts
from anabranch.pools.parts import PartsCache
from anabranch.pools.services import JobRefused
from anabranch.work.logs.attempt_log import LogBatch

log = logging.getLogger("anabranch.pools")

WORDS_PER_LEASE = 3  # progress is told that often, where there is some
LAST_WORDS_SECONDS = 2.0  # for a progress before work is stopped


class EntryJob:
    def __init__(
        self, given: Assignment, process: str, parts: PartsCache, environments: Environments
    ) -> None:
        self.given = given
        self._process = process
        self._parts = parts
        self._environments = environments
        self._environment: Environment | None = None
        self._values: JobParts | None = None
        self._found: dict[str, bytes] = {}  # parts that came along or are kept here
        self._lacking: list[str] = []
        self._begun = False
        self._task: asyncio.Task[Any] | None = None
        self._beats: asyncio.Task[None] | None = None
        self._told_done = 0  # items that were over when progress was told last
        self.stopping = False
        self.outcome: SealedBlob | None = None
        #: "started", "progress" or, at the end, "outcome", and the words.
        self.words: SimpleQueue[tuple[str, SealedBlob]] = SimpleQueue()

    @property
    def ticket(self) -> str:
        return self.given.ticket

    @property
    def started(self) -> SealedBlob:
        """What is told when it has begun: which process that is."""
        return SealedBlob(self._process.encode())

    def look_for_parts(self) -> bool:
        """In the calling thread: whether everything is here that it takes to begin."""
        given = self.given
        for sha256 in (given.definition, given.names, *given.needs):
            content = given.parts.get(sha256)
            content = self._parts.get(sha256) if content is None else content
            if content is not None:
                self._found[sha256] = content
            elif sha256 not in self._lacking:
                self._lacking.append(sha256)
        self._begun = not self._lacking
        return self._begun

    def begin(self) -> None:
        """In the loop: its words tell what comes of it."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        began = time.perf_counter()
        said: Outcome | Missing
        try:
            said = self.released() if self.stopping else await self._said()
        except asyncio.CancelledError:
            said = self.released()
        except JobRefused as refusal:
            said = self.released(str(refusal))
        except AnabranchError as error:
            may_heal = bool(getattr(error, "retryable", False))
            said = self.failed(error.code, str(error), retryable=may_heal)
        except Exception as defect:
            log.exception("ticket %s: a bug in the worker", self.ticket)
            said = self.failed("defect", f"the worker failed: {defect!r}")
        if isinstance(said, Outcome):
            seconds = time.perf_counter() - began
            said = msgspec.structs.replace(said, seconds=seconds, logs=self._printed())
        self.outcome = self._sealed(said)
        self.words.put(("outcome", self.outcome))
        await self._environments.close_unused()

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._tell_progress()
        except Exception as error:
            log.debug("ticket %s: no last progress: %r", self.ticket, error)
        self.cancel()

    def cancel(self) -> None:
        """In the loop."""
        if self._task is not None:
            self._task.cancel()

    # -- the work ----------------------------------------------------------------------------

    async def _said(self) -> Outcome | Missing:
        with self._environments.used(self.given) as environment:
            if self._lacking and not await self._all_found(environment):
                return Missing(parts=self._lacking, process=self._process)
            self._environment = environment
            return await self._done(environment)

    async def _done(self, environment: Environment) -> Outcome:
        given, key, found = self.given, self.given.job.id, self._found
        definition, names = found[given.definition], found[given.names]
        self._values = JobParts(definition, found)
        environment.services.begin(key, self._values)
        pause = max(given.job.lease_seconds, 0.3) / WORDS_PER_LEASE
        beat = asyncio.get_running_loop().call_later(pause, self._begin_beats, pause)
        try:
            if not self._begun:
                self.words.put(("started", self.started))
            answer = await environment.tasks.perform(given.job, msgspec.json.decode(names))
        finally:
            beat.cancel()
            if self._beats is not None:
                await cancel_and_wait(self._beats, ignore=Exception)
            environment.services.end(key)
        return self._outcome(answer)

    async def _all_found(self, environment: Environment) -> bool:
        """Look for the values that are lacking where work of this process finds some."""
        for sha256 in self._lacking.copy():
            found = None
            if sha256 in self.given.needs:
                found = await environment.services.find(sha256)
            if found is not None:
                self._parts.keep({sha256: found})
                self._found[sha256] = found
                self._lacking.remove(sha256)
        return not self._lacking

    # -- how far it is -----------------------------------------------------------------------

    def _begin_beats(self, pause: float) -> None:
        self._beats = asyncio.get_running_loop().create_task(self._beat(pause))

    async def _beat(self, pause: float) -> None:
        while True:
            try:
                await self._tell_progress()
            except AnabranchError as error:  # its outcome will say what is wrong
                log.debug("ticket %s: %s", self.ticket, error)
            await asyncio.sleep(pause)

    async def _tell_progress(self) -> None:
        environment, values = self._environment, self._values
        key = self.given.job.id
        if environment is None or values is None:
            return
        if environment.tasks.done(key) == self._told_done:
            return  # nothing new
        made, put = set(values.made), set(values.put)
        progress = await environment.tasks.progress(key)
        if progress is None:
            return
        self._told_done = progress["done"]
        sha256 = progress.get("payload", "")
        parts = {sha256: values.made.pop(sha256)} if sha256 in values.made.keys() - made else {}
        told = [sha256] if sha256 in set(values.put) - put else []
        values.put[:] = [one for one in values.put if one not in told]
        said = Progress(progress=progress, parts=parts, put=told)
        self.words.put(("progress", encode_outcome(said)))

    # -- outcomes ----------------------------------------------------------------------------

    def _printed(self) -> list[LogBatch]:
        """All of it, within the limits of an attempt."""
        if self._environment is None:
            return []
        logs, key = self._environment.tasks.logs, self.given.job.id
        printed = logs.take(key)
        logs.forget(key)
        return printed

    def _outcome(self, answer: JobAnswer) -> Outcome:
        values, given = self._values, self.given
        verb, body = worded(answer)
        return Outcome(
            verb=verb,
            body=body,
            parts=values.made if values is not None else {},
            put=values.put if values is not None else [],
            process=self._process,
            had=self._parts.has((given.definition, given.names, *given.needs)),
        )

    def failed(self, kind: str, message: str, *, retryable: bool = False) -> Outcome:
        return self._outcome(JobAnswer(failed(kind, message, retryable=retryable)))

    def released(self, reason: str = "stopped as it was told") -> Outcome:
        return Outcome(verb="release", body={"reason": reason}, process=self._process)

    def _sealed(self, said: Outcome | Missing) -> SealedBlob:
        try:
            return encode_outcome(said)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            message = f"the answer of the work is not JSON: {error}"
            return encode_outcome(self.failed("result", message))
