"""What modules of this node say they have completed for workflows: records that are only added.

`workflow.step.completed.publish` adds one; the same record again is the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.node.api import Answer, Call, Caller, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.listing import collected
from anabranch.market.node.modules.api.run_shapes import require_id
from anabranch.market.node.modules.api.words import encoded
from anabranch.work.participants.performers import rfc3339

CAPABILITY = "workflow.step.completed.publish"
RECORD_BYTES = 256 * 1024
ITEMS_MAX = 1000


class StepCompleted(msgspec.Struct, frozen=True, tag="step-completed"):
    module_id: str
    run_id: str
    step_id: str
    record: dict[str, Any]
    at: int


def _evolve(_state: StepCompleted | None, event: StepCompleted) -> StepCompleted:
    return event


COMPLETED: Family[StepCompleted] = Family(
    "workflow-step-completed", StepCompleted, StepCompleted, _evolve, group=lambda one: one.run_id
)


class Publish(msgspec.Struct, frozen=True):
    record: dict[str, Any]


class CompletedSteps:
    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                method="GET",
                path="/v1/workflows/runs/{run}/steps/completed",
                scopes=("operator", "module"),
                handler=self._list,
                summary="Steps of a run that modules of this node have completed, oldest first.",
            )
        ]

    async def publish(self, body: Any, caller: Caller, _query: Mapping[str, str]) -> Answer:
        """The host capability."""
        try:
            record = msgspec.convert(body, Publish).record
        except msgspec.ValidationError as error:
            raise NodeError(400, "schema", str(error)) from None
        run, step = (
            _name(record, "workflow/run-id", "run_id"),
            _name(record, "workflow/phase-id", "step_id"),
        )
        data = encoded(record)
        if len(data) > RECORD_BYTES:
            raise NodeError(413, "too_large", f"record has at most {RECORD_BYTES:,} bytes")
        record_id = record_id_of(caller.module, record)
        with self._entities.change() as change:
            if change.get(COMPLETED, record_id) is None:
                event = StepCompleted(
                    module_id=caller.module, run_id=run, step_id=step, record=record, at=change.now
                )
                change.add(COMPLETED, record_id, event)
        await self._entities.durable()
        return Answer(body={"status": "ok", "record_id": record_id})

    async def _list(self, call: Call) -> Answer:
        run = call.params["run"]
        rows = await collected(self._entities, COMPLETED, ITEMS_MAX, group=run)
        items = [_view(name, one) for name, one, _ in reversed(rows)]
        return Answer(body={"workflow_run_id": run, "items": items})


def record_id_of(module: str, record: Mapping[str, Any]) -> str:
    return digest_of(encoded({"module_id": module, "record": record}))


def _name(record: Mapping[str, Any], key: str, other: str) -> str:
    """Under its name in documents, or its name in module calls."""
    found = record.get(key, record.get(other))
    if not isinstance(found, str):
        raise NodeError(400, "schema", f"record.{key} is missing")
    require_id(f"record.{key}", found)
    return found


def _view(name: str, one: StepCompleted) -> dict[str, Any]:
    return {
        "record_id": name,
        "module_id": one.module_id,
        "step_id": one.step_id,
        "recorded_at": rfc3339(one.at),
        "record": one.record,
    }
