"""The tests of the surfaces against a server that owns nothing.

With `ANABRANCH_TEST_ELSEWHERE=1` (`make soak`) all of them, else those of the files that
`tests/surfaces/conftest.py` names, run a second time like this: the store is a schema of a
PostgreSQL server, a whole server beside the one under test owns every partition of it, and what is
asked of the one under test is about runs of the other.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from aiohttp import web

from anabranch.parts import Parts
from anabranch.runtime.cluster.membership import Membership
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.surfaces.http.app import make_application
from anabranch.work.kinds.callables import Toolbox

KEY = "the key that both servers of a test have in their settings"
ALWAYS = os.environ.get("ANABRANCH_TEST_ELSEWHERE") == "1"
_numbers = count(1)
_database: str | None = None


@contextmanager
def on(database: str) -> Iterator[None]:
    """Until the end of the block every server of a test has another one beside it."""
    global _database
    _database = database
    try:
        yield
    finally:
        _database = None


def is_on() -> bool:
    return _database is not None


def moved(settings: Settings) -> Settings:
    """The same settings with the store on PostgreSQL; one name is one store there, too."""
    if _database is None or settings.store.startswith("postgresql:"):
        return settings
    if settings.store == ":memory:":
        schema = f"memory_{os.getpid()}_{next(_numbers)}"
    else:
        schema = f"file_{zlib.crc32(settings.store.encode()):08x}"
    joint = "&" if "?" in _database else "?"
    key = settings.secret_key if settings.secret_key_file else settings.secret_key or KEY
    return replace(settings, store=f"{_database}{joint}schema={schema}", secret_key=key)


@asynccontextmanager
async def owner_beside(
    settings: Settings, toolbox: Toolbox, participants: Any = None
) -> AsyncIterator[Parts | None]:
    """A server that owns every partition; whoever joins within the block owns none."""
    if _database is None:
        yield None
        return
    store = open_store(settings)
    parts = Parts(store, settings, toolbox, participants)
    runner = web.AppRunner(make_application(parts, settings), access_log=None)
    try:
        await parts.open()
        await runner.setup()
        Membership.takes_share = False
        try:
            yield parts
        finally:
            Membership.takes_share = True
    finally:
        await runner.cleanup()
        await parts.close(grace_seconds=0)
        store.close()
