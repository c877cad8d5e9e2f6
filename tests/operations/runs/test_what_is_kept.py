"""Payloads live as long as their scope says; a purge takes old runs and what only they needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Engine, Settings, Toolbox
from anabranch.ages import DAY_MS
from anabranch.errors import NotFound
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.purge import MOST_AT_ONCE, Pace, purge
from anabranch.runtime.nets import Nets
from anabranch.store.ports import HeadFilter, Hold
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, sha256
from anabranch.work.values.payloads import PLACE, StoredPayloads, load

from ..support import playbook, run, step

LARGE = 70_000


@pytest.fixture
def box() -> Toolbox:
    made = Toolbox()

    @made.tool("make", blocking=False)
    def make(letter: str) -> dict[str, Any]:
        return {"text": letter * LARGE}

    @made.tool("measure", blocking=False)
    def measure(given: Any) -> int:
        return len(given["text"])

    return made


def storing(scope: str | None, letter: str = "x") -> str:
    first = step("first", "make", "second", letter=letter)
    if scope is not None:
        first["tool"]["spec"] = {"result": {"store": {"scope": scope}}}
    return playbook(first, step("second", "measure", given="{{ first }}"))


def play(text: str, box: Toolbox, file: Path, **settings: Any) -> str:
    made = anabranch.run(text, store=str(file), toolbox=box, settings=Settings(**settings))
    assert (made.status, made.result) == ("completed", LARGE)
    return made.run


def payloads(file: Path) -> int:
    store = SqliteStore(file, read_only=True)
    try:
        return int(store.statistics()["payloads"])
    finally:
        store.close()


@pytest.mark.parametrize(
    ("scope", "days", "kept"),
    [
        ("step", 1.0, 0),
        ("execution", 1.0, 1),
        ("execution", 0.0, 0),
        (None, 1.0, 1),
        (None, 0.0, 0),
        ("workflow", 0.0, 1),
        ("permanent", 0.0, 1),
    ],
)
def test_after_its_run_a_payload_stays_as_its_scope_says(
    box: Toolbox, tmp_path: Path, scope: str | None, days: float, kept: int
) -> None:
    file = tmp_path / "it.db"
    play(storing(scope), box, file, retention_days=days)
    assert payloads(file) == kept


def test_what_the_items_of_a_loop_over_numbers_put_aside_ends_with_their_run(
    box: Toolbox, tmp_path: Path
) -> None:
    """No result of the loop says a word of it."""
    make = {"name": "make", "kind": "make", "letter": "{{ 'xyz'[iter.n] }}"}
    each = step("each", "noop")
    each["loop"] = {"in": {"range": 3}, "iterator": "n"}
    each["tool"] = [
        {**make, "spec": {"result": {"store": {"scope": "step"}}}},
        {"name": "measure", "kind": "measure", "given": "{{ _prev }}"},
    ]
    file = tmp_path / "it.db"
    made = anabranch.run(
        playbook(each), store=str(file), toolbox=box, settings=Settings(retention_days=0.0)
    )
    assert (made.status, made.result["results"]) == ("completed", [LARGE] * 3)
    assert payloads(file) == 0


def test_a_run_whose_payload_is_gone_can_still_be_shown(box: Toolbox, tmp_path: Path) -> None:
    file = tmp_path / "it.db"
    name = play(storing("step"), box, file)
    store = SqliteStore(file, read_only=True)
    shown = Reader(store, Nets(store, lambda definition: _net(definition, box))).show(name)
    store.close()
    first = shown["steps"]["first"]["result"]
    assert first["_size_bytes"] > LARGE
    assert shown["result"] == LARGE


def _net(definition: Any, box: Toolbox) -> Any:
    from anabranch.operations.definitions.prepare import compiler

    return compiler(tool.name for tool in box)(definition)


def test_a_payload_that_was_deleted_says_so_to_whoever_asks_for_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "it.db")
    content = b'"some text"'
    store.put_payload(sha256(content), content, Hold(sha256(content), "r1", "step", NOW))
    store.expire(NOW)
    with pytest.raises(NotFound, match="deleted it when no run needed it any more"):
        run(load(StoredPayloads(store), PLACE + sha256(content)))
    store.close()


def test_two_runs_share_content_and_the_second_keeps_it(box: Toolbox, tmp_path: Path) -> None:
    file = tmp_path / "it.db"
    one, two = play(storing(None), box, file), play(storing(None), box, file)
    store = SqliteStore(file)
    try:
        assert store.statistics()["payloads"] == 1
        assert store.forget([one]).payloads == 0
        assert store.statistics()["payloads"] == 1
        assert store.forget([two]).payloads == 1
        assert store.statistics()["payloads"] == 0
    finally:
        store.close()


def test_a_redriven_run_holds_what_it_took_over(box: Toolbox, tmp_path: Path) -> None:
    working = False

    @box.tool("flaky", blocking=False)
    def flaky(given: Any) -> int:
        if not working:
            raise ValueError("not yet")
        return len(given["text"])

    text = playbook(
        step("first", "make", "second", letter="x"), step("second", "flaky", given="{{ first }}")
    )

    async def scenario() -> tuple[str, str]:
        nonlocal working
        async with Engine(tmp_path / "it.db", toolbox=box) as engine:
            first = await engine.start(text)
            await engine.wait(first)
            working = True
            second = await engine.redrive(first)
            assert (await engine.wait(second)).result == LARGE
            return first, second

    first, second = run(scenario())
    store = SqliteStore(tmp_path / "it.db")
    assert store.forget([first]).payloads == 0
    assert store.forget([second]).payloads == 1
    store.close()


def test_the_items_of_a_long_list_go_with_their_run(box: Toolbox, tmp_path: Path) -> None:
    text = playbook(
        {
            "step": "each",
            "loop": {"in": "{{ range(20000) | list }}", "iterator": "n"},
            "spec": {"loop_mode": "fanout"},
            "tool": {"kind": "noop"},
        }
    )
    done = anabranch.run(text, store=str(tmp_path / "it.db"), toolbox=box)
    store = SqliteStore(tmp_path / "it.db")
    before = store.statistics()["payloads"]
    assert store.forget([done.run]).payloads == before
    assert store.statistics()["payloads"] == 0
    store.close()


# -- purging ---------------------------------------------------------------------------------


def test_a_purge_takes_what_ended_long_ago_and_leaves_what_others_depend_on(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "it.db")
    old: dict[str, Any] = {"finished": True, "updated_at": NOW}
    store.commit(
        a_batch(
            a_commit("old", 1, **old),
            a_commit("young", 1, finished=True, updated_at=NOW + 2 * DAY_MS),
            a_commit("going", 1, updated_at=NOW, origin="origin"),
            a_commit("origin", 1, **old),
            a_commit("child", 1, parent="going/1.0#1", **old),
            a_commit("orphan", 1, parent="old/1.0#1", **old),
        )
    )
    now = NOW + 2 * DAY_MS
    assert purge(store, DAY_MS, now, dry_run=True).runs == 2
    assert len(store.heads(HeadFilter())) == 6
    assert purge(store, DAY_MS, now).runs == 2
    left = {head.run for head in store.heads(HeadFilter())}
    assert left == {"young", "going", "origin", "child"}
    assert purge(store, DAY_MS, now).runs == 0
    store.close()


def test_what_an_unfinished_run_depends_on_at_several_removes_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "it.db")
    old: dict[str, Any] = {"finished": True, "updated_at": NOW}
    store.commit(
        a_batch(
            a_commit("first", 1, **old),
            a_commit("second", 1, origin="first", **old),
            a_commit("third", 1, origin="second", updated_at=NOW),
            a_commit("child", 1, parent="first/1.0#1", **old),
            a_commit("grandchild", 1, parent="child/1.0#1", **old),
            a_commit("aside", 1, origin="first", **old),
            a_commit("elsewhere", 1, **old),
            a_commit("after", 1, origin="elsewhere", **old),
        )
    )
    assert purge(store, 0, NOW + 1, wanted=HeadFilter(run_prefix="first")).runs == 0
    assert purge(store, 0, NOW + 1).runs == 3
    left = {head.run for head in store.heads(HeadFilter())}
    assert left == {"first", "second", "third", "child", "grandchild"}
    store.close()


def test_a_purge_of_more_runs_than_fit_one_transaction_takes_them_all(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "it.db")
    many = 2 * MOST_AT_ONCE + 50
    commits = [a_commit(f"r{n}", 1, finished=True, updated_at=NOW) for n in range(many)]
    store.commit(a_batch(*commits))
    assert purge(store, 0, NOW + 1, dry_run=True).runs == many
    assert purge(store, 0, NOW + 1).runs == many
    assert store.heads(HeadFilter()) == []
    store.close()


def test_a_purge_puts_fewer_runs_into_a_transaction_where_each_takes_longer() -> None:
    pace, sizes = Pace(), []
    for took in (0.006, 0.012, 0.4, 0.01, 9.0, 0.0):
        pace.took(pace.runs, took)
        sizes.append(pace.runs)
    assert sizes == [200, 200, 10, 12, 10, MOST_AT_ONCE]
