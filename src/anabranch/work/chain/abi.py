"""ABI encoding and decoding.

Written here rather than taken from a package because decoding is the door for foreign bytes: every
offset and length is checked against what is there before anything is read or allocated, and every
refusal says which value it was. Decoded values are plain: int, bool, str, list; addresses and bytes
are hexadecimal texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import index
from typing import Any

from anabranch.work.chain.abi_types import WORD, AbiType
from anabranch.work.chain.errors import BadAnswer
from anabranch.work.rule.ports import BadAbi

_VALUES_MAX = 100_000  # offsets may overlap, so a short answer could unfold without end
_TIMES_MAX = 4  # each byte is read once, and more often only where equal texts share a place
_INTEGER = re.compile(r"-?[0-9]{1,80}")
_ADDRESS = re.compile(r"0[xX][0-9a-fA-F]{40}")
_HEX = re.compile(r"0[xX](?:[0-9a-fA-F]{2})*")


# -- encoding --------------------------------------------------------------------------------


def encode(types: Sequence[AbiType], values: Sequence[Any], where: str = "argument") -> bytes:
    """The values as call data. Raises `BadAbi` when one does not fit its type."""
    if len(types) != len(values):
        raise BadAbi(f"{len(types)} arguments are declared, but {len(values)} are given")
    heads: list[bytes] = []
    tails: list[bytes] = []
    offset = sum(kind.head for kind in types)
    for number, (kind, value) in enumerate(zip(types, values, strict=True)):
        coded = _encoded(kind, value, f"{where} {number}")
        if kind.dynamic:
            heads.append(_word(offset))
            tails.append(coded)
            offset += len(coded)
        else:
            heads.append(coded)
    return b"".join(heads + tails)


def _encoded(kind: AbiType, value: Any, where: str) -> bytes:
    match kind.kind:
        case "uint" | "int":
            return _word(_number(kind, value, where))
        case "bool":
            if not isinstance(value, bool):
                raise _unfit(kind, value, where, "it takes true or false")
            return _word(int(value))
        case "address":
            return bytes(12) + _address_bytes(kind, value, where)
        case "fixed_bytes":
            raw = _raw(kind, value, where)
            if len(raw) != kind.size:
                raise _unfit(kind, value, where, f"it takes exactly {kind.size} bytes")
            return raw + bytes(WORD - len(raw))
        case "bytes":
            return _lengthened(_raw(kind, value, where))
        case "string":
            return _lengthened(_text_bytes(kind, value, where))
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _unfit(kind, value, where, "it takes a list")
    return _encoded_list(kind, value, where)


def _encoded_list(kind: AbiType, value: Sequence[Any], where: str) -> bytes:
    if kind.kind == "tuple":
        if len(value) != len(kind.items):
            raise _unfit(kind, value, where, f"it takes {len(kind.items)} values")
        return encode(kind.items, value, f"{where} part")
    if kind.size >= 0 and len(value) != kind.size:
        raise _unfit(kind, value, where, f"it takes {kind.size} elements")
    coded = encode(kind.items * len(value), value, f"{where} element")
    return coded if kind.size >= 0 else _word(len(value)) + coded


def _word(number: int) -> bytes:
    return (number % (1 << 256)).to_bytes(WORD, "big")


def _lengthened(raw: bytes) -> bytes:
    return _word(len(raw)) + raw + bytes(-len(raw) % WORD)


def _number(kind: AbiType, value: Any, where: str) -> int:
    number = _integer(value)
    if number is None:
        raise _unfit(kind, value, where, "it takes a whole number")
    low, high = _range(kind)
    if not low <= number < high:
        raise _unfit(kind, value, where, f"the number is outside of {kind}")
    return number


def _integer(value: Any) -> int | None:
    """Whole numbers, also as decimal text and as a float without a fraction."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return index(value)
    except TypeError:
        return None


def _range(kind: AbiType) -> tuple[int, int]:
    if kind.kind == "uint":
        return 0, 1 << kind.size
    return -(1 << kind.size - 1), 1 << kind.size - 1


def _address_bytes(kind: AbiType, value: Any, where: str) -> bytes:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise _unfit(kind, value, where, "an address is 0x and 40 hexadecimal digits")
    return bytes.fromhex(value[2:])


def _raw(kind: AbiType, value: Any, where: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _unfit(kind, value, where, "it takes bytes written as 0x and pairs of digits")
    return bytes.fromhex(value[2:])


def _text_bytes(kind: AbiType, value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        raise _unfit(kind, value, where, "it takes a text")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise _unfit(kind, value, where, "the text has characters that UTF-8 has not") from None


def _unfit(kind: AbiType, value: Any, where: str, why: str) -> BadAbi:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    return BadAbi(f"{where} ({kind}) cannot be {shown}: {why}")


# -- decoding --------------------------------------------------------------------------------


def decode(types: Sequence[AbiType], data: bytes) -> list[Any]:
    """Every value, or `BadAnswer` naming the first that is not there."""
    return _Decoder(data).tuple(types, 0, "value")


def decode_each(types: Sequence[AbiType | None], data: bytes) -> list[Any | BadAnswer]:
    """Each value, or in its place why there is none. `None` as a type skips one word."""
    decoder = _Decoder(data)
    found: list[Any | BadAnswer] = []
    at = 0
    for number, kind in enumerate(types):
        if kind is None:
            found.append(BadAnswer(f"value {number} has no type"))
            at += WORD
            continue
        try:
            found.append(decoder.at(kind, 0, at, f"value {number}"))
        except BadAnswer as error:
            found.append(error)
        at += kind.head
    return found


def decode_bytes(data: bytes) -> bytes:
    """The one dynamic value of an answer, undecoded: texts are judged by who knows their limits."""
    return _Decoder(data).only()


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = _VALUES_MAX
        self._bytes_left = _TIMES_MAX * len(data)

    def only(self) -> bytes:
        return self._sized(self._offset(0, 0, "the text"), "the text")

    def tuple(self, types: Sequence[AbiType], base: int, where: str) -> list[Any]:
        at = base
        found = []
        for number, kind in enumerate(types):
            found.append(self.at(kind, base, at, f"{where} {number}"))
            at += kind.head
        return found

    def at(self, kind: AbiType, base: int, at: int, where: str) -> Any:
        """The value whose head stands at `at`; offsets count from `base`."""
        self._left -= 1
        if self._left < 0:
            raise BadAnswer(f"the answer holds more than {_VALUES_MAX:,} values")
        if kind.dynamic:
            at = base + self._offset(base, at, where)
        match kind.kind:
            case "tuple":
                return self.tuple(kind.items, at, f"{where} part")
            case "array":
                return self._array(kind, at, where)
            case "bytes":
                return "0x" + self._sized(at, where).hex()
            case "string":
                return self._text(at, where)
        return _single(kind, self._word(at, where), where)

    def _word(self, at: int, where: str) -> bytes:
        word = self._data[at : at + WORD]
        if len(word) < WORD:
            raise BadAnswer(f"{where} is cut off: the answer has only {len(self._data):,} bytes")
        self._charge(WORD, where)
        return word

    def _charge(self, size: int, where: str) -> None:
        """Before they are taken: one place can be pointed at from everywhere."""
        if size > self._bytes_left:
            raise BadAnswer(
                f"the answer unfolds into more than four times its {len(self._data):,} bytes at "
                f"{where}: its offsets point at the same bytes again and again"
            )
        self._bytes_left -= size

    def _offset(self, base: int, at: int, where: str) -> int:
        offset = int.from_bytes(self._word(at, where), "big")
        if base + offset + WORD > len(self._data):
            raise BadAnswer(f"{where} points behind the end of the answer")
        return offset

    def _length(self, at: int, unit: int, where: str) -> int:
        length = int.from_bytes(self._word(at, where), "big")
        room = len(self._data) - at - WORD
        if length * unit > room:
            raise BadAnswer(f"{where} claims to be longer than the answer")
        return length

    def _sized(self, at: int, where: str) -> bytes:
        length = self._length(at, 1, where)
        self._charge(length, where)
        return self._data[at + WORD : at + WORD + length]

    def _text(self, at: int, where: str) -> str:
        try:
            return self._sized(at, where).decode()
        except UnicodeDecodeError:
            raise BadAnswer(f"{where} is not UTF-8") from None

    def _array(self, kind: AbiType, at: int, where: str) -> list[Any]:
        (item,) = kind.items
        length = kind.size
        if length < 0:
            length = self._length(at, item.head, where)
            at += WORD
        return self.tuple((item,) * length, at, f"{where} element")


def _single(kind: AbiType, word: bytes, where: str) -> Any:
    number = int.from_bytes(word, "big")
    match kind.kind:
        case "bool":
            if number > 1:
                raise BadAnswer(f"{where} is neither true nor false")
            return number == 1
        case "address":
            if any(word[:12]):
                raise BadAnswer(f"{where} is no address")
            return "0x" + word[12:].hex()
        case "fixed_bytes":
            if any(word[kind.size :]):
                raise BadAnswer(f"{where} has more than {kind.size} bytes")
            return "0x" + word[: kind.size].hex()
    if kind.kind == "int" and number >> 255:
        number -= 1 << 256
    low, high = _range(kind)
    if not low <= number < high:
        raise BadAnswer(f"{where} is outside of {kind}")
    return number
