"""Work that reads and keeps large values waits for a shared store that is away, and does not fail;
on a store of its own an engine says at once what is wrong."""

from __future__ import annotations

from typing import Any, cast

import pytest

from anabranch.errors import StoreError
from anabranch.runtime import outage
from anabranch.runtime.nets import Nets
from anabranch.runtime.values.read_rights import ReadRights, RunPayloads
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from runtime.support import run


class AwayStore(MemoryStore):
    """Every second call finds the server away."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.calls = 0
        if shared:
            self.cluster = cast(Any, object())

    def _reach(self) -> None:
        self.calls += 1
        if self.calls % 2:
            raise StoreError("the connection is lost", code="store_away")

    def payload(self, sha256: str) -> bytes | None:
        self._reach()
        return super().payload(sha256)

    def put_payload(self, sha256: str, content: bytes, hold: Any = None) -> None:
        self._reach()
        super().put_payload(sha256, content, hold)


def payloads_of(store: Store) -> RunPayloads:
    nets = Nets(store, lambda _definition: cast(Any, None))
    return RunPayloads(store, ReadRights(store, nets, lambda _pool: False))


def test_payloads_are_waited_for_on_a_shared_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "AGAIN_SECONDS", 0.0)
    store = AwayStore(shared=True)

    async def work() -> None:
        kept = payloads_of(store)
        key = await kept.put(b"much")
        assert await kept.get(key) == b"much"

    run(work())
    assert store.calls == 4


def test_payloads_are_refused_at_once_on_a_store_of_ones_own() -> None:
    store = AwayStore(shared=False)

    async def work() -> None:
        with pytest.raises(StoreError):
            await payloads_of(store).put(b"much")

    run(work())
    assert store.calls == 1
