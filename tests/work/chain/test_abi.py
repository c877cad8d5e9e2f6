"""Our codec agrees with the usual one, and nothing that comes in can lead it astray."""

from __future__ import annotations

import pytest
from eth_abi.abi import decode as usual_decode
from eth_abi.abi import encode as usual_encode
from eth_abi.exceptions import DecodingError
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.keccak import keccak256
from anabranch.work.chain.abi import decode, decode_bytes, decode_each, encode
from anabranch.work.chain.abi_types import AbiType, signature_of, type_of
from anabranch.work.chain.errors import BadAnswer
from anabranch.work.rule.ports import BadAbi

# -- types and values, drawn at random ---------------------------------------------------------

SIMPLE = st.one_of(
    st.sampled_from(["address", "bool", "string", "bytes"]),
    st.integers(1, 32).map(lambda n: f"uint{8 * n}"),
    st.integers(1, 32).map(lambda n: f"int{8 * n}"),
    st.integers(1, 32).map(lambda n: f"bytes{n}"),
)
TYPES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda t: f"{t}[]"),
        st.tuples(inner, st.integers(1, 3)).map(lambda p: f"{p[0]}[{p[1]}]"),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: f"({','.join(ts)})"),
    ),
    max_leaves=4,
)


def values(kind: AbiType) -> st.SearchStrategy[object]:
    match kind.kind:
        case "uint":
            return st.integers(0, (1 << kind.size) - 1)
        case "int":
            return st.integers(-(1 << kind.size - 1), (1 << kind.size - 1) - 1)
        case "bool":
            return st.booleans()
        case "address":
            return st.binary(min_size=20, max_size=20).map(lambda b: "0x" + b.hex())
        case "string":
            return st.text(max_size=40)
        case "bytes":
            return st.binary(max_size=70).map(lambda b: "0x" + b.hex())
        case "fixed_bytes":
            return st.binary(min_size=kind.size, max_size=kind.size).map(lambda b: "0x" + b.hex())
        case "tuple":
            return st.tuples(*map(values, kind.items)).map(list)
    low, high = (0, 4) if kind.size < 0 else (kind.size, kind.size)
    return st.lists(values(kind.items[0]), min_size=low, max_size=high)


def foreign(kind: AbiType, value: object) -> object:
    """The value as eth-abi takes and gives it: bytes are bytes, lists are tuples."""
    if kind.kind in ("bytes", "fixed_bytes"):
        return bytes.fromhex(str(value)[2:])
    if kind.kind == "tuple":
        return tuple(map(foreign, kind.items, value))  # type: ignore[call-overload]
    if kind.kind == "array":
        return tuple(foreign(kind.items[0], item) for item in value)  # type: ignore[attr-defined]
    return value


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[AbiType], list[object]]:
    kinds = [type_of(text) for text in draw(st.lists(TYPES, min_size=1, max_size=4))]
    return kinds, [draw(values(kind)) for kind in kinds]


@settings(max_examples=120, deadline=None)
@given(cases())
def test_what_is_encoded_is_what_the_usual_codec_encodes(
    case: tuple[list[AbiType], list[object]],
) -> None:
    kinds, given_values = case
    data = encode(kinds, given_values)
    others = [foreign(kind, value) for kind, value in zip(kinds, given_values, strict=True)]
    assert data == usual_encode([str(kind) for kind in kinds], others)
    assert decode(kinds, data) == given_values
    assert decode_each(kinds, data) == given_values


@settings(max_examples=150, deadline=None)
@given(cases(), st.data())
def test_damaged_answers_are_refused_or_mean_what_the_usual_codec_says(
    case: tuple[list[AbiType], list[object]], data: st.DataObject
) -> None:
    kinds, given_values = case
    raw = bytearray(encode(kinds, given_values))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=3)):
        raw[at] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    try:
        ours = decode(kinds, cut)
    except BadAnswer:
        return
    try:
        theirs = usual_decode([str(kind) for kind in kinds], cut)
    except (DecodingError, OverflowError):
        return  # it also wants padding, and looks at it
    assert [foreign(kind, value) for kind, value in zip(kinds, ours, strict=True)] == [
        value.lower() if kind.kind == "address" else value
        for kind, value in zip(kinds, theirs, strict=True)
    ]


# -- what comes in -----------------------------------------------------------------------------

WORD = (32).to_bytes(32, "big")


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("uint256", b"", "cut off"),
        ("uint256", bytes(31), "cut off"),
        ("string", word(32), "points behind the end"),
        ("string", word(2**255) + word(0), "points behind the end"),
        ("string", WORD + word(100) + bytes(64), "longer than the answer"),
        ("string", WORD + word(2**256 - 1) + bytes(64), "longer than the answer"),
        ("string", WORD + word(2) + b"\xff\xfe" + bytes(30), "not UTF-8"),
        ("uint256[]", WORD + word(2**64), "longer than the answer"),
        ("string[]", WORD + word(1) + word(2**128), "points behind the end"),
        ("bool", word(2), "neither true nor false"),
        ("uint8", word(256), "outside of uint8"),
        ("int8", word(128), "outside of int8"),
        ("address", word(2**160), "no address"),
        ("bytes4", b"\x01" * 32, "more than 4 bytes"),
    ],
)
def test_an_answer_that_lies_about_itself_is_refused(kind: str, data: bytes, words: str) -> None:
    with pytest.raises(BadAnswer, match=words):
        decode([type_of(kind)], data)


def test_offsets_that_overlap_cannot_unfold_without_end() -> None:
    """Sixty elements that all point at the list itself: 60 ** 6 values from two kilobytes."""
    data = WORD + word(60) + 60 * word(0)
    shifted = data[:64] + 60 * word(2**256 - 32)
    with pytest.raises(BadAnswer, match=r"points behind the end|100,000 values|cut off"):
        decode([type_of("uint8[][][][][][]")], shifted)
    inner = word(60) + b"".join(word(60 * 32) for _ in range(60))
    deep = WORD + inner + inner + inner + inner + word(60) + 60 * word(1)
    with pytest.raises(BadAnswer, match="unfolds into more than four times"):
        decode([type_of("uint8[][][][][]")], deep)
    with pytest.raises(BadAnswer, match="100,000 values"):
        decode([type_of("uint8[]")], WORD + word(100_000) + bytes(32 * 100_000))


@pytest.mark.parametrize(
    "kind", ["string[]", "bytes[]", "(string)[]", "string[1][]", "(bytes,bytes)[]"]
)
@pytest.mark.parametrize(("count", "blob"), [(10, 1000), (2000, 100_000)])
def test_no_answer_unfolds_into_more_bytes_than_it_has(kind: str, count: int, blob: int) -> None:
    """Every offset points at one blob: 160 kB became 200 million characters."""
    data = _overlapping(type_of(kind).items[0], count, blob)
    assert len(data) < 64 * count + blob + 500
    with pytest.raises(BadAnswer, match="unfolds into more than four times"):
        decode([type_of(kind)], data)
    (found,) = decode_each([type_of(kind)], data)
    assert isinstance(found, BadAnswer)


def _overlapping(item: AbiType, count: int, blob: int) -> bytes:
    """A list of so many, all of them in the place of the first."""
    width = 32 * len(item.items)  # of what stands between the list and the texts
    inner = word(width) * len(item.items) if item.items else b""
    text = word(blob) + b"a" * blob
    return WORD + word(count) + word(32 * count) * count + inner + text


def test_many_types_of_one_answer_share_its_bytes() -> None:
    data = word(320) * 10 + word(10_000) + b"a" * 10_000
    found = decode_each([type_of("string")] * 10, data)
    whole = [value for value in found if isinstance(value, str)]
    assert 0 < sum(map(len, whole)) <= 4 * len(data)
    assert len(whole) < 10


def test_equal_texts_may_stand_in_one_place() -> None:
    """As some contracts write them; the usual codec reads them as well."""
    data = word(64) + word(64) + word(3) + b"abc" + bytes(29)
    assert decode([type_of("string")] * 2, data) == ["abc", "abc"]


def test_the_text_of_a_document_comes_out_as_it_was_stored() -> None:
    assert decode_bytes(encode([type_of("string")], ["ä" * 50])) == ("ä" * 50).encode()
    assert decode_bytes(WORD + word(3) + b"abc") == b"abc"  # some contracts do not pad


def test_a_broken_value_leaves_the_others_alone() -> None:
    kinds = [type_of("uint8"), type_of("string"), type_of("bool")]
    found = decode_each(kinds, word(300) + word(96) + word(1) + word(2) + b"ok")
    assert isinstance(found[0], BadAnswer)
    assert found[1:] == ["ok", True]
    assert isinstance(decode_each([None, type_of("uint8")], word(7) + word(8))[0], BadAnswer)
    assert decode_each([None, type_of("uint8")], word(7) + word(8))[1] == 8


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "same"),
    [("uint256", str(2**255), 2**255), ("int64", "-5", -5), ("uint8", 7.0, 7)],
)
def test_numbers_may_be_written_as_text(kind: str, value: object, same: int) -> None:
    assert decode([type_of(kind)], encode([type_of(kind)], [value])) == [same]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint8", 256), ("uint8", -1), ("uint8", True), ("uint8", "0x10"), ("uint8", "٣"),
        ("uint8", 1.5), ("uint8", None), ("int8", 128), ("uint256", "1" * 5000),
        ("uint256", float("nan")), ("bool", 1), ("bool", "true"), ("address", "0x12"),
        ("address", 5), ("bytes", "abc"), ("bytes", "0xabc"), ("bytes32", "0x12"), ("string", 5),
        ("string", "\ud800"), ("uint8[]", "12"), ("uint8[]", {"a": 1}), ("uint8[2]", [1]),
        ("(uint8,bool)", [1]), ("(uint8,bool)", [1, 2]),
    ],
)  # fmt: skip
def test_an_argument_that_does_not_fit_is_named(kind: str, value: object) -> None:
    with pytest.raises(BadAbi, match=r"argument 0.* cannot be "):
        encode([type_of(kind)], [value])


def test_the_number_of_arguments_is_checked() -> None:
    with pytest.raises(BadAbi, match="2 arguments are declared, but 1 are given"):
        encode(signature_of("f(uint8,uint8)").inputs, [1])


# -- signatures --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "balanceOf(address)(uint256)",
        "balanceOf(address) returns (uint256)",
        "  balanceOf( address )( uint ) ",
        "function balanceOf(address who) external view returns (uint256 amount)",
        "balanceOf(address payable who) returns(uint256)",
    ],
)
def test_the_styles_of_signatures_mean_the_same(text: str) -> None:
    signature = signature_of(text)
    assert signature.canonical == "balanceOf(address)"
    assert signature.selector.hex() == "70a08231"
    assert signature.outputs == (type_of("uint256"),)


def test_a_signature_without_returns_leaves_them_open() -> None:
    assert signature_of("balanceOf(address)").outputs is None
    assert signature_of("ping()()").outputs == ()


def test_tuples_and_arrays_are_part_of_the_selector() -> None:
    signature = signature_of("f(tuple(uint a, byte b)[2][] x, string memory)(int)")
    assert signature.canonical == "f((uint256,bytes1)[2][],string)"
    assert signature.selector == keccak256(b"f((uint256,bytes1)[2][],string)")[:4]


@pytest.mark.parametrize(
    "text",
    [
        "", "f", "f(", "f(uint", "f)", "(uint256)", "f(uint7)", "f(uint264)", "f(uint08)",
        "f(bytes33)", "f(bytes0)", "f(fixed128x18)", "f(uint256,)", "f(,uint256)", "f(uint256[0])",
        "f(uint256[99999])", "f(())", "f()()()", "f() returns", "f(uint256) x", "f(uint256;bool)",
        "f" + 10 * "(" + "uint8" + 10 * ")", "f(uint8" + 9 * "[]" + ")", "f(" + "uint8," * 900,
        "1f()", "f(uint256)(nothing)",
    ],
)  # fmt: skip
def test_a_signature_that_cannot_be_read_says_why(text: str) -> None:
    with pytest.raises(BadAbi, match=r"cannot be read: |longer than"):
        signature_of(text)
