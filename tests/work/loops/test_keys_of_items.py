"""Keys of items: two of one shard are found, two of different shards are not."""

from __future__ import annotations

from anabranch import Engine, RunResult, Toolbox
from anabranch.work.port import Task

from ..support import run

TEXT = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: keyed}
workflow:
  - step: each
    spec:
      loop_mode: fanout
      fanout: {shard_size: SIZE, iter_key: "{{ iter.item.id }}", allow_partial: true}
    loop: {in: [{id: a}, {id: b}, {id: a}, {id: c}]}
    tool: {kind: work, id: "{{ iter.item.id }}"}
"""


def played(shard_size: int) -> tuple[RunResult, list[tuple[str, str]]]:
    box, done = Toolbox(), list[tuple[str, str]]()

    @box.tool("work", blocking=False)
    def work(id: str, task: Task) -> str:  # noqa: A002
        done.append((id, task.key.partition("/")[2]))
        return id

    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=box) as engine:
            return await engine.wait(await engine.start(TEXT.replace("SIZE", str(shard_size))))

    return run(scenario()), done


def test_two_items_of_one_shard_with_one_key_fail_it_before_any_is_begun() -> None:
    result, done = played(4)
    assert done == []
    assert (result.status, result.steps["each"]["result"]["failed"]) == ("completed", 4)


def test_two_items_of_different_shards_are_both_done_under_one_key() -> None:
    result, done = played(2)
    assert result.status == "completed"
    assert sorted(one for one, _ in done) == ["a", "a", "b", "c"]
    assert len({key for one, key in done if one == "a"}) == 1
