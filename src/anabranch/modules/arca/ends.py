"""What the operator is told about runs, and what is kept of one that has ended: each once.

Everything here has a key that follows from the run, so it may be said again after a crash.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.modules.arca.host_runs import CLOSED_RUNS
from anabranch.modules.arca.snapshots import fitting
from anabranch.modules.kit.host import Host, HostRefused

logger = logging.getLogger("anabranch.module")

ARTIFACT_BYTES = 5 * 1024 * 1024  # of outputs; the host takes 8 MiB in all
_LEVELS = {"completed": "info", "cancelled": "warning"}


def artifact_path(run: str) -> str:
    return f"runs/{run}.json"


class RunEnds:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def tell(self, document: Mapping[str, Any], gates: Sequence[str]) -> None:
        """Called before the host is shown this state of a run. Raises `HostUnavailable`."""
        status = document["status"]
        if status in CLOSED_RUNS:
            await self._keep(document)
            await self._notify(document, _LEVELS.get(status, "error"), status, _why(document))
        elif status == "paused" and gates:
            named = hashlib.sha256("\n".join(gates).encode()).hexdigest()[:32]
            reason = str(document.get("pause_reason") or "")
            await self._notify(document, "warning", f"paused/{named}", reason)

    async def _keep(self, document: Mapping[str, Any]) -> None:
        run = document["run_id"]
        snapshot = {"schema": "workflow-run-snapshot.v1", **document}
        content = fitting(snapshot, output_bytes=ARTIFACT_BYTES)
        try:
            await self._host.write_artifact(artifact_path(run), content, key=f"{run}/artifact")
        except HostRefused as error:  # it is there already, or cannot be kept: the run goes on
            _note(run, "its artifact", error)

    async def _notify(self, document: Mapping[str, Any], level: str, about: str, body: str) -> None:
        run = document["run_id"]
        name = document.get("workflow_id") or "a workflow"
        title = f"Run {run} of {name} is {about.partition('/')[0].replace('_', ' ')}"
        try:
            await self._host.notify(level, title, body, key=f"{run}/{about}", correlation_id=run)
        except HostRefused as error:
            _note(run, "a notification", error)


def _why(document: Mapping[str, Any]) -> str:
    error = document.get("error")
    if not isinstance(error, Mapping):
        return ""
    step = f"step {error['step_id']}: " if error.get("step_id") else ""
    return f"{step}{error['code']}: {error.get('message', '')}"


def _note(run: str, what: str, error: HostRefused) -> None:
    if error.status != 409:  # said before, with other words
        logger.warning("run %s: the host refused %s: %s", run, what, error.message)
