"""The directory: who holds a passport that counts, now, from what was read beside the work."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.app import Engine
from anabranch.clock import ManualClock
from anabranch.errors import InputError
from anabranch.market.directory import PassportDirectory
from anabranch.market.identities import SigningKey
from anabranch.market.passports import revoke_passport
from anabranch.market.sources import fetch_source
from anabranch.settings import Settings
from anabranch.work.participants.book import Book
from anabranch.work.participants.port import NotKnown, ParticipantQuery
from hangs import HANG_SECONDS
from work.participants.loopback_participants import party, reply, sends

from .support import (
    CAPABILITY,
    ISSUED,
    ISSUER,
    NODE,
    NOW,
    STRANGER,
    directory,
    holders,
    key,
    node,
    participant,
    passport,
)

BINDINGS = {node(n): participant(n) for n in (2, 3, 4)}


def test_the_holder_is_whoever_runs_the_node_or_else_the_issuer() -> None:
    everybody = [passport(2), passport(3)]
    assert holders(directory(passports=everybody)) == [participant(1)]
    bound = directory(passports=everybody, bindings=BINDINGS)
    assert holders(bound) == sorted([participant(2), participant(3)])


def test_a_participant_with_many_nodes_is_asked_once() -> None:
    bindings = {node(n): participant(9) for n in (2, 3, 4)}
    found = directory(passports=[passport(2), passport(3), passport(4)], bindings=bindings)
    assert holders(found) == [participant(9)]


def test_only_allowed_issuers_and_operators_of_the_node_count() -> None:
    passports = [passport(2, STRANGER), passport(3), passport(4, key(4))]
    assert holders(directory(passports=passports, bindings=BINDINGS)) == sorted(
        [participant(3), participant(4)]
    )
    assert holders(directory(passports=passports, issuers=[])) == []


def test_another_capability_does_not_count() -> None:
    found = directory(passports=[passport(2, capability_id="name-service")], bindings=BINDINGS)
    assert holders(found) == []
    assert holders(found, "name-service") == [participant(2)]


def test_what_is_tampered_with_or_malformed_spoils_nothing_but_itself() -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"scope": deep}
    rows = [{**passport(2), "scope": {"x": 1}}, passport(3), None, 7, {}, [], deep, "text"]
    found = directory(passports=rows, bindings=BINDINGS)
    assert holders(found) == [participant(3)]
    assert len(found.cache.refused) == 7
    assert "the signature does not hold" in found.cache.refused


def test_a_copy_of_an_id_does_not_push_out_the_passport() -> None:
    good = passport(2)
    copy = passport(3, STRANGER, passport_id=good["passport_id"])
    revocation = revoke_passport(STRANGER, copy, revoked_at=ISSUED)
    for rows in ([good, copy], [copy, good]):
        found = directory(passports=rows, bindings=BINDINGS, revocations=[revocation])
        assert holders(found) == [participant(2)]


@pytest.mark.parametrize(
    ("signer", "left"), [(ISSUER, []), (NODE, []), (STRANGER, [participant(2)])]
)
def test_a_revocation_counts_from_the_issuer_and_the_node_only(
    signer: SigningKey, left: list[str]
) -> None:
    rows = {"items": [{"artifact": revoke_passport(signer, passport(2), revoked_at=ISSUED)}]}
    found = directory(passports=[passport(2)], bindings=BINDINGS, revocations=rows)
    assert holders(found) == left


@pytest.mark.parametrize("shape", ["alone", "listed", "named", "rows"])
def test_revocations_count_in_whatever_shape_they_are_kept(shape: str) -> None:
    one = revoke_passport(ISSUER, passport(2), revoked_at=ISSUED)
    shapes = {"alone": one, "listed": [one], "named": {"revocations": [one]},
              "rows": {"items": [{"artifact": one}]}}  # fmt: skip
    found = directory(passports=passport(2), bindings=BINDINGS, revocations=shapes[shape])
    assert holders(found) == []


@pytest.mark.parametrize("part", ["passports", "revocations"])
@pytest.mark.parametrize("value", [{"revoked": []}, {}, "text", 7, {"items": {}}])
def test_a_source_of_another_shape_lets_nobody_in(part: str, value: Any) -> None:
    sources: dict[str, Any] = {
        "passports": [passport(2)],
        part: value if value != "text" else {"items": "text"},
    }
    found = directory(bindings=BINDINGS, **sources)
    with pytest.raises(NotKnown, match=f"`{part}` of the directory is a list of documents"):
        holders(found)


def test_expiry_is_looked_at_with_every_question() -> None:
    clock = ManualClock(NOW)
    short = passport(2, expires_at="2026-02-02T02:40:05Z", issued_at="2026-02-02T02:40:02Z")
    found = directory(clock, passports=[short], bindings=BINDINGS)
    assert holders(found) == []
    clock.advance_to(NOW + 2_000)
    assert holders(found) == [participant(2)]
    clock.advance_to(NOW + 5_000)
    assert holders(found) == []


def test_the_filter_looks_at_labels_scope_and_services_and_the_limit_comes_after_it() -> None:
    people = {
        participant(2): {"url": "http://a.example", "labels": {"region": "eu", "a": {"b": 1}}},
        participant(3): {"url": "http://b.example", "service_types": ["text/translate"]},
        participant(4): {"url": "http://c.example", "labels": {"region": "us"}, "price": 1},
    }
    rows = [passport(2), passport(3, scope={"tier": 2}), passport(4)]
    found = directory(passports=rows, bindings=BINDINGS, participants=people)

    def only(limit: Any = None, **wanted: Any) -> list[str]:
        return holders(found, filter=wanted, limit=limit)

    assert only(region="eu") == only(**{"a.b": 1}) == [participant(2)]
    assert only(**{"scope.tier": 2}) == [participant(3)]
    assert only(service_type="text/summarise") == sorted([participant(2), participant(4)])
    assert only(**{"service/type": "text/translate"}) == sorted(map(participant, (2, 3, 4)))
    assert only(1, region="us") == [participant(4)]
    assert only(region="eu", tier=1) == []
    assert len(only(2)) == 2
    one = found.find(ParticipantQuery(resolve="capability", capability_id=CAPABILITY, one=True))
    assert one == [participant(4)], "the only one that names a price"


def test_without_a_directory_the_error_says_what_to_add() -> None:
    bare = PassportDirectory(Book({"participants": {"ann": print}}), ManualClock(NOW))
    with pytest.raises(InputError, match="add `directory"):
        holders(bare)


@pytest.mark.parametrize(
    "config",
    [{"issuers": ["ann"]}, {"issuers": [node(1)]}, {"issuers": [participant(1) + "x"]}],
)
def test_issuers_are_participants(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="participant"):
        directory(**config)


@pytest.mark.parametrize("bindings", [[1], {"x": participant(1)}, {node(2): node(2)}])
def test_bindings_that_are_none_leave_the_directory_unread(bindings: Any) -> None:
    with pytest.raises(NotKnown, match=r"bindings|`directory` of the book"):
        holders(directory(bindings=bindings))


def test_without_the_package_for_signatures_the_step_is_told_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [passport(2)]
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(NotKnown, match=r"anabranch\[market\]"):
        holders(directory(passports=rows))


# -- reading the sources ---------------------------------------------------------------------


def test_a_source_that_cannot_be_read_leaves_the_last_good_copy(tmp_path: Path) -> None:
    file, bindings = tmp_path / "passports.json", tmp_path / "bindings.json"
    bindings.write_text(json.dumps(BINDINGS))
    found = directory(passports=str(file), bindings=str(bindings))
    with pytest.raises(NotKnown, match="cannot be read"):
        holders(found)
    file.write_text(json.dumps({"passports": [passport(2)]}))
    found.sync()
    assert holders(found) == [participant(2)]
    for bad in (b"{", b"\xff", b"[" * 100_000, b"[" + b" " * (17 * 2**20) + b"]"):
        file.write_bytes(bad)
        found.sync()
        assert holders(found) == [participant(2)]
    file.write_text(json.dumps([{"passport": passport(3)}]))
    found.sync()
    assert holders(found) == [participant(3)]


def test_a_url_is_fetched_within_its_limits() -> None:
    rows = json.dumps({"items": [{"passport": passport(2)}]})
    large = b"[" + b" " * 2**20 * 17 + b"]"
    with party(
        good=sends(reply(rows)),
        cut=sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n["),
        large=sends(reply(large)),
        drips=sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", *[b" "] * 99, pause=1.0),
        mute=sends(b"", end=False),
        broken=sends(b"nonsense\r\n\r\n"),
        missing=sends(reply("no", status="404 Not Found")),
        elsewhere=sends(reply("", status="302 Found", Location="ftp://127.0.0.1/")),
    ) as server:
        assert fetch_source(server.url("good")) == rows.encode()
        for name in ("cut", "large", "drips", "mute", "broken", "missing", "elsewhere"):
            with pytest.raises(InputError):
                fetch_source(server.url(name), seconds=0.4)
        found = directory(passports=server.url("good"), bindings=BINDINGS)
        assert holders(found) == [participant(2)]
    found.sync()
    assert holders(found) == [participant(2)], "the server is gone, the copy is not"
    with pytest.raises(InputError, match="no way to fetch"):
        fetch_source("ftp://x.example/")


def test_a_redirect_of_a_directory_leads_to_no_metadata_service_and_from_outside_not_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata = reply("", status="302 Found", Location="http://169.254.169.254/latest")
    real = socket.create_connection

    def connect(address: Any, *more: Any) -> socket.socket:
        assert address[0] == "127.0.0.1", address
        return real(address, *more)

    monkeypatch.setattr("anabranch.market.sources.socket.create_connection", connect)
    with party(good=sends(reply("[]")), metadata=sends(metadata)) as server:
        inside = reply("", status="302 Found", Location=server.url("good"))
        with party(inside=sends(inside)) as other:
            with pytest.raises(InputError, match="where a redirect from a loopback one must not"):
                fetch_source(server.url("metadata"))
            assert fetch_source(other.url("inside")) == b"[]"
            monkeypatch.setattr("anabranch.market.sources.class_of", lambda _address: "public")
            with pytest.raises(InputError, match="where a redirect from a public one must not"):
                fetch_source(other.url("inside"))


def test_it_is_read_before_the_first_run_and_again_without_holding_up_the_loop() -> None:
    """The reading blocks; meanwhile the event loop turns as if nothing were."""
    threads: list[str] = []
    turned = threading.Event()
    in_time: list[bool] = []

    def fetch(_place: str) -> bytes:
        threads.append(threading.current_thread().name)
        if len(threads) > 1:
            in_time.append(turned.wait(HANG_SECONDS))
        return json.dumps([passport(1 + len(threads))]).encode()

    async def watch() -> tuple[list[str], list[str]]:
        config = {
            "passports": "x",
            "issuers": [participant(1)],
            "bindings": BINDINGS,
            "sync_seconds": 0.01,
        }
        found = PassportDirectory(Book({"directory": config}), ManualClock(NOW), fetch)
        await found.open()
        first = holders(found)
        while len(threads) < 2:
            await asyncio.sleep(0.005)
        for _ in range(3):
            await asyncio.sleep(0.005)
        turned.set()  # the loop itself lets the reading come to its end
        while holders(found) == first:
            await asyncio.sleep(0.005)
        again = holders(found)
        await found.close()
        return first, again

    first, again = asyncio.run(watch())
    assert (first, again) == ([participant(2)], [participant(3)])
    assert all(in_time), "nobody waited for the reading"
    assert all(name != threading.main_thread().name for name in threads)


def test_it_is_read_often_enough_for_the_shortest_passport() -> None:
    day = passport(2, issued_at="2026-02-02T02:40:00Z", expires_at="2026-02-02T02:40:20Z")
    assert directory(passports=[passport(3)]).sync_seconds == 60
    assert directory(passports=[passport(3), day]).sync_seconds == 10
    assert directory(passports=[day], sync_seconds=3).sync_seconds == 3


# -- in a run --------------------------------------------------------------------------------


def definition(**timing: Any) -> str:
    step = {
        "step_id": "ask",
        "service_type": "text/summarise",
        "target": {"resolve": "capability", "capability_id": CAPABILITY},
        "fan_in": {"policy": "all"},
        "timing": {"timeout": "PT5S", **timing},
    }
    return json.dumps({"workflow_id": "w", "plan": {"steps": [step]}}, indent=1)


async def with_passports(file: Path, act: Callable[[Engine], Any]) -> Any:
    people = {participant(n): lambda _r, n=n: {"from": n} for n in (2, 3)}
    config = {"passports": str(file), "issuers": [participant(1)], "sync_seconds": 0.02}
    book = {"participants": people, "directory": {**config, "bindings": BINDINGS}}
    async with Engine(settings=Settings(store=":memory:"), participants=book) as engine:
        return await act(engine)


def test_a_passport_that_appears_after_the_definition_was_taken_counts(tmp_path: Path) -> None:
    file = tmp_path / "passports.json"
    file.write_text(json.dumps([passport(2)]))

    async def act(engine: Engine) -> Any:
        gate = {
            "step_id": "first",
            "service_type": "x",
            "target": {"resolve": "static", "participants": [participant(2)]},
            "fulfillment": {"policy": "requester_confirmation"},
        }
        plan = json.loads(definition())
        plan["plan"]["steps"].insert(0, gate)
        plan["plan"]["steps"][1]["depends_on"] = ["first"]
        run = await engine.start(json.dumps(plan, indent=1))
        await engine.wait(run, standing=True)
        file.write_text(json.dumps([passport(2), passport(3)]))
        await asyncio.sleep(0.3)
        await engine.decide(run, "first", "fulfil", actor="ann")
        return (await engine.wait(run)).steps["ask"]["result"]

    found = asyncio.run(with_passports(file, act))
    assert sorted(each["from"] for each in found["responses"]) == [2, 3]


def test_a_passport_that_appears_between_two_rounds_counts(tmp_path: Path) -> None:
    file = tmp_path / "passports.json"
    file.write_text("[]")

    async def act(engine: Engine) -> Any:
        again = {"max_attempts": 8, "backoff": "PT0.2S"}
        run = await engine.start(definition(retry=again))
        async for record in engine.events(run):
            if record.kind == "token.retrying":
                break
        file.write_text(json.dumps([passport(3)]))
        return (await engine.wait(run)).result

    assert asyncio.run(with_passports(file, act)) == {"responses": [{"from": 3}]}


def test_a_directory_that_could_not_be_read_yet_is_asked_again_in_the_next_round(
    tmp_path: Path,
) -> None:
    file = tmp_path / "passports.json"

    async def act(engine: Engine) -> Any:
        again = {"max_attempts": 8, "backoff": "PT0.2S"}
        run = await engine.start(definition(retry=again))
        async for record in engine.events(run):
            if record.kind == "token.retrying":
                break
        file.write_text(json.dumps([passport(2)]))
        return (await engine.wait(run)).result

    assert asyncio.run(with_passports(file, act)) == {"responses": [{"from": 2}]}
