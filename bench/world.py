"""What the benchmarks run: small playbooks and tools that do nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch import Settings, Toolbox
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.parts import Parts
from anabranch.store.factory import open_store
from anabranch.work.logs.listening import listen

#: When the tool `mark` was called for the first time.
MARKED: list[float] = []


def toolbox() -> Toolbox:
    box = Toolbox()

    @box.tool("nothing_async")
    async def nothing_async() -> None:
        return None

    @box.tool("nothing_in_place", blocking=False)
    def nothing_in_place() -> None:
        return None

    @box.tool("nothing_in_thread")
    def nothing_in_thread() -> None:
        return None

    @box.tool("give", blocking=False)
    def give(value: int) -> int:
        return value

    @box.tool("mark", blocking=False)
    def mark(value: int) -> int:
        if not MARKED:
            MARKED.append(time.perf_counter())
        return value

    @box.tool("print_lines")
    def print_lines(lines: int) -> int:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            listen()  # to what goes there, as to a terminal that costs nothing
            for number in range(lines):
                print("one line of an everyday log, about as long as such lines are:", number)
        return lines

    @box.tool("nothing_for_now")
    async def nothing_for_now() -> None:
        """Hangs in the process that is to be abandoned, and only there."""
        if os.environ.get("ANABRANCH_BENCH_HANG"):
            await asyncio.sleep(3600)

    return box


def chain(steps: int, kind: str) -> str:
    """A playbook of that many steps in a row."""
    workflow = [
        {
            "step": f"s{index}",
            "tool": {"kind": kind},
            **({"next": {"arcs": [{"step": f"s{index + 1}"}]}} if index + 1 < steps else {}),
        }
        for index in range(steps)
    ]
    return playbook(f"chain-{steps}-{kind}", workflow)


def gated() -> str:
    """A playbook that waits at its first step until somebody patches the context."""
    rules = [{"when": "{{ ctx.go }}", "then": {"allow": True}}]
    step = {
        "step": "held",
        "spec": {"policy": {"admit": {"rules": rules}}},
        "tool": {"kind": "noop"},
    }
    return playbook("gated", [step])


def prepared(text: str) -> Prepared:
    return prepare(text + "\n", [tool.name for tool in toolbox()])


def playbook(name: str, workflow: object) -> str:
    return json.dumps(
        {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": name},
            "workflow": workflow,
        }
    )


@asynccontextmanager
async def engine(
    path: Path | str, participants: Mapping[str, Any] | None = None, **settings: object
) -> AsyncIterator[Parts]:
    """`path` is the file of an SQLite store, or the address of one on PostgreSQL."""
    chosen = Settings(store=str(path), **settings)  # type: ignore[arg-type]
    store = open_store(chosen)
    parts = Parts(store, chosen, toolbox(), participants)
    await parts.open()
    try:
        yield parts
    finally:
        await parts.close(grace_seconds=0)
        store.close()
