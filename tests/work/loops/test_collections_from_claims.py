"""Rows that a statement claims: frame by frame, each frame kept, until nothing is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anabranch.errors import InputError
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionError, CollectionLimits, Descriptor
from anabranch.work.port import Performer
from anabranch.work.registry import close_all
from anabranch.work.sql.postgres import Postgres
from anabranch.work.sql.sqlite import Sqlite
from anabranch.work.values.payloads import MemoryPayloads

from ..support import run, task
from .support import all_items, all_shards

T = TypeVar("T")
MARKS = {"sqlite": ":{}", "postgres": "%({})s"}


class Table:
    """A table of seven jobs, and the statement that claims some of them."""

    def __init__(self, kind: str, place: dict[str, Any]) -> None:
        self.kind = kind
        self.place = place
        frame, most = (MARKS[kind].format(name) for name in ("frame", "max_rows"))
        self.command = (
            f"UPDATE jobs SET frame = {frame} WHERE frame = {frame} OR id IN "
            f"(SELECT id FROM jobs WHERE frame IS NULL ORDER BY id LIMIT {most}) RETURNING id, name"
        )

    def value(self, **more: Any) -> dict[str, Any]:
        own = {"kind": self.kind, "command": self.command, "owner": "r1/l1", **self.place}
        return {"claim": {**own, **more}}

    def use(self, scenario: Callable[[Collections], Awaitable[T]], **limits: Any) -> T:
        async def guarded() -> T:
            performers: dict[str, Performer] = {"sqlite": Sqlite(), "postgres": Postgres()}
            script = (
                "drop table if exists jobs; "
                "create table jobs (id integer primary key, name varchar(20), frame varchar(80)); "
                "insert into jobs (id, name) values "
                + ", ".join(f"({n}, 'job {n}')" for n in range(1, 8))
            )
            made = await performers[self.kind].perform(
                task(self.kind, command=script, **self.place)
            )
            assert getattr(made, "fault", None) is None, made
            collections = Collections(
                performers=performers, payloads=MemoryPayloads(), limits=CollectionLimits(**limits)
            )
            try:
                return await scenario(collections)
            finally:
                await close_all(performers)
                await collections.close()

        return run(guarded())


@pytest.fixture(params=["sqlite", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    kind = request.param
    if kind == "postgres":
        return Table(kind, {"dsn": request.getfixturevalue("postgres")})
    return Table(kind, {"database": str(tmp_path / "x.db")})


def ids(rows: list[Any]) -> list[int]:
    return sorted(row.item["id"] for row in rows)


@pytest.mark.parametrize("inline", [1, 100_000])
def test_every_row_is_claimed_once_and_read_again_without_claiming(
    table: Table, inline: int
) -> None:
    found = table.use(lambda made: all_items(made, table.value(), 3, 4), inline_bytes=inline)
    assert ids(found) == [1, 2, 3, 4, 5, 6, 7]
    assert [item.key for item in found][:3] == ["0-0", "0-1", "0-2"]


def test_rows_may_be_known_by_a_column(table: Table) -> None:
    found = table.use(lambda made: all_items(made, table.value(key="name"), 3, 4))
    assert sorted(item.key for item in found) == [f"job {n}" for n in range(1, 8)]


def test_a_frame_may_be_one_item(table: Table) -> None:
    found = table.use(lambda made: all_items(made, table.value(whole=True), 3, 4))
    assert [len(item.item) for item in found] == [3, 3, 1]
    assert [item.key for item in found] == ["0", "1", "2"]


def test_a_frame_that_is_claimed_again_loses_no_row(table: Table) -> None:
    """As after a crash between the statement and the record of what it returned."""

    async def scenario(made: Collections) -> None:
        descriptor: Descriptor = await made.describe(table.value())
        await made.cut(descriptor, None, 3, 2)
        found: list[Any] = []
        for shard in await all_shards(made, descriptor, 3, 2):
            found += await made.items(descriptor, shard.first, shard.count, shard.cursor)
        assert ids(found) == [1, 2, 3, 4, 5, 6, 7]

    table.use(scenario)


def test_not_more_is_claimed_than_will_be_begun_soon(table: Table) -> None:
    async def scenario(made: Collections) -> int:
        cuts = await made.cut(await made.describe(table.value()), None, 1, 6)
        return len(cuts.shards)

    assert table.use(scenario) == 3


def test_nothing_to_claim_is_an_empty_collection(table: Table) -> None:
    async def scenario(made: Collections) -> None:
        descriptor = await made.describe(table.value())
        assert len(await all_shards(made, descriptor, 10, 2)) == 1
        other = await made.describe(table.value(owner="r2/l1"))
        assert await all_shards(made, other, 10, 2) == []

    table.use(scenario)


def test_a_row_without_its_key_is_named(table: Table) -> None:
    with pytest.raises(CollectionError, match="a claimed row has no other to know it by"):
        table.use(lambda made: all_items(made, table.value(key="other"), 3, 4))


def test_a_statement_that_fails_says_why(table: Table) -> None:
    wrong = table.value(command="UPDATE nowhere SET x = 1 RETURNING x")
    with pytest.raises(CollectionError, match=r"the claim failed: .*nowhere"):
        table.use(lambda made: all_items(made, wrong, 3, 4))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "oracle", "command": "x"}, "claim.kind must be one of sqlite"),
        ({"command": "SELECT 1"}, "it only reads"),
        ({"command": "DELETE FROM a; DELETE FROM b"}, "must be one statement"),
        ({"command": 5}, "claim.command must be text"),
        ({"command": "DELETE FROM a RETURNING *", "params": [1]}, "parameters need names"),
        ({"command": "DELETE FROM a RETURNING *", "auth": {}}, "name of a keychain entry"),
        ({"command": "DELETE FROM a RETURNING *", "password": "x"}, "would be recorded"),
        ({"command": "DELETE FROM a RETURNING *", "rows": 1}, "'rows' is not known"),
        ({"command": "DELETE FROM a RETURNING *", "whole": 3}, "claim.whole must be true or false"),
        (
            {"command": "DELETE FROM a RETURNING *", "dsn": "postgres://u:p@h/d"},
            "claim.dsn has a password in it",
        ),
    ],
)
def test_bad_claims_are_named_before_anything_is_claimed(given: dict[str, Any], words: str) -> None:
    async def scenario() -> None:
        collections = Collections()
        try:
            await collections.describe({"claim": given})
        finally:
            await collections.close()

    with pytest.raises(InputError) as raised:
        run(scenario())
    assert words in raised.value.message
