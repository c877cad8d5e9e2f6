"""Tokens and the audit trail over HTTP, who the caller is taken for, and what is open here."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import web

from anabranch.operations.access.security import SecurityReport, ServerAddress, report
from anabranch.operations.access.tokens import POOLS_MAX, SCOPES, AccessControl
from anabranch.store.access_ports import AccessToken, AuditEntry, AuditFilter
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.auth import GATEKEEPER, caller_of
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Query, Route


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    scopes: Annotated[list[str], msgspec.Meta(max_length=len(SCOPES))]
    lifetime_days: float | None = None
    pools: Annotated[list[str], msgspec.Meta(max_length=POOLS_MAX)] = []


class ShownToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret, and without the hash of it."""

    id: str
    name: str
    scopes: list[str]
    state: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None
    pools: list[str]  # for which it may work; empty: for all


class MadeToken(ShownToken, frozen=True, kw_only=True):
    token: str


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ShownToken]
    next: str | None = None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[AuditEntry]
    next: str | None = None


class Me(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    scopes: list[str]  # with those that are implied
    token: str  # its id; "" without one
    pools: list[str]  # for which it may work; empty: for all


def shown(access: AccessControl, token: AccessToken) -> ShownToken:
    fields = msgspec.structs.asdict(token)
    del fields["digest"]
    lists = {"scopes": list(token.scopes), "pools": list(token.pools)}
    return ShownToken(**{**fields, **lists}, state=access.state_of(token))


async def create(request: web.Request) -> web.StreamResponse:
    access = request.app[GATEKEEPER].access
    wanted = await read_body(request, NewToken)
    token, text = access.create(wanted.name, wanted.scopes, wanted.lifetime_days, wanted.pools)
    request[SUBJECT] = token.id
    made = MadeToken(**msgspec.structs.asdict(shown(access, token)), token=text)
    return answer(made, 201, {"Location": f"{API}/tokens/{token.id}"})


async def list_tokens(request: web.Request) -> web.StreamResponse:
    access = request.app[GATEKEEPER].access
    return answer(TokenList(items=[shown(access, token) for token in access.tokens()]))


async def revoke(request: web.Request) -> web.StreamResponse:
    keeper = request.app[GATEKEEPER]
    gone = keeper.access.revoke(request.match_info["token"])
    await keeper.stays.look()  # whoever listens with it hears no more
    return answer(shown(keeper.access, gone))


async def audit(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    before = read_cursor(query["cursor"], int)[0] if query["cursor"] else None
    wanted = AuditFilter(
        actor=query["actor"],
        action=query["action"],
        subject=query["subject"],
        before=before,
        limit=query["limit"] + 1,
    )
    found = await look(request, lambda by: by.store.audit(wanted))
    items, more = page_of(found, query["limit"], lambda entry: (entry.number,))
    return answer(AuditPage(items=items, next=more))


async def me(request: web.Request) -> web.StreamResponse:
    caller = caller_of(request)
    scopes = [scope for scope in SCOPES if scope in caller.scopes]
    pools = sorted(caller.pools)
    return answer(Me(actor=caller.actor, scopes=scopes, token=caller.token, pools=pools))


async def security(request: web.Request) -> web.StreamResponse:
    settings, now = request.app[SETTINGS], request.app[PARTS].engine.clock.now()
    policy = request.app[GATEKEEPER].policy
    address = ServerAddress(
        url=settings.serve_advertise,
        host=settings.serve_host,
        loopback=policy.loopback,
        tokens=not policy.open,
        tls=bool(settings.tls_cert),
        proxies=bool(policy.proxies),
    )
    return answer(await look(request, lambda by: report(settings, by.store, now, address)))


_EXAMPLE = {"name": "deploy", "scopes": ["operate"], "lifetime_days": 90}

ROUTES = (
    Route("POST", f"{API}/tokens", "admin", create, "Create a token; its text is shown once",
          body=NewToken, returns=MadeToken, example=_EXAMPLE, status=201),
    Route("GET", f"{API}/tokens", "admin", list_tokens, "The tokens, without their secrets",
          returns=TokenList),
    Route("DELETE", f"{API}/tokens/{{token}}", "admin", revoke, "Revoke a token",
          returns=ShownToken, errors=(404,)),
    Route("GET", f"{API}/audit", "admin", audit,
          "The audit trail: who requested which changes, newest first",
          returns=AuditPage,
          query=(
              Query("actor", "Only of this actor"),
              Query("action", "Only this action", example="runs.cancel"),
              Query("subject", "Only about this run, definition or token"),
              Query("limit", "Entries on a page", "integer", least=1, most=1000, default=100),
              Query("cursor", "`next` of the page before"),
          )),
    Route("GET", f"{API}/security", "admin", security,
          "What of this server is open: address, tokens, kinds of work, files, keys",
          returns=SecurityReport),
    Route("GET", f"{API}/me", "any", me, "Who the caller is, by its token", returns=Me),
)  # fmt: skip
