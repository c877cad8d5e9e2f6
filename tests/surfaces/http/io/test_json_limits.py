"""A body is looked over before it is parsed: right for every text, quick for hostile ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from anabranch.surfaces.http.io import json_limits, request_body
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.work.values import json_size
from seeds import seeds

BODY_BYTES = 16 * 1024 * 1024
TEXTS = ("", ":", "a,b", '"', "\\", '\\"', "[{", "}]", "\\\\", "é", "\u2028", "plain", '":', "\n\t")


def value(dice: Random, depth: int = 0) -> Any:
    kind = dice.randrange(6 if depth < 5 else 4)
    if kind == 4:
        return [value(dice, depth + 1) for _ in range(dice.randrange(5))]
    if kind == 5:
        return {
            dice.choice(TEXTS) + str(n): value(dice, depth + 1) for n in range(dice.randrange(5))
        }
    return (dice.choice(TEXTS), dice.randrange(10**6), dice.random(), None)[kind]


def depth_of(each: Any) -> int:
    if isinstance(each, dict):
        each = list(each.values())
    return 1 + max(map(depth_of, each), default=0) if isinstance(each, list) else 0


@pytest.mark.parametrize("seed", seeds(40))
def test_what_is_counted_is_what_is_there_wherever_the_pieces_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(seed)
    monkeypatch.setattr(json_size, "PIECE_BYTES", dice.choice((1, 2, 3, 7, 64)))
    for _ in range(20):
        plain = [value(dice) for _ in range(5)]
        indent, ascii_only = dice.choice((None, 1)), dice.random() < 0.5
        text = json.dumps(plain, indent=indent, ensure_ascii=ascii_only).encode()
        seen = json_limits.scan(text, 200)
        assert (seen.depth, seen.deepest) == (0, depth_of(plain))
        assert seen.keys == json_limits.keys_in(plain)
        assert seen.containers == json.dumps(_without_text(plain)).count("[") + _objects(plain)


def _without_text(each: Any) -> Any:
    if isinstance(each, dict):
        return {f"k{n}": _without_text(inner) for n, inner in enumerate(each.values())}
    if isinstance(each, list):
        return [_without_text(inner) for inner in each]
    return 0


def _objects(each: Any) -> int:
    if isinstance(each, dict):
        return 1 + sum(map(_objects, each.values()))
    return sum(map(_objects, each)) if isinstance(each, list) else 0


def parsed(body: bytes) -> Any:
    return request_body.parse(body, Any, 200)


def refused(body: bytes) -> str:
    with pytest.raises(ApiError) as caught:
        parsed(body)
    assert caught.value.detail
    assert caught.value.hint
    return caught.value.code


def filled(unit: bytes, begin: bytes = b"[", end: bytes = b"]") -> bytes:
    count = (BODY_BYTES - 2) // (len(unit) + 1)
    return begin + ((unit + b",") * count)[:-1] + end


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty lists": (lambda: filled(b"[]"), "too_many_values"),
    "empty objects": (lambda: filled(b"{}"), "too_many_values"),
    "numbers": (lambda: filled(b"1"), "too_many_values"),
    "empty texts": (lambda: filled(b'""'), "too_many_values"),
    "the same key": (lambda: filled(b'"a":1', b"{", b"}"), "too_many_values"),
    "deep lists": (lambda: filled(b"[" * 150 + b"]" * 150), "too_many_values"),
    "never closed": (lambda: b"[" * BODY_BYTES, "too_deep"),
    "a quote that never ends": (lambda: b'["' + b'\\"' * 8_000_000, "not_json"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_before_anything_is_built_of_it(name: str) -> None:
    make, code = HOSTILE[name]
    body = make()
    begin = time.process_time()
    assert refused(body) == code
    assert time.process_time() - begin < 4.0  # seconds of work; it was up to fifteen


@pytest.mark.soak
def test_numbers_that_are_hard_to_round_take_no_longer_than_others() -> None:
    body = filled(b"1.2345678901234567e-300")
    begin = time.process_time()
    found = parsed(body)
    assert time.process_time() - begin < 4.0
    assert set(found) == {1.2345678901234567e-300}


@pytest.mark.parametrize("pad", [0, 100_000], ids=["small", "large"])
def test_large_and_small_bodies_have_the_same_rules(pad: int) -> None:
    text = b'"' + b"x" * pad + b'"'
    assert parsed(b"[1.5, 1e3, -0.0, %s]" % text)[:3] == [1.5, 1000.0, -0.0]
    assert refused(b"[1e999, %s]" % text) == "schema"
    assert refused(b'{"a": 1, "a": 2, "b": %s}' % text) == "duplicate_key"
    assert refused(b'{"a": {"\\u0061": 1, "a": 2}, "b": %s}' % text) == "duplicate_key"
    assert refused(b"[NaN, %s]" % text) == "not_json"
    assert refused(b"[%s%s%s]" % (b"[" * 200, text, b"]" * 200)) == "too_deep"
    assert refused(b"[%s" % text) == "not_json"
    assert parsed(b'{":": ":", "a\\"": "\\\\", "b": %s}' % text)[":"] == ":"


def test_a_long_list_of_numbers_and_many_rows_are_fine() -> None:
    assert len(parsed(json.dumps(list(range(1_000_000))).encode())) == 1_000_000
    rows = [{"id": n, "name": f"patient {n}", "beds": [n]} for n in range(60_000)]
    assert parsed(json.dumps(rows).encode()) == rows
