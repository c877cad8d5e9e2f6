"""What starts by JSON-RPC have loaded: one at a time for a signer, and a share for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.surfaces.http import rpc
from anabranch.surfaces.http.guard import shares

from .permits import ANN, BOB, CHAIN, Wallet
from .support import run
from .test_rpc import HASH, SLEEPER, calling

REGISTRY = "0x" + "aa" * 20


class Loads:
    """In place of the chain: loads wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starters: list[str] = []
        self.at_once = self.most = 0
        self.go = asyncio.Event()
        monkeypatch.setattr(rpc.Chain, "load", self._load)

    async def _load(self, _registry: str, _ostc: str, _hash: str, starter: str) -> Any:
        self.starters.append(starter)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.go.wait()
        finally:
            self.at_once -= 1
        return SLEEPER

    async def begun(self, count: int) -> None:
        while len(self.starters) < count:
            await asyncio.sleep(0.005)


def start(who: Wallet) -> dict[str, Any]:
    message = {"ostcId": "orders", "ostcHash": HASH, "sessionId": 1, "maxTotalGas": 0}
    permit = who.sign("SessionPermit", message, chainId=CHAIN)
    return {"orchestration": REGISTRY, "stepId": "A1", "payload": {}, "permit": permit}


def test_a_permit_that_is_sent_again_loads_nothing_while_its_start_is_in_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def go() -> None:
        loads = Loads(monkeypatch)
        async with calling() as at:
            first = asyncio.ensure_future(at.ok("validateDataTransfer", start(ANN)))
            await loads.begun(1)
            for _ in range(5):
                refused = await at.refused("validateDataTransfer", start(ANN))
                assert refused[0] == "start_in_hand"
                assert ANN.address in refused[1]
            other = asyncio.ensure_future(at.ok("validateDataTransfer", start(BOB)))
            await loads.begun(2)
            loads.go.set()
            assert (await first)["processId"] == (await other)["processId"] == "1:1"
            assert loads.starters == [ANN.address, BOB.address]
            again = await at.refused("validateDataTransfer", start(ANN))
            assert again[0] == "permit_nonce", "the number is taken, and nothing is in hand"

    run(go())


def test_many_signers_load_a_few_at_once_and_keep_nobody_from_other_methods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shares, "IN_LINE", 2)

    async def go() -> None:
        loads = Loads(monkeypatch)
        async with calling(checks_per_token_max=2) as at:
            signers = [Wallet(f"0x{number:064x}") for number in range(1000, 1009)]
            asked = []
            for number, who in enumerate(signers, 1):  # two at once, four in line
                call = asyncio.ensure_future(at.call("validateDataTransfer", start(who)))
                asked.append(call)
                while not call.done() and at.door.server.shares.count("", "loads") < number:
                    await asyncio.sleep(0.005)
            told = await at.ok("listGrants", {"permit": ANN.sign("xdalaPermit", {})})
            assert told["items"] == [], "who loads nothing does not wait behind those who do"
            loads.go.set()
            codes = [one["error"]["data"]["code"] for one in await asyncio.gather(*asked)
                     if "error" in one]  # fmt: skip
            assert codes == ["too_many_at_once"] * 3
            assert (loads.most, len(loads.starters)) == (2, 6)

    run(go())
