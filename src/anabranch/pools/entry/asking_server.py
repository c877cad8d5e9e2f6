"""The services of a process of the cluster that asks a server, as a worker does.

The definition comes along with the job; large values, results of loops, credentials and child runs
are asked for under the name of the lease and with the token of the pool.
"""

from __future__ import annotations

from anabranch.pools.assignment import ValuesPlace
from anabranch.pools.entry.job_services import JobParts, read_definition
from anabranch.pools.remote.server_services import ServerServices
from anabranch.pools.remote.servers import Servers
from anabranch.pools.services import Key, job_at_work
from anabranch.store.ports import Definition


class AskingServices(ServerServices):
    """Make it in the loop that uses it."""

    def __init__(self, place: ValuesPlace, worker: str) -> None:
        servers = Servers([place.url], place.token, worker)
        super().__init__(servers)
        for client in servers.clients:
            client.open()
        self._of_jobs: dict[Key, JobParts] = {}

    def begin(self, key: Key, parts: JobParts) -> None:
        self._of_jobs[key] = parts
        self._servers.lend(key, self._servers.clients[0])

    def end(self, key: Key) -> None:
        self._of_jobs.pop(key, None)
        self._servers.forget(key)

    async def find(self, sha256: str) -> bytes | None:
        return await self.payloads.get(sha256)

    async def definition(self, fingerprint: str) -> Definition:  # noqa: ARG002 - the job says it
        return read_definition(self._of_jobs[job_at_work.get()].definition)

    async def close(self) -> None:
        await self._servers.__aexit__()
