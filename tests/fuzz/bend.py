"""Other messages made of a right one: changed in what they say, or in their bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

#: What programs most often forget to expect.
LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308, 0.1),
    *("", " ", "0", "-1", "1e999", "nan", "null", "true", "a", "\x00", "\ud800", "é", "\u202e"),
    *("{{ 1 // 0 }}", "{{", "${x}", "/a~2", "../..", "%zz", "0x", "9" * 400, "a" * 5000, "[" * 60),
    *([], {}, [[]], [None], {"": None}, [0] * 70),
)
#: The same for bytes: signs of the formats that are read.
WORDS: tuple[bytes, ...] = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u0000", b"\\ud800", b"\x00", b"\xff"),
    *(b"\r\n", b"\n", b"\t", b" ", b"- ", b"? ", b"&a ", b"*a", b"!!python/name:os ", b"<<: *a"),
    *(b"null", b"-", b"0", b"1e999", b"NaN", b"2147483648", b"-9223372036854775809", b"#", b"'"),
    *(b"{{", b"}}", b"{%", b"%}", b"${", b"|", b"(", b")", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91",
        b"\x81",
        b"\xc1",
        b"\xd4",
        b"\xc7",
    ),
)
AGAIN = (2, 3, 50, 300, 3000)


def bend(random: Random, message: bytes, *, broken: float = 0.5) -> bytes:
    """One to three changes, of which this share is made in the bytes, whatever they say."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        message = (_bend_bytes if random.random() < broken else _bend_value)(random, message)
    return message


def _bend_value(random: Random, message: bytes) -> bytes:
    try:
        value = json.loads(message)
        return json.dumps(_changed(random, value)).encode()
    except (ValueError, RecursionError):
        return _bend_bytes(random, message)


def _changed(random: Random, value: Any) -> Any:
    """The same but for one place, however deep."""
    if isinstance(value, (dict, list)) and value and random.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key, changed = random.choice(keys), value.copy()
        if random.random() < 0.85:
            changed[key] = _changed(random, value[key])
        elif isinstance(changed, dict):
            _change_keys(random, changed, key)
        else:
            _change_places(random, changed, key)
        return changed
    return _other(random, value)


def _change_keys(random: Random, value: dict[Any, Any], key: Any) -> None:
    how = random.randrange(3)
    if how == 0:
        del value[key]
    elif how == 1:
        value[str(random.choice(LEAVES))] = value[key]
    else:
        value[key] = value[random.choice(list(value))]


def _change_places(random: Random, value: list[Any], place: int) -> None:
    if random.random() < 0.5:
        value.pop(place)
    else:
        value[place:place] = [value[place]] * random.choice(AGAIN)


def _other(random: Random, value: Any) -> Any:
    how = random.randrange(4)
    if how == 0 and isinstance(value, str):
        return _bend_bytes(random, value.encode("utf-8", "replace")).decode("utf-8", "replace")
    if how == 1 and isinstance(value, int | float):
        return random.choice((-value, value + 1, value * 1000, str(value)))
    if how == 2:
        return random.choice(([value], {"a": value}, [value] * 3))
    return random.choice(LEAVES)


def _bend_bytes(random: Random, message: bytes) -> bytes:
    return random.choice(_CHANGES)(random, message, random.randint(0, len(message)))


def _cut(_random: Random, message: bytes, at: int) -> bytes:
    return message[:at]


def _leave_out(random: Random, message: bytes, at: int) -> bytes:
    return message[:at] + message[at + random.choice((1, 1, 2, 8, 40)) :]


def _insert(random: Random, message: bytes, at: int) -> bytes:
    return message[:at] + random.choice(WORDS) + message[at:]


def _overwrite(random: Random, message: bytes, at: int) -> bytes:
    word = random.choice(WORDS)
    return message[:at] + word + message[at + len(word) :]


def _flip(random: Random, message: bytes, at: int) -> bytes:
    changed = bytearray(message or b"\x00")
    changed[at % len(changed)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _repeat(random: Random, message: bytes, at: int) -> bytes:
    part = message[at : at + random.choice((1, 2, 8, 40))]
    return message[:at] + part * random.choice(AGAIN) + message[at:]


def _move(random: Random, message: bytes, at: int) -> bytes:
    begin = random.randint(0, len(message))
    return message[:at] + message[begin : begin + random.choice((4, 16, 64))] + message[at:]


_CHANGES: tuple[Callable[[Random, bytes, int], bytes], ...] = (
    *(_cut, _leave_out, _insert, _insert, _overwrite, _flip, _repeat, _move),
)
