"""One process that serves: sockets, engine, application, and the order in which they end.

    start   bind → open the store → listen, for `/health` alone → open the engine → answer
    stop    hand runs over (on a shared store) → listen no more → end the streams → let requests end
            → finish jobs or hand them back

The address is bound before the store is touched: a server that cannot listen moves no run.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, InputError, StoreInUse
from anabranch.operations.access.audit_log import AuditLog
from anabranch.operations.access.security import as_served
from anabranch.operations.access.tokens import AccessControl
from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.parts import Parts
from anabranch.runtime.slices import Slices
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.location import has_file
from anabranch.store.ports import Store
from anabranch.store.private_file import exposure
from anabranch.surfaces.http import app
from anabranch.surfaces.http.guard import audit, auth, connection_limits, origins
from anabranch.surfaces.http.guard.bodies import BODIES
from anabranch.surfaces.http.guard.shares import SHARES, Shares
from anabranch.surfaces.http.guard.unread_answers import UNREAD
from anabranch.surfaces.http.listening import Listening
from anabranch.surfaces.http.opening import Opening
from anabranch.surfaces.http.sockets import bind
from anabranch.surfaces.loopback import warn_of_loopback
from anabranch.work.kinds.callables import default_toolbox
from anabranch.work.network.loopback import is_loopback

log = logging.getLogger("anabranch.http")

STREAMS_SECONDS = 3.0  # how long requests in hand may still take when a server stops
HANDSHAKE_SECONDS = 10.0


class Server:
    """`async with Server(settings) as server:` — it listens at `server.url` until the end."""

    def __init__(
        self,
        settings: Settings,
        *,
        mounts: Sequence[app.Mount] | None = None,
        grace_seconds: float | None = None,
        **more: Any,  # for `make_application`
    ) -> None:
        self.settings = settings
        self._mounts = mounts
        self._grace = grace_seconds
        self._more = more
        self._tls = tls_context(settings)
        self._sockets: list[socket.socket] = []
        self._store: Store | None = None
        self._runner: web.AppRunner | None = None
        self._chores: list[asyncio.Task[None]] = []
        self.parts: Parts
        self.access: AccessControl
        self.keeper: auth.Gatekeeper
        self.shares: Shares
        self.open = True  # no token is asked for
        most = settings.serve_connections_max
        self._listening = Listening(most, setting="serve_connections_max")
        self.limiter = self._listening.limiter

    async def __aenter__(self) -> Server:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        host, port = self._sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{port}"

    @property
    def advertised_url(self) -> str:
        """Where workers reach this server: as it was told, or else by the name of this machine
        where it listens on all addresses."""
        if self.settings.serve_advertise:
            return checked_url(self.settings.serve_advertise)
        parts = urlsplit(self.url)
        if not ipaddress.ip_address((parts.hostname or "").partition("%")[0]).is_unspecified:
            return self.url
        return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"

    async def start(self) -> None:
        self._sockets = bind(self.settings.serve_host, self.settings.serve_port)
        self.settings = replace(self.settings, serve_advertise=self.advertised_url)
        store = self._store = open_store(self.settings)
        loopback = all(is_loopback(one.getsockname()[0]) for one in self._sockets)
        self.parts = Parts(store, as_served(self.settings, loopback=loopback), default_toolbox)
        self.parts.engine.be_patient()
        self.parts.engine.share_loop(Slices())
        now = self.parts.engine.clock.now
        self.access = AccessControl(store, now)
        self._check_reachable(loopback)
        opening = Opening(self.limiter)
        try:
            backlog = self._listening.backlog
            await opening.listen(self._sockets, backlog=backlog, **self._how_to_listen())
            await self._open_engine()
        finally:
            await opening.close()
        file = self.settings.store
        if has_file(file) and (exposed := exposure(Path(file))):
            log.warning("%s", exposed)
        self._batcher = WriteBatcher(store)
        audit_log = AuditLog(store, now, days=self.settings.audit_days, batcher=self._batcher)
        policy = policy_of(self.settings, loopback, self._sockets)
        self.open = policy.open
        self.keeper = auth.Gatekeeper(self.access, policy, audit_log, now, store.cluster)
        await self._listen(self._application(self.keeper))
        loop = asyncio.get_running_loop()
        for chore in (audit_log.sweep_forever(), self.keeper.stays.look_forever()):
            self._chores.append(loop.create_task(chore))
        if (member := self.parts.engine.member) is not None:
            url, membership = self.settings.serve_advertise, member.membership
            warning = warn_of_loopback(url, lambda: membership.servers)
            self._chores.append(loop.create_task(warning))

    def _check_reachable(self, loopback: bool) -> None:
        if loopback or self.access.has_admin():
            return
        raise InputError(
            f"{self.settings.serve_host} can be reached from other machines, and this store has no "
            "admin token: make one (`anabranch token create --scope admin`), or leave --host out",
            code="no_tokens",
        )

    async def _open_engine(self) -> None:
        try:
            await self.parts.open()
        except StoreInUse as error:
            raise StoreInUse(
                f"{error.message} (`anabranch --help` lists the verbs that work beside it)"
            ) from None

    def _application(self, keeper: auth.Gatekeeper) -> web.Application:
        until_answered, from_here = connection_limits.in_hand(self.limiter)
        in_time, let_stream = connection_limits.in_time()
        guards = (
            until_answered,
            origins.check_site,
            connection_limits.as_it_is,
            audit.keep_trail,  # around the next: a change that somebody may not make is written too
            auth.check_caller,
            from_here,  # behind it: no caller keeps others out
            in_time,
        )
        mounts = standard_mounts() if self._mounts is None else self._mounts
        made = app.make_application(
            self.parts,
            self.settings,
            guards=guards,
            mounts=mounts,
            batcher=self._batcher,
            **self._more,
        )
        made[auth.GATEKEEPER], made[origins.POLICY] = keeper, keeper.policy
        made[UNREAD], made[BODIES] = self.limiter.unread, self.limiter.bodies
        self.shares = made[SHARES]
        self.limiter.spare = self.shares.spare
        made.on_response_prepare.extend([auth.add_headers, let_stream])
        return made

    async def _listen(self, made: web.Application) -> None:
        how = self._how_to_listen()
        self._runner = await self._listening.begin(
            made, self._sockets, end_seconds=STREAMS_SECONDS, how=how
        )

    def _how_to_listen(self) -> dict[str, Any]:
        return {
            "ssl": self._tls,
            "ssl_handshake_timeout": HANDSHAKE_SECONDS if self._tls else None,
        }

    async def stop(self) -> None:
        """In order, and also when it never came to listen. On a shared store the others go on with
        the runs of this server before its last requests have ended."""
        if hasattr(self, "parts"):
            await self.parts.engine.hand_over()
        self._listening.no_more()
        await cancel_and_wait(*self._chores)
        self._chores.clear()
        await self._listening.end()
        if self._runner is not None:
            await self.keeper.audit_log.close()
            self.keeper.lookups.close()
            self._runner = None
        if hasattr(self, "parts"):
            await self.parts.close(self._grace)
        if self._store is not None:
            self._store.close()
            self._store = None
        for one in self._sockets:
            one.close()

    async def broken(self) -> AnabranchError:
        """Returns when the engine has stopped by itself, with the reason."""
        return await self.parts.engine.stopped()


def standard_mounts() -> Sequence[app.Mount]:
    """What stands beside the API."""
    from anabranch.surfaces.ui.routes import mount as mount_pages

    return (mount_pages,)


def policy_of(
    settings: Settings, loopback: bool, sockets: Sequence[socket.socket] = ()
) -> origins.OriginPolicy:
    """On a loopback address the server is also called what it was told to listen on. Where its
    names matter, it answers to the one that it tells workers."""
    names = {name.lower() for name in settings.serve_names.split()}
    if loopback or names:
        names.add(urlsplit(settings.serve_advertise).hostname or "")
    if loopback:
        names |= {one.getsockname()[0] for one in sockets} | {settings.serve_host.lower()}
    return origins.OriginPolicy(
        loopback=loopback,
        tokens_required=settings.require_tokens == "yes",
        hosts=frozenset(names - {""}),
        proxies=frozenset(settings.serve_proxies.split()),
    )


def checked_url(text: str) -> str:
    """A URL that can be given to workers: scheme, host, port, perhaps the path of a proxy."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        more = parts.username is not None or parts.query or parts.fragment
    except ValueError:
        good, more = False, ""
    if not good or more or not text.isprintable() or " " in text:
        raise InputError(
            "serve_advertise (--advertise) is not the URL of a server: give scheme, host and port, "
            "such as https://anabranch-1.example:8629",
            code="advertise",
        )
    return text.rstrip("/").removesuffix("/api/v1").rstrip("/")


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_cert and not settings.tls_key:
        return None
    if not settings.tls_cert or not settings.tls_key:
        raise InputError("TLS needs both --tls-cert and --tls-key", code="tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise InputError(
            f"the certificate {settings.tls_cert} with the key {settings.tls_key} cannot be used: "
            f"{reason}",
            code="tls",
        ) from None
    return context
