"""What the tests of operations share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from hangs import HANG_SECONDS

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    """Runs to the end in a loop of its own, with a limit so that a hang becomes a failure."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


def playbook(*workflow: Mapping[str, Any]) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "test"}}
    return json.dumps({**head, "workflow": list(workflow)}) + "\n"


def step(name: str, kind: str, *then: str, **inputs: Any) -> dict[str, Any]:
    arcs = {"next": {"arcs": [{"step": target} for target in then]}} if then else {}
    return {"step": name, "tool": {"kind": kind, **inputs}, **arcs}
