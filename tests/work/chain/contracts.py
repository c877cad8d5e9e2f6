"""Contracts for the tests, written byte by byte: no compiler is needed.

`fixed_answers` knows some questions (whole call data) and the answer of each, and refuses the rest.
`switch` has two answers and changes between them. `vault` keeps a number and takes money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.keccak import keccak256
from anabranch.work.chain.abi import encode
from anabranch.work.chain.abi_types import signature_of, type_of
from anabranch.work.chain.contracts import call_data

STOP, EQ, SHA3, CALLVALUE, CALLDATALOAD, CALLDATASIZE, CALLDATACOPY = (
    0x00, 0x14, 0x20, 0x34, 0x35, 0x36, 0x37,
)  # fmt: skip
CODECOPY, MSTORE, SLOAD, SSTORE, JUMPI, JUMPDEST = 0x39, 0x52, 0x54, 0x55, 0x57, 0x5B
ISZERO, AND, SHR, DUP1, RETURN, REVERT = 0x15, 0x16, 0x1C, 0x80, 0xF3, 0xFD


def push(number: int, size: int = 0) -> bytes:
    size = size or max(1, (number.bit_length() + 7) // 8)
    return bytes([0x5F + size]) + number.to_bytes(size, "big")


Part = bytes | int | str  # code, an opcode, "label:" (a place) or "label" (its position)


class Assembly:
    """Code with labels, and data after it. Positions are pushed as three bytes."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._data: dict[str, bytes] = {}

    def add(self, *parts: Part) -> Assembly:
        self._parts.extend(parts)
        return self

    def answer(self, label: str, data: bytes, how: int = RETURN) -> Assembly:
        """The code that ends with this data."""
        self._data[f"{label}.data"] = data
        size = push(len(data), 3)
        return self.add(
            f"{label}:", size, f"{label}.data", push(0), CODECOPY, size, push(0), how
        )  # fmt: skip

    def assemble(self) -> bytes:
        places: dict[str, int] = {}
        at = 0
        for part in self._parts:
            if isinstance(part, str) and part.endswith(":"):
                places[part[:-1]] = at
            at += self._size(part)
        for label, data in self._data.items():
            places[label] = at
            at += len(data)
        code = b"".join(self._bytes(part, places) for part in self._parts)
        return code + b"".join(self._data.values())

    @staticmethod
    def _size(part: Part) -> int:
        if isinstance(part, bytes):
            return len(part)
        return 1 if isinstance(part, int) or part.endswith(":") else 4

    @staticmethod
    def _bytes(part: Part, places: Mapping[str, int]) -> bytes:
        if isinstance(part, bytes):
            return part
        if isinstance(part, int):
            return bytes([part])
        return bytes([JUMPDEST]) if part.endswith(":") else push(places[part], 3)


def deploying(runtime: bytes) -> bytes:
    """The code that leaves `runtime` behind as a contract."""
    size = push(len(runtime), 3)
    head_size = 17
    copy = size + push(head_size, 2) + push(0) + bytes([CODECOPY])
    head = copy + size + push(0) + bytes([RETURN])
    assert len(head) == head_size
    return head + runtime


def refusal(reason: str) -> bytes:
    return bytes.fromhex("08c379a0") + encode([type_of("string")], [reason])


def text(value: str | bytes) -> bytes:
    """A stored text as a getter returns it."""
    raw = value.encode() if isinstance(value, str) else value
    return encode([type_of("bytes")], ["0x" + raw.hex()])


def returned(types: str, *values: object) -> bytes:
    outputs = signature_of(f"f()({types})").outputs
    return encode(outputs or (), values)


def fixed_answers(answers: Mapping[bytes, bytes], reason: str = "XRC729: not found") -> bytes:
    """The contract whose answer depends on the whole call data and on nothing else."""
    code = Assembly().add(CALLDATASIZE, push(0), push(0), CALLDATACOPY)
    code.add(CALLDATASIZE, push(0), SHA3)
    for number, question in enumerate(answers):
        code.add(DUP1, push(int.from_bytes(keccak256(question), "big"), 32), EQ)
        code.add(f"answer{number}", JUMPI)
    code.answer("otherwise", refusal(reason) if reason else b"", REVERT)
    for number, data in enumerate(answers.values()):
        code.answer(f"answer{number}", data)
    return deploying(code.assemble())


def registry(documents: Mapping[str, str | bytes], **more: bytes) -> bytes:
    """A registry with these orchestrations; `more` answers getters by name, `owner=…`."""
    answers = {call_data("getOSTC(string)", [name]): text(raw) for name, raw in documents.items()}
    answers |= {call_data(f"{name}()"): data for name, data in more.items()}
    return fixed_answers(answers)


def dated_registry(name: str, document: str, kept_hash: bytes, version: int = 3) -> bytes:
    """A registry that also keeps hash and version."""
    meta = returned("bytes32,uint256,uint64", "0x" + kept_hash.hex(), version, 1_790_000_000)
    return fixed_answers(
        {
            call_data("getOSTC(string)", [name]): text(document),
            call_data("getOSTCMeta(string)", [name]): meta,
        }
    )


def rule(document: str | bytes, **more: bytes) -> bytes:
    answers = {call_data("getRule()"): text(document)}
    answers |= {call_data(f"{name}()"): data for name, data in more.items()}
    return fixed_answers(answers, "")


def _selected(code: Assembly, functions: Sequence[str]) -> None:
    """Jump to the label of the function whose selector stands first in the call data."""
    code.add(push(0), CALLDATALOAD, push(224), SHR)
    for function in functions:
        signature = signature_of(function)
        selector = int.from_bytes(signature.selector, "big")
        code.add(DUP1, push(selector, 4), EQ, signature.name, JUMPI)


def switch(first: str, second: str) -> bytes:
    """A rule that answers the first text until somebody calls `change()`."""
    code = Assembly()
    _selected(code, ("getRule()", "change()"))
    code.add(push(0), push(0), REVERT)
    code.add("change:", push(1), push(0), SSTORE, STOP)
    code.add("getRule:", push(0), SLOAD, "second", JUMPI)
    code.answer("first", text(first)).answer("second", text(second))
    return deploying(code.assemble())


def vault() -> bytes:
    """`set(uint256)` keeps an even number and refuses odd ones; `get()`, `paid()` answer what was
    kept and how much came with the last transfer; anything else is refused without a word."""
    code = Assembly()
    code.add(CALLDATASIZE, ISZERO, "pay", JUMPI)
    _selected(code, ("set(uint256)", "get()", "paid()"))
    code.add(push(0), push(0), REVERT)
    code.add("pay:", CALLVALUE, push(1), SSTORE, STOP)
    code.add("set:", push(4), CALLDATALOAD, push(1), AND, "odd", JUMPI)
    code.add(push(4), CALLDATALOAD, push(0), SSTORE, STOP)
    for name, slot in (("get", 0), ("paid", 1)):
        code.add(f"{name}:", push(slot), SLOAD, push(0), MSTORE, push(32), push(0), RETURN)
    code.answer("odd", refusal("vault: odd"), REVERT)
    return deploying(code.assemble())
