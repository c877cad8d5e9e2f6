"""The standard kinds are there, cost nothing until used, and close together."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.switched_off import STANDARD_KINDS
from anabranch.work.port import Performer, Task
from anabranch.work.registry import close_all, standard_performers

from .support import alive, gone, perform, run, task


def test_every_kind_answers_and_nothing_is_left() -> None:
    box = Toolbox()
    box.tool("slow")(lambda a: a)
    box.tool("quick", blocking=False)(lambda a: a)

    async def scenario() -> list[Any]:
        performers = standard_performers(toolbox=box)
        assert set(performers) == {*STANDARD_KINDS, "slow", "quick"}
        jobs = [
            task("noop", result=1),
            task("python", code="import os\nreturn os.getpid()"),
            task("shell", command="echo 3"),
            task("sqlite", database=":memory:", query="select 6 as n"),
            task("duckdb", query="select 7 as n"),
            task("secrets", provider="static", value="eight"),
            task("artifact", action="get", result_ref={"n": 9}),
            task("slow", a=4),
            task("quick", a=5),
        ]
        answers = [await perform(performers[job.kind], job) for job in jobs]
        pid = answers[1].result
        assert alive(pid)
        await close_all(performers)
        await close_all(performers)
        assert gone(pid)
        return [answer.result for answer in answers]

    results = run(scenario())
    assert [results[0], *results[-2:]] == [1, 4, 5]
    assert [result["rows"] for result in results[3:5]] == [[{"n": 6}], [{"n": 7}]]
    assert results[5:7] == ["eight", {"n": 9}]
    assert results[2]["stdout"] == "3\n"


def test_nothing_starts_before_it_is_needed() -> None:
    async def scenario() -> None:
        await close_all(standard_performers())

    run(scenario())


def test_a_tool_cannot_take_the_name_of_a_standard_kind() -> None:
    box = Toolbox()
    box.tool("http")(lambda: None)
    with pytest.raises(InputError, match="tool 'http' has the name of a standard kind"):
        standard_performers(toolbox=box)


def test_one_that_fails_to_close_does_not_keep_the_others_open() -> None:
    closed: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        async def perform(self, task: Task) -> Answer:
            raise NotImplementedError

        async def close(self) -> None:
            closed.append(self.name)
            if self.name == "first":
                raise OSError("stuck")

    parts: dict[str, Performer] = {name: Part(name) for name in ("first", "second")}
    with pytest.raises(OSError, match="stuck"):
        run(close_all(parts))
    assert closed == ["first", "second"]


def test_importing_the_kinds_imports_nothing_large() -> None:
    large = "{'aiohttp', 'psycopg', 'duckdb', 'pyarrow'}"
    code = f"import sys, anabranch.work.registry; print({large} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
