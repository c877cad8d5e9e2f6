"""Every reader of bytes from outside: messages that it takes, and what it may raise for others.

Anything else that it raises, and work out of proportion to a message, is a bug of ours.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import AsyncMock, Mock

import msgspec

from anabranch.dialects.arca.templates import read_template
from anabranch.dialects.durations import parse_duration
from anabranch.dialects.instants import parse_instant
from anabranch.dialects.registry import compile_source
from anabranch.dialects.schedule import ScheduleError, read_schedule
from anabranch.dialects.timetable import checked_cron
from anabranch.dialects.xrc137.read import read_rule
from anabranch.errors import AnabranchError, InputError
from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.expressions.placeholders import compile_value
from anabranch.expressions.pointer import parse_path
from anabranch.ids import checked_run_id
from anabranch.kernel import events as e
from anabranch.kernel.state import State, encode_state
from anabranch.market import check
from anabranch.market.documents import digest_of
from anabranch.market.node.delivery.arrivals import DeliverMessage, read_arrival
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import read_cursor as read_place
from anabranch.market.node.peers.envelope import (
    content_of,
    read_envelope,
    require_genuine,
    seal,
)
from anabranch.market.passports import read_passport
from anabranch.market.sources import load_source
from anabranch.operations.webhooks.signature import signs
from anabranch.pools.address import parse_pools
from anabranch.pools.assignment import (
    Assignment,
    Outcome,
    Progress,
    ValuesPlace,
    decode_assignment,
    encode_assignment,
    encode_outcome,
)
from anabranch.pools.assignment import decode_said as decode_outcome
from anabranch.pools.backend import Capacity
from anabranch.pools.dask.worker import Answer, decode_answer, encode_answer
from anabranch.pools.driver import wire
from anabranch.rates import read_rates
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.runtime.live_run import load_state
from anabranch.settings_file import load as load_settings
from anabranch.store.ports import Record, StateSnapshot
from anabranch.store.postgres.address import read_address
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import parse, read_cursor
from anabranch.surfaces.ui.form_fields import pairs_in, parts_in
from anabranch.testing.plan.documents import read_tests
from anabranch.work import tracing
from anabranch.work.chain import abi
from anabranch.work.chain.abi_types import signature_of, type_of
from anabranch.work.chain.errors import ChainError
from anabranch.work.chain.rpc import JsonRpc
from anabranch.work.file_policy import read_roots
from anabranch.work.kinds.buckets.places import read_place as read_bucket
from anabranch.work.kinds.nats.client import NatsConnection, NatsError, NatsLogin
from anabranch.work.kinds.nats.client import read_place as read_nats_place
from anabranch.work.network.addresses import read_policy
from anabranch.work.participants.book import read_book
from anabranch.work.participants.port import BadReply
from anabranch.work.participants.replies import parsed, refusal
from anabranch.work.secrets.credential_sources import read_credential
from anabranch.work.values.payloads import read_untrusted
from market.node.peers.support import KeySigner
from market.support import node, passport

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW = 1_770_000_000_000


class Door(NamedTuple):
    read: Callable[[bytes], object]
    right: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = (AnabranchError,)


# -- definitions -----------------------------------------------------------------------------


def example(name: str) -> bytes:
    return (EXAMPLES / name).read_bytes()


def compile_text(message: bytes) -> None:
    """Whatever stands there: a net, or problems."""
    found = compile_source(message)
    assert found.net is not None or found.problems


def text_of(message: bytes) -> str:
    """As a reader of settings or of JSON would hand it on, halves of characters included."""
    return message.decode("utf-8", "surrogateescape")


BUNDLE = {
    "format": "xgr-multi-bundle@1",
    "createdAt": "2026-06-01T00:00:00Z",
    "bundles": [{"bundleId": "b", "items": [json.loads(example("orchestration/nested.json"))]}],
}
PLAN = {
    "kind": "xgr.test-plan",
    "version": 1,
    "id": "p",
    "title": "a plan",
    "source": {"bundleId": "b", "rawBundleJson": json.dumps(BUNDLE)},
    "runtime": {"stepId": "A", "maxTotalGas": 0, "payload": {"amount": 5}},
    "expectations": {"timeline": [], "finalStatuses": ["done"], "finalStep": "Any"},
    "execution": {"ownerAlias": "ann", "starterAlias": "ann"},
    "testSetup": {"contracts": [{"key": "vault", "mode": "deployIfMissing"}]},
}
NAMES: Mapping[str, Any] = {
    "ctx": {"a": [1, 2.5, "x", None, True], "b": {"c": "2026-01-01"}},
    "workload": {"n": 3, "text": "one two", "rows": [{"k": 1}, {"k": 2}]},
}
TEMPLATES = (
    "{{ workload.rows | selectattr('k', 'gt', 1) | map(attribute='k') | list }}",
    "{% for each in ctx.a if each is not none %}{{ loop.index }}:{{ each }} {% endfor %}",
    "{{ (workload.n ** 2 // 3) ~ (ctx.b.c if ctx.b is defined else '-') }}",
    "{{ {'a': [1, 2][::-1], 'b': workload.text.split(' ') | join('-') | upper} | tojson }}",
    "{{ '%05.2f' | format(2.5) }}{{ 'a b'.split() }}{{ [3, 1] | sort | first }}",
    "{% set x = 2 %}{{ x | default(1) }}{# no #}",
)
CELS = (
    "a.filter(x, x > 1).map(x, x * 2u == 4u ? 'y' : \"n\").size() == 2",
    "has(b.c) && b.c.matches('^[a-z]+(x|y)*?$') || b['c'].startsWith(\"20\")",
    "size(a) > 2 ? [1, 2, 3][0] in a : double(a[0]) / 2.0 < 1.0 && string(1u) == '1'",
    "{'k': -9223372036854775808, 'l': 1.5e3, 'm': r'\\d'}.exists(k, k == 'l') ? null : int('1')",
)


def read_jinja(message: bytes) -> None:
    text = text_of(message)
    for make in (Jinja().value, Jinja().rendered, Jinja().condition):
        make(text).evaluate(NAMES)


def read_cel(message: bytes) -> None:
    compile_cel(text_of(message)).evaluate({"a": [1, 2, 3], "b": {"c": "20x"}, **NAMES})


def read_placeholder(message: bytes) -> None:
    compile_value(text_of(message))


# -- what programs send ----------------------------------------------------------------------


class Body(msgspec.Struct, kw_only=True):
    """As bodies of the API are: typed fields, and values of any kind."""

    name: str
    count: int = 0
    labels: dict[str, str] = {}
    input: dict[str, Any] = {}
    until: float | None = None
    items: list[tuple[str, int]] = []


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="a"; filename="b.yaml"\r\n'
    b"Content-Type: text/yaml\r\n\r\nsteps: []\r\n--x--\r\n"
)
BODY = {"name": "x", "count": 2, "labels": {"a": "b"}, "input": {"n": [1, {"k": None}]}}


def read_body(message: bytes) -> None:
    parse(message, Body, 100)


OF_CURSORS = (ApiError, NodeError)


def read_page(message: bytes) -> None:
    """As it is, and as what a cursor holds."""
    for text in (message.decode("latin-1"), base64.urlsafe_b64encode(message).decode()):
        for read in (lambda text: read_cursor(text, int, str), read_place):
            with suppress(*OF_CURSORS):
                read(text)


# -- what is in a store, and what workers upload ---------------------------------------------

BEGUN = e.RunStarted(
    "r", "f" * 64, "hello", {"n": 1}, 5, labels={"a": "b"}, known_keys={"k": ["v"]}
)


def read_log(message: bytes) -> None:
    count = max(1, message.count(b"[[") and len(_listed(message)))
    load_state(None, [Record(1, count, NOW, message)], "r")


def _listed(message: bytes) -> list[Any]:
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def read_snapshot(message: bytes) -> None:
    load_state(StateSnapshot(1, message), [], "r")


def read_upload(message: bytes) -> None:
    read_untrusted(message, 1 << 20, "a result")


# -- between engine and cluster --------------------------------------------------------------

JOB = ClaimedJob(
    run="r", step="s", job="j", attempt=1, key="k", kind="python", pool="heavy",
    definition="f" * 64, lease_until=NOW, lease_seconds=30.0, inputs={"n": [1, None]},
)  # fmt: skip
ASSIGNMENT = encode_assignment(
    Assignment(
        ticket="t", job=JOB, worker="w", definition="ab", names="cd", values=ValuesPlace(),
        parts={"ab": b"xyz"},
    )
)  # fmt: skip
CAPACITY = Capacity(slots=4, workers=2)
OUTCOME = Outcome(verb="report", body={"result": {"a": 1}}, parts={"ab": b"xyz"}, put=["cd"])
SAID = [("started", "t", "w", "p"), ("finished", "t", "w", b"x"), ("withdrawn", 1, ["t"])]
REPLIES: tuple[wire.Reply, ...] = (
    wire.Connected(CAPACITY),
    wire.Told(SAID),
    wire.Seen(1, CAPACITY),
    wire.Logged(30, "text"),
)


def read_driver(message: bytes) -> None:
    """As the engine reads what its driver says."""
    said = wire.reply_of(message)
    if isinstance(said, wire.Told):
        for each in said.said:
            wire.word_of(each)


def read_told(message: bytes) -> None:
    for each in wire.decode_said(message):
        wire.word_of(each)


# -- the market ------------------------------------------------------------------------------


ENVELOPE = seal(
    KeySigner(1), to=node(2), msg="workflow.fanout.request", kind="request",
    payload={"a": [1]}, correlation_id="c", now=NOW, nonce="n" * 32,
)  # fmt: skip


def read_peer(message: bytes) -> None:
    envelope = read_envelope(message)
    require_genuine(envelope, node(2), NOW)
    content_of(bytes(envelope.payload))


def read_delivery(message: bytes) -> None:
    try:
        sent = msgspec.json.decode(message, type=DeliverMessage)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NodeError(400, "peer_envelope", str(error)) from None
    read_arrival("peer", node(1), sent, 1 << 20)


ARTIFACT = b'{"a": [1, 2]}'
DELIVERY = {
    "schema": "artifact-deliver.v1",
    "delivery/id": "d",
    "component/id": "arca",
    "idempotency/key": "k",
    "artifact": {
        "schema": "report.v1",
        "content/type": "application/json",
        "digest": digest_of(ARTIFACT),
        "size/bytes": len(ARTIFACT),
        "bytes/base64": base64.b64encode(ARTIFACT).decode(),
    },
}


OFFER = json.loads(example("market/offer.json"))


def read_reply(message: bytes) -> None:
    refusal(500, "no", message)
    parsed(message, "somebody")


# -- others that are asked -------------------------------------------------------------------

GREETING = (
    b'INFO {"max_payload": 1024, "tls_required": false}\r\nPONG\r\n'
    b"MSG a 1 5\r\nhello\r\nHMSG a 1 b 22 27\r\nNATS/1.0 200\r\nA: b\r\n\r\nhello\r\nPING\r\n"
)
SIGNATURES = (
    "f() returns (uint256, bytes, string, address[], (int8, bool)[2])",
    "g() returns ((bytes32, string)[], uint8[3][], bytes4)",
)
RETURNS = [
    type_of(text) for text in ("uint256", "string", "address[]", "(int8,bool)[2]", "bytes[][]")
]
RETURNED = [7, "text", ["0x" + "ab" * 20], [[1, True], [-2, False]], [["0x00", "0xffff"], []]]


def read_answer_of_a_contract(message: bytes) -> None:
    abi.decode_each([*RETURNS, None], message)


def read_answer_of_a_chain(message: bytes) -> None:
    """As a node answers a call, with whatever of it is shown."""
    rpc = JsonRpc("http://127.0.0.1:1/")
    for status in (200, 500):
        rpc._result("eth_call", 1, status, message)


def read_type(message: bytes) -> None:
    signature_of(text_of(message))


def read_nats(message: bytes) -> None:
    """A server that greets, answers a question, and says what else it likes."""
    asyncio.run(_ask_nats(message))


async def _ask_nats(message: bytes) -> None:
    reader = asyncio.StreamReader(limit=1 << 20)
    reader.feed_data(message)
    reader.feed_eof()
    writer = Mock(drain=AsyncMock(), start_tls=AsyncMock())
    nats = NatsConnection(reader, writer, 1 << 20)
    await nats._greet(read_nats_place("nats://127.0.0.1"), NatsLogin(user="u", password="p"))
    for _ in range(message.count(b"MSG ")):
        await nats.received()


# -- what people write -----------------------------------------------------------------------


def from_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """For readers of files."""

    def read_message(message: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(message)
            path.chmod(0o600)
            read(path)

    return read_message


BOOK = b"""
participants:
  north: {url: "http://127.0.0.1:1/x", service_types: [text/summarise], price: 9}
  south: {url: "http://127.0.0.1:1/y", headers: {a: b}}
capabilities: {publication.verify: {url: "http://127.0.0.1:1/z"}}
"""


def read_settings(path: Path) -> None:
    load_settings({"ANABRANCH_SETTINGS": str(path)})


Words: TypeAlias = Mapping[str, tuple[Callable[[str], object], str]]

TIMES: Words = {
    "duration": (parse_duration, "1h30m"),
    "instant": (parse_instant, "2026-01-01T00:00:00Z"),
    "cron": (checked_cron, "*/5 1-3 * JAN mon-fri"),
}
WORDS: Words = {
    "pointer": (parse_path, "$.a[0].b"),
    "run": (checked_run_id, "hello-1"),
    "pools": (parse_pools, "heavy=dask://127.0.0.1:8786?priority=4, gpu=ray:auto"),
    "rates": (read_rates, "kind:http=100/m host:api.example.org=5/s+10 pool:gpu=2/s"),
    "roots": (read_roots, "/srv/data:/mnt/reports"),
    "addresses": (read_policy, "public, 10.0.0.0/8"),
    "nats": (read_nats_place, "nats://u:p@127.0.0.1:4222"),
    "database": (
        read_address,
        "postgresql://u:p@127.0.0.1:5432/db?sslmode=require&options=-c%20a%3Db",
    ),
    "bucket": (lambda text: read_bucket(text, "it"), "s3://bucket/a/b.json"),
    "trace": (tracing.read, "00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
    "credential": (lambda text: read_credential(text, "it"), '{"type": "x", "data": {"a": "b"}}'),
    "webhook": (lambda text: signs("secret", text, b"body"), "t=1770000000,v1=" + "a" * 64),
}


def read_named(words: Words) -> Callable[[bytes], object]:
    """The name of a reader, and after a space what it reads."""

    def read_message(message: bytes) -> None:
        name, _, text = text_of(message).partition(" ")
        if name in words:
            words[name][0](text)

    return read_message


def named(words: Words) -> tuple[bytes, ...]:
    return tuple(f"{name} {text}".encode() for name, (_, text) in words.items())


def read_mapping(message: bytes) -> Mapping[str, Any]:
    """As the readers of a definition and of a request hand it on."""
    try:
        found = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("it is no mapping")
    return found


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


DOORS: Mapping[str, Door] = {
    "noetl": Door(
        compile_text,
        tuple(
            map(example, ("fan_out.yaml", "parallel_loop.yaml", "decision.yaml", "workbook.yaml"))
        ),
    ),
    "xrc": Door(
        compile_text,
        tuple(map(example, ("orchestration/nested.json", "orchestration/polling.json"))),
    ),
    "arca": Door(
        compile_text,
        tuple(map(example, ("arca/quorum.json", "arca/best_of.json", "arca/publish.json"))),
    ),
    "template": Door(read_template, (example("arca/template.json"),)),
    "rule": Door(
        lambda message: read_rule(message),
        tuple(path.read_bytes() for path in sorted((EXAMPLES / "orchestration/rules").iterdir())),
    ),
    "plan": Door(lambda message: read_tests({"a.json": text_of(message)}), (encoded(PLAN),)),
    "schedule": Door(
        lambda message: read_schedule(read_mapping(message)),
        (encoded({"cron": "*/5 * * * *", "timezone": "Europe/Berlin"}), encoded({"every": "1h"})),
        (AnabranchError, ScheduleError),
    ),
    "jinja": Door(read_jinja, tuple(map(str.encode, TEMPLATES))),
    "cel": Door(read_cel, tuple(map(str.encode, CELS))),
    "placeholder": Door(read_placeholder, (b"[a.b] > 2 ? '[c]' : \"x\"",)),
    "body": Door(read_body, (encoded(BODY),), (ApiError,)),
    "form": Door(lambda message: parts_in(message, "x", 9), (FORM,), (ValueError,)),
    "fields": Door(lambda message: pairs_in(message, 9), (b"a=1&b=%C3%BC+x",), (ValueError,)),
    "cursor": Door(read_page, (base64.urlsafe_b64encode(b'[1, "a"]'), b'[1, "a"]')),
    "log": Door(read_log, (e.encode_events([BEGUN]),)),
    "snapshot": Door(read_snapshot, (encode_state(State(run="r", seq=1)),)),
    "upload": Door(read_upload, (encoded([1, {"a": None}]), gzip.compress(b'{"a": 1}', mtime=0))),
    "outcome": Door(
        decode_outcome, (encode_outcome(OUTCOME), encode_outcome(Progress(progress={"n": 1})))
    ),
    "assignment": Door(decode_assignment, (ASSIGNMENT,)),
    "dask": Door(decode_answer, (encode_answer(Answer("w", [b"x"], b"outcome")),), (ValueError,)),
    "driver": Door(
        read_driver,
        tuple(wire.framed(each)[wire.LENGTH_BYTES :] for each in REPLIES),
        (ValueError,),
    ),
    "told": Door(read_told, (wire.encode_said(SAID),), (ValueError,)),
    "document": Door(check, (example("market/offer.json"), encoded(passport()))),
    "passport": Door(
        lambda message: read_passport(load_source(message, "it")), (encoded(passport()),)
    ),
    "peer": Door(read_peer, (ENVELOPE,), (NodeError,)),
    "delivery": Door(read_delivery, (encoded(DELIVERY),), (NodeError,)),
    "reply": Door(
        read_reply, (encoded({"dispatch_id": "d", "status": "ok", "x": [1]}),), (BadReply,)
    ),
    "contract": Door(read_answer_of_a_contract, (abi.encode(RETURNS, RETURNED),), (ChainError,)),
    "stored": Door(abi.decode_bytes, (abi.encode([type_of("string")], ["a text"]),), (ChainError,)),
    "chain": Door(read_answer_of_a_chain, (encoded({"id": 1, "result": "0x00"}),)),
    "abi": Door(read_type, tuple(map(str.encode, SIGNATURES))),
    "nats": Door(read_nats, (GREETING,), (NatsError, InputError, EOFError, ConnectionResetError)),
    "book": Door(from_file("book.yaml", read_book), (BOOK,)),
    "settings": Door(
        from_file("anabranch.toml", read_settings),
        (b'pools = "a=ray:auto"\njobs_max = 3\n[rate_limits]\n"kind:http" = "1/s"\n',),
    ),
    "times": Door(read_named(TIMES), named(TIMES), (ValueError,)),
    "words": Door(read_named(WORDS), named(WORDS)),
}
