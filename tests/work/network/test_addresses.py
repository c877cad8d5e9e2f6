"""Which addresses a call may reach: what kind an address is, what a policy allows, redirects."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.work.network.addresses import AddressClass, class_of, is_public, read_policy

KINDS: list[tuple[AddressClass, str]] = [
    ("loopback", "127.0.0.1 127.1.2.3 ::1 :: 0.0.0.0 0.1.2.3 ::ffff:127.0.0.1 ::ffff:0.0.0.0"),
    ("loopback", "::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: 2130706433 0x7f000001 017700000001"),
    ("loopback", "127.1 0177.0.0.1 0x7f.1 ::1%lo"),
    ("link_local", "169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254"),
    ("link_local", "fd00:ec2::254 100.100.100.200 192.0.0.192 64:ff9b::a9fe:a9fe 2852039166"),
    ("link_local", "168.63.129.16 ::ffff:168.63.129.16 64:ff9b::a83f:8110 2822734096"),
    ("link_local", "fd00:ec2::23 fd00:ec2::253 fd20:ce::254"),
    ("link_local", "2002:a9fe:a9fe:: ::169.254.169.254 0251.0376.0251.0376"),
    ("private", "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 198.18.0.1 fc00::1"),
    (
        "private",
        "fd12::1 fd00:ec3::1 fec0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1:: ::10.0.0.1",
    ),
    ("private", "224.0.0.1 255.255.255.255 240.0.0.1 ff02::1 192.0.2.1 2001:db8::1 192.0.0.8"),
    ("private", "2001:0:4136:e378:8000:63bf:3fff:fdd2 64:ff9b:1::7f00:1 10.1 0xa000001"),
    ("public", "93.184.216.34 8.8.8.8 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 11.0.0.1"),
    (
        "public",
        "168.63.129.17 2606:2800:220:1::1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808:: 134744072",
    ),
]


@pytest.mark.parametrize(
    ("kind", "address"), [(kind, one) for kind, texts in KINDS for one in texts.split()]
)
def test_an_address_is_of_its_kind_in_every_spelling(kind: AddressClass, address: str) -> None:
    assert class_of(address) == kind
    assert is_public(address) == (kind == "public")
    assert read_policy(kind).allows(address)
    others = {"public", "private", "loopback", "link_local"} - {kind}
    assert not read_policy(" ".join(others)).allows(address)
    assert read_policy("").allows(address)


def test_what_is_no_address_is_allowed_by_nothing() -> None:
    for text in ("example.org", "127.0.0.1.", "1.2.3.4.5", "", "::1::", "localhost", "①②⑦.0.0.1"):
        assert not read_policy("any").allows(text)


def test_a_policy_can_name_networks_and_single_addresses() -> None:
    policy = read_policy("public, 10.1.0.0/16 127.0.0.1 fd12::/16")
    for allowed in ("8.8.8.8", "10.1.9.9", "127.0.0.1", "fd12::7", "::ffff:10.1.0.1"):
        assert policy.allows(allowed), allowed
    for refused in ("10.2.0.1", "127.0.0.2", "fd13::7", "169.254.169.254", "::ffff:10.2.0.1"):
        assert not policy.allows(refused), refused


@pytest.mark.parametrize("text", ["everything", "10.0.0.1/8", "public example.org", "127.1"])
def test_a_policy_that_cannot_be_read_is_refused_with_the_word_at_fault(text: str) -> None:
    with pytest.raises(InputError, match=r"ANABRANCH_HTTP_ADDRESSES must be any, or a list") as e:
        read_policy(text)
    assert repr(text.split()[-1]) in e.value.message


@pytest.mark.parametrize("setting", ["http_addresses", "rule_addresses"])
def test_an_engine_does_not_start_with_a_policy_that_cannot_be_read(setting: str) -> None:
    wrong: dict[str, Any] = {setting: "intern"}
    playbook = "metadata: {name: idle}\nworkflow: [{step: start, tool: {kind: noop}}]"
    with pytest.raises(InputError, match=f"ANABRANCH_{setting.upper()} must be any"):
        anabranch.run(playbook, settings=Settings(**wrong))


PUBLIC, PRIVATE, LOOPBACK, METADATA = "8.8.8.8", "10.0.0.1", "127.0.0.1", "169.254.169.254"


@pytest.mark.parametrize(
    ("passed", "policy", "reached"),
    [
        (["public"], "any", {PUBLIC}),
        (["private"], "any", {PUBLIC, PRIVATE}),
        (["loopback"], "any", {PUBLIC, PRIVATE, LOOPBACK}),
        (["link_local"], "any", {PUBLIC, PRIVATE, METADATA}),
        # What was public once on the way has had its say about where it goes on.
        (["loopback", "public"], "any", {PUBLIC}),
        (["private", "public", "public"], "any", {PUBLIC}),
        (["loopback", "private"], "any", {PUBLIC, PRIVATE, LOOPBACK}),
        (["private", "private"], "any", {PUBLIC, PRIVATE}),
        # What the operator names, a server inside may lead to; a public one never.
        (["private"], "private loopback", {PRIVATE, LOOPBACK}),
        (["private"], "public private 127.0.0.0/8", {PUBLIC, PRIVATE, LOOPBACK}),
        (["private"], "public 10.0.0.0/8", {PUBLIC, PRIVATE}),
        (["public"], "public private loopback link_local", {PUBLIC}),
        (["public"], "public 127.0.0.1", {PUBLIC}),
        (["loopback"], "loopback", {LOOPBACK}),
        (["public"], "public", {PUBLIC}),
    ],
)
def test_a_redirect_reaches_no_further_than_where_it_comes_from(
    passed: list[AddressClass], policy: str, reached: set[str]
) -> None:
    onward = read_policy(policy).after(passed)
    assert {a for a in (PUBLIC, PRIVATE, LOOPBACK, METADATA) if onward.allows(a)} == reached
