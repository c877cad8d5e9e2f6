"""Which backend the settings name. Nothing else asks: a verb does the same at either."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.backend.port import Backend


@asynccontextmanager
async def open_backend(options: argparse.Namespace, settings: Settings) -> AsyncIterator[Backend]:
    if not settings.server:
        from anabranch.surfaces.cli.backend.local.backend import LocalBackend

        yield LocalBackend(settings, who(options))
        return
    from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

    async with http_backend(options, settings) as remote:
        yield remote
