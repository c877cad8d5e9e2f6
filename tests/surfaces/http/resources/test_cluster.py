"""`/cluster`: any server tells of all of them, an admin drains one, and the trail has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from shared_store import PARTITIONS, fresh_schema

from ..access import START, Door, serving
from ..support import run


@asynccontextmanager
async def two_servers(postgres: str) -> AsyncIterator[tuple[Door, Door]]:
    """Both with tokens and pages, each with its half of the partitions."""
    settings: Any = {
        "store": fresh_schema(postgres),
        "store_partitions": PARTITIONS,
        "require_tokens": "yes",
    }
    async with serving(pages=True, **settings) as first, serving(pages=True, **settings) as second:
        await shares(second, [PARTITIONS // 2] * 2)
        yield first, second


async def shares(door: Door, wanted: list[int]) -> list[dict[str, Any]]:
    """The servers, once they own so many partitions; in the order in which they are told."""
    token = door.token("read")
    while True:
        found = (await door.ask("GET", "/cluster", token)).json["servers"]
        if [one["partitions"] for one in found] == wanted:
            return list(found)
        await asyncio.sleep(0.05)


def test_every_server_tells_the_same_of_servers_partitions_and_owners(postgres: str) -> None:
    async def go() -> None:
        async with two_servers(postgres) as doors:
            read = doors[0].token("read", "operate")
            begun = (await doors[0].ask("POST", "/runs", read, START)).json["run"]
            told = [(await door.ask("GET", "/cluster", read)).json for door in doors]
            for one in told:
                assert (one["shared"], one["partitions"], one["unowned"]) == (True, PARTITIONS, 0)
            ids = [[one["id"] for one in each["servers"]] for each in told]
            assert ids[0] == ids[1]
            here = [[one["here"] for one in each["servers"]] for each in told]
            assert here[0] == [not one for one in here[1]]
            lists = [
                (await door.ask("GET", "/cluster/partitions", read)).json["items"] for door in doors
            ]
            owners = [[(one["owner"], one["epoch"]) for one in each] for each in lists]
            assert owners[0] == owners[1]
            owner = [(await door.ask("GET", f"/cluster/runs/{begun}", read)).json for door in doors]
            assert owner[0]["server"]["id"] == owner[1]["server"]["id"]
            place = owner[0]["partition"]
            assert owners[0][place] == (owner[0]["server"]["id"], owner[0]["epoch"])
            lost = await doors[1].ask("GET", "/cluster/runs/nowhere", read)
            assert (lost.status, lost.code) == (404, "not_found")

    run(go())


def test_only_an_admin_drains_and_it_is_on_record_with_who_asked(postgres: str) -> None:
    async def go() -> None:
        async with two_servers(postgres) as (first, second):
            admin = first.token("admin", name="ada")
            other = first.token("operate", name="otto")
            drained, left = (one["id"] for one in await shares(first, [PARTITIONS // 2] * 2))
            way = f"/cluster/servers/{drained}/drain"
            assert (await second.ask("POST", way, other)).code == "scope"
            card = await second.ask("POST", way, admin)
            assert (card.status, card.json["id"], card.json["draining"]) == (200, drained, True)
            await shares(first, [0, PARTITIONS])
            again = await first.ask("POST", way, admin)  # nothing more happens
            assert (again.status, again.json["state"]) == (200, "drained")
            last = await first.ask("POST", f"/cluster/servers/{left}/drain", admin)
            assert (last.status, last.code) == (409, "last_server")
            unknown = await first.ask("POST", "/cluster/servers/nowhere/drain", admin)
            assert (unknown.status, unknown.code) == (404, "no_such_server")
            back = await first.ask("DELETE", way, admin)
            assert (back.status, back.json["draining"]) == (200, False)
            await shares(second, [PARTITIONS // 2] * 2)
            trail = (await second.ask("GET", "/audit?limit=6", admin)).json["items"]
            told = [
                (one["actor"], one["action"], one["subject"], one["outcome"]) for one in trail[::-1]
            ]
            assert told == [
                ("otto", "cluster.servers.drain", drained, "refused: scope"),
                ("ada", "cluster.servers.drain", drained, "done"),
                ("ada", "cluster.servers.drain", drained, "done"),
                ("ada", "cluster.servers.drain", left, "refused: last_server"),
                ("ada", "cluster.servers.drain", "nowhere", "refused: no_such_server"),
                ("ada", "cluster.servers.drain.delete", drained, "done"),
            ]

    run(go())


def test_the_metrics_tell_what_a_server_owns_and_took_and_how_long_its_lease_runs(
    postgres: str,
) -> None:
    async def go() -> None:
        async with two_servers(postgres) as (first, _second):
            reply = await first.ask("GET", "/metrics", first.token("read"))
            found = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(reply.text)
                for sample in family.samples
                if not sample.name.startswith("anabranch_http")
            }
            assert found["anabranch_partitions_owned",] == PARTITIONS // 2
            assert found["anabranch_partitions_taken_total",] == PARTITIONS
            assert found["anabranch_partitions_handed_over_total",] == PARTITIONS // 2
            assert found["anabranch_leases_lost_total",] == 0
            assert 0 < found["anabranch_lease_left_seconds",] <= 15
            assert found["anabranch_cluster_servers", "active"] == 2
            assert found["anabranch_cluster_servers", "draining"] == 0
            assert found["anabranch_partitions_unowned",] == 0
            assert found["anabranch_messages_waiting",] == 0

    run(go())


def test_a_store_with_one_server_says_so() -> None:
    async def go() -> None:
        async with serving() as door:
            card = (await door.ask("GET", "/cluster")).json
            assert (card["shared"], card["partitions"], card["unowned"]) == (False, 1, 0)
            assert [(one["id"], one["here"]) for one in card["servers"]] == [("only", True)]
            (partition,) = (await door.ask("GET", "/cluster/partitions")).json["items"]
            assert (partition["partition"], partition["owner"]) == (0, "only")
            begun = (await door.ask("POST", "/runs", body=START)).json["run"]
            owner = (await door.ask("GET", f"/cluster/runs/{begun}")).json
            assert (owner["shared"], owner["server"]["id"]) == (False, "only")
            for method in ("POST", "DELETE"):
                refused = await door.ask(method, "/cluster/servers/only/drain")
                assert (refused.status, refused.code) == (409, "not_shared")
            text = (await door.ask("GET", "/metrics")).text
            assert (
                "anabranch_partitions" not in text
            )  # nothing to tell where servers share no store

    run(go())
