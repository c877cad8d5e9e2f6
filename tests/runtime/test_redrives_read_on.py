"""A collection that could not be read is read by a redrive, from where the origin was."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch import Engine, Toolbox

from .support import playbook, run

ITEMS = 450


def going_over(path: Path, mode: str, partial: bool) -> str:
    step = {
        "step": "each",
        "loop": {"in": {"jsonl": str(path)}, "iterator": "n"},
        "spec": {"loop_mode": mode, "fanout": {"allow_partial": partial}},
        "tool": {"kind": "note", "n": "{{ iter.n }}"},
    }
    return playbook(step)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("mode", ["local", "fanout"])
def test_what_was_not_there_is_read_by_the_redrive(
    tmp_path: Path, mode: str, partial: bool
) -> None:
    path, box, seen = tmp_path / "rows.jsonl", Toolbox(), list[int]()

    @box.tool("note", blocking=False)
    def note(n: int) -> None:
        seen.append(n)

    async def scenario() -> None:
        async with Engine(tmp_path / "it.db", toolbox=box) as engine:
            origin = await engine.start(going_over(path, mode, partial))
            await engine.wait(origin)
            path.write_text("\n".join(map(str, range(ITEMS))))
            result = await engine.wait(await engine.redrive(origin))
            assert result.status == "completed"

    run(scenario())
    assert sorted(seen) == list(range(ITEMS))
