"""Of servers that share a store one redrives a run, however many are asked at once.

Whoever redrives a run claims it first, by a write of its own: a condition in the commit that begins
the new run would make that commit fail for all runs in it, and its owner may be a third server. A
redrive that came before is seen behind the claim, so nobody slips in between. The claim goes where
it is sure what became of the redrive; or else, as after a crash, it ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

from anabranch.errors import AnabranchError, Refused, StoreError
from anabranch.operations.runs.redrive_plan import require_first
from anabranch.store.access_ports import KeptAnswer
from anabranch.store.cluster_ports import PARTITION_LOST
from anabranch.store.outages import UNSURE
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.engine")

ACTOR = "redrive\n"  # no caller has a name with an end of line
HELD_MS = 300_000  # longer than a begin takes whose outcome is not known
_UNSURE = (UNSURE, PARTITION_LOST, "engine_closed", "engine_stopped")


@asynccontextmanager
async def first_redrive(store: Store, run: str, new: str | None, now: int) -> AsyncIterator[None]:
    """Refused where another run than the new one redrives this one, or is about to."""
    claim = None
    if store.cluster is not None:  # or else one process has the store, and a lock for this
        claim = await _claimed(store, run, new, now)
    try:
        await asyncio.to_thread(require_first, store, run, new)
        yield
    except AnabranchError as error:
        if not isinstance(error, StoreError) and error.code not in _UNSURE:
            await _release(store, claim)
        raise
    await _release(store, claim)


async def _claimed(store: Store, run: str, new: str | None, now: int) -> KeptAnswer:
    """Also what the same request left behind when its server stopped."""
    wanted = KeptAnswer(
        actor=ACTOR,
        key=run,
        body=new or token_hex(8),
        holder=token_hex(8),
        expires_at=now + HELD_MS,
    )
    found = await asyncio.to_thread(store.claim_key, wanted, now)
    if found is None or found.body == wanted.body:
        return found or wanted
    await asyncio.to_thread(require_first, store, run, new)
    raise Refused(
        f"run {run} is being redriven by another request. Look at `redriven_by` of the run; if "
        f"nothing redrives it after {HELD_MS // 60_000} minutes, ask once more",
        code="redriven",
    )


async def _release(store: Store, claim: KeptAnswer | None) -> None:
    if claim is None:
        return
    try:
        await asyncio.to_thread(store.release_key, claim)
    except StoreError as error:  # what was begun is begun
        log.warning("the claim on a redrive of %s stays for a while: %s", claim.key, error.message)
