"""Runs that another server owns: what is said to them, and news of them.

A stimulus becomes a message in the mailbox of the store; the owner of the run takes it and answers
in the transaction of the turn that took it. If the run comes to this server meanwhile, its own
mailbox takes the message: nobody has to send it again.

News of runs come from their heads, looked at when another server tells that it has written, and
every now and then in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex

from anabranch.errors import AnabranchError, InputError, NotFound, StoreError
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.stimuli import Stimulus
from anabranch.runtime.messages.codec import (
    MailAnswer,
    Posted,
    Sayable,
    StartRun,
    elsewhere,
    read_answer,
    refusal_of,
    write_message,
)
from anabranch.runtime.messages.standstill import Look
from anabranch.runtime.outage import AGAIN_SECONDS
from anabranch.runtime.values.sealing import Sealed
from anabranch.store.access_ports import RequestRecord
from anabranch.store.cluster_ports import Cluster
from anabranch.store.outages import UNSURE, passes
from anabranch.store.ports import Batch, Store

ANSWER_SECONDS = 60.0  # longer than it takes until the runs of a server that died are taken over
RUN_EXISTS = "run_exists"
POLL_SECONDS = 0.2  # between two looks where no news have come: they could be lost
_LOOK_SECONDS = 0.003  # between two looks after news, and
_PATIENCE = 0.1  # this part of the time that it has taken so far, where that is longer


@contextmanager
def _patience() -> Iterator[None]:
    """While the store is away there is nothing to be heard; who asks again later hears it."""
    try:
        yield
    except StoreError as error:
        if not passes(error):
            raise


class RemoteRuns:
    def __init__(self, store: Store, cluster: Cluster, now: Callable[[], int]) -> None:
        self._store = store
        self._cluster = cluster
        self._now = now
        #: Taken before a look at the store, it is set when another server has written since.
        self.news = asyncio.Event()

    def heard(self) -> None:
        """Another server has written something."""
        self.news.set()
        self.news = asyncio.Event()

    async def send(self, run: str, said: Stimulus, request: RequestRecord | None = None) -> None:
        """Returns when the owner of the run has recorded it, with the line of the request in the
        audit trail; raises if that was refused."""
        if not isinstance(said, Sayable):
            raise elsewhere(run)
        await self._post(run, said, request)

    async def _post(self, run: str, said: Posted, request: RequestRecord | None) -> None:
        body = write_message(said, request.audit if request is not None else None)
        news = self.news
        until = asyncio.get_running_loop().time() + ANSWER_SECONDS
        message = await self._posted(run, body, until)
        answer = await self._answer(message, news, until)
        if answer is None:
            raise AnabranchError(
                f"the server that owns run {run} has not answered within {ANSWER_SECONDS:g} s; the "
                "message stays in its mailbox",
                code=UNSURE,
            )
        if not answer.ok:
            raise refusal_of(answer)

    async def _posted(self, run: str, body: bytes, until: float) -> int:
        """Where the store was lost on the way the message may be there, and take effect later: who
        is told to ask again would have it done twice. So it is posted again until that is known."""
        nonce = token_hex(12)
        unsure: StoreError | None = None
        while True:
            try:
                return await asyncio.to_thread(self._store.post, run, body, self._now(), nonce)
            except StoreError as error:
                unsure = error if error.code == UNSURE else unsure
                if unsure is None or not (error is unsure or passes(error)):
                    raise
            if asyncio.get_running_loop().time() >= until:
                raise unsure
            await asyncio.sleep(AGAIN_SECONDS)

    async def start(
        self,
        definition: str,
        begin: s.Start,
        sealed: Sealed,
        request: RequestRecord | None = None,
    ) -> None:
        """Begin a run that another server will own; its definition is in the store."""
        name = f"{begin.run}~{token_hex(8)}" if sealed.values else ""
        if name:
            batch = Batch()
            sealed.keep(batch, name, over=False)
            await asyncio.to_thread(self._cluster.keep_sealed, name, batch.sealed[name])
        await self._post(begin.run, StartRun(definition, begin, name), request)

    async def start_again(
        self, definition: str, begin: s.Start, sealed: Sealed, request: RequestRecord | None = None
    ) -> None:
        """The same after this server lost the partition on the way: perhaps it has begun."""
        sealed.unwritten = bool(sealed.values)
        try:
            await self.start(definition, begin, sealed, request)
        except InputError as error:
            if error.code != RUN_EXISTS:
                raise

    async def wait(self, run: str, look: Callable[[], Look], *, standing: bool) -> State:
        """The state of the run when that says that waiting for it is over."""
        seen, begun = -1, asyncio.get_running_loop().time()
        while True:
            news = self.news
            with _patience():
                seen, state = await self.look(run, look, seen, standing=standing)
                if state is not None:
                    return state
            await self.changed(news, begun)

    async def look(
        self, run: str, look: Callable[[], Look], seen: int = -1, *, standing: bool
    ) -> tuple[int, State | None]:
        """Its last event; and its state, if it has come to that since the event `seen`."""
        head = await asyncio.to_thread(self._store.head, run)
        if head is None:
            raise NotFound(f"there is no run {run}")
        if not head.finished and not standing:
            return head.seq, None
        if head.seq == seen and head.status != "waiting":  # that may be for a child, which moves
            return head.seq, None
        return head.seq, (await asyncio.to_thread(look)).settled

    async def _answer(self, message: int, news: asyncio.Event, until: float) -> MailAnswer | None:
        """`news` are those since before the message was posted."""
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < until:
            await self.changed(news, begun)
            news = self.news
            with _patience():  # it was said, and must not be said again
                posted = await asyncio.to_thread(self._store.message, message)
                if posted is not None and posted.answer is not None:
                    return read_answer(posted.answer)
        return None

    async def changed(self, news: asyncio.Event, begun: float = 0.0) -> None:
        """Returns when another server has written, or it is time to look in any case. Who looks
        since the instant `begun` for the same thing looks less often as time goes by."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await news.wait()
        except TimeoutError:
            return
        passed = asyncio.get_running_loop().time() - begun if begun else 0.0
        await asyncio.sleep(min(POLL_SECONDS, max(_LOOK_SECONDS, _PATIENCE * passed)))
