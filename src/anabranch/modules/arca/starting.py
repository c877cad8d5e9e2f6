"""How a run begins: the host keeps its definition and its first snapshot before the engine has it.

So no order can leave for a run that the host does not know, and a run that the module loses can be
started again. The same run id with the same definition and input is the same run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from anabranch.errors import InputError
from anabranch.ids import checked_run_id
from anabranch.market.documents import digest_of
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.engine import ArcaEngine
from anabranch.modules.arca.host_runs import CLOSED_RUNS, HostRuns
from anabranch.modules.arca.mirror import RunMirror
from anabranch.modules.arca.snapshots import first_document
from anabranch.modules.kit.host import HostRefused
from anabranch.operations.definitions.prepare import Prepared

PREFIX = "run:"
RUN_ID_MAX = 128  # as the host takes it
#: The label by which a run is known to be the one that is asked for again.
DIGEST = "arca_request"


class Started(msgspec.Struct, frozen=True):
    run: str
    new: bool
    closed: bool = False  # the host has its end, and this module has nothing of it


class Starter:
    def __init__(self, engine: ArcaEngine, runs: HostRuns, mirror: RunMirror) -> None:
        self._engine = engine
        self._host = runs
        self._mirror = mirror
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(
        self, definition: Any, given: Mapping[str, Any] | None = None, run: str | None = None
    ) -> Started:
        """Raises `DefinitionError`, `InputError`, `NodeError` 409 for another run of that id, and
        what the host answers."""
        values = dict(given or {})
        prepared = self._engine.prepared(definition, values)
        # Not by its text: a host keeps objects with their keys in another order.
        digest = digest_of(msgspec.json.encode([definition, values], order="deterministic"))
        text = definition if isinstance(definition, str) else json.dumps(definition)
        kept = {"definition": text, "input": values, "digest": digest}
        if run is None:
            drawn = PREFIX + self._engine.loop.new_run_id()
            return await self._begun(prepared, drawn, kept)
        chosen = _checked(run)
        lock = self._locks.setdefault(chosen, asyncio.Lock())
        async with lock:
            if self._engine.loop.known(chosen):
                self._require_same(chosen, digest)
                return Started(chosen, new=False)
            known = await self._host.definition(chosen)
            if known is not None and known.get("digest") != digest:
                raise _other(chosen)
            return await self._begun(prepared, chosen, kept)

    async def _begun(self, prepared: Prepared, run: str, kept: Mapping[str, Any]) -> Started:
        await self._host.keep_definition(run, kept)
        try:
            snapshot = await self._mirror.create(first_document(prepared.net, run, kept["input"]))
        except HostRefused as error:
            if error.status != 409:
                raise
            await self._host.forget_definition(run)
            raise _other(run) from None
        if snapshot["status"] in CLOSED_RUNS:
            await self._host.forget_definition(run)
            return Started(run, new=False, closed=True)
        await begin(self._engine, prepared, kept["input"], run, kept["digest"])
        return Started(run, new=True)

    def _require_same(self, run: str, digest: str) -> None:
        head = self._engine.read.find(run)
        if head.labels.get(DIGEST) != digest:
            raise _other(run)


async def begin(
    engine: ArcaEngine, prepared: Prepared, given: Mapping[str, Any], run: str, digest: str
) -> None:
    await engine.verbs.start(prepared, given, run=run, labels={DIGEST: digest})


def _checked(run: str) -> str:
    if len(run) > RUN_ID_MAX:
        raise InputError(f"a run id has at most {RUN_ID_MAX} characters", code="bad_run_id")
    return checked_run_id(run)


def _other(run: str) -> NodeError:
    return NodeError(
        409, "run_exists", f"there is a run {run} of another definition or input already"
    )
