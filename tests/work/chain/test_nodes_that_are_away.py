"""A node that is away, or of another chain, puts a step off; it ends nothing and sends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import anabranch
from anabranch.app import RunResult
from anabranch.settings import Settings
from anabranch.work.chain.executor import DryRun, ExecutorOptions, SigningExecutor
from anabranch.work.chain.loader import load_orchestration
from anabranch.work.chain.rpc import JsonRpc
from anabranch.work.chain.sent import SentInMemory
from anabranch.work.chain.signer import LocalSigner
from anabranch.work.rule.ports import ContractCall, ExecutorUnavailable

from ..support import run, server
from .contracts import registry, rule, vault
from .node import KEY, QUICK, Evm

OTHER = 61


class Node:
    """An EVM whose node goes away, and whose address may lead to another chain."""

    def __init__(self) -> None:
        self.evm = Evm()
        self.away = False
        self.refuses = ""  # a method that is not answered
        self.own = self.evm.eth_chainId()

    def moves_to(self, chain: int | None) -> None:
        found = self.own if chain is None else hex(chain)
        self.evm.eth_chainId = lambda: found  # type: ignore[method-assign]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            question = await request.json()
            if self.away or question["method"] == self.refuses:
                return web.Response(status=503)
            return web.json_response(self.evm.answer(question))

        async with server(handle) as url:
            yield url


def session_of(evm: Evm) -> tuple[str, str]:
    """A registry with `orders`, whose one step puts 6 into a vault; and that vault."""
    to = evm.deploy(vault())
    put = {
        "payload": {},
        "rules": [],
        "onValid": {
            "payload": {"put": True},
            "execution": {
                "to": to,
                "function": "set(uint256)",
                "args": [{"type": "uint256", "value": "6"}],
                "gas": {"limit": 100_000},
            },
        },
    }
    contract = evm.deploy(rule(json.dumps(put)))
    text = json.dumps({"id": "orders", "structure": {"A": {"rule": contract}}})
    return evm.deploy(registry({"orders": text})), text


def settings(url: str, folder: Path, **more: Any) -> Settings:
    key = folder / "key"
    key.write_text(KEY)
    return Settings(
        store=str(folder / "runs.db"),
        chain_url=url,
        chain_execution="send",
        chain_signer_key_file=str(key),
        grace_seconds=0,
        **more,
    )


async def put_off(engine: anabranch.Engine, session: str, words: str) -> dict[str, Any]:
    """What `explain` says, as soon as it has these words."""
    while True:
        for one in engine.read.explain(session)["waiting"]:
            if "put off" in one["waits_for"] and words in one["waits_for"]:
                return dict(one)
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["", "eth_getTransactionCount", "eth_getTransactionReceipt"])
def test_a_step_waits_for_a_node_that_is_away_and_goes_on_when_it_is_back(
    tmp_path: Path, moment: str
) -> None:
    node = Node()
    where, _ = session_of(node.evm)

    async def whole() -> tuple[dict[str, Any], RunResult]:
        async with node.served() as url:
            loaded = await load_orchestration(url, where, "orders", options=QUICK)
            node.away, node.refuses = not moment, moment
            given = settings(url, tmp_path, chain_receipt_seconds=1.5)
            async with anabranch.Engine(settings=given) as engine:
                session = await engine.start(loaded.bundle())
                told = await put_off(engine, session, "HTTP status 503")
                assert engine.read.explain(session)["status"] == "running"
                node.away, node.refuses = False, ""
                return told, await engine.wait(session)

    told, result = run(whole())
    assert told["until"] > told["since"]
    assert told["movers"][0] == "time"
    assert result.steps["A"]["result"] == {"put": True}
    raws = {params[0] for name, params in node.evm.asked if name == "eth_sendRawTransaction"}
    assert len(raws) == 1


def test_without_patience_the_step_is_aborted_and_names_the_setting(tmp_path: Path) -> None:
    node = Node()
    where, _ = session_of(node.evm)

    async def whole() -> list[dict[str, Any]]:
        async with node.served() as url:
            loaded = await load_orchestration(url, where, "orders", options=QUICK)
            node.away = True
            given = settings(url, tmp_path, chain_patience_seconds=0)
            async with anabranch.Engine(settings=given) as engine:
                session = await engine.start(loaded.bundle())
                await engine.wait(session)
                return engine.sessions.receipts(session)

    (receipt,) = run(whole())
    assert receipt["error_class"] == "rule_unavailable"
    assert "HTTP status 503" in receipt["error_msg"]
    assert "chain_patience_seconds" in receipt["error_msg"]


@pytest.mark.slow
def test_a_session_that_is_resumed_at_a_node_of_another_chain_waits_for_its_own(
    tmp_path: Path,
) -> None:
    node = Node()
    where, _ = session_of(node.evm)

    async def whole() -> tuple[str, list[str], RunResult]:
        async with node.served() as url:
            loaded = await load_orchestration(url, where, "orders", options=QUICK)
            node.away = True
            async with anabranch.Engine(settings=settings(url, tmp_path)) as engine:
                session = await engine.start(loaded.bundle())
                await put_off(engine, session, "HTTP status 503")
            node.away = False
            node.moves_to(OTHER)
            node.evm.asked.clear()
            async with anabranch.Engine(settings=settings(url, tmp_path)) as engine:
                told = await put_off(engine, session, f"chain {OTHER}")
                asked = node.evm.methods()
                node.moves_to(None)
                return told["waits_for"], asked, await engine.wait(session)

    words, asked, result = run(whole())
    assert str(int(node.own, 16)) in words
    assert set(asked) == {"eth_chainId"}, "nothing else is asked of a node of another chain"
    assert result.steps["A"]["result"] == {"put": True}


@pytest.mark.slow
def test_a_session_from_a_file_belongs_to_the_chain_that_it_first_used(tmp_path: Path) -> None:
    node = Node()
    contract = node.evm.deploy(rule('{"payload":{},"rules":[],"onValid":{"waitSec":1}}'))
    text = json.dumps(
        {
            "id": "two",
            "structure": {
                "A": {"rule": contract, "onValid": {"spawns": ["B"]}},
                "B": {"rule": contract},
            },
        }
    )

    async def whole() -> RunResult:
        async with node.served() as url:
            async with anabranch.Engine(settings=settings(url, tmp_path)) as engine:
                session = await engine.start(text)
                while engine.sessions.step_executed(session, 1) is not True:
                    await asyncio.sleep(0.01)
            node.moves_to(OTHER)
            async with anabranch.Engine(settings=settings(url, tmp_path)) as engine:
                await put_off(engine, session, f"chain {OTHER}")
                node.moves_to(None)
                return await engine.wait(session)

    assert run(whole()).status == "completed"


# -- before every send ---------------------------------------------------------------------------


def call(to: str, chain: int = 0) -> ContractCall:
    return ContractCall(to, "set(uint256)", (6,), 0, 100_000, "s1:1", chain)


@pytest.mark.parametrize("moment", ["eth_chainId", "eth_getTransactionCount"])
@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_sent_to_a_node_that_changed_its_chain(moment: str, known: bool) -> None:
    """At the beginning, or between two questions."""
    node = Node()
    to = node.evm.deploy(vault())
    chain = int(node.own, 16) if known else 0
    sent = SentInMemory()

    async def whole() -> None:
        async with node.served() as url:
            rpc = JsonRpc(url, QUICK)
            executor = SigningExecutor(
                rpc, LocalSigner(KEY), sent, ExecutorOptions(poll_seconds=0.01)
            )
            first = ContractCall(to, "set(uint256)", (4,), 0, 100_000, "s1:0", chain)
            assert (await executor.execute(first)).chain_id == int(node.own, 16)
            node.evm.asked.clear()
            if moment == "eth_chainId":
                node.moves_to(OTHER)
            node.evm.before = lambda method: node.moves_to(OTHER) if method == moment else None
            with pytest.raises(ExecutorUnavailable, match=f"of chain {OTHER}") as caught:
                await executor.execute(call(to, chain))
            assert caught.value.retryable
            assert "eth_sendRawTransaction" not in node.evm.methods()
            node.evm.before = lambda _method: None
            node.moves_to(None)
            assert (await executor.execute(call(to, chain))).ok
            await rpc.close()

    run(whole())
    assert node.evm.methods().count("eth_sendRawTransaction") == 1


def test_a_call_is_not_simulated_on_another_chain() -> None:
    node = Node()
    to = node.evm.deploy(vault())

    async def whole() -> None:
        async with node.served() as url:
            rpc = JsonRpc(url, QUICK)
            with pytest.raises(ExecutorUnavailable, match="belongs to chain 61"):
                await DryRun(rpc).execute(call(to, OTHER))
            await rpc.close()

    run(whole())
    assert "eth_call" not in node.evm.methods()
