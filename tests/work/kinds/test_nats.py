"""A NATS task keeps values in buckets and publishes messages, through a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import NatsOptions
from anabranch.work.kinds.nats import client, performer
from anabranch.work.kinds.nats.client import NatsConnection, NatsLogin, read_place
from anabranch.work.kinds.nats.performer import Nats
from anabranch.work.network.addresses import read_policy
from anabranch.work.values import served_json
from hangs import HANG_SECONDS

from ..support import fault_of, run, task

USER, PASSWORD = "tester", "word-of-the-tester"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with JetStream on a free port of the loopback."""
    program = shutil.which(os.environ.get("NATS_SERVER") or "nats-server")
    if program is None:
        pytest.skip("there is no nats-server here (install it, or set NATS_SERVER=...)")
    folder = tmp_path_factory.mktemp("nats")
    options = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder / "data")]
    login = ["--user", USER, "--pass", PASSWORD]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [program, *options, *login, "--ports_file_dir", str(folder)], stdout=log, stderr=log
        )
    try:
        yield _address(server, folder)
    finally:
        server.terminate()
        server.wait(HANG_SECONDS)


def _address(server: subprocess.Popen[bytes], folder: Path) -> str:
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until and server.poll() is None:
        for path in folder.glob("*.ports"):
            found = path.read_text()
            if found.endswith("}"):
                return str(json.loads(found)["nats"][0])
        time.sleep(0.02)
    raise AssertionError((folder / "log").read_text())


@pytest.fixture
def bucket(url: str, request: pytest.FixtureRequest) -> str:
    """A bucket, and a stream `S_…` for the subjects below its name."""
    name = f"b{abs(hash(request.node.name))}"
    kept = {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "max_msgs_per_subject": 1}
    config = {**kept, "allow_rollup_hdrs": True, "deny_delete": True, "storage": "memory"}
    stream = {"name": f"S_{name}", "subjects": [f"{name}.>"], "storage": "memory"}

    async def work(nats: NatsConnection) -> None:
        for each in (config, stream):
            subject = f"$JS.API.STREAM.CREATE.{each['name']}"
            answer = json.loads((await nats.request(subject, json.dumps(each).encode())).payload)
            assert "error" not in answer, answer

    connected(url, work)
    return name


def connected(url: str, work: Callable[[NatsConnection], Awaitable[Any]]) -> Any:
    async def scenario() -> Any:
        login = NatsLogin(user=USER, password=PASSWORD)
        async with await NatsConnection.connect(read_place(url), login) as nats:
            return await work(nats)

    return run(scenario())


def ask(url: str, operation: str, *, key_of_job: str = "run-1/job-1", **inputs: Any) -> Answer:
    auth = {"url": url, "user": USER, "password": PASSWORD}
    job = task("nats", operation=operation, **{"auth": auth, **inputs})
    return run(Nats().perform(msgspec.structs.replace(job, key=key_of_job)))


def result(url: str, operation: str, **inputs: Any) -> Any:
    answer = ask(url, operation, **inputs)
    assert answer.status == "ok", answer
    return answer.result


def refused(url: str, operation: str, **inputs: Any) -> Fault:
    return fault_of(ask(url, operation, **inputs))


@pytest.mark.parametrize(
    "value", [{"user": 7, "roles": ["a"]}, "a text, ünicode", 12.5, None, "x" * 200_000]
)
def test_a_value_comes_back_as_it_was_put(url: str, bucket: str, value: Any) -> None:
    put = result(url, "kv_put", bucket=bucket, key="users.7", value=value)
    assert put == {"status": "success", "bucket": bucket, "key": "users.7", "revision": 1}
    found = result(url, "kv_get", bucket=bucket, key="users.7")
    assert found.pop("created")
    expected = {"status": "success", "bucket": bucket, "key": "users.7", "revision": 1}
    assert found == {**expected, "value": value}


def test_a_key_that_is_not_there_is_no_failure_and_deleted_ones_are_gone(
    url: str, bucket: str
) -> None:
    gone = {"status": "not_found", "bucket": bucket, "key": "a", "value": None}
    assert result(url, "kv_get", bucket=bucket, key="a") == gone
    for number, way in enumerate(("kv_delete", "kv_purge")):
        result(url, "kv_put", key_of_job=str(number), bucket=bucket, key="a", value=1)
        assert result(url, "kv_get", bucket=bucket, key="a")["value"] == 1
        assert result(url, way, bucket=bucket, key="a")["status"] == "success"
        assert result(url, "kv_get", bucket=bucket, key="a") == gone


def test_keys_are_listed_without_those_that_were_deleted(url: str, bucket: str) -> None:
    assert result(url, "kv_keys", bucket=bucket)["keys"] == []
    for key in ("users.2", "users.1", "orders.1", "users.3"):
        result(url, "kv_put", key_of_job=key, bucket=bucket, key=key, value=key)
    result(url, "kv_delete", bucket=bucket, key="users.3")
    found = result(url, "kv_keys", bucket=bucket, pattern="users.*")
    expected = {"keys": ["users.1", "users.2"], "count": 2}
    assert found == {"status": "success", "bucket": bucket, **expected}
    assert result(url, "kv_keys", bucket=bucket)["count"] == 3


def test_an_attempt_that_is_repeated_is_stored_once(url: str, bucket: str) -> None:
    subject = f"{bucket}.orders"
    first = result(url, "js_publish", subject=subject, data={"n": 1}, headers={"Trace": "t1"})
    assert first == {"status": "success", "stream": f"S_{bucket}", "seq": 1, "duplicate": False}
    again = result(url, "js_publish", subject=subject, data={"n": 1})
    assert (again["seq"], again["duplicate"]) == (1, True)
    other = result(url, "js_publish", key_of_job="other", subject=subject, data="text")
    assert other["seq"] == 2
    puts = [result(url, "kv_put", bucket=bucket, key="k", value=n) for n in (1, 1)]
    assert [put["revision"] for put in puts] == [1, 1]


def test_messages_of_a_stream_are_read_by_number_by_subject_and_the_last(
    url: str, bucket: str
) -> None:
    stream = f"S_{bucket}"
    result(url, "js_publish", subject=f"{bucket}.a", data=1, headers={"Trace": "t1"})
    result(url, "js_publish", key_of_job="2", subject=f"{bucket}.b", data="two", stream=stream)
    first = result(url, "js_get_msg", stream=stream, seq=1)
    assert (first["data"], first["subject"], first["headers"]["Trace"]) == (1, f"{bucket}.a", "t1")
    assert result(url, "js_get_msg", stream=stream, last=True)["data"] == "two"
    assert result(url, "js_get_msg", stream=stream, subject=f"{bucket}.a")["seq"] == 1
    assert result(url, "js_get_msg", stream=stream, seq=99)["status"] == "not_found"
    info = result(url, "js_stream_info", stream=stream)
    assert (info["state"]["messages"], info["config"]["subjects"]) == (2, [f"{bucket}.>"])


def test_a_message_reaches_who_listens_when_the_task_is_done(url: str) -> None:
    async def work(nats: NatsConnection) -> Any:
        inbox = nats.inbox()
        auth = {"url": url, "user": USER, "password": PASSWORD}
        told = {"subject": inbox, "data": [1, 2], "headers": {"A": "b"}}
        job = msgspec.structs.replace(task(), inputs={"operation": "publish", "auth": auth, **told})
        answer = await Nats().perform(job)
        return answer, await nats.received()

    answer, message = connected(url, work)
    assert answer.status == "ok"
    assert (json.loads(message.payload), message.headers) == ([1, 2], {"A": "b"})


def test_the_login_may_stand_in_the_address(url: str, bucket: str) -> None:
    address = url.replace("nats://", f"nats://{USER}:{PASSWORD}@")
    job = task("nats", operation="kv_get", url=address, bucket=bucket, key="a")
    answer = run(Nats().perform(job))
    assert answer.result["status"] == "not_found"


@pytest.mark.parametrize(
    ("inputs", "kind", "code", "said"),
    [
        ({"bucket": "none_such", "key": "a"}, "not_found", "NATS_10059", "stream not found"),
        ({"auth": {"url": "URL", "user": USER, "password": "wrong"}}, "auth", "", "Authorization"),
        ({"auth": {"url": "nats://127.0.0.1:1"}}, "connection", "CONN_REFUSED", "refused"),
        ({"auth": {"url": "http://127.0.0.1"}}, "config", "", "nats://host:4222"),
        ({"auth": {"url": "URL", "jwt": "x"}}, "config", "", "auth.jwt"),
        ({"operation": "kv_fetch"}, "config", "", "must be one of kv_get"),
        ({"bucket": "a b"}, "config", "", "bucket cannot be 'a b'"),
        ({"key": "a b\r\nPUB x 0"}, "config", "", "key cannot be"),
        ({"operation": "js_get_msg", "stream": "s"}, "config", "", "seq, subject, or last"),
        (
            {"operation": "js_get_msg", "stream": "s", "seq": "1١"},
            *("config", "", "seq must be the number"),
        ),
        ({"operation": "publish", "subject": "a.*", "data": 1}, "config", "", "subject"),
        (
            {"operation": "publish", "subject": "a", "headers": {"A": "b\r\nC: d"}, "data": 1},
            *("config", "", "headers"),
        ),
        (
            {"operation": "publish", "subject": "a", "data": "x" * 2_000_000},
            "config",
            "",
            "payload",
        ),
        (
            {"operation": "js_publish", "subject": "nobody", "data": 1},
            "not_found",
            "NO_STREAM",
            "'n",
        ),
        (
            {"operation": "kv_put", "bucket": "none_such", "value": 1},
            *("not_found", "NO_BUCKET", "no bucket 'none_such'"),
        ),
    ],
)
def test_what_cannot_be_done_says_why(
    url: str, inputs: dict[str, Any], kind: str, code: str, said: str
) -> None:
    given = json.loads(
        json.dumps({"bucket": "some", "key": "a", **inputs}).replace('"URL"', f'"{url}"')
    )
    fault = refused(url, given.pop("operation", "kv_get"), **given)
    assert (fault.kind, fault.code) == (kind, code), fault
    assert said in fault.message
    assert PASSWORD not in fault.message


def test_it_reaches_the_addresses_that_calls_may_reach(url: str) -> None:
    performer = Nats(NatsOptions(addresses=read_policy("public")))
    job = task("nats", operation="kv_get", url=url, bucket="b", key="k")
    fault = fault_of(run(performer.perform(job)))
    assert (fault.kind, fault.code) == ("config", "ADDRESS_REFUSED")
    assert "http_addresses" in fault.message


# -- servers that misbehave ------------------------------------------------------------------


@asynccontextmanager
async def pretender(*said: bytes) -> AsyncIterator[str]:
    """Says one thing after every line it hears, and nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said[0])
        for each in said[1:]:
            while not (await reader.readline()).startswith(b"PING"):
                pass
            writer.write(each)
        with suppress(asyncio.CancelledError):  # the test is over
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([b"HELLO\r\n"], "parse"),
        ([b"INFO nonsense\r\n"], "parse"),
        ([b"INFO " + b"x" * 2_000_000], "parse"),
        ([b"INFO {}\r\n"], "timeout"),
        ([b"INFO {}\r\n", b"-ERR 'Authorization Violation'\r\n"], "auth"),
        ([b"INFO {}\r\n", b"PONG\r\nMSG x 1 99999999999\r\n"], "result"),
        ([b"INFO {}\r\n", b"PONG\r\nMSG x 1 many\r\n"], "parse"),
    ],
)
def test_a_server_that_misbehaves_fails_the_task_and_nothing_else(
    said: list[bytes], kind: str
) -> None:
    limit = 0.5 if kind == "timeout" else HANG_SECONDS

    async def scenario() -> Answer:
        async with pretender(*said) as address:
            job = task("nats", operation="kv_get", url=address, bucket="b", key="k", timeout=limit)
            return await Nats().perform(job)

    assert fault_of(run(scenario())).kind == kind


@asynccontextmanager
async def flooding(*said: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """Greets, and then says the same things for as long as somebody reads."""
    sent = [0]

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n" + said[0])
        with suppress(ConnectionError, asyncio.CancelledError):
            while True:
                writer.write(said[1] * 100)
                await writer.drain()
                sent[0] += 100 * len(said[1])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"MSG x 1 100\r\n" + b"x" * 100 + b"\r\n"),
        (b"PONG\r\n", b"MSG _INBOX.x 1 100\r\n" + b"x" * 100 + b"\r\n"),
        (b"PONG\r\n", b"MSG _INBOX.x 1 0\r\n\r\n"),
        (b"PONG\r\n", b"MSG x 99 100\r\n" + b"x" * 100 + b"\r\n"),
        (b"PONG\r\n", b"PING\r\n"),
        (b"PONG\r\n", b"+OK\r\n"),
    ],
    ids=["before its PONG", "in place of an answer", "empty", "of others", "pings", "words"],
)
def test_a_server_that_does_not_end_is_given_up_and_fills_no_memory(
    first: bytes, again: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MORE_BYTES", 100_000)

    async def scenario() -> tuple[Answer, int]:
        async with flooding(first, again) as (address, sent):
            job = task("nats", operation="kv_get", url=address, bucket="b", key="k")
            return await Nats(NatsOptions(bytes_max=100_000)).perform(job), sent[0]

    answer, sent = run(scenario())
    assert fault_of(answer).kind == "result"
    assert "200,000 bytes" in fault_of(answer).message
    assert sent < 20_000_000  # the rest of which is in the buffers of two sockets


@asynccontextmanager
async def answering(payload: bytes, head: bytes = b"") -> AsyncIterator[str]:
    """Says this to everything that is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"PUB"):
                reply = line.split()[2]
                sizes = b"%d %d" % (len(head), len(head) + len(payload))
                writer.write(b"HMSG %s 1 %s\r\n%s%s\r\n" % (reply, sizes, head, payload))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def asked(payload: bytes, head: bytes = b"", **inputs: Any) -> Answer:
    async def scenario() -> Answer:
        async with answering(payload, head) as address:
            given = {"operation": "kv_get", "bucket": "b", "key": "k", **inputs}
            return await Nats().perform(task("nats", url=address, **given))

    return run(scenario())


def test_what_a_server_sends_is_taken_apart_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []
    build = served_json.build_json

    def built(text: bytes) -> Any:
        threads.append(threading.current_thread())
        return build(text)

    monkeypatch.setattr(performer, "build_json", built)
    monkeypatch.setattr(served_json, "build_json", built)
    value = base64.b64encode(b"[" + b"[]," * 200_000 + b"[]]").decode()
    answer = asked(json.dumps({"message": {"seq": 1, "data": value}}).encode())
    assert len(answer.result["value"]) == 200_001
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("payload", "head", "said"),
    [
        (b"[" + b"[]," * 1_000_000 + b"[]]", b"", "more than 1,000,000 lists and objects"),
        (b"[" * 201 + b"]" * 201, b"", "more than 200 levels"),
        (b"{}", b"NATS/1.0\r\n" + b"a:\r\n" * 20_000, "65,536 bytes of headers"),
    ],
    ids=["many", "deep", "headers"],
)
def test_what_a_server_sends_has_its_limits(payload: bytes, head: bytes, said: str) -> None:
    assert said in fault_of(asked(payload, head)).message


def test_a_pattern_has_a_limit_before_anything_is_made_of_it() -> None:
    fault = fault_of(asked(b"{}", operation="kv_keys", pattern="*a" * 600))
    assert (fault.kind, "1,000 may be" in fault.message) == ("config", True)


def test_messages_to_no_subscription_of_ours_are_not_kept() -> None:
    others = b"MSG x 99 3\r\nabc\r\n" * 50
    mine = b"MSG y 1 3\r\nyes\r\n"

    async def scenario() -> None:
        async with pretender(b"INFO {}\r\n", others + mine + b"PONG\r\n") as address:
            place = read_place(address)
            async with await NatsConnection.connect(place, place.login) as nats:
                assert len(nats._aside) == 1
                assert (await nats.received()).payload == b"yes"

    run(scenario())
