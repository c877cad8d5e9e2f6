"""Large results are kept outside the log; what stands in for them is small and useful."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.errors import InputError, NotFound
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.kernel.values import Answer
from anabranch.store.memory.store import MemoryStore
from anabranch.work.kind_options import ArtifactOptions
from anabranch.work.kinds.artifact import Artifact
from anabranch.work.port import InlineAnswer
from anabranch.work.values import payloads as p
from anabranch.work.values.payloads import MemoryPayloads, StoredPayloads, decoded, is_ref, load
from anabranch.work.values.results import keep, manifest, read_policy, seen_by_tasks, small_fields

from ..support import fault_of, run, task

ROWS = [{"id": n, "name": f"row {n}"} for n in range(200)]
LARGE = {
    "count": 200,
    "title": "all of them",
    "long": "x" * 1001,
    "rows": ROWS,
    "tags": ["a", "b"],
    "page": {"next": 2, "size": 50, "inner": {"deep": 1}},
    "nothing": None,
}


def kept(result: Any, **output: Any) -> tuple[Any, MemoryPayloads]:
    store = MemoryPayloads()
    return run(keep(read_policy(output), result, store)), store


def test_small_results_travel_themselves() -> None:
    for result in (None, 1, "x", [1], LARGE):
        travels, store = kept(result)
        assert travels is result
        assert store.contents == {}


def test_a_large_result_is_replaced_by_its_stand_in() -> None:
    travels, store = kept(LARGE, inline_max_bytes=1000, preview_max_bytes=20)
    (sha256,) = store.contents
    assert is_ref(travels)
    ref = travels["_ref"]
    assert (ref["kind"], ref["ref"]) == ("result_ref", f"anabranch:sha256:{sha256}")
    assert ref["meta"]["sha256"] == sha256
    assert travels["_size_bytes"] == ref["bytes"] == len(msgspec.json.encode(LARGE))
    assert travels["_preview"] == msgspec.json.encode(LARGE)[:20].decode()
    assert travels["_store"] == "payloads"
    assert run(load(store, ref["ref"])) == LARGE


def test_without_a_selection_the_small_fields_are_there() -> None:
    assert small_fields(LARGE) == {
        "count": 200,
        "title": "all of them",
        "rows_count": 200,
        "tags": ["a", "b"],
        "page_next": 2,
        "page_size": 50,
        "nothing": None,
    }
    assert small_fields(ROWS) == {}
    assert len(small_fields({str(n): n for n in range(5000)})) == 200
    assert small_fields({"a": {"b": 1}, "a_b": "own"}) == {"a_b": "own"}


def test_a_selection_is_what_is_extracted() -> None:
    select = [{"path": "$.rows[0].name", "as": "first"}, {"path": "$.rows[-1].id", "as": "last"}]
    travels, _ = kept(LARGE, inline_max_bytes=1000, select=select)
    assert (travels["first"], travels["last"]) == ("row 0", 199)
    assert "count" not in travels
    travels, _ = kept(
        LARGE, inline_max_bytes=1000, output_select=["count", "page.next", "not.there"]
    )
    assert (travels["count"], travels["page"]) == (200, {"next": 2})  # read as in the whole value
    assert travels["not"] == {"there": None}


def test_what_is_selected_must_be_small_itself() -> None:
    with pytest.raises(InputError, match=r"\$\.rows has .* inline_max_bytes is 1,000"):
        kept(LARGE, inline_max_bytes=1000, select=[{"path": "$.rows", "as": "rows"}])


def test_compressed_payloads_are_read_like_others() -> None:
    travels, store = kept(LARGE, inline_max_bytes=1000, store={"kind": "s3", "compression": "gzip"})
    (content,) = store.contents.values()
    assert gzip.decompress(content) == msgspec.json.encode(LARGE)
    assert decoded(content) == LARGE
    assert travels["_ref"]["meta"]["compression"] == "gzip"
    assert travels["_ref"]["bytes"] > travels["_ref"]["meta"]["bytes"]
    again, _ = kept(LARGE, inline_max_bytes=1000, store={"compression": "gzip"})
    assert again["_ref"]["ref"] == travels["_ref"]["ref"]  # the same whenever it is made


def test_scope_and_time_to_live_are_written_down() -> None:
    store = {"kind": "kv", "scope": "permanent", "ttl": "2h"}
    travels, _ = kept(LARGE, inline_max_bytes=10, store=store)
    assert (travels["_ref"]["scope"], travels["_ref"]["ttl_seconds"]) == ("permanent", 7200.0)
    inline, _ = kept(LARGE, inline_max_bytes=10, store="eventlog")
    assert inline is LARGE


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"inline_max": 3}, "'inline_max' is not known; there are"),
        ({"inline_max_bytes": -1}, "must be a number of bytes"),
        ({"preview_max_bytes": True}, "must be a number of bytes"),
        ({"store": {"kind": "tape"}}, "output.store.kind must be one of auto,"),
        ({"store": {"scope": "galaxy"}}, "output.store.scope must be one of"),
        ({"store": {"ttl": "soon"}}, "output.store.ttl: 'soon' is not a duration"),
        ({"store": {"compression": "zip"}}, "compression must be one of none, gzip"),
        ({"store": 3}, "store must be a mapping"),
        ({"select": "$.a"}, "output.select must be a list"),
        ({"select": [{"as": "x"}]}, "path must be a path such as"),
        ({"select": [{"path": "$.a[*]", "as": "x"}]}, "is not a path such as"),
        ({"output_select": [3]}, "must be a mapping"),
    ],
)
def test_bad_policies_are_named(output: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        read_policy(output)
    assert words in raised.value.message


def test_later_tasks_see_the_whole_and_the_ref_beside_it() -> None:
    travels, _ = kept(LARGE, inline_max_bytes=1000)
    local = seen_by_tasks(LARGE, travels)
    jinja = Jinja()

    def value(text: str) -> Any:
        return jinja.value(text).evaluate({"prev": local})

    assert value("{{ prev.rows | length }}") == 200
    assert value("{{ prev._ref.ref }}") == travels["_ref"]["ref"]
    assert value("{{ prev._ref is defined and prev.__preview__ is defined }}") is True
    assert value("{{ prev }}") == LARGE  # handed on, it is just the value
    assert "_ref" not in local  # nobody takes it for a stand-in
    assert list(local) == list(LARGE)
    assert seen_by_tasks(ROWS, travels) is ROWS


def test_a_manifest_holds_refs_only() -> None:
    parts = [kept({"n": n, "pad": "x" * 100}, inline_max_bytes=10)[0] for n in range(3)]
    made = manifest(parts)
    assert (made["kind"], made["total_parts"]) == ("manifest", 3)
    assert made["total_bytes"] == sum(part["_size_bytes"] for part in parts)
    assert [part["ref"] for part in made["parts"]] == [part["_ref"]["ref"] for part in parts]


# -- payloads --------------------------------------------------------------------------------


def test_the_store_of_the_engine_is_such_a_port() -> None:
    async def scenario() -> None:
        port = StoredPayloads(MemoryStore())
        sha256 = await port.put(b'{"a":1}')
        assert await load(port, p.place_of(sha256)) == {"a": 1}
        with pytest.raises(NotFound, match="is not in the store"):
            await load(port, p.place_of("0" * 64))

    run(scenario())


def test_a_damaged_payload_is_noticed() -> None:
    _, store = kept(LARGE, inline_max_bytes=10)
    (sha256,) = store.contents
    for content, words in ((b"{}", "its checksum differs"),):
        store.contents[sha256] = content
        with pytest.raises(InputError, match=words):
            run(load(store, p.place_of(sha256)))
    broken = run(store.put(b"\x1f\x8bnot gzip"))
    with pytest.raises(InputError, match="cannot be read"):
        run(load(store, p.place_of(broken)))


@pytest.mark.parametrize("place", ["anabranch:sha256:", "anabranch:sha256:xyz", "http://x"])
def test_places_that_are_none(place: str) -> None:
    with pytest.raises(InputError, match="is not the address of a payload"):
        run(load(MemoryPayloads(), place))


# -- the kind artifact -----------------------------------------------------------------------


def artifact(store: MemoryPayloads | None = None, limit: int = 10**6, **inputs: Any) -> Answer:
    work = Artifact(store, ArtifactOptions(bytes_max=limit))
    return run(work.perform(task("artifact", **inputs)))


def test_a_stand_in_is_fetched_in_every_spelling() -> None:
    travels, store = kept(LARGE, inline_max_bytes=1000)
    place = travels["_ref"]["ref"]
    for source in (travels, travels["_ref"], place):
        answer = artifact(store, action="get", result_ref=source)
        assert answer.result == LARGE
        assert isinstance(answer, InlineAnswer)  # and is not stored a second time
        assert answer.inline
    assert artifact(store, action="get", uri=place).result == LARGE
    assert artifact(store, action="get", result_ref={"small": 1}).result == {"small": 1}


def test_the_mark_leaves_no_trace_in_what_is_recorded() -> None:
    answer = artifact(action="get", result_ref={"small": 1})
    plain = Answer(status="ok", outcome="ok", result={"small": 1})
    assert msgspec.json.encode(answer) == msgspec.json.encode(plain)


@pytest.mark.parametrize("compress", [None, "gzip"])
def test_what_is_put_can_be_fetched(compress: str | None, tmp_path: Path) -> None:
    store = MemoryPayloads()
    receipt = artifact(store, action="put", data=LARGE, compress=compress).result
    assert receipt["uri"].startswith("anabranch:sha256:")
    assert not is_ref(receipt)
    for source in (receipt["uri"], receipt["ref"]):
        assert artifact(store, action="get", result_ref=source).result == LARGE
    path = tmp_path / "new folder" / "a.json"
    for uri in (str(path), path.as_uri()):
        receipt = artifact(action="put", data=LARGE, uri=uri, compress=compress).result
        checked = {"uri": receipt["uri"], "checksum": f"sha256:{receipt['sha256']}"}
        assert artifact(action="get", **checked).result == LARGE
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]


def test_files_of_other_kinds(tmp_path: Path) -> None:
    text, raw = tmp_path / "a.txt", tmp_path / "b.bin"
    artifact(action="put", data="äöü\n", uri=str(text))
    assert text.read_text() == "äöü\n"
    assert artifact(action="get", uri=str(text)).result == "äöü\n"
    raw.write_bytes(b"\x00\xff")
    assert artifact(action="get", uri=str(raw)).result == {"data": "AP8=", "encoding": "base64"}


@pytest.mark.parametrize(
    ("inputs", "kind", "words"),
    [
        ({"action": "burn"}, "config", "action must be get or put"),
        ({"action": "get"}, "config", "fetched by result_ref or uri"),
        ({"action": "put"}, "config", "stored from data"),
        ({"action": "get", "uri": "s3://b/k"}, "config", "'s3' addresses cannot be reached"),
        (
            {"action": "get", "uri": "/nowhere/at/all"},
            "not_found",
            "/nowhere/at/all does not exist",
        ),
        ({"action": "get", "uri": "/"}, "config", "/ is not a file"),
        ({"action": "get", "uri": "/dev/zero"}, "config", "/dev/zero belongs to the system"),
        ({"action": "put", "data": 1, "uri": "/proc/x/y"}, "config", "belongs to the system"),
        (
            {"action": "get", "uri": f"anabranch:sha256:{'0' * 64}"},
            "not_found",
            "is not in the store",
        ),
        (
            {"action": "put", "data": 1, "compress": "zip"},
            "config",
            "compress must be gzip or none",
        ),
        ({"action": "put", "data": 1, "uri": "anabranch:sha256:00"}, "config", "leave uri out"),
        (
            {"action": "put", "data": "x" * 101},
            "config",
            "the limit is 100 (setting artifact_bytes)",
        ),
    ],
)
def test_artifacts_that_cannot_be(inputs: dict[str, Any], kind: str, words: str) -> None:
    fault = fault_of(artifact(MemoryPayloads(), limit=100, **inputs))
    assert (fault.kind, fault.retryable) == (kind, False), fault
    assert words in fault.message


def test_a_changed_or_hostile_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[1, 2]")
    fault = fault_of(artifact(action="get", uri=str(path), checksum="0" * 64))
    assert (fault.kind, fault.code) == ("result", "CHECKSUM")
    path.write_text("[1, 2")
    assert "is not JSON" in fault_of(artifact(action="get", uri=str(path))).message
    path.write_text("[" * 300 + "]" * 300)
    assert "levels deep" in fault_of(artifact(action="get", uri=str(path))).message
    path.write_bytes(gzip.compress(b"x" * 10**7))
    bomb = fault_of(artifact(limit=10**5, action="get", uri=str(path)))
    assert "more than the 100,000 bytes allowed once it is unpacked" in bomb.message
    for cut in (b"\x1f\x8bnothing", gzip.compress(b"[1, 2]")[:-9]):
        path.write_bytes(cut)
        assert "not valid gzip" in fault_of(artifact(action="get", uri=str(path))).message


def test_a_file_that_was_packed_in_parts_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b"[1, ") + gzip.compress(b"2]"))
    assert artifact(action="get", uri=str(path)).result == [1, 2]
