"""`bulk`: one verb over all runs that a filter finds, at a store of this machine or at a server."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch import app
from anabranch.errors import AnabranchError, Refused, StoreInUse
from anabranch.operations.runs.bulk import PAGE_MAX, Bulk, BulkReport, Bulks
from anabranch.operations.runs.purge import age_ms
from anabranch.operations.runs.verbs import ANSWER_SECONDS, ASK_SECONDS
from anabranch.runtime.messages.codec import Sayable, read_answer, write_message
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import HeadFilter, Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import noted
from anabranch.surfaces.cli.backend.local.backend import who
from anabranch.surfaces.cli.output import render
from anabranch.work.kinds.callables import default_toolbox

SOME_REFUSED = 3
PAGE = 200


async def bulk(options: argparse.Namespace, settings: Settings) -> int:
    asked = _asked(options)
    left = options.limit
    total: BulkReport | None = None
    async with _office(options, settings) as office:
        while left is None or left > 0:
            limit = PAGE if left is None else min(PAGE, left)
            before = total.next if total is not None else None
            page = await office(replace(asked, wanted=_from(asked.wanted, before, limit)))
            if not options.json:
                _print(page)
            total = page if total is None else _sum(total, page)
            left = None if left is None else left - page.found
            if page.next is None:
                break
    assert total is not None
    if options.json:
        print(render.json_line(msgspec.to_builtins(total)))
    else:
        print(_counts(total))
    return SOME_REFUSED if total.refused and not total.dry_run else 0


def _from(wanted: HeadFilter, before: tuple[int, str] | None, limit: int) -> HeadFilter:
    return replace(wanted, before=before, limit=limit)


def _asked(options: argparse.Namespace) -> Bulk:
    now = int(time.time() * 1000)
    ended = now - age_ms(options.ended_before) if options.ended_before else None
    begun = now - age_ms(options.created_before) if options.created_before else None
    wanted = replace(
        values.runs_wanted(options),
        parent=options.parent,
        ended_before=ended,
        created_before=begun,
    )
    return Bulk(
        verb=options.action,
        wanted=wanted,
        dry_run=options.dry_run,
        actor=who(options),
        reason=options.reason,
        values=values.flat_pairs(options.set, "value"),
        reducer=options.reduce,
        everything=options.all,
    )


# -- where it is asked -----------------------------------------------------------------------------


@asynccontextmanager
async def _office(options: argparse.Namespace, settings: Settings) -> AsyncIterator[Any]:
    if settings.server:
        from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

        async with http_backend(options, settings) as at:

            async def remotely(asked: Bulk) -> BulkReport:
                return _page(await at.client.post("bulk", body=_body(asked)))

            yield remotely
        return
    values.require_store(settings)
    store = open_store(settings)
    parts = app.Parts(store, settings, default_toolbox)
    try:
        dry = ".dry_run" if options.dry_run else ""
        subject = msgspec.json.encode(_body(_asked(options))["filter"]).decode()
        with noted(store, who(options), f"bulk.{options.action}{dry}", subject):
            yield (await _here(parts, store)).page
    finally:
        await parts.close(0)
        store.close()


async def _here(parts: app.Parts, store: Store) -> Bulks:
    """With the engine of this process, or through the mailbox of the one that owns the store."""
    try:
        await parts.engine.open(run_jobs=False)
    except StoreInUse as error:
        owner = error.message

        async def post(run: str, said: Sayable) -> None:
            await _post(store, run, said)

        async def no_redrive(_run: str) -> str:
            raise Refused(f"{owner} Runs are begun there: --server URL reaches it.", code="owned")

        return Bulks(store, post, no_redrive, parts.verbs.plan_redrive)
    return Bulks(store, parts.verbs.send, parts.verbs.redrive, parts.verbs.plan_redrive)


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


def _body(asked: Bulk) -> dict[str, Any]:
    wanted = asked.wanted
    body = {
        "verb": asked.verb,
        "filter": {
            "status": list(wanted.statuses),
            "dialect": wanted.dialect,
            "name": wanted.name,
            "labels": dict(wanted.labels),
            "prefix": wanted.run_prefix,
            "parent": wanted.parent,
            "created_before": wanted.created_before,
            "ended_before": wanted.ended_before,
        },
        "dry_run": asked.dry_run,
        "everything": asked.everything,
        "reason": asked.reason,
        "values": dict(asked.values),
        "reducer": asked.reducer,
        "limit": min(wanted.limit, PAGE_MAX),
    }
    if wanted.before is not None:
        from anabranch.surfaces.http.io.request_body import cursor

        body["cursor"] = cursor(*wanted.before)
    return body


def _page(told: dict[str, Any]) -> BulkReport:
    from anabranch.surfaces.http.io.request_body import read_cursor

    after = told["next"]
    return msgspec.convert(
        {**told, "next": read_cursor(after, int, str) if after else None}, BulkReport
    )


# -- what is printed -------------------------------------------------------------------------------


def _sum(one: BulkReport, other: BulkReport) -> BulkReport:
    return replace(
        one,
        found=one.found + other.found,
        done=one.done + other.done,
        refused=one.refused + other.refused,
        items=[*one.items, *other.items],
        next=other.next,
    )


def _print(page: BulkReport) -> None:
    for item in page.items:
        what = {"done": page.verb, "would": f"would {page.verb}", "refused": "left alone"}
        more = f" -> {item.new}" if item.new else f": {item.message}" if item.message else ""
        print(f"{item.run}  {item.name}  {item.status}  {what[item.outcome]}{more}")


def _counts(total: BulkReport) -> str:
    if total.dry_run:
        would = total.found - total.refused
        return f"would {total.verb} {would:,} of {total.found:,} runs"
    return f"{total.verb}: {total.done:,} of {total.found:,} runs, {total.refused:,} left alone"
