"""A process that does no inline code (`no_inline`) refuses it at every door, and touches no run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.errors import DefinitionError, InputError
from anabranch.settings import Settings

from .support import Reply, playbook, run, serving, step

SHELL = playbook(step("list", "shell", command="echo ran"), name="listing")
INNER = playbook(
    {
        "step": "both",
        "tool": [
            {"name": "a", "kind": "noop", "result": 1},
            {"name": "b", "kind": "python", "code": "return 2"},
        ],
    },
    name="inner",
)
LOOP = playbook(
    step("each", "python", code="return 1", loop={"in": [1, 2], "iterator": "n"}), name="looped"
)
POOLED = playbook(step("far", "shell", command="echo ran", spec={"pool": "gpu"}), name="pooled")
CONTAINER = playbook(step("job", "container", runtime={"image": "alpine"}), name="container")
SCRIPT = playbook(
    step("load", "script", script={"source": {"type": "inline", "code": "print(1)"}}), name="script"
)
QUIET = playbook(step("greet", result="hello"), name="quiet")
ASKED = playbook(
    step("ask", "decision", "then", ask="Go on?"), step("then", "shell", command="echo ran")
)


def codes(reply: Reply) -> list[str]:
    return [one["code"] for one in reply.json["problems"]]


@pytest.mark.parametrize("definition", [SHELL, INNER, LOOP], ids=["step", "pipeline", "loop"])
def test_a_definition_with_a_kind_that_is_off_is_refused(definition: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with serving(no_inline="shell,python") as client:
            checked = await client.post("/definitions/check", {"definition": definition})
            assert checked.json["ok"] is False
            assert codes(checked) == ["kind-off"]
            refused = await client.post("/runs", {"definition": definition})
            assert refused.status == 422
            assert "no_inline" in refused.text
            assert (await client.get("/runs")).json["items"] == []

    run(scenario())


@pytest.mark.parametrize("off", ["shell", "python", "script,container"])
def test_kinds_that_run_code_are_off_with_shell_and_with_python(off: str) -> None:
    async def scenario() -> None:
        async with serving(no_inline=off) as client:
            for kind, definition in (("script", SCRIPT), ("container", CONTAINER)):
                refused = await client.post("/runs", {"definition": definition})
                assert refused.status == 422
                assert f"no work of kind '{kind}'" in refused.text

    run(scenario())


def test_what_needs_no_such_kind_goes_on_and_a_pool_does_it_elsewhere() -> None:
    async def scenario() -> None:
        async with serving(no_inline="shell python") as client:
            assert await client.ended(await client.start(QUIET)) == "completed"
            pooled = await client.start(POOLED)
            assert (await client.get(f"/runs/{pooled}")).json["status"] == "running"

    run(scenario())


def test_a_recorded_run_is_left_as_it_is_and_goes_on_where_the_kind_is_done(
    tmp_path: Path,
) -> None:
    store = tmp_path / "kept.db"

    async def scenario() -> None:
        async with serving(store) as client:
            name = await client.start(ASKED)
            await client.stands(name)
        async with serving(store, no_inline="shell") as client:
            path = f"/runs/{name}"
            before = (await client.get(path)).json["status"]
            said = {"verdict": "fulfil"}
            refused = await client.post(f"{path}/gates/ask/decide", said)
            assert refused.status >= 400, refused.text
            assert "no_inline" in refused.text
            assert (await client.get(path)).json["status"] == before
        async with serving(store) as client:
            decided = await client.post(f"{path}/gates/ask/decide", said)
            assert decided.status < 300, decided.text
            assert await client.ended(name) == "completed"

    run(scenario())


def test_an_engine_in_a_program_refuses_it_too() -> None:
    settings = Settings(store=":memory:", no_inline="shell")
    with pytest.raises(DefinitionError, match="no_inline"):
        anabranch.run(SHELL, settings=settings)
    assert anabranch.run(QUIET, settings=settings).status == "completed"


def test_a_loop_over_a_query_of_a_kind_that_is_off_fails_for_good(tmp_path: Path) -> None:
    options = {"database": str(tmp_path / "any.db"), "key": "n"}
    cursor = {"kind": "sqlite", "claim": "select 1 as n", "options": options}
    loop = {"cursor": cursor, "iterator": "row", "spec": {"mode": "cursor"}}
    query = playbook(step("rows", result="{{ iter.row }}", loop=loop), name="rows")
    done = anabranch.run(query, settings=Settings(store=":memory:", no_inline="sqlite"))
    assert done.status == "failed", done
    assert "no_inline" in str(done.problem)


def test_a_word_that_is_no_kind_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"shel.*did you mean 'shell'"):
        anabranch.run(QUIET, settings=Settings(store=":memory:", no_inline="shel"))
