"""What a pipeline works with: performers, secrets, the store for large results, and its sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from anabranch.work.port import Performer, Task
from anabranch.work.values.payloads import PayloadPort

HELD_BYTES_MAX = 256 * 1024 * 1024
KeyringFor = Callable[[Task], Awaitable[Mapping[str, Any]]]
Sleep = Callable[[float], Awaitable[None]]


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What a pipeline works with."""

    performers: Mapping[str, Performer]
    payloads: PayloadPort | None = None  # for results that are too large to travel
    keyring: KeyringFor | None = None  # the secrets a task may use
    sleep: Sleep = asyncio.sleep
    held_bytes_max: int = HELD_BYTES_MAX  # that a job keeps until it answers
