"""Runs leave one store as a file and come into another as they were, or not at all."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Engine, Settings, Toolbox
from anabranch.errors import AnabranchError, InputError, Refused, StoreInUse
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.operations.stores import export_file, imports
from anabranch.operations.stores.check import check_store
from anabranch.operations.stores.exports import Exported, export_runs
from anabranch.operations.stores.imports import Imported, Limits, import_runs
from anabranch.operations.stores.opening import inspect_store
from anabranch.runtime.nets import Nets
from anabranch.store.factory import open_store
from anabranch.store.hook_ports import Hook
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import HeadFilter, Store
from anabranch.testing.store_suite.samples import sha256
from seeds import seeds
from shared_store import PARTITIONS, fresh_schema

from ..support import playbook, run, step

LARGE = 70_000
NOW = 1_800_000_000_000
LIMITS = Limits(64 * 1024 * 1024, 1024 * 1024 * 1024)


def tools() -> Toolbox:
    made = Toolbox()

    @made.tool("make", blocking=False)
    def make(letter: str) -> dict[str, Any]:
        return {"text": letter * LARGE}

    return made


def compiled(definition: Any) -> Any:
    return compiler(["make"])(definition)


DEFINITION = playbook(
    step("first", "make", "second", letter="{{ workload.letter }}"),
    step("second", "noop", result="{{ first.text | length }}"),
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[str]]]:
    """A store with runs that completed, failed, and keep a payload; nobody writes to it."""
    place = tmp_path_factory.mktemp("exports") / "source.db"
    failing = playbook(step("boom", "python", code="raise ValueError('no')"))
    runs = [
        anabranch.run(DEFINITION, {"letter": letter}, store=str(place), toolbox=tools(),
                      allow_extra_input=True).run
        for letter in "xyx"
    ]  # fmt: skip
    runs.append(anabranch.run(failing, store=str(place), toolbox=tools()).run)
    store = open_store(Settings(store=str(place)))
    yield store, runs
    store.close()


def exported(store: Store, runs: list[str], path: Path) -> Exported:
    with path.open("wb") as file:
        return export_runs(store, runs, file, NOW)


def taken(store: Store, path: Path, **more: Any) -> Imported:
    return import_runs(store, path, compiled, NOW, LIMITS, **more)


def everything(store: Store, runs: list[str]) -> dict[str, Any]:
    return {
        each: (
            store.head(each),
            store.read(each),
            store.definition(head.definition) if (head := store.head(each)) else None,
            {hold.sha256: store.payload(hold.sha256) for hold in store.held(each)},
        )
        for each in runs
    }


def contents(store: Store) -> tuple[int, Any]:
    return len(store.heads(HeadFilter(limit=1000))), store.statistics()["payloads"]


# -- there and back --------------------------------------------------------------------------


def a_target(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        return open_store(Settings(store=str(tmp_path / "target.db")), new=True)
    pytest.importorskip("psycopg")
    place = fresh_schema(request.getfixturevalue("postgres"))
    return open_store(Settings(store=place, store_partitions=PARTITIONS), new=True)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_runs_come_into_another_store_as_they_were(
    kind: str,
    source: tuple[Store, list[str]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    store, runs = source
    told = exported(store, runs, tmp_path / "runs.gz")
    assert (told.runs, told.definitions, told.payloads, told.missing) == (4, 2, 3, 0)
    target = a_target(kind, tmp_path, request)
    try:
        done = taken(target, tmp_path / "runs.gz")
        assert (done.runs, done.there, done.definitions, done.payloads) == (4, 0, 2, 3)
        assert everything(target, runs) == everything(store, runs)
        shown = Reader(target, Nets(target, compiled)).show(runs[0])
        assert (shown["status"], shown["result"]) == ("completed", LARGE)
        assert target.owner() is None
    finally:
        target.close()


def test_what_was_imported_is_sound_and_can_be_redriven_purged_and_exported_again(
    source: tuple[Store, list[str]], tmp_path: Path
) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    place = str(tmp_path / "target.db")
    target = open_store(Settings(store=place), new=True)
    taken(target, tmp_path / "runs.gz")
    exported(target, runs, tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == (tmp_path / "runs.gz").read_bytes()
    target.close()
    with inspect_store(Settings(store=place)) as inspection:
        assert check_store(inspection, compiled, lambda *_: None, None).problems == []

    async def scenario() -> None:
        async with Engine(place, toolbox=tools()) as engine:
            again = await engine.redrive(runs[3])
            assert (await engine.wait(again)).status == "failed"

    run(scenario())
    target = open_store(Settings(store=place))
    assert target.forget(runs[:2]).payloads == 1  # the third run holds the other one as well
    target.close()


def test_a_second_import_changes_nothing(source: tuple[Store, list[str]], tmp_path: Path) -> None:
    store, runs = source
    exported(store, runs[:2], tmp_path / "some.gz")
    exported(store, runs, tmp_path / "all.gz")
    target = MemoryStore()
    taken(target, tmp_path / "some.gz")
    before = everything(target, runs[:2])
    done = taken(target, tmp_path / "some.gz")
    assert (done.runs, done.there, done.payloads) == (0, 2, 0)
    assert everything(target, runs[:2]) == before
    done = taken(target, tmp_path / "all.gz")
    assert (done.runs, done.there) == (2, 2)
    assert everything(target, runs) == everything(store, runs)


def test_a_dry_run_only_counts(source: tuple[Store, list[str]], tmp_path: Path) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    target = MemoryStore()
    done = taken(target, tmp_path / "runs.gz", dry_run=True)
    assert (done.runs, done.payloads, done.definitions) == (4, 3, 2)
    assert contents(target) == (0, 0)


def test_large_payloads_and_logs_travel_in_parts(
    source: tuple[Store, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.operations.stores.exports.PART_BYTES", 1000)
    monkeypatch.setattr("anabranch.operations.stores.exports.ROWS", 1)
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    lines = gzip.decompress((tmp_path / "runs.gz").read_bytes()).splitlines()
    assert max(map(len, lines)) < 3000
    target = MemoryStore()
    taken(target, tmp_path / "runs.gz")
    assert everything(target, runs) == everything(store, runs)


def test_a_payload_that_others_hold_comes_with_the_run_that_names_it(tmp_path: Path) -> None:
    first = step("first", "make", letter="x")
    first["tool"]["spec"] = {"result": {"store": {"scope": "permanent"}}}
    place = str(tmp_path / "source.db")
    made = anabranch.run(playbook(first), store=place, toolbox=tools())
    store = open_store(Settings(store=place))
    key = sha256(json.dumps({"text": "x" * LARGE}, separators=(",", ":")).encode())
    assert store.payload(key) is not None
    assert exported(store, [made.run], tmp_path / "runs.gz").payloads == 1
    store.close()
    target = MemoryStore()
    taken(target, tmp_path / "runs.gz")
    assert target.payload(key) is not None


def test_payloads_of_an_import_that_was_broken_off_do_not_stay(
    source: tuple[Store, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    target = MemoryStore()
    monkeypatch.setattr(imports._Writing, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        taken(target, tmp_path / "runs.gz")
    assert contents(target) == (0, 1)
    assert target.owner() is None
    assert target.expire(NOW + imports.DAY_MS) == 1
    monkeypatch.undo()
    taken(target, tmp_path / "runs.gz")
    assert everything(target, runs) == everything(store, runs)


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


# -- what is refused -------------------------------------------------------------------------


def test_a_run_that_has_not_ended_is_not_exported(tmp_path: Path) -> None:
    place = str(tmp_path / "it.db")
    waiting = anabranch.run(playbook(step("ask", "decision", ask="?")), store=place)
    store = open_store(Settings(store=place))
    with pytest.raises(Refused, match="is waiting: only runs that have ended are exported"):
        exported(store, [waiting.run], tmp_path / "runs.gz")
    with pytest.raises(InputError, match="there is no run nobody"):
        exported(store, ["nobody"], tmp_path / "runs.gz")
    store.close()


def test_a_run_of_the_same_name_with_another_history_refuses_everything(
    source: tuple[Store, list[str]], tmp_path: Path
) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    place = str(tmp_path / "target.db")

    async def scenario() -> None:
        async with Engine(place) as engine:
            await engine.wait(await engine.start(playbook(step("a", "noop")), run=runs[2]))

    run(scenario())
    target = open_store(Settings(store=place))
    with pytest.raises(Refused, match=f"has a run {runs[2]} with another history"):
        taken(target, tmp_path / "runs.gz")
    assert contents(target) == (1, 0)
    target.close()


def test_no_engine_may_be_at_work_on_the_store(
    source: tuple[Store, list[str]], tmp_path: Path
) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    target = MemoryStore()
    target.acquire("an engine")
    with pytest.raises(StoreInUse, match="an engine"):
        taken(target, tmp_path / "runs.gz")
    assert contents(target) == (0, 0)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def compact(line: Any) -> bytes:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()


def packed(lines: list[Any]) -> bytes:
    texts = (line if isinstance(line, bytes) else compact(line) for line in lines)
    return gzip.compress(b"".join(text + b"\n" for text in texts))


def first_with(lines: list[Any], key: str) -> Any:
    return next(line for line in lines if key in line)


def change(key: str, do: Callable[[Any], None]) -> Callable[[list[Any]], list[Any]]:
    def changed(lines: list[Any]) -> list[Any]:
        do(first_with(lines, key))
        return lines

    return changed


def _finish(line: Any) -> None:
    line["run"]["finished"] = False


def _rename(line: Any) -> None:
    line["run"]["run"] = "../../etc"


def _status(line: Any) -> None:
    line["run"]["status"] = "failed"


def _later(line: Any) -> None:
    line["row"][2] += 1


def _part(line: Any) -> None:
    line["part"] = "AAAA" + line["part"][4:]


def _source(line: Any) -> None:
    line["definition"]["source"] = line["definition"]["source"].replace("length", "count")


def _huge(line: Any) -> None:
    line["size"] = 10**12


def _scope(line: Any) -> None:
    line["hold"][2] = "for ever" if isinstance(line["hold"], list) else None


BAD: list[tuple[str, Callable[[list[Any]], Any], str]] = [
    ("no gzip", lambda _: b"hello", "cannot be unpacked"),
    ("empty", lambda _: b"", "this is no file of `anabranch export`"),
    ("cut", lambda lines: packed(lines)[:-200], "cannot be unpacked: the file ends too early"),
    ("no end", lambda lines: lines[:-1], "the file ends too early"),
    ("other", lambda lines: [{"a": 1}, *lines[1:]], "this is no file of `anabranch export`"),
    ("another", lambda lines: [{**lines[0], "anabranch": "x"}, *lines[1:]], "'x' is no export"),
    ("newer", lambda lines: [{**lines[0], "version": 2}, *lines[1:]], "the file has version 2"),
    ("more", lambda lines: [*lines, lines[-1]], "stands behind the end"),
    ("count", lambda lines: [*lines[:-1], {"finished": 9}], "says 9 runs, and there were 4"),
    ("no json", lambda lines: [*lines[:3], b"{", *lines[3:]], "line 4: cannot be read"),
    ("bad utf", lambda lines: [*lines[:3], b'{"end":"\xff"}', *lines[3:]], "line 4: cannot be"),
    ("twice", lambda lines: [*lines[:-1], *lines[1:-1], {"finished": 8}], "comes twice"),
    ("order", lambda lines: [lines[0], *lines[2:]], "definition of run"),
    ("alive", change("run", _finish), "has not ended"),
    ("name", change("run", _rename), "cannot be a run id"),
    ("status", change("run", _status), "status: its head says 'failed', its log 'completed'"),
    ("instant", change("row", _later), "has another hash: it was changed"),
    ("content", change("part", _part), "has another hash: it was changed"),
    ("source", change("definition", _source), "its source was changed"),
    ("size", change("size", _huge), "settings result_bytes_max and artifact_bytes"),
]


@pytest.mark.parametrize(("harm", "told"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_file_that_is_not_what_was_written_changes_nothing(
    source: tuple[Store, list[str]], tmp_path: Path, harm: Callable[[list[Any]], Any], told: str
) -> None:
    store, runs = source
    path = tmp_path / "runs.gz"
    exported(store, runs, path)
    harmed = harm(lines_of(path))
    path.write_bytes(harmed if isinstance(harmed, bytes) else packed(harmed))
    target = MemoryStore()
    with pytest.raises(InputError) as caught:
        taken(target, path)
    assert told in caught.value.message
    assert caught.value.message.startswith(f"{path}: line ")
    assert contents(target) == (0, 0)
    assert target.owner() is None


@pytest.mark.parametrize("seed", seeds(200))
def test_whatever_is_changed_in_a_file_all_of_it_comes_or_nothing(
    source: tuple[Store, list[str]], tmp_path: Path, seed: int
) -> None:
    """One byte of what is packed is another one: the file is refused, or says the same."""
    store, runs = source
    path = tmp_path / "runs.gz"
    exported(store, runs, path)
    dice, text = random.Random(seed), bytearray(gzip.decompress(path.read_bytes()))
    place = dice.randrange(len(text))
    text[place] = dice.randrange(256)
    path.write_bytes(gzip.compress(bytes(text)))
    target = MemoryStore()
    try:
        taken(target, path)
    except AnabranchError:
        assert contents(target) == (0, 0)
    else:
        kept = {each: found[1] for each, found in everything(target, runs).items()}
        assert kept == {each: found[1] for each, found in everything(store, runs).items()}


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(imports, "LINE_BYTES", 10_000)
    path = tmp_path / "bomb.gz"
    header = export_file.encoded(export_file.Header(anabranch="export", version=1))
    path.write_bytes(gzip.compress(header + b" " * 50_000_000))
    with pytest.raises(InputError, match="line 2: has more than 10,000 bytes"):
        taken(MemoryStore(), path)


# -- secrets and webhooks --------------------------------------------------------------------


def test_no_secret_leaves_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where a step gives its secret back as its result."""
    monkeypatch.setenv("EXPORT_WORD", "s3cr3t-word-of-the-test")
    place = str(tmp_path / "it.db")
    use = step("use", "python", args={"word": "{{ keychain.key }}"}, code="result = {'w': word}")
    keys = [{"name": "key", "kind": "env", "variable": "EXPORT_WORD"}]
    document = {**json.loads(playbook(use)), "keychain": keys}
    made = anabranch.run(json.dumps(document), store=place)
    assert made.status == "completed"
    store = open_store(Settings(store=place))
    out = io.BytesIO()
    export_runs(store, [made.run], out, NOW)
    store.close()
    text = gzip.decompress(out.getvalue())
    assert b"job.reported" in text
    assert b"s3cr3t-word" not in text


def a_hook(store: Store, name: str, **more: Any) -> None:
    hook = Hook(id=name, url="https://x.example", secret="x", kinds=("*",), **more)
    store.add_hook(hook, from_now=True)


def test_webhooks_are_not_told_of_what_happened_elsewhere(
    source: tuple[Store, list[str]], tmp_path: Path
) -> None:
    store, runs = source
    exported(store, runs, tmp_path / "runs.gz")
    target = MemoryStore()
    a_hook(target, "h1")
    a_hook(target, "off", enabled=False)
    taken(target, tmp_path / "runs.gz")
    for name in ("h1", "off"):
        assert target.feed(target.cursors(name).get(0, 0)) == []
    assert target.positions()[0] > 0


def test_a_webhook_that_is_behind_loses_nothing(
    source: tuple[Store, list[str]], tmp_path: Path
) -> None:
    store, runs = source
    exported(store, runs[:1], tmp_path / "one.gz")
    exported(store, runs[1:], tmp_path / "rest.gz")
    target = MemoryStore()
    taken(target, tmp_path / "one.gz")
    refusals = {
        "https://x.example": "webhook h1 has yet to look at events",
        "trigger:report": "trigger report has yet to look at events",
    }
    for url, said in refusals.items():
        for enabled in (True, False):
            hook = Hook(id="h1", url=url, secret="x", kinds=("*",), enabled=enabled)
            target.add_hook(hook)
            with pytest.raises(Refused, match=said):
                taken(target, tmp_path / "rest.gz")
            assert target.drop_hook("h1")
    assert contents(target)[0] == 1
