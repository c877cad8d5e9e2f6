"""Payloads: values too large for the log, by their hash; and whatever a reference leads to."""

from __future__ import annotations

import asyncio
import re

from aiohttp import web

from anabranch.errors import NotFound
from anabranch.operations.read import references
from anabranch.settings import Settings
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import ReadHandle, look
from anabranch.surfaces.http.io.request_body import answer, bad_parameter, read_query
from anabranch.surfaces.http.routes import API, SETTINGS, Query, Route
from anabranch.work.values.payloads import is_packed, unpack

#: Payloads may be the largest of all answers, and small ones are read in no time: few at once.
READING = web.AppKey("reading_payloads", asyncio.Semaphore)
READ_AT_ONCE = 2

_HASH = re.compile(r"[0-9a-f]{64}")


async def show(request: web.Request) -> web.StreamResponse:
    sha256 = request.match_info["sha256"].removeprefix("anabranch:sha256:")
    if not _HASH.fullmatch(sha256):
        said = "a payload is named by its SHA-256, 64 digits 0-9a-f"
        raise ApiError(400, "payload_hash", said, "take it from `_ref` of a result")
    settings = request.app[SETTINGS]
    async with request.app[READING]:
        content = await look(request, lambda by: _unpacked(settings, by.store.payload(sha256)))
    if content is None:
        raise NotFound(f"there is no payload {sha256}; it may have been deleted")
    return web.Response(
        body=content,
        content_type="application/json",
        headers={"ETag": f'"{sha256}"', "Cache-Control": "private, max-age=31536000, immutable"},
    )


async def referred(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    ref = asked["ref"]
    if not ref:
        raise bad_parameter("ref", "is missing", f"send one of {references.FORMS}")

    def read(by: ReadHandle) -> references.Referred:
        found = references.read_reference(
            by.read, ref, offset=asked["offset"], limit=asked["limit"]
        )
        return asyncio.run(found)  # in a thread of its own

    return answer(await look(request, read))


def _unpacked(settings: Settings, content: bytes | None) -> bytes | None:
    if content is None or not is_packed(content):
        return content
    return unpack(content, settings.payload_bytes_max, "the payload")


ROUTES = (
    Route(
        "GET",
        f"{API}/payloads/{{sha256}}",
        "read",
        show,
        "A value that was too large for the log",
        errors=(410,),
    ),
    Route(
        "GET",
        f"{API}/results",
        "read",
        referred,
        "The value of a reference: the result of a step, the items of a loop, a payload",
        returns=references.Referred,
        query=(
            Query("ref", "the reference", example="anabranch:run:last/step/report"),
            Query("offset", "of a loop: the first item", "integer", default=0),
            Query(
                "limit",
                "of a loop: how many items at most",
                "integer",
                least=1,
                most=references.PAGE_MAX,
                default=1000,
            ),
        ),
        errors=(404, 410, 422),
    ),
)
