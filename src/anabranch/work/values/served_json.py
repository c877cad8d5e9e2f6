"""JSON that a service sent: looked over before it is built, and built beside the event loop.

Whoever answers a task chooses how large the answer is and of what it is made. The decoder is one
call that nobody can interrupt, and its time depends on the lists and objects in a text and not on
its bytes: there may be so many of them, and they may nest so deep. Every kind of work that takes
JSON from a service reads it here.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from anabranch.work.values.json_check import MAX_DEPTH, deeper_than

T = TypeVar("T")

BESIDE_BYTES = 256 * 1024
#: So many lists and objects are built in well under a second.
CONTAINERS_MAX = 1_000_000


class JsonRefused(ValueError):
    """It is no JSON, or there is too much in it; the message says which."""


async def read_json(body: bytes) -> Any:
    """The value of a text; raises `JsonRefused`."""
    return await do_aside(len(body), build_json, body)


async def do_aside(size: int, work: Callable[..., T], *given: Any) -> T:
    """Whatever is done with this many bytes of a service, in a thread where they are many."""
    return work(*given) if size <= BESIDE_BYTES else await asyncio.to_thread(work, *given)


def count_containers(body: bytes) -> int:
    """The lists and objects of a text, and the brackets in its strings."""
    return body.count(b"[") + body.count(b"{")


def build_json(body: bytes, *, wide: bool = False) -> Any:
    """The same here and now. `wide` takes numbers that are no double, as some databases have."""
    containers = count_containers(body)
    if containers > CONTAINERS_MAX:
        raise JsonRefused(
            f"it has more than {CONTAINERS_MAX:,} lists and objects: request it in parts"
        )
    try:
        value = _decode(body, wide)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise JsonRefused(str(error)) from None
    if containers > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise JsonRefused(f"it nests more than {MAX_DEPTH} levels deep")
    return value


def _decode(body: bytes, wide: bool) -> Any:
    """The collector would look through a large value again and again as it grows, and nothing of it
    can be garbage yet."""
    collects = len(body) > BESIDE_BYTES and gc.isenabled()
    if collects:
        gc.disable()
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        if not wide:
            raise
        return json.loads(body)
    finally:
        if collects:
            gc.enable()
