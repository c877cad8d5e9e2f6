"""Whatever is handed in: problems, never a crash, never a long time."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.market import check
from anabranch.market.documents import CODES, KINDS, InvalidDocument, moment_of, require
from anabranch.market.documents.checking import read_document
from anabranch.market.documents.limits import DEPTH_MAX, TEXT_MAX, VALUES_MAX, VALUES_OF
from anabranch.market.documents.problems import PROBLEMS_MAX, Found
from seeds import examples

from .examples import MAKERS, contract, offer, order, report
from .tables import found

PAYMENT, AMOUNT = "payment/amount", "/payment~1amount"
CPU_SECONDS = 10.0  # far above what any of these needs


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"NOT": value}
    return value


#: Made when they are needed: some are large.
HOSTILE: dict[str, tuple[Callable[[], Any], set[tuple[str, str]]]] = {
    "deep lists": (lambda: nested(10_000), {("", "too-deep")}),
    "deep filter": (lambda: report(input_chains=[nested(10_000)]), {("", "too-deep")}),
    "deep order": (lambda: {**order(), "request/input": nested(10_000)}, {("", "too-deep")}),
    "deep text": (lambda: b"[" * 100_000, {("", "too-deep")}),
    "deep objects in a text": (lambda: b'{"a":' * 100_000, {("", "too-deep")}),
    "ten megabytes": (lambda: offer(**{"service/type": "x" * 10_000_000}), {("", "too-large")}),
    "ten megabytes of text": (lambda: b'{"a":"' + b"x" * 10_000_000 + b'"}', {("", "too-large")}),
    "ten million numbers": (lambda: [0] * 10_000_000, {("", "too-many-values")}),
    "a million lists": (lambda: b"[" + b"[]," * 1_000_000 + b"[]]", {("", "too-many-values")}),
    "many keys": (lambda: {str(i): i for i in range(VALUES_MAX)}, {("", "too-many-values")}),
    "shared lists": (lambda: [[[["x"] * 100] * 100] * 100] * 100, {("", "too-many-values")}),
    "beyond 2^53": (lambda: contract(**{PAYMENT: 2**53}), {(AMOUNT, "bad-number")}),
    "a thousand digits": (lambda: contract(**{PAYMENT: 10**1000}), {(AMOUNT, "bad-number")}),
    "not a number": (lambda: contract(**{PAYMENT: float("nan")}), {(AMOUNT, "bad-number")}),
    "endless": (lambda: contract(**{PAYMENT: float("inf")}), {(AMOUNT, "bad-number")}),
    "half a character": (lambda: {**offer(), "x": "\ud800"}, {("/x", "half-character")}),
    "half a key": (lambda: {**offer(), "\udfff": 1}, {("", "half-character")}),
    "a key that is a number": (lambda: {**offer(), 5: 1}, {("", "not-json")}),
    "bytes": (lambda: {**offer(), "x": b""}, {("/x", "not-json")}),
    "a set": (lambda: {**offer(), "x": {1}}, {("/x", "not-json")}),
    "a tuple": (lambda: {**offer(), "x": ()}, {("/x", "not-json")}),
    "the same key twice": (lambda: b'{"offer/id": "a", "offer/id": "b"}', {("", "duplicate-key")}),
    "NaN in a text": (lambda: b'{"a": NaN}', {("", "syntax")}),
    "a number too large": (lambda: b'{"a": 1e999}', {("", "bad-value")}),
    "a whole number too large": (lambda: b'{"a": 123456789012345678901}', {("", "bad-value")}),
    "half a character in a text": (lambda: rb'{"a": "\ud800"}', {("", "bad-value")}),
    "UTF-16": (lambda: '{"a": 1}'.encode("utf-16"), {("", "not-utf8")}),
    "half a text": (lambda: b'{"a": 1', {("", "syntax")}),
    "no text": (lambda: b"", {("", "empty")}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_get_one_problem_in_little_time(name: str) -> None:
    make, problems = HOSTILE[name]
    document = make()
    before = time.process_time()
    told = found(document)
    assert time.process_time() - before < CPU_SECONDS
    assert told == problems


def test_a_bomb_of_aliases_goes_off_nowhere() -> None:
    lines = [b"a: &a [x,x,x,x,x,x,x,x,x]"]
    for name in range(ord("b"), ord("n")):
        aliases = b",".join([b"*%c" % (name - 1)] * 9)
        lines.append(b"%c: &%c [%s]" % (name, name, aliases))
    told = Found()
    read_document(b"\n".join(lines), told, "bomb.yaml")
    assert [problem.code for problem in told.problems()] == ["too-many-values"]


@pytest.mark.parametrize("document", [None, True, 5, 1.5, "text", [], [{}]])
def test_what_is_no_object_is_no_document(document: Any) -> None:
    assert found(document) == {("", "not-an-object")}
    with pytest.raises(InvalidDocument):
        require(document, "service-offer.v1")


def test_the_limits_are_met_exactly() -> None:
    assert found(nested(DEPTH_MAX - 1)) == {("", "unknown-kind")}
    assert found(nested(DEPTH_MAX)) == {("", "too-deep")}
    assert found({"a": "x" * (TEXT_MAX - 1)}) == {("", "unknown-kind")}
    assert found({"a": "x" * TEXT_MAX}) == {("", "too-large")}
    assert found({"a": [0] * (VALUES_MAX - 2)}) == {("", "unknown-kind")}
    assert found({"a": [0] * (VALUES_MAX - 1)}) == {("", "too-many-values")}


@pytest.mark.parametrize(("kind", "most"), VALUES_OF.items())
def test_what_anyone_may_send_has_fewer_values_and_takes_no_time(kind: str, most: int) -> None:
    document = {**MAKERS[kind](), "x": [[]] * VALUES_MAX}
    before = time.process_time()
    assert found(document, kind=kind) == {("", "too-many-values")}
    assert time.process_time() - before < CPU_SECONDS / 10
    assert "too-many-values" not in {one.code for one in check({"x": [0] * (most - 2)}, kind=kind)}
    assert found({"x": [0] * (most - 1)}, kind=kind) == {("", "too-many-values")}


def test_problems_are_counted_when_they_are_too_many_to_list() -> None:
    listed = check({str(at): at for at in range(500)}, kind="service-order.result.v1")
    assert len(listed) == PROBLEMS_MAX + 1
    assert listed[-1].code == "too-many-problems"
    assert "410" in listed[-1].message


@pytest.mark.parametrize(
    "document",
    [
        {**MAKERS["service-order.result.v1"](), **{f"k{at}": at for at in range(90_000)}},
        order(policy_annotations={"x": [0.5] * 90_000}),
        {"offers": [1] * 90_000, "query_id": "q"},
    ],
    ids=["unknown fields", "fractions", "offers"],
)
def test_very_many_problems_take_little_time(document: Any) -> None:
    before = time.process_time()
    assert len(check(document)) >= PROBLEMS_MAX
    assert time.process_time() - before < CPU_SECONDS


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"schema": "service-order.resul.v1"}, "did you mean 'service-order.result.v1'?"),
        ({"schema": 5}, "there is no document 5"),
        ({"schema": "x" * 10_000}, "there is no document"),
        ({"a": 1}, "`offer/id`"),
        ({"plan": {"steps": []}}, "`anabranch check`"),
    ],
)
def test_a_document_of_no_kind_is_told_what_it_might_be(document: Any, words: str) -> None:
    (problem,) = check(document)
    assert problem.code == "unknown-kind"
    assert words in problem.message
    assert len(problem.message) < 1000


def test_a_kind_that_is_named_counts_and_must_exist() -> None:
    (problem,) = check(offer(), kind="service-offer.v2")
    assert (problem.code, "did you mean 'service-offer.v1'" in problem.message) == (
        "unknown-kind",
        True,
    )
    assert ("/order~1id", "missing-field") in found(offer(), kind="service-order.v1")


@pytest.mark.parametrize("at", [True, "soon", "2026-06-10", 1.5])
def test_an_instant_that_is_none_is_refused(at: Any) -> None:
    with pytest.raises(InputError, match="`at`"):
        check(offer(), at=at)


def test_instants_are_read_in_three_ways() -> None:
    from datetime import UTC, datetime

    moment = moment_of("2026-06-10T08:00:00Z")
    assert moment == 1_781_078_400_000
    assert moment_of(moment) == moment_of(datetime(2026, 6, 10, 8, tzinfo=UTC)) == moment
    with pytest.raises(InputError, match="time zone"):
        moment_of(datetime(2026, 6, 10, 8))


def test_messages_stay_short_and_printable() -> None:
    odd = "\x1b[31m\u202e" + "z" * 5000
    for name, make in MAKERS.items():
        for field in KINDS[name].required:
            for problem in check(make(**{field: odd}), kind=name):
                assert problem.message.isprintable()
                assert len(problem.message) < 600


# -- any JSON value --------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["v1", "service-offer.v1", "2026-06-10T08:00:00Z", "sha256:", "\ud800", ""])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(deadline=None, max_examples=examples(60))
@given(values, st.sampled_from([None, *KINDS]), st.booleans())
def test_no_json_value_raises(value: Any, kind: str | None, draft: bool) -> None:
    for problem in check(value, kind=kind, at=0, draft=draft):
        assert problem.code in CODES
        assert problem.path == "" or problem.path.startswith("/")


@settings(deadline=None, max_examples=examples(60))
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_no_document_with_odd_values_anywhere_raises(kind: str, data: st.DataObject) -> None:
    document = json.loads(json.dumps(MAKERS[kind]()))
    for _ in range(data.draw(st.integers(1, 3))):
        _replace(document, data.draw(st.randoms(use_true_random=False)), data.draw(values))
    for problem in check(document, kind=kind, at="2026-06-10T08:00:00Z"):
        assert problem.code in CODES


def _replace(document: Any, chance: random.Random, value: Any) -> None:
    """Put a value in the place of any part, however deep."""
    while True:
        place = chance.choice(
            list(document) if isinstance(document, dict) else range(len(document))
        )
        inner = document[place]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
            document[place] = value
            return
        document = inner


@settings(deadline=None, max_examples=examples(60))
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_raise(data: bytes) -> None:
    assert all(problem.code in CODES for problem in check(data))
