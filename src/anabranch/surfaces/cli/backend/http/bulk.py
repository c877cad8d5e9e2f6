"""One verb over many runs of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from anabranch.operations.runs.bulk import PAGE_MAX, Bulk, BulkReport
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.client import Client
from anabranch.surfaces.http.io.request_body import cursor, read_cursor

if TYPE_CHECKING:
    from anabranch.surfaces.cli.backend.port import BulkPage


@asynccontextmanager
async def bulk(client: Client, _asked: Bulk) -> AsyncIterator[BulkPage]:
    async def page(asked: Bulk) -> BulkReport:
        told = await client.post("bulk", body=_body(asked))
        after = told["next"]
        told["next"] = read_cursor(after, int, str) if after else None
        return msgspec.convert(told, BulkReport)

    yield page


def _body(asked: Bulk) -> Row:
    wanted = asked.wanted
    body = {
        "verb": asked.verb,
        "filter": values.bulk_fields(wanted),
        "dry_run": asked.dry_run,
        "everything": asked.everything,
        "reason": asked.reason,
        "values": dict(asked.values),
        "reducer": asked.reducer,
        "limit": min(wanted.limit, PAGE_MAX),
    }
    if wanted.before is not None:
        body["cursor"] = cursor(*wanted.before)
    return body
