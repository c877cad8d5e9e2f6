"""A program that has a job on a Ray cluster, to be killed: `python -m pools.ray.engine URL GATE`.

It prints the id of the process that holds its connection, and the one that does the job.
"""

from __future__ import annotations

import asyncio
import sys

from anabranch.pools.address import read_pool
from anabranch.pools.backend import Progressed
from anabranch.pools.ray.backend import RayBackend
from pools.deeds import blob


async def main(url: str, gate: str) -> None:
    backend = RayBackend(read_pool("pool", url), entry="pools.deeds")
    await backend.open()
    await backend.submit("shard-1", blob("deaf", "shard-1", gate=gate))
    async for batch in backend.events():
        for event in batch:
            if isinstance(event, Progressed):
                print(backend.driver_pid, event.said.decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
