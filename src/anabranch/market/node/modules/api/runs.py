"""Workflow runs and their steps, as modules show them to their host.

The host keeps the snapshot, so a module that starts again goes on from it. Each write says which
revision it is based on: the same write again is answered again, any other on an older revision is a
conflict. A write changes the run by one revision.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.market.documents import digest_of, require
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.listing import collected
from anabranch.market.node.modules.api.run_shapes import (
    CLOSED_RUNS,
    HOSTS_OWN,
    WriteRun,
    WriteStep,
    document_of,
    require_run,
    require_run_follows,
    require_run_open,
    require_step,
    require_step_follows,
)
from anabranch.market.node.modules.api.words import encoded
from anabranch.market.node.paging import page_of, paged
from anabranch.work.participants.performers import rfc3339

SNAPSHOT_BYTES = 4 * 1024 * 1024


class RunWritten(msgspec.Struct, frozen=True, tag="run-written"):
    module_id: str
    run: dict[str, Any]
    based_on: int
    digest: str
    at: int


class StepWritten(msgspec.Struct, frozen=True, tag="step-written"):
    step: dict[str, Any]
    based_on: int
    digest: str
    at: int


class WorkflowRun(msgspec.Struct, frozen=True):
    module_id: str
    run: dict[str, Any]
    revision: int
    created_at: int
    updated_at: int
    made_by: str  # digest of the first write
    last_base: int  # of the last write
    last_write: str


def _evolve(state: WorkflowRun | None, event: RunWritten | StepWritten) -> WorkflowRun:
    if isinstance(event, RunWritten):
        return WorkflowRun(
            module_id=event.module_id,
            run=event.run,
            revision=state.revision + 1 if state else 1,
            created_at=state.created_at if state else event.at,
            updated_at=event.at,
            made_by=state.made_by if state else event.digest,
            last_base=event.based_on,
            last_write=event.digest,
        )
    assert state is not None
    return msgspec.structs.replace(
        state,
        run={**state.run, "steps": _with_step(state.run["steps"], event.step)},
        revision=state.revision + 1,
        updated_at=event.at,
        last_base=event.based_on,
        last_write=event.digest,
    )


def _with_step(steps: list[dict[str, Any]], step: dict[str, Any]) -> list[dict[str, Any]]:
    """Put it in the place of the one with its id, or at the end."""
    name = step["step_id"]
    if not any(one["step_id"] == name for one in steps):
        return [*steps, step]
    return [step if one["step_id"] == name else one for one in steps]


RUNS: Family[WorkflowRun] = Family(
    "workflow-run",
    WorkflowRun,
    RunWritten | StepWritten,
    _evolve,
    is_open=lambda state: state.run["status"] not in CLOSED_RUNS,
    group=lambda state: state.module_id,
)


def snapshot(state: WorkflowRun) -> dict[str, Any]:
    """workflow-run-snapshot.v1"""
    return {
        "created_at": rfc3339(state.created_at),
        **state.run,
        "schema": "workflow-run-snapshot.v1",
        "module_id": state.module_id,
        "revision": state.revision,
        "updated_at": rfc3339(state.updated_at),
    }


class WorkflowRuns:
    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    def endpoints(self) -> list[Endpoint]:
        base = "/v1/module/workflow/runs"
        return [
            Endpoint(
                method="POST",
                path=base,
                scopes=("module",),
                handler=self._write_run,
                summary="Make a run, or replace its snapshot.",
                body=WriteRun,
                example={"run_id": "run:1", "status": "running", "steps": [{"step_id": "ask"}]},
                body_bytes=SNAPSHOT_BYTES,
                errors=(400, 403, 409),
            ),
            Endpoint(
                method="POST",
                path=f"{base}/{{run}}/steps/{{step}}",
                scopes=("module",),
                handler=self._write_step,
                summary="Replace the snapshot of one step.",
                body=WriteStep,
                example={"revision": 1, "status": "awaiting_execution", "attempt": 1},
                body_bytes=SNAPSHOT_BYTES,
                errors=(400, 404, 409),
            ),
            Endpoint(
                method="GET",
                path=base,
                scopes=("module", "operator"),
                handler=self._list,
                summary="Runs of the module, newest first; of all modules for the operator.",
                query=("status", "limit", "before"),
                errors=(400,),
            ),
            Endpoint(
                method="GET",
                path=f"{base}/{{run}}",
                scopes=("module", "operator"),
                handler=self._show,
                summary="One run.",
                errors=(404,),
            ),
        ]

    async def _write_run(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, WriteRun)
        require_run(wanted)
        document = document_of(wanted, without=HOSTS_OWN)
        document["steps"] = [document_of(step) for step in wanted.steps]
        state = self._put_run(call.caller.module, wanted, document)
        await self._entities.durable()
        return Answer(body=snapshot(state))

    def _put_run(self, module: str, wanted: WriteRun, document: dict[str, Any]) -> WorkflowRun:
        said = digest_of(encoded(document))
        with self._entities.change() as change:
            state = change.get(RUNS, wanted.run_id)
            if state is not None:
                if state.module_id != module:
                    raise NodeError(403, "forbidden", "run_id: the run is of another module")
                if wanted.revision == 0 and said == state.made_by:
                    return state
                if self._was_said(state, wanted.revision, said):
                    return state
                require_run_follows(state.run, document)
            elif wanted.revision:
                raise NodeError(404, "not_found", f"there is no run {wanted.run_id}")
            event = RunWritten(
                module_id=module,
                run=document,
                based_on=wanted.revision,
                digest=said,
                at=change.now,
            )
            after = change.add(RUNS, wanted.run_id, event)
            require(snapshot(after), "workflow-run-snapshot.v1")
            return after

    async def _write_step(self, call: Call) -> Answer:
        wanted = msgspec.convert(call.body, WriteStep)
        step_id = call.params["step"]
        if wanted.step_id not in ("", step_id):
            raise NodeError(400, "schema", "step_id is not the one in the path")
        wanted = msgspec.structs.replace(wanted, step_id=step_id)
        require_step(wanted)
        self._own(call)
        state = self._put_step(call.params["run"], wanted)
        await self._entities.durable()
        return Answer(body=snapshot(state))

    def _put_step(self, run: str, wanted: WriteStep) -> WorkflowRun:
        document = document_of(wanted, without=("revision",))
        said = digest_of(encoded(document))
        with self._entities.change() as change:
            state = change.get(RUNS, run)
            assert state is not None
            if self._was_said(state, wanted.revision, said):
                return state
            require_run_open(state.run)
            for before in state.run["steps"]:
                if before["step_id"] == wanted.step_id:
                    require_step_follows(before, document)
            event = StepWritten(step=document, based_on=wanted.revision, digest=said, at=change.now)
            after = change.add(RUNS, run, event)
            require(snapshot(after), "workflow-run-snapshot.v1")
            return after

    def _was_said(self, state: WorkflowRun, revision: int, said: str) -> bool:
        """Whether this is the last write again. Raises `NodeError` where it is based on another
        revision than the one there is."""
        if revision == state.last_base and said == state.last_write:
            return True
        if revision != state.revision:
            raise NodeError(
                409,
                "stale_revision",
                f"revision: the write is based on {revision}, the run has {state.revision}",
                more={"revision": state.revision},
            )
        return False

    async def _show(self, call: Call) -> Answer:
        state = self._own(call)
        await self._entities.durable()
        return Answer(body=snapshot(state))

    def _own(self, call: Call) -> WorkflowRun:
        state = self._entities.get(RUNS, call.params["run"])
        module = call.caller.module
        if state is None or (call.caller.scope == "module" and state.module_id != module):
            raise NodeError(404, "not_found", f"there is no run {call.params['run'][:128]}")
        return state

    async def _list(self, call: Call) -> Answer:
        page, status = page_of(call.query), call.query.get("status")
        rows = await collected(
            self._entities,
            RUNS,
            page.limit,
            group=call.caller.module if call.caller.scope == "module" else None,
            is_open=True if status == "active" else None,
            before=page.before,
            keep=lambda state: status in (None, "active", state.run["status"]),
        )
        return paged([(snapshot(state), card) for _, state, card in rows], page)
