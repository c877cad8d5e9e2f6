"""The backend over the HTTP API: the same questions as at a store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.http.access import HttpCredentialBackend, HttpTokenBackend
from anabranch.surfaces.cli.backend.http.aliases import HttpAliasBackend
from anabranch.surfaces.cli.backend.http.cluster import HttpClusterBackend
from anabranch.surfaces.cli.backend.http.definitions import (
    HttpCatalogBackend,
    HttpDefinitionBackend,
    HttpTemplateBackend,
)
from anabranch.surfaces.cli.backend.http.limits import HttpLimitBackend
from anabranch.surfaces.cli.backend.http.participants import HttpParticipantBackend
from anabranch.surfaces.cli.backend.http.pools import HttpPoolBackend
from anabranch.surfaces.cli.backend.http.runs import HttpRunBackend
from anabranch.surfaces.cli.backend.http.schedules import HttpScheduleBackend
from anabranch.surfaces.cli.backend.http.sessions import HttpSessionBackend
from anabranch.surfaces.cli.backend.http.triggers import HttpTriggerBackend
from anabranch.surfaces.cli.backend.http.webhooks import HttpWebhookBackend
from anabranch.surfaces.cli.backend.identity import token_of, who
from anabranch.surfaces.client import Client, checked_url
from anabranch.surfaces.http.guard.auth import LOOPBACK_NAMES

#: What is chosen where the work is done.
LOCAL = (
    ("tools", "tools are registered where the work is done: leave --tools to the server"),
    ("cluster_pools", "the server gives jobs to clusters: start that with --pool"),
    ("participants", "participants are asked by the server: start that with --participants"),
    ("no_inline", "the server decides what it does: start that with --no-inline"),
    ("files_allowed", "the server decides which files it reads: start that with --files-allowed"),
    ("inline_user", "the server decides who its work runs as: start that with --inline-user"),
)


class HttpBackend:
    def __init__(self, client: Client, *, by_token: bool) -> None:
        self.by_token = by_token
        self.definitions = HttpDefinitionBackend(client)
        self.catalog = HttpCatalogBackend(client)
        self.templates = HttpTemplateBackend(client)
        self.runs = HttpRunBackend(client)
        self.sessions = HttpSessionBackend(client, self.runs)
        self.webhooks = HttpWebhookBackend(client)
        self.schedules = HttpScheduleBackend(client)
        self.triggers = HttpTriggerBackend(client)
        self.aliases = HttpAliasBackend(client)
        self.limits = HttpLimitBackend(client)
        self.credentials = HttpCredentialBackend(client)
        self.tokens = HttpTokenBackend(client)
        self.participants = HttpParticipantBackend(client)
        self.cluster = HttpClusterBackend(client)
        self.pools = HttpPoolBackend(client)


@asynccontextmanager
async def http_backend(
    options: argparse.Namespace, settings: Settings
) -> AsyncIterator[HttpBackend]:
    _refuse_what_is_local(options)
    token = token_of(settings)
    if token and _in_the_clear(settings.server):
        print(f"anabranch: the token goes to {settings.server} unencrypted", file=sys.stderr)
    # A token says by itself who asks; without one the server takes our word for it.
    actor = getattr(options, "actor", "") if token else who(options)
    async with Client(settings.server, token=token, actor=actor) as client:
        yield HttpBackend(client, by_token=bool(token))


def _in_the_clear(url: str) -> bool:
    parts = urlsplit(checked_url(url))
    return parts.scheme == "http" and parts.hostname not in LOOPBACK_NAMES


def _refuse_what_is_local(options: argparse.Namespace) -> None:
    for name, said in LOCAL:
        if getattr(options, name, None):
            raise InputError(said, code="usage")
