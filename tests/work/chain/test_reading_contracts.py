"""Rules and values are read from contracts in a real EVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from anabranch.keccak import keccak256
from anabranch.work.chain.contracts import call_data
from anabranch.work.chain.evm import Endpoints, EvmChain
from anabranch.work.network.addresses import read_policy
from anabranch.work.rule.ports import BadAbi, ReadFailed, RuleText, RuleUnavailable

from ..support import run
from .contracts import fixed_answers, returned, rule, switch
from .node import QUICK, Evm

HOLDER = "0x" + 40 * "5"
NOBODY = "0x" + 40 * "7"
BIG = 2**200 + 1


@pytest.fixture(scope="module")
def evm() -> Evm:
    return Evm()


@pytest.fixture(scope="module")
def token(evm: Evm) -> str:
    return evm.deploy(
        fixed_answers(
            {
                call_data("balanceOf(address)", [HOLDER]): returned("uint256", BIG),
                call_data("pair()"): returned("int256,string,address", -7, "grün", HOLDER),
                call_data("many()"): returned("uint256[],(bool,bytes)", [1, 2], [True, "0xabcd"]),
                call_data("short()"): returned("uint256", 5),
                call_data("empty()"): b"",
            },
            "token: who?",
        )
    )


def read(
    evm: Evm,
    to: str,
    function: str,
    args: Sequence[Any] = (),
    saved: Mapping[int, str] | None = None,
    *,
    rpc: str | None = None,
    named: bool = False,
    any_url: bool = False,
    addresses: str = "any",
) -> list[Any]:
    async def reading() -> list[Any]:
        async with evm.served() as url:
            names = {"other": url} if named else {}
            policy = read_policy(addresses, "rule_addresses")
            nodes = Endpoints(url, names, any_url=any_url, options=QUICK, addresses=policy)
            chain = EvmChain(nodes)
            try:
                return await chain.read(
                    to=to,
                    function=function,
                    args=args,
                    saved_types=saved or {},
                    rpc=url if rpc == "URL" else rpc,
                )
            finally:
                await chain.close()

    return run(reading())


@pytest.mark.parametrize(
    ("function", "saved"),
    [
        ("balanceOf(address)(uint256)", {}),
        ("balanceOf(address) returns (uint256)", {}),
        ("balanceOf(address)", {0: "uint256"}),
        ("balanceOf(address)", {0: "uint64"}),  # too wide for its slot: the cast will say so
        ("balanceOf(address)", {0: "decimal"}),
    ],
)
def test_all_styles_of_signatures_read_the_same(
    evm: Evm, token: str, function: str, saved: dict[int, str]
) -> None:
    assert read(evm, token, function, [HOLDER], saved) == [BIG]


def test_several_values_come_in_order_as_plain_values(evm: Evm, token: str) -> None:
    assert read(evm, token, "pair()(int256,string,address)") == [-7, "grün", HOLDER]
    assert read(evm, token, "many()(uint256[],(bool,bytes))") == [[1, 2], [True, "0xabcd"]]


def test_saved_types_say_how_to_decode_and_gaps_are_left_out(evm: Evm, token: str) -> None:
    assert read(evm, token, "pair()", [], {0: "int64", 2: "address"}) == [-7, None, HOLDER]
    assert read(evm, token, "pair()", [], {1: "string"}) == [None, "grün"]
    assert read(evm, token, "pair()") == []


def test_a_slot_that_is_not_there_spoils_only_itself(evm: Evm, token: str) -> None:
    assert read(evm, token, "short()(uint256,uint256)") == [5, None]
    assert read(evm, token, "pair()(int256,uint8,bool)") == [-7, 96, None]


def test_a_read_that_gives_nothing_fails_softly(evm: Evm, token: str) -> None:
    with pytest.raises(ReadFailed, match="refused the call: token: who"):
        read(evm, token, "balanceOf(address)(uint256)", [NOBODY])
    with pytest.raises(ReadFailed, match="nothing came back; is there a contract"):
        read(evm, NOBODY, "balanceOf(address)(uint256)", [HOLDER])
    with pytest.raises(ReadFailed, match="nothing came back"):
        read(evm, token, "empty()(uint256)")
    with pytest.raises(ReadFailed, match="value 0 points behind the end"):
        read(evm, token, "short()(string)")


def test_a_signature_or_argument_that_cannot_be_is_a_hard_error(evm: Evm, token: str) -> None:
    with pytest.raises(BadAbi, match="cannot be read"):
        read(evm, token, "balanceOf")
    with pytest.raises(BadAbi, match=r"argument 0 \(address\) cannot be 'me'"):
        read(evm, token, "balanceOf(address)(uint256)", ["me"])
    with pytest.raises(BadAbi, match="that is no address"):
        read(evm, "token", "balanceOf(address)(uint256)", [HOLDER])
    with pytest.raises(BadAbi, match="is no type a value can be saved as"):
        read(evm, token, "short()", [], {0: "money"})
    with pytest.raises(BadAbi, match="cannot save value 64"):
        read(evm, token, "short()", [], {64: "uint256"})


def test_other_nodes_are_named_or_allowed_by_a_setting(evm: Evm, token: str) -> None:
    assert read(evm, token, "short()(uint256)", rpc="other", named=True) == [5]
    assert read(evm, token, "short()(uint256)", rpc="URL", any_url=True) == [5]
    with pytest.raises(ReadFailed, match=r"'elsewhere' is not known; .* has other"):
        read(evm, token, "short()(uint256)", rpc="elsewhere", named=True)
    with pytest.raises(ReadFailed, match="setting chain_rule_urls"):
        read(evm, token, "short()(uint256)", rpc="URL")
    with pytest.raises(ReadFailed, match="http:// or https://"):
        read(evm, token, "short()(uint256)", rpc="ftp://user:secret@host", any_url=True)


def test_a_node_that_a_rule_names_obeys_the_policy_and_those_of_the_settings_do_not(
    evm: Evm, token: str
) -> None:
    function, public = "short()(uint256)", "public"
    assert read(evm, token, function, addresses=public) == [5]
    assert read(evm, token, function, rpc="other", named=True, addresses=public) == [5]
    with pytest.raises(ReadFailed, match=r"not a public address \(setting rule_addresses\)"):
        read(evm, token, function, rpc="URL", any_url=True, addresses=public)


# -- rules -------------------------------------------------------------------------------------


def fetch(evm: Evm, address: str, pins: Mapping[str, str] | None = None) -> RuleText:
    async def fetching() -> RuleText:
        async with evm.served() as url:
            chain = EvmChain(Endpoints(url, options=QUICK), pins=pins)
            try:
                return await chain.rule(address)
            finally:
                await chain.close()

    return run(fetching())


def test_a_rule_is_fetched_as_it_stands_now_with_its_hash(evm: Evm) -> None:
    first, second = '{"rules":[]}', '{"rules":["true"]}'
    address = evm.deploy(switch(first, second))
    found = fetch(evm, address)
    pins = {"0x" + address[2:].upper(): found.hash}
    assert found == RuleText(first, "0x" + keccak256(first.encode()).hex(), f"chain@{evm.block}")
    assert fetch(evm, address, pins) == found
    evm.send(address, call_data("change()"))
    assert fetch(evm, address).text == second
    with pytest.raises(RuleUnavailable, match="has changed") as caught:
        fetch(evm, address, pins)
    assert not caught.value.retryable


def test_a_rule_that_cannot_be_had_says_why(evm: Evm) -> None:
    with pytest.raises(RuleUnavailable, match=r"getRule\(\) answers nothing"):
        fetch(evm, NOBODY)
    with pytest.raises(RuleUnavailable, match="is no address"):
        fetch(evm, "Stock")
    with pytest.raises(RuleUnavailable, match="not UTF-8"):
        fetch(evm, evm.deploy(rule(b"\xff")))


def test_an_encrypted_rule_is_handed_on_as_it_is(evm: Evm) -> None:
    assert fetch(evm, evm.deploy(rule("XGR1.AESGCM256.a.b"))).text == "XGR1.AESGCM256.a.b"
