"""An orchestration and its rules come from real contracts in a real EVM, all of one block."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.dialects.xrc729.read import STEPS_MAX
from anabranch.keccak import keccak256
from anabranch.work.chain import errors, loader
from anabranch.work.chain.authority import owners_and_executors
from anabranch.work.chain.contracts import ZERO_ADDRESS, call_data
from anabranch.work.chain.loader import ZERO_HASH, LoadedOrchestration, load_orchestration

from ..support import run
from .contracts import (
    dated_registry,
    fixed_answers,
    registry,
    returned,
    rule,
    switch,
    text,
)
from .node import QUICK, SENDER, Evm

RULE = '{"payload":{"n":{"type":"int64"}},"rules":["[n] > 0"]}'
OTHER = "0x" + 40 * "7"


@pytest.fixture(scope="module")
def evm() -> Evm:
    return Evm()


def orchestration(*rules: str, name: str = "orders") -> str:
    steps = {f"S{n}": {"rule": address} for n, address in enumerate(rules)}
    return json.dumps({"id": name, "structure": steps}, separators=(",", ":"))


def load(evm: Evm, where: str, name: str = "orders", **more: Any) -> LoadedOrchestration:
    async def loading() -> LoadedOrchestration:
        async with evm.served() as url:
            return await load_orchestration(url, where, name, options=QUICK, **more)

    evm.asked.clear()
    return run(loading())


def test_graph_and_rules_come_with_hashes_and_block(evm: Evm) -> None:
    first, second = evm.deploy(rule(RULE)), evm.deploy(rule('{"rules":[]}'))
    document = orchestration(first, second, "0x" + first[2:].upper())
    where = evm.deploy(registry({"orders": document}, owner=returned("address", SENDER)))
    loaded = load(evm, where)
    assert (loaded.registry, loaded.id, loaded.text) == (where, "orders", document)
    assert loaded.hash == "0x" + keccak256(document.encode()).hex()
    assert loaded.block == evm.block
    assert {address: found.text for address, found in loaded.rules.items()} == {
        first: RULE,
        second: '{"rules":[]}',
    }
    assert loaded.rules[first].hash == "0x" + keccak256(RULE.encode()).hex()
    assert loaded.rules[first].origin == f"chain@{evm.block}"
    assert (loaded.owner, loaded.executors, loaded.problems) == (SENDER, None, ())


def test_everything_is_read_at_one_block_even_when_the_chain_moves_on(evm: Evm) -> None:
    changing = evm.deploy(switch(RULE, '{"rules":["false"]}'))
    where = evm.deploy(registry({"orders": orchestration(changing)}))
    before = evm.block

    def meanwhile(method: str) -> None:
        if method == "eth_getCode":
            evm.send(changing, call_data("change()"))

    evm.before = meanwhile
    try:
        loaded = load(evm, where)
    finally:
        evm.before = lambda _method: None
    tags = {params[-1] for method, params in evm.asked if method in ("eth_call", "eth_getCode")}
    assert tags == {hex(before)}
    assert evm.block > before
    assert loaded.rules[changing].text == RULE
    assert load(evm, where).rules[changing].text == '{"rules":["false"]}'


def test_the_bundle_of_a_load_compiles_and_is_self_contained(evm: Evm) -> None:
    address = evm.deploy(rule(RULE))
    document = orchestration(address)
    where = evm.deploy(registry({"orders": document}))
    for pinned in (True, False):
        bundle = json.loads(text_of := load(evm, where, pin_rules=pinned).bundle())
        assert bundle["orchestration"]["text"] == document
        assert bundle["chain"]["ostcHash"] == "0x" + keccak256(document.encode()).hex()
        assert (bundle["chain"]["block"], bundle["chain"]["pinned"]) == (evm.block, pinned)
        assert [entry["text"] for entry in bundle["rules"].values()] == ([RULE] if pinned else [])
        compiled = compile_source(text_of)
        assert compiled.net is not None, compiled.problems
        assert compiled.net.dialect == "xrc729"


# -- hashes ------------------------------------------------------------------------------------


def test_a_pinned_hash_is_compared_and_zeros_pin_nothing(evm: Evm) -> None:
    document = orchestration(evm.deploy(rule(RULE)))
    where = evm.deploy(registry({"orders": document}))
    right = "0x" + keccak256(document.encode()).hex()
    assert load(evm, where, expect_hash=right).hash == right
    assert load(evm, where, expect_hash="0x" + right[2:].upper()).hash == right
    assert load(evm, where, expect_hash=ZERO_HASH).hash == right
    with pytest.raises(errors.HashMismatch, match="is pinned"):
        load(evm, where, expect_hash="0x" + 64 * "1")
    with pytest.raises(Exception, match="is no hash: write 0x and 64"):
        load(evm, where, expect_hash="0x12")


def test_the_registrys_own_hash_is_compared(evm: Evm) -> None:
    document = orchestration(evm.deploy(rule(RULE)))
    right = keccak256(document.encode())
    assert load(evm, evm.deploy(dated_registry("orders", document, right))).version == 3
    assert load(evm, evm.deploy(dated_registry("orders", document, bytes(32)))).version == 3
    wrong = evm.deploy(dated_registry("orders", document, b"\x01" * 32))
    with pytest.raises(errors.HashMismatch, match="the registry keeps the hash"):
        load(evm, wrong)


# -- what can be wrong -------------------------------------------------------------------------


def test_each_thing_that_can_be_wrong_with_a_registry_has_its_own_error(evm: Evm) -> None:
    where = evm.deploy(registry({"orders": orchestration()}))
    silent = evm.deploy(bytes.fromhex("600180600a3d393df300"))  # one STOP: answers nothing
    cases: list[tuple[str, str, type[errors.ChainError], str]] = [
        ("0x12", "orders", errors.BadAddress, "0x and 40 hexadecimal digits"),
        (OTHER, "orders", errors.NoContract, "no contract at"),
        (where, "absent", errors.UnknownOrchestration, "XRC729: not found"),
        (silent, "orders", errors.NotARegistry, "not an XRC-729 contract"),
    ]
    for address, name, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            load(evm, address, name)
        assert caught.value.code == kind.code != "chain"
        assert caught.value.hint
        assert not caught.value.retryable


@pytest.mark.parametrize(
    ("document", "kind", "words"),
    [
        (b"\xff{}", errors.BadDocument, "not UTF-8"),
        ("{", errors.BadDocument, "not JSON"),
        ('{"id":"a","id":"b"}', errors.BadDocument, "the key 'id' twice"),
        ('{"id":NaN}', errors.BadDocument, "holds NaN"),
        ('{"id":-Infinity}', errors.BadDocument, "holds -Infinity"),
    ],
)
def test_a_stored_text_that_is_no_clean_json_is_refused(
    evm: Evm, document: str | bytes, kind: type[errors.ChainError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        load(evm, evm.deploy(registry({"orders": document})))


def test_no_text_is_parsed_before_it_is_known_to_be_what_was_asked_for(evm: Evm) -> None:
    where = evm.deploy(registry({"orders": "{"}, owner=returned("address", OTHER)))
    with pytest.raises(errors.HashMismatch):
        load(evm, where, expect_hash="0x" + 64 * "1")
    with pytest.raises(errors.NotAllowed, match=f"nor executor of {where}"):
        load(evm, where, starter=SENDER, authority=owners_and_executors)
    broken = evm.deploy(rule("{", owner=returned("address", OTHER)))
    own = registry({"orders": orchestration(broken)}, owner=returned("address", SENDER))
    with pytest.raises(errors.NotAllowed, match=f"nor executor of {broken}"):
        load(evm, evm.deploy(own), starter=SENDER, authority=owners_and_executors)


def test_all_rules_that_cannot_be_used_are_named_at_once(evm: Evm) -> None:
    encrypted = evm.deploy(rule("XGR1.AESGCM256.aa.bb"))
    no_rule = evm.deploy(fixed_answers({b"": b""}))
    broken = evm.deploy(rule('{"rules":[],"rules":[]}'))
    where = evm.deploy(
        registry({"orders": orchestration(OTHER, encrypted, no_rule, broken, "cm:xrc137:Stock")})
    )
    with pytest.raises(errors.BadRules) as caught:
        load(evm, where)
    said = caught.value.message
    assert len(caught.value.problems) == 5
    for words in (
        f"the rule of S0: there is no contract at {OTHER}",
        f"the rule of S1: the rule at {encrypted} is encrypted; configure a decryptor",
        f"the rule of S2: the contract {no_rule} refused the call",
        f"the rule of S3: the rule at {broken} has the key 'rules' twice",
        "the rule of S4 is 'cm:xrc137:Stock', which is no address",
    ):
        assert words in said


def test_more_rules_than_an_orchestration_has_steps_are_not_asked_for(evm: Evm) -> None:
    named = [f"0x{number:040x}" for number in range(1, STEPS_MAX + 2)]
    where = evm.deploy(registry({"orders": orchestration(*named)}))
    with pytest.raises(
        errors.DocumentTooLarge, match="names 129 rule contracts, more than the 128"
    ):
        load(evm, where)
    asked = [params[0] for method, params in evm.asked if method == "eth_getCode"]
    assert asked == [where], "no rule was looked at"


def test_the_rules_of_one_orchestration_have_so_many_bytes_together(
    evm: Evm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "RULES_BYTES_MAX", 3 * len(RULE))
    monkeypatch.setattr(loader, "_AT_ONCE", 1)
    rules = [evm.deploy(rule(RULE)) for _ in range(8)]
    where = evm.deploy(registry({"orders": orchestration(*rules[:3])}))
    assert len(load(evm, where).rules) == 3
    where = evm.deploy(registry({"orders": orchestration(*rules)}))
    with pytest.raises(errors.DocumentTooLarge, match=f"more than {3 * len(RULE)} bytes"):
        load(evm, where)
    asked = {params[0] for method, params in evm.asked if method == "eth_getCode"} - {where}
    assert len(asked) <= 5, "the rest is not read"
    monkeypatch.setattr(loader, "RULE_BYTES_MAX", 1)  # each is refused, once it is read
    with pytest.raises(errors.DocumentTooLarge, match="bytes together"):
        load(evm, where)


def test_an_encrypted_rule_is_taken_as_it_is_when_somebody_can_open_it(evm: Evm) -> None:
    encrypted = evm.deploy(rule("XGR1.AESGCM256.aa.bb"))
    where = evm.deploy(registry({"orders": orchestration(encrypted)}))
    loaded = load(evm, where, encrypted_rules=True)
    assert loaded.rules[encrypted].text == "XGR1.AESGCM256.aa.bb"


def test_another_id_inside_the_document_is_worth_a_warning(evm: Evm) -> None:
    where = evm.deploy(registry({"orders": orchestration(name="invoices")}))
    (problem,) = load(evm, where).problems
    assert (problem.code, problem.severity) == ("other-id", "warning")


# -- authority ---------------------------------------------------------------------------------

OWNED: dict[str, Callable[[], dict[str, bytes]]] = {
    "owner": lambda: {"owner": returned("address", SENDER)},
    "old getter": lambda: {"getOwner": returned("address", SENDER)},
    "executor": lambda: {
        "owner": returned("address", OTHER),
        "getExecutorList": returned("address[]", [OTHER, SENDER]),
    },
    "everyone": lambda: {"getExecutorList": returned("address[]", [ZERO_ADDRESS])},
}


@pytest.mark.parametrize("how", OWNED)
def test_owner_executors_and_with_the_zero_address_everyone_may_start(evm: Evm, how: str) -> None:
    used = evm.deploy(rule(RULE, **OWNED[how]()))
    where = evm.deploy(registry({"orders": orchestration(used)}, **OWNED[how]()))
    who = "0x" + SENDER[2:].upper()
    loaded = load(evm, where, starter=who, authority=owners_and_executors)
    assert list(loaded.rules) == [used]
    if how != "everyone":
        with pytest.raises(errors.NotAllowed, match=f"nor executor of {where}"):
            load(evm, where, starter="0x" + 40 * "9", authority=owners_and_executors)


def test_each_rule_has_to_allow_the_starter_too(evm: Evm) -> None:
    used = evm.deploy(rule(RULE, owner=returned("address", OTHER)))
    where = evm.deploy(registry({"orders": orchestration(used)}, **OWNED["owner"]()))
    assert load(evm, where, starter=SENDER).owner == SENDER  # by default nobody is asked
    with pytest.raises(errors.NotAllowed, match=f"nor executor of {used}"):
        load(evm, where, starter=SENDER, authority=owners_and_executors)


def test_the_largest_contract_there_can_be_is_read_whole(evm: Evm) -> None:
    filler = "x" * 23_000
    document = json.dumps({"id": "orders", "structure": {}, "meta": filler})
    assert load(evm, evm.deploy(registry({"orders": document}))).text == document
    assert len(text(document)) > 23_000
