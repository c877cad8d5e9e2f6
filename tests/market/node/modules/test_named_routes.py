"""Local routes with names in them: one owner for every call that could be made."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.node.modules.reports import check_report

from .support import ScriptedModule, decision, hosted, in_process, run

INVOKE = "/v1/middleware/invoke"


def owner(name: str, *routes: str) -> ScriptedModule:
    chain = {"chain": "inbound-local", "local_routes": list(routes)}
    module = ScriptedModule(name, input_chains=[chain])
    module.answers[INVOKE] = decision("return", {"status": 200, "body": {"by": name}})
    return module


def test_a_name_stands_for_one_part_of_a_path() -> None:
    async def scenario() -> None:
        module = owner("arca", "GET arca/runs/{run}", "POST arca/runs/{run}/steps/{step}/confirm")
        async with hosted(module, configs=[in_process("arca")]) as node:
            found = await node.ask("GET", "/v1/enact/arca/runs/run:1%2F2")
            assert (found.status, found.body) == (200, {"by": "arca"})
            steps = "/v1/enact/arca/runs/r/steps/s/confirm"
            assert (await node.ask("POST", steps, {})).status == 200
            for path in ("arca/runs", "arca/runs/", "arca/runs/a/b", "arca/runs/r/steps//confirm"):
                assert (await node.ask("GET", f"/v1/enact/{path}")).status == 404, path
            wrong = await node.ask("GET", steps)
            assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")
        assert [body["path"] for body in module.bodies()] == [
            "/v1/enact/arca/runs/run:1%2F2",
            steps,
        ]

    run(scenario())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("GET arca/runs/{run}", "GET arca/runs/{other}"),
        ("GET arca/runs/{run}", "GET arca/runs/last"),
        ("GET arca/runs/last", "GET arca/runs/{run}"),
        ("GET a/{x}/c", "GET a/b/{y}"),
    ],
)
def test_a_claim_of_another_module_that_overlaps_is_refused(first: str, second: str) -> None:
    async def scenario() -> None:
        modules = owner("one", first), owner("two", second, "GET two/own")
        configs = [in_process("one"), in_process("two")]
        async with hosted(*modules, configs=configs) as node:
            view = (await node.ask("GET", "/v1/modules/two")).body
            assert view["routes"] == [{"method": "GET", "path": "/v1/enact/two/own"}]
            assert view["last_problem"]["code"] == "route_conflict"
            path = second.removeprefix("GET ").replace("{other}", "r").replace("{run}", "last")
            answer = await node.ask("GET", f"/v1/enact/{path.replace('{y}', 'c')}")
            assert answer.body == {"by": "one"}

    run(scenario())


def test_of_one_module_a_path_without_names_comes_first() -> None:
    async def scenario() -> None:
        module = ScriptedModule(
            "arca",
            input_chains=[
                {"chain": "inbound-local", "local_routes": ["GET runs/{run}"]},
                {
                    "chain": "inbound-local",
                    "local_routes": ["GET runs/last"],
                    "invoke_path": "/v1/last",
                },
            ],
        )
        for path in (INVOKE, "/v1/last"):
            module.answers[path] = decision("return", {"status": 200, "body": path})
        async with hosted(module, configs=[in_process("arca")]) as node:
            assert (await node.ask("GET", "/v1/enact/runs/last")).body == "/v1/last"
            assert (await node.ask("GET", "/v1/enact/runs/other")).body == INVOKE

    run(scenario())


def report(*chains: Any) -> dict[str, Any]:
    return {"schema_version": "v1", "module_id": "arca", "input_chains": list(chains)}


def local(*routes: str) -> dict[str, Any]:
    return {"chain": "inbound-local", "local_routes": list(routes)}


@pytest.mark.parametrize(
    "chains",
    [
        (local("GET runs/{run}"), local("GET runs/{other}")),
        (local("GET runs/{run}/a"), local("GET runs/b/{x}")),
        (local("GET runs/{Run}"),),
        (local("GET runs/{run"),),
        (local("GET runs/x{run}"),),
        (local("GET runs/{}"),),
    ],
)
def test_a_report_with_routes_that_cannot_be_told_apart_is_refused(chains: Any) -> None:
    with pytest.raises(InputError) as refused:
        check_report(report(*chains), "arca", INVOKE)
    assert refused.value.code == "report_route"
