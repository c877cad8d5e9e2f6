"""An input that is declared as a secret: work reads it, nothing that is kept or shown has it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch import Engine
from anabranch.errors import InputError
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.port import Task

from .test_secrets_in_runs import LONG, SETTINGS, Seen, bytes_of, playbook, seen

DECLARED = "inputs: {password: {secret: true, required: true}, plain: {default: 7}}\n"
BODY = f"""{DECLARED}executor: {{spec: {{on_failure: stop}}}}
workflow:
  - step: held
    when: "{{{{ ctx.go | default(true) }}}}"
    tool: {{kind: noop, result: ["{{{{ workload.password }}}}", "{{{{ workload.plain }}}}"]}}
    next: {{arcs: [{{step: pay}}]}}
  - step: pay
    tool: {{kind: pay, card: "{{{{ workload.password }}}}"}}
"""
ECHO = ["***", 7]


class Shop:
    """A tool that is out of order until it is not."""

    def __init__(self) -> None:
        self.toolbox = Toolbox()
        self.open = False
        self.seen: list[tuple[str, str]] = []
        self.toolbox.add("pay", self.pay)

    def pay(self, card: str, task: Task) -> str:
        self.seen.append((task.key, card))
        if not self.open:
            raise RuntimeError(f"{card} cannot be read")
        return f"paid with {card}"


def test_it_is_nowhere_but_in_work_and_a_redrive_is_given_it_again(tmp_path: Path) -> None:
    path, store, shop = playbook(tmp_path, BODY), tmp_path / "runs.db", Shop()

    async def scenario() -> tuple[Seen, Seen]:
        async with Engine(store, settings=SETTINGS, toolbox=shop.toolbox) as engine:
            first = await seen(engine, await engine.start(path, {"password": LONG}))
            run = first.show["run"]
            plan = await engine.plan_redrive(run)
            assert plan.secrets == ["password"]
            with pytest.raises(
                InputError, match="needs the secrets 'password', which are not stored"
            ):
                await engine.redrive(run)
            with pytest.raises(InputError, match="'plain' is none of them"):
                await engine.redrive(run, input={"password": LONG, "plain": 8})
            assert LONG.encode() not in bytes_of(store), "wiped with the end of the run"
            shop.open = True
            again = await engine.redrive(run, input={"password": LONG})
            return first, await seen(engine, again)

    first, again = asyncio.run(scenario())
    assert (first.result.status, again.result.status) == ("failed", "completed"), again.text
    assert again.result.result == "paid with ***"
    assert again.show["steps"]["held"]["result"] == ECHO
    assert "hunter" not in first.text + again.text
    assert LONG.encode() not in bytes_of(store)
    keys, cards = zip(*shop.seen, strict=True)
    assert cards == (LONG, LONG)
    assert len(set(keys)) == 1, "the same input, the same key"


def test_it_is_there_after_the_engine_was_gone(tmp_path: Path) -> None:
    path, store, shop = playbook(tmp_path, BODY.replace("true)", "false)")), tmp_path / "s", Shop()
    shop.open = True

    async def begin() -> str:
        async with Engine(store, settings=SETTINGS, toolbox=shop.toolbox) as engine:
            return await engine.start(path, {"password": LONG})

    async def go_on(run: str) -> Seen:
        async with Engine(store, settings=SETTINGS, toolbox=shop.toolbox) as engine:
            await engine.patch(run, {"go": True})
            return await seen(engine, run)

    run = asyncio.run(begin())
    assert LONG.encode() in bytes_of(store), "beside the log, while the run lives"
    found = asyncio.run(go_on(run))
    assert found.result.result == "paid with ***", found.text
    assert LONG.encode() not in bytes_of(store)


@pytest.mark.parametrize("inline_bytes_max", [1, 65536])
def test_a_child_has_it_from_its_parent_and_a_guard_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline_bytes_max: int
) -> None:
    monkeypatch.setenv("LONG_SECRET", LONG)
    guarded = BODY.replace(
        "[{step: pay}]", "[{step: pay, when: \"{{ workload.password == 'x' }}\"}]"
    )
    playbook(tmp_path, guarded, "child.yaml")
    keys = "keychain: [{name: api, kind: env, map: {token: LONG_SECRET}}]\n"
    args = '{password: "{{ keychain.api.token }}"}'
    child = tmp_path / "child.yaml"
    tool = f"{{kind: playbook, path: {child}, wait: true, args: {args}}}"
    path = playbook(tmp_path, f"{keys}workflow: [{{step: child, tool: {tool}}}]\n")
    settings = replace(SETTINGS, inline_bytes_max=inline_bytes_max)

    async def scenario() -> tuple[Seen, Seen]:
        async with Engine(tmp_path / "s", settings=settings, toolbox=Shop().toolbox) as engine:
            mother = await seen(engine, await engine.start(path, {}))
            (head,) = [one for one in engine.read.runs() if one["parent"]]
            return mother, await seen(engine, head["run"])

    mother, own = asyncio.run(scenario())
    assert own.show["steps"]["held"]["result"] == ECHO
    assert "workload.password is a secret" in own.text
    assert "hunter" not in mother.text + own.text


@pytest.mark.parametrize("given", ["", "x" * 65_537, 7, "***1.5b0c9f2e71d84a36***"])
def test_what_cannot_be_a_secret_is_refused_and_not_shown(tmp_path: Path, given: object) -> None:
    path = playbook(tmp_path, BODY)

    async def scenario() -> None:
        async with Engine(settings=SETTINGS, toolbox=Shop().toolbox) as engine:
            with pytest.raises(InputError) as refused:
                await engine.start(path, {"password": given})
            assert str(given) not in refused.value.message or not given
            assert engine.read.runs() == []

    asyncio.run(scenario())
