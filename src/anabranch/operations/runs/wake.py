"""`wake`: what sleeps goes on now. A process of a session is woken by the rules of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.xrc729.words import DIALECT as ORCHESTRATION
from anabranch.kernel import stimuli as s
from anabranch.operations.read.processes import pid_of
from anabranch.operations.runs.verbs import Verbs
from anabranch.operations.sessions.sessions import Sessions
from anabranch.store.ports import Head


async def wake_sleepers(
    verbs: Verbs,
    sessions: Sessions,
    head: Head,
    token: int,
    *,
    step: str = "",
    payload: Mapping[str, Any] | None = None,
    runner: str = "",
    actor: str = "",
) -> int | None:
    """Wake one token, or with 0 all that sleep at `step`. Returns how many; None: not counted.

    `runner` says on whose behalf a session is woken.
    """
    if head.dialect != ORCHESTRATION:
        await verbs.send(head.run, s.Wake(token, step, payload or {}, actor))
        return None
    told = await sessions.wake_up_process(
        pid_of(head.run, token) if token else head.run,
        step=step,
        payload=payload,
        runner=runner,
        actor=actor,
    )
    woken: int = told["woken"]
    return woken
