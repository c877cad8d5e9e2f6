"""A broken law is seen: each is shown nodes that break it, and nodes that do not."""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.market.node.folder import NodeFolder
from anabranch.surfaces.cli.commands.stories import stories
from anabranch.surfaces.stories.laws import Law, difference, laws_of
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.play import Verdict
from anabranch.surfaces.stories.trail import Trail

RUN = "run:one"
EXECUTION: dict[str, Any] = {
    "execution_id": "execution:one", "order_id": "order:one", "state": "released",
    "terminal": True, "hold_id": "hold:one", "receipt_id": "receipt:one",
    "payment": {"amount": 250}, "result": {"digest": "sha256:x"},
    "workflow": {"run_id": RUN, "phase_id": "order"},
}  # fmt: skip
SNAPSHOT: dict[str, Any] = {
    "run_id": RUN, "status": "completed",
    "steps": [{"step_id": "order", "status": "completed", "order_id": "order:one",
               "dispatches": [{"dispatch_id": "d", "status": "responded"}]}],
}  # fmt: skip
#: What a good node answers.
ANSWERS: dict[str, Any] = {
    "/v1/ledger/accounts": {"items": [{"balance": 250}, {"balance": -250}]},
    "/v1/executions": {"items": [EXECUTION]},
    "/v1/receipts/receipt%3Aone": {"outcome": "settled"},
    "/v1/ledger/holds/hold%3Aone": {"status": "released"},
    "/v1/ledger/movements": {"items": [{"kind": "top-up"}, {"kind": "hold"}, {"kind": "release"}]},
    "/v1/workflows/runs/run%3Aone/steps/completed": {"items": [{"step_id": "order"}]},
    "/v1/enact/arca/runs/run%3Aone": SNAPSHOT,
    "/v1/module/workflow/runs/run%3Aone": SNAPSHOT,
    "/v1/notifications": {"items": [{"correlation_id": RUN, "title": "Run run:one is completed"}]},
}


class Node:
    name = "buyer"

    def __init__(self, folder: Path, answers: dict[str, Any]) -> None:
        self.folder = NodeFolder(folder)
        self._answers = answers

    async def surely(self, _method: str, path: str, *_more: Any) -> Any:
        return self._answers[path]

    async def items(self, path: str, **_query: Any) -> Any:
        return self._answers[path]["items"]


def judged(folder: Path, answers: dict[str, Any], artifact: str = "completed") -> list[Law]:
    output = folder / "middleware" / "arca" / "output" / "runs"
    output.mkdir(parents=True)
    (output / f"{RUN}.json").write_text(json.dumps({"status": artifact}))
    node = Node(folder, answers)
    market = argparse.Namespace(nodes={"buyer": node}, buyer=node, providers=[node])
    trail = Trail(cast(StoryMarket, market), RUN)
    trail.snapshot = answers["/v1/module/workflow/runs/run%3Aone"]
    trail.executions = {one["execution_id"]: one for one in answers["/v1/executions"]["items"]}
    return asyncio.run(laws_of(cast(StoryMarket, market), [trail]))


def test_nodes_that_break_no_law_are_found_good(tmp_path: Path) -> None:
    laws = judged(tmp_path, copy.deepcopy(ANSWERS))
    assert [law.detail for law in laws if not law.holds] == []
    assert len(laws) == 7


def _change(path: str, change: Callable[[Any], None]) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(json.dumps(ANSWERS))  # nothing of it twice
    change(answers[path])
    return answers


def _second_order(body: Any) -> None:
    body["items"].append({**EXECUTION, "execution_id": "execution:two", "order_id": "order:two"})


@pytest.mark.parametrize(
    ("path", "change", "name"),
    [
        ("/v1/ledger/accounts", lambda body: body["items"].pop(), "the ledger of every node"),
        ("/v1/executions", _second_order, "one order for each step"),
        ("/v1/receipts/receipt%3Aone", lambda body: body.update(outcome="expired"), "one hold"),
        ("/v1/ledger/holds/hold%3Aone", lambda body: body.update(status="active"), "one hold"),
        ("/v1/ledger/movements", lambda body: body["items"].append({"kind": "hold"}), "one hold"),
        (
            "/v1/executions",
            lambda body: body["items"][0].update(terminal=False, state="dispatched"),
            "one hold",
        ),
        ("/v1/executions", lambda body: body["items"][0].update(result=None), "carried out"),
        (
            "/v1/workflows/runs/run%3Aone/steps/completed",
            lambda body: body["items"].append({"step_id": "order"}),
            "carried out",
        ),
        (
            "/v1/module/workflow/runs/run%3Aone",
            lambda body: body["steps"][0]["dispatches"][0].update(response={"price": 3}),
            "no snapshot has the answer",
        ),
        ("/v1/notifications", lambda body: body["items"].clear(), "the operator was told once"),
        (
            "/v1/notifications",
            lambda body: body["items"].append(dict(body["items"][0])),
            "the operator was told once",
        ),
    ],
)
def test_a_broken_law_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, change: Any, name: str
) -> None:
    monkeypatch.setattr("anabranch.surfaces.stories.laws.SETTLE_SECONDS", 0.0)
    broken = [law for law in judged(tmp_path, _change(path, change)) if not law.holds]
    assert any(name in law.name for law in broken), broken
    assert all(law.detail for law in broken)


def test_a_snapshot_that_is_not_the_run_of_the_engine_is_a_broken_law(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.surfaces.stories.laws.SETTLE_SECONDS", 0.0)
    answers = _change("/v1/enact/arca/runs/run%3Aone", lambda body: body.update(status="running"))
    (broken,) = (law for law in judged(tmp_path, answers) if not law.holds)
    assert "the run of the engine" in broken.name
    assert "'running' is not 'completed'" in broken.detail


def test_an_artifact_with_another_end_is_a_broken_law(tmp_path: Path) -> None:
    (broken,) = (law for law in judged(tmp_path, ANSWERS, "failed") if not law.holds)
    assert "one artifact has it" in broken.name


def test_the_host_may_know_the_order_of_a_step_and_nothing_else_that_the_engine_does_not() -> None:
    engine = {"run_id": RUN, "steps": [{"step_id": "a", "status": "completed"}]}
    host = copy.deepcopy(engine) | {"revision": 7, "module_id": "arca"}
    host["steps"][0]["order_id"] = "order:one"  # type: ignore[index]
    assert difference(engine, host) == ""
    host["steps"][0]["output"] = 1  # type: ignore[index]
    assert difference(engine, host) == "/steps/0/output: None is not 1"
    assert difference({"steps": []}, {"steps": [1]}) != ""


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (False, 1)])
def test_a_broken_law_is_told_by_the_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, holds: bool, code: int
) -> None:
    verdict = Verdict(
        story="006", variant="", runs=[], kills=[], missed=["ordered"], laws=[Law("a law", holds)],
        nodes=[], told=[], seconds=1.0, kept=False,
    )  # fmt: skip
    assert stories._tell(argparse.Namespace(json=False), verdict, tmp_path) == code
    said = capsys.readouterr().out
    assert ("all laws hold" if holds else "1 laws are broken") in said
    assert "no run came to ordered" in said
    assert stories._tell(argparse.Namespace(json=True), verdict, tmp_path) == code
    assert json.loads(capsys.readouterr().out)["ok"] is holds
