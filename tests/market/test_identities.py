"""Identities and signatures: one way to write a key, one way to write what is signed."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import AnabranchError, InputError
from anabranch.market.identities import (
    SigningKey,
    canonical,
    identity,
    is_signed_by,
    public_key,
    shortest,
)
from seeds import examples

from .support import ISSUER, STRANGER, key

KNOWN = "node:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"


def test_a_known_seed_gives_the_known_identity() -> None:
    assert key(0x29).identity("node") == KNOWN
    assert identity("node", public_key(KNOWN)) == KNOWN


@settings(deadline=None, max_examples=examples(100))
@given(st.binary(min_size=32, max_size=32), st.sampled_from(["node", "participant", "org"]))
def test_an_identity_holds_its_key(data: bytes, role: str) -> None:
    assert public_key(identity(role, data)) == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE",
        KNOWN.replace("node:", "robot:"),
        KNOWN.replace(":z6", ":Z6"),
        KNOWN.replace(":z6", ":z16"),  # the same number, another text
        KNOWN + "1",
        KNOWN[:-1],
        KNOWN + "\n",
        KNOWN.replace("E", "0"),
        "node:did:key:z" + "2" * 48,
        "node:did:key:z" + "1" * 50,
    ],
)
def test_what_is_not_written_the_one_way_is_no_identity(text: str) -> None:
    with pytest.raises(InputError):
        public_key(text)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({}, "{}"),
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({"z/a": 1, "z": 2, "é": 3}, '{"z":2,"z/a":1,"é":3}'),
        ({"\ufb33": 1, "😀": 2}, '{"😀":2,"\ufb33":1}'),  # by UTF-16, not by code point
        ({"t": 'tab\t"quote" / ü\u2028'}, '{"t":"tab\\t\\"quote\\" / ü\u2028"}'),
        (9_007_199_254_740_991, "9007199254740991"),
    ],
)
def test_canonical_json_is_written_one_way(value: Any, written: str) -> None:
    assert canonical(value) == written.encode()


@pytest.mark.parametrize(
    "value", [1.5, 1.0, float("nan"), 2**53, -(2**53), "\ud800", {"\udfff": 1}]
)
def test_what_has_no_one_way_cannot_be_signed(value: Any) -> None:
    with pytest.raises(InputError):
        canonical({"x": [value]} if not isinstance(value, dict) else value)


def test_depth_and_keys_that_nobody_means_cannot_be_signed() -> None:
    deep: Any = {}
    for _ in range(10_000):
        deep = [deep]
    for value in (deep, {1: 2}):
        with pytest.raises(InputError):
            canonical(value)


whole = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(100))
@given(whole)
def test_canonical_json_says_the_same_and_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    written = canonical(value)
    assert json.loads(written) == value
    assert canonical(_turned(value)) == written


@settings(deadline=None, max_examples=examples(100))
@given(whole)
def test_canonical_json_is_that_of_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@settings(deadline=None, max_examples=examples(100))
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_fractions_are_written_as_rfc_8785_says_where_they_can_be_signed(number: float) -> None:
    assert shortest(number).encode() == rfc8785.dumps(number)
    document = {"confidence/signal": number}
    assert canonical(document) == rfc8785.dumps(document)
    with pytest.raises(InputError):
        canonical({"pricing/amount": number})


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (0.5, "0.5"), (1e-6, "0.000001"), (1e-7, "1e-7"),
        (1e20, "100000000000000000000"), (1e21, "1e+21"), (-1.5e300, "-1.5e+300"),
        (5e-324, "5e-324"), (333333333.33333329, "333333333.3333333"),
    ],
)  # fmt: skip
def test_the_shortest_text_of_a_number(number: float, text: str) -> None:
    assert shortest(number) == text


def test_no_fraction_can_be_signed_that_is_no_number() -> None:
    for odd in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(InputError):
            canonical({"confidence/signal": odd})


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _turned(value[name]) for name in reversed(value)}
    return [_turned(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=examples(100))
@given(st.dictionaries(st.text(max_size=5), whole, max_size=5), st.integers(0, 511))
def test_a_signature_holds_until_one_bit_of_it_or_one_field_is_changed(
    document: dict[str, Any], bit: int
) -> None:
    signed = ISSUER.sign(document)
    signer = ISSUER.identity("participant")
    assert is_signed_by(signed, signer)
    assert not is_signed_by(signed, STRANGER.identity("participant"))
    assert not is_signed_by({**signed, "more": 1} if "more" not in signed else {}, signer)
    text = signed["signature"]["value"]
    at = bit % 85
    other = "A" if text[at] != "A" else "B"
    broken = text[:at] + other + text[at + 1 :]
    assert not is_signed_by({**signed, "signature": {"alg": "ed25519", "value": broken}}, signer)


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "base64url:…",
        {"alg": "ed25519", "value": "base64url:placeholder"},
        {"alg": "ed25519"},
        {"alg": "ed25519", "value": None},
        {"alg": "none", "value": ""},
        {"alg": "ed25519", "value": "A" * 86},
        {"alg": "ed25519", "value": "A" * 87},
        {"alg": "ed25519", "value": ["A" * 86]},
    ],
)
def test_a_placeholder_is_no_signature(signature: Any) -> None:
    document = {"a": 1, "signature": signature}
    assert not is_signed_by(document, ISSUER.identity("participant"))


def test_a_padded_or_loosely_written_signature_does_not_count() -> None:
    signed = ISSUER.sign({"a": 1})
    signer, value = ISSUER.identity("participant"), signed["signature"]["value"]
    last = "AQgw".index(value[-1]) * 16
    loose = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last + 1]
    for text in (value + "==", value[:-1] + loose, value + "\n"):
        assert not is_signed_by({"a": 1, "signature": {"alg": "ed25519", "value": text}}, signer)


def test_the_same_seed_signs_the_same() -> None:
    """Ed25519 draws no chance: a fixture stays a fixture."""
    signed = key(0x29).sign({"b": 1, "a": "é"})
    assert signed["signature"]["value"] == (
        "atFFDZZs5rWOqzsV8DmLS4qfVv3Lcmii5UpdbxoDbEKH8FwkV2ZlwgdwmXE-4Wb_foqjV8vzgQcyrBRHR2ZxAQ"
    )
    with pytest.raises(InputError):
        SigningKey.from_seed(b"short")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(AnabranchError) as caught:
        is_signed_by({"signature": {}}, KNOWN)
    assert "anabranch[market]" in caught.value.message
    assert caught.value.code == "missing_extra"
