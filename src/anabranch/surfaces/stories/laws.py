"""What must hold at the end of every story, however it went and whatever was killed.

Some laws are asked of nodes that run, the last one of their stores when they have stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.market.node.check import check_streams
from anabranch.market.node.parts import all_families
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.stories.market import StoryMarket
from anabranch.surfaces.stories.processes import (
    LOOK_SECONDS,
    NodeProcess,
    StoryFailed,
    part,
    until,
)
from anabranch.surfaces.stories.trail import Trail

SETTLE_SECONDS = 60.0
#: What an execution that ended so has made of its hold and its receipt.
_ENDS = {
    "released": ("released", "settled"),
    "failed": ("refunded", "rejected"),
    "rejected": ("refunded", "rejected"),
    "expired": ("refunded", "expired"),
}
#: Of a snapshot, what the host adds or the module leaves out.
_HOSTS_OWN = frozenset({"schema", "module_id", "revision", "created_at", "updated_at"})
_ORDER_REFS = frozenset({"order_id", "execution_id", "contract_id", "receipt_id", "delivery"})
#: A dispatch in a snapshot says that an answer came, never which.
_RAW = ("response", "responses", "raw_response")


class Law(msgspec.Struct, frozen=True):
    name: str
    holds: bool
    detail: str = ""


def law(name: str, wrong: Sequence[str]) -> Law:
    return Law(name, not wrong, "; ".join(wrong[:5]))


async def laws_of(market: StoryMarket, trails: Sequence[Trail]) -> list[Law]:
    """Of nodes that run, and of the runs that were watched."""
    return [
        await _zero_sum(market),
        await _once(market, trails),
        await _ends(market, trails),
        await _work_once(market, trails),
        await _same_run(market.buyer, trails),
        law("no snapshot has the answer of a participant that was not chosen",
            [text for trail in trails for text in _raw(trail.snapshot)]),
        await _told(market.buyer, trails),
    ]  # fmt: skip


async def _zero_sum(market: StoryMarket) -> Law:
    wrong = []
    for node in market.nodes.values():
        accounts = await node.items("/v1/ledger/accounts")
        total = sum(one["balance"] for one in accounts)
        if total:
            wrong.append(f"the accounts of {node.name} sum to {total}")
    return law("the ledger of every node sums to zero", wrong)


async def _once(market: StoryMarket, trails: Sequence[Trail]) -> Law:
    """Every order of the buyer belongs to a run that was watched, and no attempt has two."""
    known = {name for trail in trails for name in trail.executions}
    runs = {trail.run for trail in trails}
    wrong = []
    executions = await market.buyer.items("/v1/executions")
    for order, times in Counter(one["order_id"] for one in executions).items():
        if times > 1:
            wrong.append(f"{order} was opened {times} times")
    for one in executions:
        if one["execution_id"] not in known and one["workflow"]["run_id"] in runs:
            wrong.append(f"{one['execution_id']} was not seen in its run")
    steps = Counter((one["workflow"]["run_id"], one["workflow"]["phase_id"]) for one in executions)
    wrong += [f"{step} of {run} has {times} orders" for (run, step), times in steps.items()
              if times > 1]  # fmt: skip
    return law("one order for each step", wrong)


async def _ends(market: StoryMarket, trails: Sequence[Trail]) -> Law:
    """Hold and receipt of an execution are what its end says."""
    buyer, wrong = market.buyer, []
    for trail in trails:
        for one in trail.executions.values():
            if not one["terminal"]:
                wrong.append(f"{one['execution_id']} is {one['state']} and has not ended")
                continue
            hold_is, outcome_is = _ENDS[one["state"]]
            receipt = await buyer.surely("GET", f"/v1/receipts/{part(one['receipt_id'])}")
            if receipt["outcome"] != outcome_is:
                wrong.append(f"{one['receipt_id']} says {receipt['outcome']}")
            if one["hold_id"]:
                hold = await buyer.surely("GET", f"/v1/ledger/holds/{part(one['hold_id'])}")
                if hold["status"] != hold_is:
                    wrong.append(f"{one['hold_id']} is {hold['status']}")
            elif one["payment"]["amount"]:
                wrong.append(f"{one['execution_id']} costs something and has no hold")
    wrong += await _movements(market, trails)
    return law("every order has one hold, if it costs something, and one receipt", wrong)


async def _movements(market: StoryMarket, trails: Sequence[Trail]) -> list[str]:
    """One hold and one end for each order that costs something."""
    paid = [one for trail in trails for one in trail.executions.values() if one["hold_id"]]
    ended = Counter(_ENDS[one["state"]][0] for one in paid if one["terminal"])
    moved = Counter(one["kind"] for one in await market.buyer.items("/v1/ledger/movements"))
    wanted = {"hold": len(paid), "release": ended["released"], "refund": ended["refunded"]}
    return [f"{moved[kind]} movements of kind {kind}, not {count}"
            for kind, count in wanted.items() if moved[kind] != count]  # fmt: skip


async def _work_once(market: StoryMarket, trails: Sequence[Trail]) -> Law:
    """Of each order at most one result was admitted, and each result was sent by one provider."""
    wrong = []
    for trail in trails:
        for one in trail.executions.values():
            if one["state"] == "released" and not one["result"]:
                wrong.append(f"{one['execution_id']} is released without a result")
    for node in market.providers:
        for trail in trails:
            path = f"/v1/workflows/runs/{part(trail.run)}/steps/completed"
            done = (await node.surely("GET", path))["items"]
            steps = Counter(str(item["step_id"]) for item in done)
            wrong += [f"{node.name} has done {step} of {trail.run} {times} times"
                      for step, times in steps.items() if times > 1]  # fmt: skip
    return law("every order was carried out at most once, by the provider it names", wrong)


async def _same_run(buyer: NodeProcess, trails: Sequence[Trail]) -> Law:
    """The snapshot of the host is the run of the engine."""
    wrong = []
    for trail in trails:
        shown: dict[str, Any] = {}

        async def is_same(trail: Trail = trail, shown: dict[str, Any] = shown) -> bool:
            path = part(trail.run)
            engine = await buyer.surely("GET", f"/v1/enact/arca/runs/{path}")
            host = await buyer.surely("GET", f"/v1/module/workflow/runs/{path}")
            shown["difference"] = difference(engine, host)
            return not shown["difference"]

        try:
            await until(is_same, SETTLE_SECONDS, "the host to be shown the end", LOOK_SECONDS * 5)
        except StoryFailed as error:
            wrong.append(f"{trail.run}: {shown.get('difference') or error}")
    return law("the snapshot of the host is the run of the engine", wrong)


def difference(engine: Any, host: Any, path: str = "") -> str:
    """Where a run of the engine and the snapshot of the host differ first; "" where they do not.
    The host also knows the order of a step after the run has ended."""
    if isinstance(engine, Mapping) and isinstance(host, Mapping):
        for name in sorted({*engine, *host} - _HOSTS_OWN):
            if name in _ORDER_REFS and name not in engine:
                continue
            found = difference(engine.get(name), host.get(name), f"{path}/{name}")
            if found:
                return found
        return ""
    if isinstance(engine, list) and isinstance(host, list) and len(engine) == len(host):
        pairs = enumerate(zip(engine, host, strict=True))
        return next((found for at, (a, b) in pairs if (found := difference(a, b, f"{path}/{at}"))),
                    "")  # fmt: skip
    return "" if engine == host else f"{path}: {engine!r} is not {host!r}"


def _raw(snapshot: Any, path: str = "") -> list[str]:
    """Answers of participants where they must not be."""
    found = []
    for step in snapshot.get("steps", ()) if isinstance(snapshot, Mapping) else ():
        for one in step.get("dispatches", ()):
            found += [f"{path}{step['step_id']}: {name}" for name in _RAW if name in one]
    return found


async def _told(buyer: NodeProcess, trails: Sequence[Trail]) -> Law:
    """Each run that has ended: one notification, and one artifact with its end."""
    wrong = []
    told = Counter(str(one.get("correlation_id")) for one in await buyer.items("/v1/notifications")
                   if " is paused" not in one["title"])  # fmt: skip
    output = buyer.folder.path / "middleware" / "arca" / "output"
    for trail in trails:
        if not trail.closed:
            continue
        if told[trail.run] != 1:
            wrong.append(f"{told[trail.run]} notifications about {trail.run}")
        files = [file for file in output.rglob("*.json") if trail.run == file.stem]
        kept = [msgspec.json.decode(file.read_bytes()).get("status") for file in files]
        if kept != [trail.status]:
            wrong.append(f"artifacts of {trail.run}: {kept}")
    return law("the operator was told once of every end, and one artifact has it", wrong)


def check_stores(market: StoryMarket) -> Law:
    """As `anabranch node check`, of nodes that have stopped."""
    wrong = []
    for node in market.nodes.values():
        store = SqliteStore(node.folder.store)
        try:
            streams = store.node_streams
            assert streams is not None, "a file has streams"
            found = check_streams(streams, all_families())
        finally:
            store.close()
        wrong += [f"{node.name}: {one.stream}: {one.message}" for one in found.problems]
    return law("`node check` finds nothing at any node", wrong)
