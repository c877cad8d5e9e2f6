"""Deliveries under way: taken on, attempted stage by stage, tried again, ended, recovered.

An attempt is a task; what it decides is recorded before anything follows from it. A node that goes
down during an attempt finds the delivery `running` and tries it again: the other side knows what it
has admitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, StoreError
from anabranch.market.node.deferred.records import operation_id_of
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.outbox import Outbox
from anabranch.market.node.delivery.plan import (
    NO_STAGE,
    Outcome,
    Stage,
    ending,
    settled,
    to_send,
    verdict,
)
from anabranch.market.node.delivery.records import (
    CONTENTS,
    DELIVERIES,
    TERMINAL,
    Delivery,
    Ended,
    Expired,
    Promised,
    Reopened,
    StageFailed,
    Started,
    Submitted,
    Told,
)
from anabranch.market.node.delivery.transport import deliver_message
from anabranch.market.node.delivery.views import (
    OPERATION_KIND,
    PATH,
    diagnostics_of,
    operation_ending,
    result_document,
)
from anabranch.market.node.entities import Change
from anabranch.market.node.ports import NodeContext

logger = logging.getLogger("anabranch.node")


class Sender:
    def __init__(self, context: NodeContext, config: DeliveryConfig) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._free = config.max_in_flight
        self._queue: deque[str] = deque()  # accepted, and waiting for others to end
        self._active: dict[str, asyncio.Future[None]] = {}  # under way, or in the queue
        self._started: set[str] = set()  # in a block; their attempts have not begun
        self._outbox = Outbox(context, config.max_per_peer)
        self.open_count = 0

    # -- taking on ---------------------------------------------------------------------------

    def submit(self, change: Change, delivery_id: str, submitted: Submitted) -> None:
        """Take a delivery on in this block; `begin` it once the block is closed."""
        change.add(DELIVERIES, delivery_id, submitted)
        self.open_count += 1
        if self._free > 0:
            self._start(change, delivery_id)
        else:
            self._await_turn(delivery_id)

    def defer(self, change: Change, delivery_id: str) -> str:
        """The operation of a delivery, which may have ended already."""
        delivery = change.get(DELIVERIES, delivery_id)
        assert delivery is not None
        operation_id = self._context.deferred.start(
            change,
            kind=OPERATION_KIND,
            key=delivery_id,
            owner=delivery.submitted.component_id,
            status_href=f"{PATH}/{delivery_id}/operation-status",
            retry_seconds=1.0,
            ttl_seconds=[max(delivery.submitted.expires_at - change.now, 0) / 1000],
            cancel_unavailable="an artifact that is on its way cannot be called back",
            audit_ref=delivery_id,
        )
        if not delivery.promised:
            delivery = change.add(DELIVERIES, delivery_id, Promised(at=change.now))
            if delivery.status == "running":
                self._context.deferred.run(change, operation_id)
            self._end_operation(change, delivery_id, delivery)
        return operation_id

    def begin(self, delivery_id: str) -> None:
        """Carry out the attempt that was started in a block before."""
        if delivery_id in self._started:
            self._started.remove(delivery_id)
            self._context.spawn(self._attempt(delivery_id))

    async def attempted(self, delivery_id: str) -> None:
        """Returns when no attempt is under way, nor about to be."""
        done = self._active.get(delivery_id)
        if done is not None:
            await asyncio.shield(done)

    # -- its life ----------------------------------------------------------------------------

    def open(self) -> None:
        """What was under way when the node went down is tried again."""
        with self._entities.change() as change:
            for delivery_id, delivery in list(self._entities.each_open(DELIVERIES)):
                if delivery.status in TERMINAL:
                    self._context.spawn(self._tell(delivery_id))
                    continue
                self.open_count += 1
                if delivery.status == "running":
                    change.add(DELIVERIES, delivery_id, Reopened(at=change.now))
                elif delivery.status == "accepted":
                    self._await_turn(delivery_id)
        self._drain()

    def wake(self, delivery_id: str) -> None:
        with self._entities.change() as change:
            delivery = change.get(DELIVERIES, delivery_id)
            if delivery is None or delivery.status in (*TERMINAL, "running"):
                return
            if delivery.submitted.expires_at <= change.now:
                self._expire(change, delivery_id)
                ended = True
            else:
                self._start(change, delivery_id)
                ended = False
        if ended:
            self._settle(delivery_id)
            self._context.spawn(self._tell(delivery_id))
        else:
            self.begin(delivery_id)

    def recover(self, limit: int) -> list[str]:
        """Try deliveries that failed for now, without waiting for their instant."""
        found = sorted(
            (delivery.next_at, delivery_id)
            for delivery_id, delivery in self._entities.each_open(DELIVERIES)
            if delivery.status == "failed-retryable"
        )
        chosen = [delivery_id for _, delivery_id in found[:limit]]
        with self._entities.change() as change:
            for delivery_id in chosen:
                self._start(change, delivery_id)
        for delivery_id in chosen:
            self.begin(delivery_id)
        return chosen

    def _start(self, change: Change, delivery_id: str) -> None:
        """Retries are started even where all places are taken: they are few."""
        delivery = change.add(DELIVERIES, delivery_id, Started(at=change.now))
        if delivery.promised:
            self._context.deferred.run(change, _operation_of(delivery_id))
        self._free -= 1
        self._started.add(delivery_id)
        self._active.setdefault(delivery_id, asyncio.get_running_loop().create_future())

    def _await_turn(self, delivery_id: str) -> None:
        self._queue.append(delivery_id)
        self._active[delivery_id] = asyncio.get_running_loop().create_future()

    def _settle(self, delivery_id: str) -> None:
        """Those who wait for the attempt go on."""
        done = self._active.pop(delivery_id, None)
        if done is not None and not done.done():
            done.set_result(None)

    def _drain(self) -> None:
        """Start what waits, as far as there is room."""
        started = []
        if self._queue and self._free > 0:
            with self._entities.change() as change:
                while self._queue and self._free > 0:
                    delivery_id = self._queue.popleft()
                    delivery = change.get(DELIVERIES, delivery_id)
                    if delivery is not None and delivery.status == "accepted":
                        self._start(change, delivery_id)
                        started.append(delivery_id)
        for delivery_id in started:
            self.begin(delivery_id)

    # -- an attempt --------------------------------------------------------------------------

    async def _attempt(self, delivery_id: str) -> None:
        try:
            await self._entities.durable()
            await self._run_stages(delivery_id)
            await self._entities.durable()
        finally:
            self._free += 1
            self._settle(delivery_id)
        self._drain()
        await self._tell(delivery_id)

    async def _run_stages(self, delivery_id: str) -> None:
        delivery = self._get(delivery_id)
        submitted, artifact = delivery.submitted, delivery.submitted.artifact
        content = self._entities.get(CONTENTS, artifact.digest)
        assert content is not None
        message = deliver_message(
            delivery_id,
            submitted.component_id,
            submitted.idempotency_key or artifact.digest,
            artifact,
            content.base64,
        )
        while True:
            stage = submitted.stages[delivery.stage]
            outcomes = await self._run_stage(delivery, stage, message)
            late = submitted.expires_at <= self._entities.clock.now()
            if verdict(stage, outcomes) == "succeeded" or stage.next == NO_STAGE or late:
                self._end(delivery_id, delivery, stage, outcomes)
                return
            with self._entities.change() as change:
                failed = StageFailed(
                    at=change.now, stage_id=stage.stage_id, outcomes=outcomes, next=stage.next
                )
                delivery = change.add(DELIVERIES, delivery_id, failed)
            await self._entities.durable()

    async def _run_stage(
        self, delivery: Delivery, stage: Stage, message: dict[str, Any]
    ) -> tuple[Outcome, ...]:
        """What became of every target; of those that an earlier attempt settled, what it found."""
        earlier = delivery.outcomes.get(stage.stage_id, ())
        nodes = to_send(stage, earlier)
        if len(nodes) == 1:
            new = [await self._deliver(nodes[0], message, delivery.submitted)]
        else:
            need = stage.need - sum(one.status == "admitted" for one in earlier)
            new = await self._deliver_to_all(nodes, message, delivery.submitted, need)
        found = {one.node_id: one for one in (*settled(earlier), *new)}
        return tuple(found[node] for node in stage.nodes)

    async def _deliver(self, node: str, message: dict[str, Any], submitted: Submitted) -> Outcome:
        left = (submitted.expires_at - self._entities.clock.now()) / 1000
        seconds = max(min(submitted.stage_ms / 1000, left), 0.001)
        return await self._outbox.deliver(node, message, seconds)

    async def _deliver_to_all(
        self, nodes: Sequence[str], message: dict[str, Any], submitted: Submitted, need: int
    ) -> list[Outcome]:
        """Until as many have admitted it as the stage needs, or all have answered."""
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(self._deliver(node, message, submitted)): node for node in nodes}
        pending: set[asyncio.Task[Outcome]] = set(tasks)
        outcomes: list[Outcome] = []
        try:
            while pending and sum(one.status == "admitted" for one in outcomes) < need:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                outcomes += [task.result() for task in tasks if task in done]
        finally:
            await cancel_and_wait(*pending)
        unheard = [tasks[task] for task in tasks if task in pending]
        return outcomes + [Outcome(node_id=node, status="not-awaited") for node in unheard]

    # -- its end -----------------------------------------------------------------------------

    def _end(
        self, delivery_id: str, delivery: Delivery, stage: Stage, outcomes: tuple[Outcome, ...]
    ) -> None:
        submitted = delivery.submitted
        found = {**delivery.outcomes, stage.stage_id: outcomes}
        status, failure_class, diagnostic = ending(submitted.stages, found)
        if status == "failed-retryable" and not submitted.again:
            some = any(one.status == "admitted" for each in found.values() for one in each)
            status = "partial" if some else "failed-permanent"
        with self._entities.change() as change:
            ended = Ended(
                at=change.now,
                status=status,
                stage_id=stage.stage_id,
                outcomes=outcomes,
                failure_class=failure_class,
                diagnostic=diagnostic,
                next_at=self._next_at(delivery, change.now) if status == "failed-retryable" else 0,
            )
            after = change.add(DELIVERIES, delivery_id, ended)
            if status == "failed-retryable" and submitted.expires_at <= change.now:
                self._expire(change, delivery_id)
            elif after.status in TERMINAL:
                self.open_count -= 1
                self._end_operation(change, delivery_id, after)

    def _next_at(self, delivery: Delivery, now: int) -> int:
        """Twice as long after every attempt, up to the limit."""
        least, most = self._config.retry_seconds_min, self._config.retry_seconds_max
        seconds = min(least * 2 ** min(delivery.attempts - 1, 30), most)
        return now + max(int(seconds * 1000), 1)

    def _expire(self, change: Change, delivery_id: str) -> None:
        after = change.add(DELIVERIES, delivery_id, Expired(at=change.now))
        self.open_count -= 1
        self._end_operation(change, delivery_id, after)

    def _end_operation(self, change: Change, delivery_id: str, delivery: Delivery) -> None:
        status = operation_ending(delivery)
        if status and delivery.promised:
            self._context.deferred.end(
                change,
                _operation_of(delivery_id),
                status,
                result=result_document(delivery_id, delivery),
                diagnostics=diagnostics_of(delivery),
            )

    async def _tell(self, delivery_id: str) -> None:
        """The order of a dispatch request learns what became of it, after a crash once more."""
        await self._entities.durable()
        delivery = self._get(delivery_id)
        order_id = delivery.submitted.order_id
        if not order_id or delivery.told or delivery.status not in TERMINAL:
            return
        try:
            if delivery.status in ("succeeded", "partial"):
                await self._context.orders.dispatched(order_id)
            else:
                reason = "; ".join(diagnostics_of(delivery)) or delivery.status
                await self._context.orders.dispatch_failed(order_id, reason)
        except StoreError:
            raise
        except AnabranchError as error:
            logger.warning("%s of %s was not taken: %s", delivery_id, order_id, error.message)
        with self._entities.change() as change:
            change.add(DELIVERIES, delivery_id, Told(at=change.now))
        await self._entities.durable()

    def _get(self, delivery_id: str) -> Delivery:
        delivery = self._entities.get(DELIVERIES, delivery_id)
        assert delivery is not None
        return delivery


def _operation_of(delivery_id: str) -> str:
    return operation_id_of(OPERATION_KIND, delivery_id)
