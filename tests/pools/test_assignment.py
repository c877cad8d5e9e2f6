"""What travels between engine and cluster: whole, unchanged, and unreadable on a dashboard."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.kernel.tracker import Shard
from anabranch.pools.assignment import (
    Assignment,
    Missing,
    Outcome,
    Progress,
    SealedBlob,
    Tools,
    ValuesPlace,
    decode_assignment,
    decode_said,
    encode_assignment,
    encode_outcome,
    version_of,
)
from anabranch.runtime.jobs.wire import ClaimedJob

VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63,
    2**64 - 1,
    2**200,
    -(2**100),
    0.1,
    1e308,
    -0.0,
    "",
    "zażółć 🚤   \n\t\x00",
    [],
    {},
    {"a": [1, {"b": None}], "": {"": []}},
]
SECRET = "sesame-open-4711"


def leased(**more: Any) -> ClaimedJob:
    return ClaimedJob(
        run="r1",
        step="far",
        job="far-1",
        attempt=2,
        key="r1/far",
        kind="noop",
        pool="gpu",
        definition="f1",
        lease_until=5,
        lease_seconds=30.0,
        **more,
    )


def assignment(**more: Any) -> Assignment:
    given: dict[str, Any] = {"job": leased(), "values": ValuesPlace(), **more}
    given |= {"definition": "d", "names": "n"}
    return Assignment(ticket="far-1", worker="gpu@dask:1", version="1.0", **given)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_json_value_arrives_as_it_was(value: Any) -> None:
    shard = Shard(0, 0, 1)
    sent = assignment(job=leased(args=value, items=[(0, "0", value)], shard=shard, source=value))
    assert decode_assignment(encode_assignment(sent)) == sent
    said = Outcome(verb="report", body={"result": value})
    assert decode_said(encode_outcome(said)) == said


def test_an_assignment_arrives_with_its_parts_as_raw_bytes() -> None:
    parts = {"a" * 64: bytes(range(256)) * 50, "b" * 64: b"", "c" * 64: b"{}"}
    sent = assignment(
        parts=parts,
        needs=["a" * 64],
        tools=[Tools(module="shop", sha256="12")],
        settings={"inline_bytes_max": 5},
        values=ValuesPlace(mode="server", url="https://example.org", token=SECRET),
    )
    blob = encode_assignment(sent)
    assert decode_assignment(blob) == sent
    assert len(blob) < sum(map(len, parts.values())) + 1500, "no encoding of bytes as text"


@pytest.mark.parametrize(
    "said",
    [
        Missing(parts=["a", "b"], process="p"),
        Progress(progress={"done": 1, "of": 2, "checkpoint": {"x": 2**70}}),
        Progress(progress={"done": 1, "of": 2, "payload": "h"}, parts={"h": b"x"}, put=["i"]),
        Outcome(verb="fail", body={"message": "no"}, seconds=1.5, process="p", had=["a"]),
        Outcome(verb="report", body={"payload": "h"}, parts={"h": b"[1]"}, put=["i"]),
    ],
    ids=lambda said: type(said).__name__,
)
def test_what_a_process_says_arrives_as_it_was(said: Any) -> None:
    assert decode_said(encode_outcome(said)) == said


def test_a_checkpoint_that_is_encoded_already_arrives_as_its_value() -> None:
    said = Progress(progress={"done": 1, "of": 2, "checkpoint": msgspec.Raw(b'{"over":[[0,1]]}')})
    found = decode_said(encode_outcome(said))
    assert isinstance(found, Progress)
    assert found.progress["checkpoint"] == {"over": [[0, 1]]}


@pytest.mark.parametrize(
    "damage",
    [
        lambda _blob: b"",
        lambda blob: blob[:10],
        lambda blob: blob[:-1],
        lambda blob: blob + b"x",
        lambda blob: b"{}" + blob[2:],
        lambda blob: blob[:40] + b"!" + blob[41:],
    ],
)
def test_other_bytes_are_refused_with_a_reason(damage: Any) -> None:
    blob = bytes(encode_assignment(assignment(parts={"a": b"123"})))
    with pytest.raises(InputError, match="no message between engine and cluster"):
        decode_assignment(damage(blob))
    with pytest.raises(InputError, match="no message between engine and cluster"):
        decode_said(damage(bytes(encode_outcome(Outcome(verb="fail", body={}, parts={"a": b"1"})))))


def test_the_version_can_be_told_of_an_assignment_that_cannot_be_read() -> None:
    blob = bytes(encode_assignment(assignment()))
    of_before = blob.replace(b'"attempt":2,"key":"r1/far"', b'"attempt":"2","key":"/far"')
    with pytest.raises(InputError):
        decode_assignment(of_before)
    assert version_of(of_before) == "1.0"
    assert version_of(blob.replace(b'"attempt":2', b'"attempt":{')) == ""
    assert version_of(b"") == ""


def test_nothing_that_travels_shows_more_than_its_size(caplog: pytest.LogCaptureFixture) -> None:
    sent = assignment(
        job=leased(sealed={"mark": SECRET}, args={"password": SECRET}),
        values=ValuesPlace(mode="server", url=f"https://u:{SECRET}@example.org", token=SECRET),
        parts={"h": SECRET.encode()},
    )
    blob = encode_assignment(sent)
    said = Outcome(verb="report", body={"result": SECRET}, parts={"h": SECRET.encode()})
    answer = encode_outcome(said)
    copied = pickle.loads(pickle.dumps(blob))
    logging.getLogger("test").warning("%s %r %s", blob, [answer], {"args": (copied,)})
    shown = [
        repr(sent.values),
        *(repr(one) for one in (sent, sent.job, blob, [blob], {"kwargs": answer}, said, copied)),
        *(str(one) for one in (sent, blob, answer, said, copied)),
        f"{blob} {answer} {copied!r} {blob!s}",
        f"{blob:>10}",
        f"{blob} {answer!r}",
        repr(Progress(progress={"x": SECRET})),
        caplog.text,
    ]
    assert SECRET in bytes(blob).decode("utf-8", "replace"), "it is in there"
    assert not [text for text in shown if SECRET in text]
    assert all(isinstance(one, SealedBlob) for one in (blob, answer, copied))
    assert copied == blob
    assert repr(blob) == f"<sealed blob of {len(blob):,} bytes>"
