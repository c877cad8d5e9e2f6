"""Keccak-256 gives the values that the chain gives, with and without the fast package."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import pytest

from anabranch.keccak import keccak256, keccak256_pure

Hash = Callable[[bytes], bytes]
BOTH = [pytest.param(keccak256, id="chosen"), pytest.param(keccak256_pure, id="pure")]

SELECTORS = {
    "getOSTC(string)": "9335a4d1",
    "hasOSTC(string)": "6de2fa4a",
    "getAllOSTC()": "ff283c24",
    "getOSTCMeta(string)": "3d9b1fcf",
    "owner()": "8da5cb5b",
    "getExecutorList()": "b6a0a31a",
    "isExecutor(address)": "debfda30",
    "getNameXRC()": "dd87493b",
    "nameXRC()": "e4cff5fd",
    "schemaVersion()": "4e2ce6d3",
    "setOSTC(string,string)": "8153529d",
    "deleteOSTC(string)": "a3df531a",
    "addExecutor(address)": "1f5a0bbe",
    "removeExecutor(address)": "24788429",
    "transferOwnership(address)": "f2fde38b",
    "getRule()": "b78ba7c8",
    "ruleJson()": "1f0d0b9e",
    "isEncrypted()": "ebc143ff",
    "encrypted()": "0adf939b",
    "getRuleHash()": "80979fff",
    "getRuleVersion()": "05b664ab",
    "updateRule(string)": "66bed771",
    "setRuleAndEncrypted(string,bytes32,string,bytes)": "ae5e4c9d",
    "Error(string)": "08c379a0",
}
TOPICS = {
    "EngineMeta(uint256,uint64,address,string,bytes32,string,address,bytes32,address,bool,bytes,"
    "bytes,bytes)": "a4ebdba0cf1f61b30f0ef514e54980760a2ff9df2b2928f64cc31bee4215bb00",
    "EngineExtrasV2(uint256,bytes)": (
        "1009332adf66b9bea087cc2be9a3bb72155a92950043582532fd4fab5b2ee75f"
    ),
    "OSTCUpdated(address,address,bytes32,bytes32,string,uint256,uint64)": (
        "9fe8112f8bd64ed80b8c5d22c073dbda6a46a703b0ed7f47296f2b9fa03349e6"
    ),
}


@pytest.mark.parametrize("hashed", BOTH)
def test_the_published_values_come_out(hashed: Hash) -> None:
    assert hashed(b"").hex() == ("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470")
    assert hashed(b"abc").hex() == (
        "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"
    )


@pytest.mark.parametrize("hashed", BOTH)
def test_the_selectors_of_registries_and_rules_come_out(hashed: Hash) -> None:
    assert {name: hashed(name.encode())[:4].hex() for name in SELECTORS} == SELECTORS


@pytest.mark.parametrize("hashed", BOTH)
def test_the_topics_of_the_receipts_come_out(hashed: Hash) -> None:
    assert {name: hashed(name.encode()).hex() for name in TOPICS} == TOPICS


@pytest.mark.parametrize("hashed", BOTH)
def test_it_is_not_the_later_standard(hashed: Hash) -> None:
    """Same sponge, other padding: the two are easily mistaken for each other."""
    assert hashed(b"abc") != hashlib.sha3_256(b"abc").digest()


@pytest.mark.parametrize("length", [0, 1, 134, 135, 136, 137, 271, 272, 273, 5000])
def test_both_agree_at_the_borders_of_the_blocks(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert keccak256(data) == keccak256_pure(data)
    assert keccak256(data) != keccak256(data + b"\0")
