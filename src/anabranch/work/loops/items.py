"""The items of a shard: their keys, their indexes, and what templates see of one as `iter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.errors import InputError
from anabranch.net.program import Iteration
from anabranch.work.evaluations import evaluate_with
from anabranch.work.loops.collections.port import NumberedItems
from anabranch.work.port import Task

Item = tuple[int, str, Any]  # index, key, value


async def keyed(items: Sequence[Item], iteration: Iteration, task: Task) -> Sequence[Item]:
    """Items with the keys the definition gives them; two of one key are refused."""
    key = iteration.key
    if key is None:
        return items
    found: list[Item] = []
    seen: dict[str, int] = {}
    shard = shard_id(task)
    for index, _, value in items:
        given = iter_names(iteration, task, shard, index, "", value)
        text = str(await evaluate_with({**task.names, "local": {"iter": given}}, key.evaluate))
        if text in seen:
            raise InputError(f"items {seen[text]} and {index} have the same iter_key {text!r}")
        seen[text] = index
        found.append((index, text, value))
    return found


def keys_of(items: Sequence[Item]) -> tuple[str, ...]:
    """In order; none where they are the indexes."""
    if isinstance(items, NumberedItems):
        return ()
    keys = tuple([key for _, key, _ in items])
    return () if keys == tuple([str(index) for index, _, _ in items]) else keys


def indexes_of(items: Sequence[Item]) -> Sequence[int]:
    if isinstance(items, NumberedItems):
        return range(items.first, items.first + len(items))
    return [index for index, _, _ in items]


def values_of(items: Sequence[Item]) -> Sequence[Any]:
    return items.values if isinstance(items, NumberedItems) else [value for _, _, value in items]


def shard_id(task: Task) -> str:
    return f"{task.loop}/{task.shard.first}+{task.shard.count}"


def iter_names(
    iteration: Iteration, task: Task, shard_id: str, index: int, key: str, value: Any
) -> dict[str, Any]:
    """What templates see as `iter`."""
    return {
        iteration.iterator: value,
        "item": value,
        "index": index,
        "_index": index,
        "_first": index == 0,
        "iter_index": index,
        "iter_key": key,
        "loop_id": task.loop,
        "shard_id": shard_id,
    }
