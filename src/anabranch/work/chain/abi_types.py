"""ABI types and function signatures.

Three ways to write a signature are read, with or without names of parameters:

    balanceOf(address)                        the caller says how to decode
    balanceOf(address)(uint256)
    balanceOf(address who) view returns (uint256 amount)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import msgspec

from anabranch.keccak import keccak256
from anabranch.work.rule.ports import BadAbi

WORD = 32
_SIGNATURE_MAX = 1024  # characters
_DEPTH_MAX = 8
_ARRAY_MAX = 1024  # elements of an array of fixed length
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_ELEMENTARY = re.compile(r"(uint|int|bytes)([0-9]{0,3})")
_TOKEN = re.compile(r"\s*([A-Za-z_$][A-Za-z0-9_$]*|[0-9]+|[(),\[\]])")
_MODIFIERS = frozenset({"external", "public", "view", "pure", "payable", "nonpayable", "virtual"})
_PLACES = frozenset({"memory", "calldata", "storage", "indexed", "payable"})

Kind = Literal["uint", "int", "address", "bool", "bytes", "fixed_bytes", "string", "array", "tuple"]


class AbiType(msgspec.Struct, frozen=True):
    """One type. `size`: bits of a number, bytes of fixed bytes, elements of an array (-1: any)."""

    kind: Kind
    size: int = 0
    items: tuple[AbiType, ...] = ()  # of a tuple; the one of an array

    def __str__(self) -> str:
        match self.kind:
            case "uint" | "int":
                return f"{self.kind}{self.size}"
            case "fixed_bytes":
                return f"bytes{self.size}"
            case "array":
                return f"{self.items[0]}[{self.size if self.size >= 0 else ''}]"
            case "tuple":
                return f"({','.join(map(str, self.items))})"
        return self.kind

    @property
    def dynamic(self) -> bool:
        """Whether it stands behind an offset."""
        if self.kind in ("bytes", "string") or (self.kind == "array" and self.size < 0):
            return True
        return any(item.dynamic for item in self.items)

    @property
    def head(self) -> int:
        """Bytes it takes where it stands."""
        if self.dynamic or not self.items:
            return WORD
        times = self.size if self.kind == "array" else 1
        return times * sum(item.head for item in self.items)


class Signature(msgspec.Struct, frozen=True):
    name: str
    inputs: tuple[AbiType, ...]
    outputs: tuple[AbiType, ...] | None  # None: not declared

    @property
    def canonical(self) -> str:
        return f"{self.name}({','.join(map(str, self.inputs))})"

    @property
    def selector(self) -> bytes:
        return keccak256(self.canonical.encode())[:4]


@lru_cache(maxsize=512)
def type_of(text: str) -> AbiType:
    reader = _Reader(text)
    found = reader.type(0)
    reader.end()
    return found


@lru_cache(maxsize=512)
def signature_of(text: str) -> Signature:
    """Raises `BadAbi` saying what is wrong with it."""
    return _Reader(text).signature()


class _Reader:
    """Reads one signature, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > _SIGNATURE_MAX:
            raise BadAbi(f"a signature is longer than {_SIGNATURE_MAX} characters")
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[str]:
        text, at = self._text.rstrip(), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"{text[at:].strip()[:1]!r} does not belong there")
            yield found[1]
            at = found.end()

    def _wrong(self, why: str) -> BadAbi:
        return BadAbi(
            f"{self._text[:200]!r} cannot be read: {why}; write it like "
            "balanceOf(address)(uint256), the part in the second brackets is optional"
        )

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, wanted: str) -> None:
        if (found := self._next()) != wanted:
            raise self._wrong(f"{wanted!r} is missing" + (f" before {found!r}" if found else ""))

    def end(self) -> None:
        if self._peek():
            raise self._wrong(f"{self._peek()!r} is too much")

    def signature(self) -> Signature:
        if self._peek() == "function":
            self._next()
        name = self._next()
        if not _NAME.fullmatch(name):
            raise self._wrong("it must start with the name of the function")
        inputs = self._types(0)
        while self._peek() in _MODIFIERS:
            self._next()
        outputs = None
        if self._peek() == "returns":
            self._next()
            outputs = self._types(0)
        elif self._peek() == "(":
            outputs = self._types(0)
        self.end()
        return Signature(name, inputs, outputs)

    def _types(self, depth: int) -> tuple[AbiType, ...]:
        """A list in brackets; parameters may have names, which mean nothing."""
        self._expect("(")
        found: list[AbiType] = []
        while self._peek() != ")":
            if found:
                self._expect(",")
            found.append(self.type(depth))
            while self._peek() in _PLACES:
                self._next()
            if _NAME.fullmatch(self._peek()):
                self._next()
        self._next()
        return tuple(found)

    def type(self, depth: int) -> AbiType:
        if depth > _DEPTH_MAX:
            raise self._wrong(f"types nest more than {_DEPTH_MAX} levels deep")
        found = self._single(depth)
        levels = depth
        while self._peek() == "[":
            levels += 1
            if levels > _DEPTH_MAX:
                raise self._wrong(f"types nest more than {_DEPTH_MAX} levels deep")
            self._next()
            found = AbiType("array", self._length(), (found,))
            self._expect("]")
        return found

    def _length(self) -> int:
        if self._peek() == "]":
            return -1
        text = self._next()
        if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _ARRAY_MAX:
            raise self._wrong(f"an array has 1 to {_ARRAY_MAX} elements, not {text[:20]!r}")
        return int(text)

    def _single(self, depth: int) -> AbiType:
        if self._peek() == "tuple" and self._tokens[self._at + 1 : self._at + 2] == ["("]:
            self._next()
        if self._peek() == "(":
            items = self._types(depth + 1)
            if not items:
                raise self._wrong("a tuple needs at least one type")
            return AbiType("tuple", 0, items)
        name = self._next()
        found = _elementary(name)
        if found is None:
            raise self._wrong(
                f"{name!r} is no type that is known here" if name else "it ends early"
            )
        return found


def _elementary(name: str) -> AbiType | None:
    match name:
        case "address":
            return AbiType("address")
        case "bool":
            return AbiType("bool")
        case "string":
            return AbiType("string")
        case "byte":
            return AbiType("fixed_bytes", 1)
    found = _ELEMENTARY.fullmatch(name)
    if found is None or found[2].startswith("0"):
        return None
    kind, size = found[1], int(found[2] or 0)
    if kind == "bytes":
        if not size:
            return AbiType("bytes")
        return AbiType("fixed_bytes", size) if size <= WORD else None
    size = size or 256
    if size > 256 or size % 8:
        return None
    return AbiType("uint" if kind == "uint" else "int", size)
