"""Arca as its host sees it: its report, its table, what it is asked and what it refuses."""

from __future__ import annotations

from typing import Any

from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.documents import check
from anabranch.modules.arca.module import ArcaModule
from anabranch.modules.kit.entries import executor_entry
from anabranch.modules.kit.host import Host
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World
from in_loop import in_loop


def made(life: ModuleLife, kept: tuple[MemoryStore, OfferCatalog]) -> ArcaModule:
    store, catalog = kept
    return ArcaModule(
        host=Host(life.host), clock=life.clock, store=life.disk(store), catalog=catalog
    )


def world() -> World:
    entry = executor_entry("arca", in_process=True)
    arca = LastingModule(
        lambda clock: (MemoryStore(), OfferCatalog(clock=clock)),
        made,
        {"acceptors": entry["acceptors"], "grants": entry["grants"]},
    )
    world = World([NodeSpec(name="buyer", modules={"arca": arca})])
    world.advance(2)
    return world


@in_loop
async def test_the_report_names_every_route_and_message_and_the_host_takes_it() -> None:
    async with world() as here:
        shown: Any = (await here["buyer"].request("GET", "/v1/modules/arca")).body
        assert (shown["state"], shown["ready"], shown["conflicts"]) == ("ready", True, [])
        assert shown["acceptors"] == ["arca-results"]
        routes = {f"{one['method']} {one['path']}" for one in shown["routes"]}
        assert routes >= {
            "GET /v1/enact/service-catalog",
            "POST /v1/enact/catalog/remote-query",
            "POST /v1/enact/arca/runs",
            "GET /v1/enact/arca/runs/{run}",
            "POST /v1/enact/arca/runs/{run}/steps/{step}/confirm",
            "POST /v1/enact/arca/templates/materialize",
        }
        module = here["buyer"].modules["arca"].module
        assert module is not None
        init = {"module_id": "arca", "node_id": here["buyer"].node_id}
        said = module.handle("POST", "/v1/middleware/init", {}, init)
        _, report = here["buyer"].run(said)
        assert not check(report, kind="middleware-module-report")
        chains = report["input_chains"]
        messages = {name for one in chains for name in one.get("message_types", ())}
        assert messages >= {
            "offer-catalog.fetch.response",
            "offer-catalog.push",
            "workflow.fanout.request",
            "service-order.dispatch.response",
        }
        assert report["handles_workflow_kinds"] == ["service-order-orchestration"]
        assert [one["surface_id"] for one in report["operator_surfaces"]] == [
            "arca-runs",
            "arca-templates",
            "arca-catalog",
        ]


@in_loop
async def test_every_route_of_the_report_is_answered_by_the_table() -> None:
    async with world() as here:
        shown: Any = (await here["buyer"].request("GET", "/v1/modules/arca")).body
        for one in shown["routes"]:
            path = one["path"].replace("{", "").replace("}", "")
            answer = await here["buyer"].request(one["method"], path, {})
            assert answer.status not in (405, 500, 502), (one, answer.body)
        assert not here.defects


@in_loop
async def test_a_result_of_an_unknown_order_and_a_foreign_message_change_nothing() -> None:
    async with world() as here:
        module = here["buyer"].modules["arca"].module
        assert isinstance(module, ArcaModule)
        run = here["buyer"].run
        odd = {"acceptor/id": "arca-results", "artifact": {"schema": "other.v1"}}
        assert run(module.handle("POST", "/v1/artifact-delivery/accept", {}, odd)) == (
            200,
            {"acceptor/id": "arca-results", "status": "rejected", "reason": "kind-not-supported"},
        )
        message = {
            "envelope_kind": "peer-message",
            "msg": "odd",
            "payload": None,
            "correlation_id": "c",
            "remote_node_id": "node:1",
        }
        status, decided = run(module.handle("POST", "/v1/middleware/invoke", {}, message))
        assert (status, decided["decision"]) == (200, "allow")
        assert run(module.handle("POST", "/v1/middleware/invoke", {}, {"msg": 3}))[0] == 400
