"""The whole way: loaded from a registry, run by an engine, read from and sent to a real EVM."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.app import RunResult
from anabranch.settings import Settings
from anabranch.work.chain.loader import load_orchestration

from ..support import run
from .contracts import registry, rule, switch, vault
from .node import KEY, QUICK, Evm


def world(evm: Evm) -> str:
    """A registry with `orders`: A puts a number into a vault, B reads it, C hears of a refusal."""
    to = evm.deploy(vault())
    put = {
        "payload": {"n": {"type": "uint256"}},
        "rules": [],
        "onValid": {
            "execution": {
                "to": to,
                "function": "set(uint256)",
                "args": [{"type": "uint256", "value": "[n]"}],
                "gas": {"limit": 100_000},
            }
        },
        "onInvalid": {"payload": {"refused": True}},
    }
    look = {
        "payload": {},
        "contractReads": [
            {"to": to, "function": "get()", "saveAs": {"0": {"key": "kept", "type": "uint256"}}}
        ],
        "rules": [],
    }
    a = evm.deploy(rule(json.dumps(put)))
    b = evm.deploy(rule(json.dumps(look)))
    c = evm.deploy(rule('{"payload":{},"rules":[]}'))
    steps = {
        "A": {"rule": a, "onValid": {"spawns": ["B"]}, "onInvalid": {"spawns": ["C"]}},
        "B": {"rule": b},
        "C": {"rule": c},
    }
    document = json.dumps({"id": "orders", "structure": steps})
    return evm.deploy(registry({"orders": document}))


def settings(url: str, folder: Path, execution: Any) -> Settings:
    key = folder / "key"
    key.write_text(KEY)
    return Settings(
        store=str(folder / "runs.db"),
        chain_url=url,
        chain_execution=execution,
        chain_signer_key_file=str(key),
    )


def outcome(
    evm: Evm, folder: Path, n: int, execution: str = "send", where: str = "", **more: Any
) -> RunResult:
    where = where or world(evm)

    async def whole() -> RunResult:
        async with evm.served() as url:
            loaded = await load_orchestration(url, where, "orders", options=QUICK, **more)
            async with anabranch.Engine(settings=settings(url, folder, execution)) as engine:
                return await engine.wait(await engine.start(loaded.bundle(), {"n": n}))

    return run(whole())


def results(result: RunResult) -> dict[str, Any]:
    assert result.status == "completed", result.problem
    return {name: step["result"] for name, step in result.steps.items()}


@pytest.mark.parametrize("pinned", [True, False])
def test_what_one_step_sends_the_next_one_reads(tmp_path: Path, pinned: bool) -> None:
    result = outcome(Evm(), tmp_path, 6, pin_rules=pinned)
    assert results(result) == {"A": {}, "B": {"kept": "6"}}


def test_a_call_that_reverts_makes_the_step_invalid(tmp_path: Path) -> None:
    evm = Evm()
    assert results(outcome(evm, tmp_path, 7)) == {"A": {"refused": True}, "C": {}}
    assert evm.methods().count("eth_sendRawTransaction") == 1


def test_a_simulated_revert_does_too_and_nothing_is_sent(tmp_path: Path) -> None:
    evm = Evm()
    assert results(outcome(evm, tmp_path, 7, "simulate")) == {"A": {"refused": True}, "C": {}}
    assert results(outcome(evm, tmp_path, 6, "simulate")) == {"A": {}, "B": {"kept": "0"}}
    assert "eth_sendRawTransaction" not in evm.methods()


def test_a_recorded_call_changes_nothing(tmp_path: Path) -> None:
    evm = Evm()
    assert results(outcome(evm, tmp_path, 7, "record")) == {"A": {}, "B": {"kept": "0"}}
    assert "eth_sendRawTransaction" not in evm.methods()


@pytest.mark.parametrize(("pinned", "said"), [(True, "old"), (False, "new")])
def test_a_rule_that_changes_meanwhile_counts_unless_it_is_pinned(
    tmp_path: Path, pinned: bool, said: str
) -> None:
    """The first step itself changes the rule of the second."""
    evm = Evm()
    texts = [
        json.dumps({"payload": {}, "rules": [], "onValid": {"payload": {"said": word}}})
        for word in ("old", "new")
    ]
    second = evm.deploy(switch(*texts))
    change = {"execution": {"to": second, "function": "change()"}}
    first = evm.deploy(rule(json.dumps({"payload": {}, "rules": [], "onValid": change})))
    steps = {"A": {"rule": first, "onValid": {"spawns": ["B"]}}, "B": {"rule": second}}
    document = json.dumps({"id": "orders", "structure": steps})
    where = evm.deploy(registry({"orders": document}))
    result = outcome(evm, tmp_path, 0, where=where, pin_rules=pinned)
    assert results(result)["B"] == {"said": said}


def test_an_engine_that_dies_while_waiting_sends_no_second_transaction(tmp_path: Path) -> None:
    evm = Evm()
    where = world(evm)
    evm.tester.disable_auto_mine_transactions()
    sent = asyncio.Event()
    evm.before = lambda method: sent.set() if method == "eth_sendRawTransaction" else None

    async def whole() -> RunResult:
        async with evm.served() as url:
            loaded = await load_orchestration(url, where, "orders", options=QUICK)
            given = replace(settings(url, tmp_path, "send"), grace_seconds=0)
            async with anabranch.Engine(settings=given) as engine:
                session = await engine.start(loaded.bundle(), {"n": 6})
                await sent.wait()
            evm.tester.enable_auto_mine_transactions()
            async with anabranch.Engine(settings=given) as engine:
                return await engine.wait(session)

    assert results(run(whole())) == {"A": {}, "B": {"kept": "6"}}
    raws = {params[0] for method, params in evm.asked if method == "eth_sendRawTransaction"}
    assert len(raws) == 1
