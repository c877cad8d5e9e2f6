"""Who waits for whom where large artifacts are read."""

from __future__ import annotations

import asyncio
import threading

from anabranch.market.node.door import AT_ONCE, LargeReader


def test_artifacts_of_trusted_peers_do_not_wait_behind_those_of_strangers() -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def slow() -> str:
        begun.release()
        assert gate.wait(30)
        return "a stranger"

    async def scenario() -> None:
        reader = LargeReader()
        slow_ones = [
            asyncio.ensure_future(reader.read(slow, trusted=False)) for _ in range(AT_ONCE + 1)
        ]
        await asyncio.sleep(0)
        for _ in range(AT_ONCE):
            assert begun.acquire(timeout=30)
        assert await reader.read(lambda: "trusted", trusted=True) == "trusted"
        assert not begun.acquire(blocking=False)  # one more of them waits for its turn
        gate.set()
        assert await asyncio.gather(*slow_ones) == ["a stranger"] * (AT_ONCE + 1)

    asyncio.run(scenario())
