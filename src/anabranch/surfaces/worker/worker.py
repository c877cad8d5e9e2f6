"""The worker's day: claim as much as there is room for, do it, say how it went.

Each job has two tasks: one works, one says at a third of the lease that it still does. Told to
stop, or told that the job is no longer its own, the worker stops the work. An answer is kept and
said again until the server has heard it. An orderly stop claims nothing more, finishes what it can
within the grace and hands back the rest.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

import msgspec

from anabranch.kernel.values import Answer, failed
from anabranch.operations.claims import Claimed
from anabranch.operations.pools import Beat
from anabranch.runtime.parcels import Parcel
from anabranch.surfaces.worker.bench import Bench
from anabranch.surfaces.worker.link import Away, Final, Link, job_path, until_heard
from anabranch.work.port import Parked

log = logging.getLogger("anabranch.worker")

WAIT_SECONDS = 20.0  # of one claim
CLAIM_MOST = 100
BEATS_PER_LEASE = 3
RELEASE_SECONDS = 5.0

Verdict = Literal["stop", "void"]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a worker works."""

    pool: str
    name: str
    concurrency: int = 1
    lease_seconds: float | None = None  # None is what the definition says
    once: bool = False  # end when nothing waits any more
    grace_seconds: float = 10.0


@dataclass(slots=True)
class Tally:
    """What a worker has done."""

    done: int = 0
    failed: int = 0
    handed_back: int = 0
    void: int = 0  # the server had given it to somebody else, or did not want it any more


class Worker:
    def __init__(self, link: Link, bench: Bench, terms: Terms) -> None:
        self._link = link
        self._bench = bench
        self._terms = terms
        self.tally = Tally()
        self._at_work: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._known = False  # the server has answered a claim

    def stop(self) -> None:
        """Claim nothing more; finish or hand back what is at work."""
        self._stopping.set()

    async def run(self) -> Tally:
        """Until it is told to stop; with `once` until nothing waits. Raises `Final` where the
        server will not have this worker."""
        try:
            while not self._stopping.is_set():
                room = self._terms.concurrency - len(self._at_work)
                if room <= 0:
                    await self._wait_for_some()
                    continue
                claimed = await self._claim(min(room, CLAIM_MOST))
                for parcel in claimed.tasks if claimed is not None else ():
                    self._begin(parcel, claimed.runs[parcel.run])  # type: ignore[union-attr]
                if claimed is not None and not claimed.tasks and self._terms.once:
                    if not self._at_work:
                        break
                    await self._wait_for_some()
        finally:
            await self._finish()
        return self.tally

    # -- claiming ----------------------------------------------------------------------------

    async def _claim(self, most: int) -> Claimed | None:
        """None when it was told to stop meanwhile."""
        body = {
            "worker": self._terms.name,
            "max": most,
            "wait_seconds": 0 if self._terms.once else WAIT_SECONDS,
            "lease_seconds": self._terms.lease_seconds,
            "claim": uuid4().hex,  # asked again under the same name, it is the same question
        }
        asking = asyncio.ensure_future(until_heard(lambda: self._ask(body), "asking for jobs"))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for task in (asking, stopping):
                task.cancel()
                with suppress(asyncio.CancelledError, Away, Final):
                    await task

    async def _ask(self, body: dict[str, Any]) -> Claimed:
        """A server that has never known this worker's token will not know it later."""
        path = f"/pools/{quote(self._terms.pool, safe='')}/claim"
        seconds = WAIT_SECONDS + 15
        try:
            claimed = await self._link.json(Claimed, "POST", path, body, seconds=seconds)
        except Away as away:
            if away.status in (401, 403) and not self._known:
                raise Final(away.message, "token", away.status) from None
            raise
        self._known = True
        return claimed

    async def _wait_for_some(self) -> None:
        """Until one of the jobs at work is over, or it is told to stop."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({*self._at_work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping

    async def _finish(self) -> None:
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=self._terms.grace_seconds)
        left = list(self._at_work)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    # -- one job -----------------------------------------------------------------------------

    def _begin(self, parcel: Parcel, shared: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._see_to(parcel, shared))
        self._at_work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            log.error("a job was lost to a defect of the worker", exc_info=defect)

    async def _see_to(self, parcel: Parcel, shared: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        work = loop.create_task(self._bench.perform(parcel, shared))
        beats = loop.create_task(self._beats(parcel))
        try:
            await asyncio.wait({work, beats}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await self._deliver(parcel, work, beats)
                return
            verdict = beats.result()
            await _ended(work)
            if verdict == "stop":
                await self._release(parcel, "stopped as it was told")
            else:
                self.tally.void += 1
        except asyncio.CancelledError:  # the grace is over
            await _ended(work)
            await self._release(parcel, "its worker stops")
            raise
        finally:
            await _ended(beats)
            await _ended(work)

    async def _beats(self, parcel: Parcel) -> Verdict:
        """Say that it is still at work, until that is no longer wanted."""
        pause = max(parcel.lease_seconds, 0.3) / BEATS_PER_LEASE
        said: Any = None
        while True:
            await asyncio.sleep(pause)
            try:
                beat = await self._link.json(
                    Beat,
                    "POST",
                    job_path(parcel.id, "heartbeat"),
                    {"lease_seconds": parcel.lease_seconds},
                    seconds=max(pause, 1.0),
                )
                if beat.stop:
                    return "stop"
                progress = self._bench.progress.get(parcel.id)
                if progress is not None and progress != said:
                    said = dict(progress)
                    await self._link.once(
                        "POST", job_path(parcel.id, "progress"), {"progress": said}
                    )
            except Away as away:
                log.info("job %s of run %s: %s", parcel.job, parcel.run, away)
            except Final as refusal:
                log.info("job %s of run %s: %s", parcel.job, parcel.run, refusal)
                return "void"

    async def _deliver(
        self,
        parcel: Parcel,
        work: asyncio.Task[Answer | Parked],
        beats: asyncio.Task[Verdict],
    ) -> None:
        try:
            answer = work.result()
        except Final as refusal:
            log.info("job %s of run %s: %s", parcel.job, parcel.run, refusal)
            self.tally.void += 1
            return
        except Exception as defect:
            log.exception("job %s of run %s: a defect of the worker", parcel.job, parcel.run)
            answer = failed("defect", f"the worker failed: {defect!r}", retryable=False)
        try:
            await self._say(parcel, *worded(answer))
        except Final as refusal:
            if refusal.status in (404, 409):
                log.info("job %s of run %s: %s", parcel.job, parcel.run, refusal)
                self.tally.void += 1
                return
            said = failed("result", f"the server refused the answer: {refusal}", retryable=False)
            with suppress(Final):
                await self._say(parcel, *worded(said))
            self.tally.failed += 1
            return
        beats.cancel()
        good = isinstance(answer, Parked) or answer.status == "ok"
        self.tally.done += good
        self.tally.failed += not good

    async def _say(self, parcel: Parcel, verb: str, body: Any) -> None:
        path = job_path(parcel.id, verb)
        what = f"reporting job {parcel.job} of run {parcel.run}"
        await until_heard(lambda: self._link.once("POST", path, body), what)

    async def _release(self, parcel: Parcel, reason: str) -> None:
        """Best effort: what is not heard is lost with its lease."""
        self.tally.handed_back += 1
        with suppress(Away, Final, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._link.once("POST", job_path(parcel.id, "release"), {"reason": reason})


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel it and wait until it really has ended."""
    if task.done():
        return
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()  # seen; whatever it is, nobody wants the answer


def worded(answer: Answer | Parked) -> tuple[str, dict[str, Any]]:
    """The verb and the body that tell the server of an answer."""
    if isinstance(answer, Parked):
        fields = msgspec.to_builtins(answer)
        return "park", fields
    if answer.status == "ok":
        return "report", {
            "result": answer.result,
            "outcome": answer.outcome or "ok",
            "patches": answer.patches,
            "wait_ms": answer.wait_ms,
            "shard": answer.shard,
            "locals": answer.locals,
            "inline": getattr(answer, "inline", False),
        }
    fault = answer.fault
    return "fail", {
        "message": fault.message if fault is not None else "the work failed and did not say why",
        "kind": fault.kind if fault is not None else "unknown",
        "code": fault.code if fault is not None else "",
        "retryable": fault.retryable if fault is not None else True,
        "details": fault.details if fault is not None else None,
        "status": answer.status,
        "patches": answer.patches,
        "locals": answer.locals,
    }
