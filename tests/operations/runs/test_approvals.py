"""Open gates stay known when the store could not be read for a moment."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.operations.runs.approvals import Approvals
from anabranch.parts import Parts
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.outages import AWAY
from anabranch.work.kinds.callables import Toolbox
from shared_store import PARTITIONS, fresh_schema

ASKING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: asking}
workflow:
  - {step: ask, tool: {kind: decision, ask: "Go on?"}}
"""


def away(*_given: Any) -> Any:
    raise StoreError("no server answers there", code=AWAY)


@pytest.mark.parametrize("lost", ["positions", "moved_since", "unfinished", "read_many", "head"])
def test_a_look_that_fails_costs_no_gate(
    postgres: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    async def work() -> None:
        settings = Settings(store=fresh_schema(postgres), store_partitions=PARTITIONS)
        with_store = open_store(settings)
        parts = Parts(with_store, settings, Toolbox())
        await parts.open()
        try:
            store, cluster = parts.store, parts.store.cluster
            approvals = Approvals(parts.nets)  # it hears nothing, as of runs of another server
            place = cluster if lost == "moved_since" else store
            known: set[str] = set()
            for _ in range(2):  # before all are listed, and after
                run = await parts.verbs.start(ASKING, {})
                await parts.engine.wait(run, standing=True)
                if lost != "moved_since" or known:
                    with monkeypatch.context() as patch:
                        patch.setattr(place, lost, away)
                        if lost != "unfinished" or not known:  # the list is read once
                            with pytest.raises(StoreError):
                                approvals.page(store, answers=False)
                known.add(run)
                assert {one.run for one in approvals.page(store, answers=False)} == known
        finally:
            await parts.close(0)
            with_store.close()

    asyncio.run(work())
