"""However often a run is redriven, whoever is asked for the same thing again sees the same key."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from anabranch import Engine, Toolbox
from anabranch.work.port import Task

from .support import playbook, run, step

CHILD = playbook(step("inside", "pay", what="inside"), name="child")


def shop(child: Path) -> str:
    """A plain step, a pipeline and a loop that pay, a child that does, and one that they feed."""
    return playbook(
        step("plain", "pay", "tasks", what="plain"),
        {
            "step": "tasks",
            "tool": [
                {"name": "one", "kind": "pay", "what": "task one"},
                {"name": "two", "kind": "pay", "what": "task two"},
            ],
            "next": {"arcs": [{"step": "each"}]},
        },
        {
            "step": "each",
            "loop": {"in": [1, 2, 3], "iterator": "n"},
            "spec": {"policy": {"failure": {"mode": "best_effort"}}},
            "tool": {"kind": "pay", "what": "item {{ iter.n }}"},
            "next": {"arcs": [{"step": "below"}]},
        },
        {
            "step": "below",
            "tool": {"kind": "playbook", "path": str(child), "return_step": "inside"},
            "next": {"arcs": [{"step": "last"}]},
        },
        step("last", "pay", what="last", price="{{ workload.prices[plain.paid - 1] }}"),
        workload={"prices": [10, 20]},
    )


def test_the_same_thing_has_one_key_in_all_redrives(tmp_path: Path) -> None:
    """The first run fails at each payment; whatever is paid then, is paid once for the seller."""
    keys: dict[str, list[str]] = defaultdict(list)
    box, works, paid = Toolbox(), False, 0

    @box.tool("pay", blocking=False)
    def pay(task: Task, what: str, price: int = 0) -> dict[str, Any]:
        keys[what].append(task.key)
        if not works:
            raise ValueError("no money")
        return {"paid": paid, "price": price}

    (tmp_path / "child.yaml").write_text(CHILD)

    async def scenario() -> None:
        nonlocal works, paid
        async with Engine(tmp_path / "it.db", toolbox=box) as engine:
            first = await engine.start(shop(tmp_path / "child.yaml"))
            assert (await engine.wait(first)).status == "failed"
            works = True
            for each in (1, 1, 2):
                paid = each
                again = await engine.redrive(first, again=True)
                assert (await engine.wait(again)).status == "completed"

    run(scenario())
    inside, last = keys.pop("inside"), keys.pop("last")
    assert {what: len(set(found)) for what, found in keys.items()} == dict.fromkeys(keys, 1)
    often = {what: len(found) for what, found in keys.items()}
    assert often == {**dict.fromkeys(keys, 4), "task two": 3}  # task one fails first
    assert len(set(inside)) == 4  # children are new runs
    assert last[-3] == last[-2] != last[-1]  # it costs more than before
    assert len({found[0] for found in keys.values()}) == len(keys)
