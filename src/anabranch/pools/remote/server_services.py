"""What the server keeps, as work on this machine sees it: definitions, payloads, credentials, the
results of loops, and child runs.

Everything is asked for in the name of the job that needs it: the server gives a worker what its
jobs may see, and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError, NotFound
from anabranch.operations.workers.job_data import ResultsPage
from anabranch.pools.remote.server_client import ServerRefused, until_heard
from anabranch.pools.remote.servers import Servers
from anabranch.pools.remote.shapes import Begun, FoundCredential, Source
from anabranch.pools.services import job_at_work
from anabranch.store.ports import Definition
from anabranch.work.secrets.credential_sources import Credential
from anabranch.work.secrets.oauth2 import KeychainError
from anabranch.work.values.payloads import encoded, hash_of

CACHE_BYTES = 256 * 1024 * 1024  # of payloads, so that a value is fetched once and not per job
TRANSFER_SECONDS = 300.0


class RemotePayloads:
    """Payloads of the server, and those fetched last."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    async def get(self, sha256: str) -> bytes | None:
        known = self._cache.get(sha256)
        if known is not None:
            self._cache.move_to_end(sha256)
            return known
        key, verb = job_at_work.get(), f"payloads/{sha256}"
        try:
            content = await until_heard(
                lambda: self._servers.once(key, "GET", verb, seconds=TRANSFER_SECONDS)
            )
        except ServerRefused as refusal:
            if refusal.status == 410:
                return None
            raise
        self._keep(sha256, content)
        return content

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
        key, seconds = job_at_work.get(), TRANSFER_SECONDS
        await until_heard(
            lambda: self._servers.once(key, "POST", "payloads", content=content, seconds=seconds)
        )
        return hash_of(content)

    def _keep(self, sha256: str, content: bytes) -> None:
        if sha256 in self._cache:  # two jobs fetched it at the same time
            return
        self._cache[sha256] = content
        self._size += len(content)
        while self._size > CACHE_BYTES and len(self._cache) > 1:
            self._size -= len(self._cache.popitem(last=False)[1])


class RemoteCredentials:
    """Credentials that the server has, for the jobs that look them up."""

    label = "the server"

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def knows(self, name: str) -> bool | None:  # noqa: ARG002 - the port's signature
        return None

    async def find(self, name: str) -> Credential | None:
        key, verb = job_at_work.get(), f"credentials/{name}"
        try:
            found = await until_heard(lambda: self._servers.json(FoundCredential, key, "GET", verb))
        except ServerRefused as refusal:
            if refusal.code in ("no_credential", "credential_refused", "credential_away"):
                away = refusal.code == "credential_away"
                raise KeychainError(refusal.message, retryable=away) from None
            if refusal.status == 404 and refusal.code == "no_such_path":  # a server of before
                return None
            raise
        return Credential(found.data, found.type)


class RemoteLoops:
    """The results of loops, from the log of the server."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def size(self, ref: str) -> int:
        return (await self._page(ref, 0, 0)).total

    async def results(self, ref: str, first: int, stop: int, bytes_max: int | None) -> list[Any]:
        found: list[Any] = []
        size = 0
        while first + len(found) < stop:
            page = await self._page(ref, first + len(found), stop)
            if not page.results:
                break
            found += page.results
            size += len(encoded(page.results))
            if bytes_max is not None and size > bytes_max:
                raise InputError(
                    f"the results are over the limit of {bytes_max:,} bytes (setting "
                    "artifact_bytes): request fewer at once with `offset` and `limit`"
                )
        return found

    async def _page(self, ref: str, first: int, stop: int) -> ResultsPage:
        key, asked = job_at_work.get(), {"ref": ref, "first": first, "stop": stop}
        try:
            return await until_heard(
                lambda: self._servers.json(ResultsPage, key, "GET", "results", **asked)
            )
        except ServerRefused as refusal:  # about the loop, and not about the job
            if refusal.code in ("no_loop", "payload_gone"):
                raise NotFound(refusal.message, code=refusal.code) from None
            if refusal.status == 422:
                raise InputError(refusal.message, code=refusal.code) from None
            raise


class ServerServices:
    """What jobs need while they are done, from the servers that gave them out."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.payloads = RemotePayloads(servers)
        self.loops = RemoteLoops(servers)
        self.credentials = RemoteCredentials(servers)

    async def definition(self, fingerprint: str) -> Definition:  # noqa: ARG002 - the job says it
        key = job_at_work.get()
        source = await until_heard(lambda: self._servers.json(Source, key, "GET", "definition"))
        return Definition(**msgspec.structs.asdict(source))

    async def start_child(
        self,
        path: str,
        given: Mapping[str, Any],
        run: str,
        parent: str | None,
        returns: str,
        marks: Mapping[str, Any],
    ) -> str:
        body = {
            "path": path,
            "run": run,
            "input": given,
            **({"sealed": marks} if marks else {}),
            "waits": parent is not None,
            "returns": returns,
        }
        key = job_at_work.get()
        begun = await until_heard(lambda: self._servers.json(Begun, key, "POST", "children", body))
        return begun.run
