"""The module store: outcomes, ownership by token, tombstones, and what a restart keeps."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clock import ManualClock
from anabranch.market.node.api import Answer
from anabranch.market.node.modules.api import listing
from anabranch.market.node.modules.api.records import RECORDS
from anabranch.market.node.modules.laws import broken_laws
from anabranch.market.node.retention import DAY_MS
from anabranch.store.memory.store import MemoryStore
from anabranch.store.sqlite.store import SqliteStore

from ..support import START, Hosted, hosted, in_process, run

CONFIGS = [in_process("arca", enabled=False), in_process("dator", enabled=False)]


async def call(node: Hosted, verb: str, as_: str = "arca", **body: Any) -> Answer:
    full = {"schema_version": "v1", "capability_id": f"module_store_{verb}", **body}
    return await node.ask("POST", f"/v1/module/store/records/{verb}", full, as_=as_)


async def put(node: Hosted, record: str, payload: Any = None, as_: str = "arca") -> Answer:
    return await call(
        node, "put", as_, record_kind="workflow-template", record_id=record, payload=payload
    )


async def get(node: Hosted, record: str, as_: str = "arca") -> Any:
    return (await call(node, "get", as_, record_kind="workflow-template", record_id=record)).body


def test_put_get_list_delete() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            assert (await get(node, "t1"))["outcome"] == "missing"
            assert (await put(node, "t1", {"n": 1})).body["outcome"] == "stored"
            found = await get(node, "t1")
            assert found["outcome"] == "found"
            assert found["record"] == {
                "record_kind": "workflow-template",
                "record_id": "t1",
                "payload": {"n": 1},
                "created_at": "2026-05-28T20:26:40.000Z",
                "updated_at": "2026-05-28T20:26:40.000Z",
            }
            listed = (await call(node, "list")).body
            assert (listed["outcome"], listed["records"]) == ("listed", [found["record"]])
            key = {"record_kind": "workflow-template", "record_id": "t1"}
            assert (await call(node, "delete", **key)).body["outcome"] == "deleted"
            assert (await call(node, "delete", **key)).body["outcome"] == "missing"
            assert (await get(node, "t1"))["outcome"] == "missing"
            assert (await call(node, "list")).body["records"] == []
            assert (await put(node, "t1", 2)).body["outcome"] == "stored"
            assert (await get(node, "t1"))["record"]["payload"] == 2
            assert await broken_laws(node.node.entities) == []

    run(scenario())


def test_the_stream_is_the_one_of_the_contract_and_has_the_newest_version_alone() -> None:
    """A request of a stranger was kept with every change of its state, and for good."""
    store, clock = MemoryStore(), ManualClock(START)
    key = base64.urlsafe_b64encode("arca·workflow-template·t1".encode()).decode().rstrip("=")
    stream = f"state/module-store/{key}"

    def written() -> list[tuple[Any, bool]]:
        assert store.node_streams is not None
        rows = store.node_streams.stream_events(stream)
        assert not rows or b"daemon/module-store-record.v1" in rows[0].events
        events = [event for row in rows for event in RECORDS.events_in(row.events)]
        return [(event.payload, event.deleted) for event in events]

    async def scenario() -> None:
        async with hosted(configs=CONFIGS, store=store, clock=clock) as node:
            await put(node, "t1", {"n": 1})
            first = (await get(node, "t1"))["record"]
            clock.advance_to(START + 1000)
            await put(node, "t1", {"n": 2})
            second = (await get(node, "t1"))["record"]
            assert written() == [({"n": 2}, False)]
            assert second["created_at"] == first["created_at"] < second["updated_at"]
            await call(node, "delete", record_kind="workflow-template", record_id="t1")
            assert written() == [(None, True)], "a deletion is a tombstone"
            clock.advance_to(START + 2 * DAY_MS)
            await put(node, "t2", 1)
            await call(node, "delete", record_kind="workflow-template", record_id="t2")
            while written():
                await asyncio.sleep(0)

    run(scenario())


def test_a_list_looks_at_so_many_records_and_says_where_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of other kinds as well: a module has what strangers have asked of it."""
    monkeypatch.setattr(listing, "READ_MAX", 4)
    monkeypatch.setattr(listing, "READ_AT_ONCE", 2)

    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            for number in range(9):
                kind = "wanted" if number in (0, 8) else "other"
                await call(node, "put", record_kind=kind, record_id=f"r{number}", payload=1)
            found: list[str] = []
            answers, place = 0, dict[str, str]()
            while answers < 9:
                answer = (await call(node, "list", record_kind="wanted", **place)).body
                answers += 1
                found += [one["record_id"] for one in answer["records"]]
                if "next" not in answer:
                    break
                place = {"before": answer["next"]}
            assert (found, answers) == (["r8", "r0"], 3)
            old = await call(node, "list", created_before="2020-01-01T00:00:00Z")
            assert old.body["records"] == []
            assert (await call(node, "list", created_before="then")).status == 400

    run(scenario())


def test_records_are_of_the_module_whose_token_was_shown() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            stored = await call(node, "put", **GOOD, module_id="dator")
            assert stored.body["outcome"] == "stored"
            other = await call(node, "get", "dator", record_kind="k", record_id="r")
            assert other.body["outcome"] == "missing"
            assert (await call(node, "list", "dator")).body["records"] == []
            gone = await call(node, "delete", "dator", record_kind="k", record_id="r")
            assert gone.body["outcome"] == "missing"
            own = await call(node, "get", record_kind="k", record_id="r")
            assert own.body["outcome"] == "found"
            for as_, status in (("open", 401), ("operator", 403), ("peer", 403)):
                assert (await call(node, "list", as_)).status == status

    run(scenario())


GOOD: dict[str, Any] = {"record_kind": "k", "record_id": "r", "payload": 1}
BAD_RECORD = (400, "rejected_invalid_record")
BAD_QUERY = (400, "rejected_invalid_query")


@pytest.mark.parametrize(
    ("verb", "body", "refusal"),
    [
        ("put", {"record_kind": "k", "record_id": "r"}, BAD_RECORD),
        ("put", {**GOOD, "record_kind": ""}, BAD_RECORD),
        ("put", {**GOOD, "record_kind": 1}, BAD_RECORD),
        ("put", {**GOOD, "record_id": "a·b"}, BAD_RECORD),
        ("put", {**GOOD, "record_id": "a\n"}, BAD_RECORD),
        ("put", {**GOOD, "record_id": "a" * 257}, BAD_RECORD),
        ("put", {**GOOD, "schema_version": "v2"}, BAD_RECORD),
        ("put", {**GOOD, "capability_id": "module_store_get"}, BAD_RECORD),
        ("put", {**GOOD, "owner_participant_id": "x" * 257}, BAD_RECORD),
        ("put", {**GOOD, "payload": "x" * 1024 * 1024}, (413, "rejected_other")),
        ("get", {"record_kind": "k"}, BAD_RECORD),
        ("delete", {"record_id": "r"}, BAD_RECORD),
        ("list", {"limit": 0}, BAD_QUERY),
        ("list", {"limit": "all"}, BAD_QUERY),
    ],
)
def test_a_bad_call_changes_nothing(
    verb: str, body: dict[str, Any], refusal: tuple[int, str]
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with hosted(configs=CONFIGS, store=store) as node:
            answer = await call(node, verb, **body)
            assert (answer.status, answer.body["outcome"]) == refusal
        assert store.node_streams is not None
        assert store.node_streams.stream_names() == []

    run(scenario())


def test_a_list_is_filtered_limited_and_newest_first() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            for number in range(6):
                await call(
                    node,
                    "put",
                    record_kind="even" if number % 2 == 0 else "odd",
                    record_id=str(number),
                    payload=number,
                    owner_participant_id="p1" if number < 3 else "p2",
                )

            async def payloads(**query: Any) -> set[int]:
                records = (await call(node, "list", **query)).body["records"]
                return {record["payload"] for record in records}

            assert await payloads(record_kind="even") == {0, 2, 4}
            assert await payloads(owner_participant_id="p1") == {0, 1, 2}
            assert await payloads(owner_participant_id="p2", record_kind="odd") == {3, 5}
            assert len(await payloads(limit=4)) == 4
            assert len(await payloads(limit=10**9)) == 6

    run(scenario())


def test_a_restart_keeps_the_module_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        for number in range(3):
            store = SqliteStore(tmp_path / "node.db")
            try:
                async with hosted(configs=CONFIGS, store=store) as node:
                    records = (await call(node, "list")).body["records"]
                    assert {one["payload"] for one in records} == set(range(number))
                    await put(node, f"t{number}", number)
            finally:
                store.close()

    run(scenario())


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete"]),
        st.sampled_from(["arca", "dator"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
    ),
    max_size=12,
)


@settings(max_examples=20)
@given(operations)
def test_the_store_is_a_dictionary_by_module_and_id(
    steps: list[tuple[str, str, str, int]],
) -> None:
    async def scenario() -> None:
        model: dict[tuple[str, str], int] = {}
        store = MemoryStore()
        async with hosted(configs=CONFIGS, store=store) as node:
            for verb, module, record, value in steps:
                if verb == "put":
                    await put(node, record, value, module)
                    model[module, record] = value
                else:
                    key = {"record_kind": "workflow-template", "record_id": record}
                    gone = (await call(node, "delete", module, **key)).body["outcome"]
                    assert (gone == "deleted") is ((module, record) in model)
                    model.pop((module, record), None)
            assert await broken_laws(node.node.entities) == []
        async with hosted(configs=CONFIGS, store=store) as node:  # opened again
            for module in ("arca", "dator"):
                records = (await call(node, "list", module)).body["records"]
                assert {one["record_id"]: one["payload"] for one in records} == {
                    record: value for (owner, record), value in model.items() if owner == module
                }

    run(scenario())


def test_a_list_of_large_records_comes_in_answers_of_a_few_mebibytes() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            for number in range(20):
                await put(node, f"t{number}", "x" * 1_000_000)
            await call(node, "put", record_kind="other", record_id="o", payload=1)
            pages: list[list[str]] = []
            more: dict[str, Any] = {}
            for _ in range(20):
                wanted = {"record_kind": "workflow-template", **more}
                found = (await call(node, "list", **wanted)).body
                pages.append([one["record_id"] for one in found["records"]])
                if "next" not in found:
                    break
                more = {"before": found["next"]}
            assert [len(page) for page in pages] == [8, 8, 4]
            assert len({one for page in pages for one in page}) == 20
            refused = await call(node, "list", before="no cursor")
            assert refused.status == 400

    run(scenario())
