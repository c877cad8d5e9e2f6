"""Runs as the host keeps them for this module: made once, written with a revision, read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.modules.kit.host import Host, quoted

PATH = "/v1/module/workflow/runs"
#: The record that a run can be started again from, should the module lose its home.
DEFINITION_KIND = "workflow-run-definition"
CLOSED_RUNS = frozenset({"completed", "failed", "cancelled", "deadline_exceeded", "step_timeout"})
CLOSED_STEPS = CLOSED_RUNS | {"skipped"}
PAGE = 500


class HostRuns:
    """Each call raises `HostRefused` and `HostUnavailable`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def find(self, run: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = await self._host.find(f"{PATH}/{quoted(run)}")
        return found

    async def write(self, document: Mapping[str, Any], revision: int) -> dict[str, Any]:
        """`revision` 0 makes the run; the same again is answered with what it has become."""
        body = {**document, "revision": revision}
        snapshot: dict[str, Any] = (await self._host.ask("POST", PATH, body)).body
        return snapshot

    async def write_step(
        self, run: str, document: Mapping[str, Any], revision: int
    ) -> dict[str, Any]:
        path = f"{PATH}/{quoted(run)}/steps/{quoted(document['step_id'])}"
        body = {**document, "revision": revision}
        snapshot: dict[str, Any] = (await self._host.ask("POST", path, body)).body
        return snapshot

    async def active(self) -> list[dict[str, Any]]:
        """All that are not closed, newest first."""
        found: list[dict[str, Any]] = []
        query = {"status": "active", "limit": str(PAGE)}
        while True:
            page = (await self._host.ask("GET", PATH, query=query)).body
            found += page["items"]
            if "next" not in page:
                return found
            query = {**query, "before": page["next"]}

    async def execution(self, execution_id: str) -> dict[str, Any] | None:
        """How the order of a step stands."""
        found: dict[str, Any] | None = await self._host.execution(execution_id)
        return found

    async def keep_definition(self, run: str, kept: Mapping[str, Any]) -> None:
        await self._host.put_record(DEFINITION_KIND, run, dict(kept))

    async def definition(self, run: str) -> dict[str, Any] | None:
        record = await self._host.record(DEFINITION_KIND, run)
        return record["payload"] if record else None

    async def forget_definition(self, run: str) -> None:
        await self._host.delete_record(DEFINITION_KIND, run)
