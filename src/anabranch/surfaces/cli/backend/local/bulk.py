"""One verb over many runs of a store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from anabranch.errors import AnabranchError, Refused, StoreInUse
from anabranch.operations.runs.bulk import Bulk, Bulks
from anabranch.operations.runs.verbs import ANSWER_SECONDS, ASK_SECONDS
from anabranch.runtime.messages.codec import Sayable, read_answer, write_message
from anabranch.store.ports import Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import noted
from anabranch.surfaces.cli.backend.local.store import LocalStore

if TYPE_CHECKING:
    from anabranch.app import Parts
    from anabranch.surfaces.cli.backend.port import BulkPage


@asynccontextmanager
async def bulk(local: LocalStore, asked: Bulk) -> AsyncIterator[BulkPage]:
    dry = ".dry_run" if asked.dry_run else ""
    subject = msgspec.json.encode(values.bulk_fields(asked.wanted)).decode()
    async with local.parts(grace=0) as parts:
        with noted(parts.store, local.actor, f"bulk.{asked.verb}{dry}", subject):
            yield (await _bulks(parts)).page


async def _bulks(parts: Parts) -> Bulks:
    """With the engine of this process, or through the mailbox of the one that owns the store."""
    try:
        await parts.engine.open(run_jobs=False)
    except StoreInUse as error:
        owner = error.message

        async def post(run: str, said: Sayable) -> None:
            await _post(parts.store, run, said)

        async def no_redrive(_run: str) -> str:
            raise Refused(f"{owner} Runs are begun there: --server URL reaches it.", code="owned")

        return Bulks(parts.store, post, no_redrive, parts.verbs.plan_redrive)
    return Bulks(parts.store, parts.verbs.send, parts.verbs.redrive, parts.verbs.plan_redrive)


async def _post(store: Store, run: str, said: Sayable) -> None:
    message = store.post(run, write_message(said), int(time.time() * 1000))
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        posted = store.message(message)
        if posted is not None and posted.answer is not None:
            answer = read_answer(posted.answer)
            if not answer.ok:
                raise Refused(answer.message, code=answer.code)
            return
        await asyncio.sleep(ASK_SECONDS)
    raise AnabranchError("the engine has not answered; the message stays", code="no_answer")
