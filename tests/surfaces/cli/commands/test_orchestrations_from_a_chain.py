"""`run --registry`: the orchestration and its rules come from contracts of a real EVM."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from anabranch.dialects.xrc729.bundle import hash_of
from anabranch.errors import AnabranchError
from anabranch.settings import Settings
from anabranch.surfaces.cli import parser
from anabranch.surfaces.cli.commands.inspect import inspect, registries
from anabranch.surfaces.cli.commands.run import run
from anabranch.work.chain.errors import NodeUnreachable
from hangs import HANG_SECONDS
from work.chain.contracts import registry, returned
from work.chain.contracts import rule as rule_contract
from work.chain.node import Evm
from work.support import server

from ..support import Here

VERBS = {"registry": registries.registry, "check": inspect.check, "graph": inspect.graph}
RULE = '{"payload":{"n":{"type":"int64"}},"onValid":{"payload":{"n":"[n] + 1"}}}'


@pytest.fixture(scope="module")
def evm() -> Evm:
    return Evm()


def deployed(evm: Evm) -> tuple[str, str]:
    """The registry, and the text it keeps under `orders`."""
    contract = evm.deploy(rule_contract(RULE))
    steps = {"A1": {"rule": contract, "onValid": {"spawns": ["B1"]}}, "B1": {"rule": contract}}
    text = json.dumps({"id": "orders", "structure": steps}, separators=(",", ":"))
    return evm.deploy(registry({"orders": text})), text


def run_here(here: Here, evm: Evm, *words: str) -> int:
    async def whole() -> int:
        async with evm.served() as url:
            given = ["run", *words, "--rpc", url, "--json", "--input", "n=1"]
            options = parser.build().parse_args(given)
            settings = Settings(store=str(here.store), chain_url=url)
            return await run.run(options, settings)

    return asyncio.run(whole())


@pytest.mark.parametrize("pinned", [True, False])
def test_a_session_runs_from_contracts(
    here: Here, evm: Evm, pinned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    where, text = deployed(evm)
    flags = ["--pin-rules"] if pinned else []
    code = run_here(
        here, evm, "--registry", where, "--ostc", "orders", "--hash", hash_of(text), *flags
    )
    assert code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"]["B1"]["result"] == {"n": 3}
    receipts = here.ok("session", "receipts", "last", "--json").json
    assert [one["ruleHash"] for one in receipts] == [hash_of(RULE)] * 2
    assert {one["orchestration"] for one in receipts} == {where}
    assert {one["ostcHash"] for one in receipts} == {hash_of(text)}


def test_a_load_waits_for_a_node_no_longer_than_the_setting_says(here: Here) -> None:
    async def silent(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    async def whole() -> None:
        async with server(silent) as url:
            words = ["run", "--registry", "0x" + "1" * 40, "--ostc", "orders", "--rpc", url]
            given = Settings(store=str(here.store), chain_url=url, chain_timeout_seconds=0.05)
            await run.run(parser.build().parse_args(words), given)

    with pytest.raises(NodeUnreachable, match=r"no complete answer within 0\.05 s"):
        asyncio.run(asyncio.wait_for(whole(), HANG_SECONDS))


def test_another_text_than_the_pinned_one_starts_nothing(here: Here, evm: Evm) -> None:
    where, _ = deployed(evm)
    with pytest.raises(AnabranchError):
        run_here(here, evm, "--registry", where, "--ostc", "orders", "--hash", "0x" + "1" * 64)
    with pytest.raises(AnabranchError):
        run_here(here, evm, "--registry", where, "--ostc", "other")
    assert not here.store.exists()


def looked_at(here: Here, evm: Evm, *words: str) -> int:
    async def whole() -> int:
        async with evm.served() as url:
            options = parser.build().parse_args([*words, "--rpc", url])
            settings = Settings(store=str(here.store), chain_url=url)
            return await VERBS[words[0]](options, settings)

    return asyncio.run(whole())


def kept_by(evm: Evm) -> tuple[str, str]:
    """A registry with a good orchestration (whose text it is) and one with a rule that cannot be
    read."""
    _, text = deployed(evm)
    rule = evm.deploy(rule_contract('{"payload":{},"rules":["1 +"]}'))
    broken = json.dumps({"id": "broken", "structure": {"A1": {"rule": rule}}})
    who = "0x" + "ab" * 20
    where = evm.deploy(
        registry(
            {"orders": text, "broken": broken},
            getAllOSTC=returned("string[]", ["orders", "broken"]),
            owner=returned("address", who),
            getExecutorList=returned("address[]", [who]),
        )
    )
    return where, text


def test_a_registry_is_listed_checked_and_drawn(
    here: Here, evm: Evm, capsys: pytest.CaptureFixture[str]
) -> None:
    where, text = kept_by(evm)
    assert looked_at(here, evm, "registry", where) == 0
    told = capsys.readouterr().out
    assert f"owner: 0x{'ab' * 20}" in told
    assert "orders" in told
    assert "broken" in told
    assert hash_of(text) in told, "taken of the text where the registry keeps none"
    assert looked_at(here, evm, "check", "--registry", where) == 2, "all of them are looked at"
    assert "bad-expression" in capsys.readouterr().out
    assert looked_at(here, evm, "check", "--registry", where, "--ostc", "orders") == 0
    capsys.readouterr()
    assert looked_at(here, evm, "graph", "--registry", where, "--ostc", "orders") == 0
    assert "A1" in capsys.readouterr().out
    assert looked_at(here, evm, "check", "--registry", where, "--ostc", "gone") == 2
    assert "cannot-load" in capsys.readouterr().out
