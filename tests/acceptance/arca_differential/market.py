"""The hosted side: a buyer with Arca, and shops whose answers are scripted, as whole nodes."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.host_runs import CLOSED_RUNS
from anabranch.modules.kit.entries import ACCEPTORS
from anabranch.modules.kit.module import DROP, Module, PeerMessage, reply
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World, arca
from modules.arca.work.stage import OFFER, Shop, Sold

from .cases import (
    AWAY,
    CAPABILITY,
    DRAWING,
    DRAWINGS,
    EMPTY,
    SELLING,
    SUMMARIES,
    UNKNOWN,
    Case,
    Script,
)

RUNS = "/v1/enact/arca/runs"
HOST_RUNS = "/v1/module/workflow/runs"
NOBODY = "participant:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"
WORK_SECONDS = 60
DECIDES_SECONDS = 0.7  # after a gate has opened
HOURS = 6 * 3_600.0
PATIENT = {"http": {"request_timeout_ms": 120_000}}
ACTOR = "ann"


class Scripts:
    """Of all runs; they outlive the processes of modules."""

    def __init__(self) -> None:
        self.of: dict[str, Script] = {}


class ScriptedShop(Shop):
    """Answers fan-outs and orders as the script of the run says."""

    def __init__(self, life: ModuleLife, name: str, scripts: Scripts) -> None:
        self._name = name
        self._scripts = scripts
        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(life, Sold())

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        asked = message.payload
        script = self._scripts.of[asked["run_id"]]
        told = script.answer(asked["step_id"], self._name, asked["dispatch_id"])
        if told.does == "silent":
            return DROP
        await asyncio.sleep(told.after_ms / 1000)
        if told.does == "offer":
            return await super().peer_message(message)
        return reply(fan_reply(told.does, asked["dispatch_id"]))

    async def accept(self, invoke: Mapping[str, Any]) -> dict[str, Any]:
        request = msgspec.json.decode(b64decode(invoke["artifact"]["bytes/base64"]))
        task = asyncio.get_running_loop().create_task(self._worked(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return {"status": "accepted", "reason": ""}

    async def _worked(self, request: Mapping[str, Any]) -> None:
        script = self._scripts.of[request["workflow/run-id"]]
        step = request["workflow/phase-id"]
        told = script.answer(step, self._name, request["request_id"])
        await asyncio.sleep(told.after_ms / 1000)
        if told.does == "silent":
            return
        if told.does == "completed":
            output = {**told.value, "made_of": request["request/input"]}
            answer: dict[str, Any] = {"status": "completed", "output": output}
        else:
            error = {"code": told.value, "message": "it did not work"}
            answer = {"status": told.does, "error": error}
        await self._host.deliver(self._result(request, answer))


def fan_reply(does: str, dispatch: str) -> dict[str, Any]:
    """An answer that cannot be used; `odd` is one to another request."""
    named = {"schema_version": "v1", "dispatch_id": dispatch}
    if does == "no":
        return {**named, "status": "no_offer_available"}
    if does == "error":
        return {**named, "status": "error", "error": {"code": "busy", "message": "not now"}}
    return {**named, "dispatch_id": "dispatch:other", "status": "no_offer_available"}


class Judge(Module):
    """Decides as the script of the run says."""

    module_id = "judge"

    def __init__(self, _life: ModuleLife, scripts: Scripts) -> None:
        self._scripts = scripts
        super().__init__()

    def report(self) -> dict[str, Any]:
        return {
            "host_capability_handlers": [{"capability_id": CAPABILITY, "invoke_path": "/v1/verify"}]
        }

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint(
                method="POST", path="/v1/verify", scopes=("operator",), handler=self._verify,
                summary="Whether it is published",
            )
        ]  # fmt: skip

    async def _verify(self, call: Call) -> Answer:
        told = self._scripts.of[call.body["run"]].verdict(call.body["step"])
        await asyncio.sleep(told.after_ms / 1000)
        if told.does == "away":
            raise NodeError(503, "away", "it is away")
        return Answer(body=told.value)


class Market:
    """`prices` and `offers` are by the name of the provider; each has one price."""

    def __init__(self, seed: int) -> None:
        self.scripts = Scripts()
        prices = Random(f"prices {seed}").sample(range(10, 99), len(SELLING) + 1)
        self.prices = dict(zip((*SELLING, AWAY), prices, strict=True))
        self.world = World([self._buyer(), *map(self._provider, (*SELLING, AWAY, EMPTY))])
        self.buyer = self.world["buyer"]
        self.names = {name: self.world[name].participant_id for name in (*SELLING, AWAY, EMPTY)}
        self.names[UNKNOWN] = NOBODY
        self.offers = {name: self._offered(name) for name in (*SELLING, AWAY)}
        self.world.advance(10)
        self.ask("POST", "/v1/enact/offer-catalog/sync")  # Arca hears of the offers
        self.world[AWAY].kill()

    def _buyer(self) -> NodeSpec:
        judge = LastingModule(lambda _clock: self.scripts, Judge, PATIENT)
        bought = arca({"peer_sync_interval_sec": 1_000_000}, grants=(CAPABILITY,))
        return NodeSpec(name="buyer", modules={"arca": bought, "judge": judge})

    def _provider(self, name: str) -> NodeSpec:
        shop = LastingModule(
            lambda _clock: self.scripts,
            lambda life, scripts: ScriptedShop(life, name, scripts),
            {"acceptors": [ACCEPTORS["dator"]], **PATIENT},
        )
        passports = {"directory": {"passports": ["offer-catalog"]}}
        return NodeSpec(name=name, modules={"shop": shop}, config=passports)

    def _offered(self, name: str) -> dict[str, Any]:
        """Its offers by service: without confirmation, so that a result is the end of its order."""
        kinds = [SUMMARIES, *([DRAWINGS] if name in DRAWING else [])]
        offered = {}
        for kind in kinds:
            draft = {key: value for key, value in OFFER.items() if key != "confirmation/mode"}
            draft |= {
                "service/type": kind, "offer/id": f"offer:{name}:{kind.replace('/', '-')}",
                "pricing/amount": self.prices[name], "delivery/max-duration-sec": WORK_SECONDS,
            }  # fmt: skip
            offered[kind] = self.ask("POST", "/v1/service-offers", draft, node=name)["offer"]
        self.ask("POST", "/v1/trusted-providers", {"participant_id": self.names[name]})
        self.ask("POST", "/v1/service-offers/fetch", {"node_id": self.world[name].node_id})
        return offered

    # -- what tests do -----------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Any = None, *, node: str = "buyer", **more: Any
    ) -> Any:
        answer = self.world[node].request(method, path, body, **more).result
        assert answer.status < 300, (path, answer)
        return answer.body

    def directory(self) -> list[Any]:
        """Rows of passports, as the buyer knows them."""
        query = {"capability_id": "offer-catalog"}
        body = {"schema_version": "v1", "capability_id": "seed_directory_query", "query": query}
        path = "/v1/host/capabilities/seed.directory.query"
        return list(self.ask("POST", path, body, as_="arca")["items"])

    def played(self, case: Case) -> dict[str, Any]:
        """The run at its end: as Arca shows it, as its host does, and whom it has asked."""
        script = self.scripts.of[case.run] = Script(case)
        body = {"definition": case.definition, "run_id": case.run}
        self.ask("POST", RUNS, body)
        decided: list[tuple[str, str]] = []
        path = f"{RUNS}/{quote(case.run, safe='')}"
        while not self._is_over(case.run):
            self.world.run_until(
                lambda: self._is_over(case.run) or bool(self._gates(case.run)), HOURS
            )
            self.world.advance(DECIDES_SECONDS)
            for step in self._gates(case.run):
                if step not in self._gates(case.run):
                    continue  # one decision may end the run
                decided.append((step, self._decide(path, step, script.decision(step))))
        self.world.run_until(lambda: self.buyer.run_status(case.run) in CLOSED_RUNS, HOURS)
        return {
            "shown": self.ask("GET", f"{HOST_RUNS}/{quote(case.run, safe='')}"),
            "snapshot": self._engine.read.snapshot(case.run),
            "dispatches": self.ask("GET", f"{path}/dispatches")["items"],
            "decided": decided,
        }

    def _decide(self, path: str, step: str, said: bool | None) -> str:
        """Where a source decides, people can have it asked again, or end the run."""
        if said is not None:
            body = {"fulfilled": said, "actor": ACTOR}
            answer = self.buyer.request("POST", f"{path}/steps/{step}/confirm", body).result
            if answer.status == 200:
                return "fulfil" if said else "reject"
            assert answer.body["code"] == "decided_by_source", answer.body
        verb = "resume" if said else "cancel"
        self.ask("POST", f"{path}/{verb}", {"actor": ACTOR})
        return verb

    @property
    def _engine(self) -> Any:
        module: Any = self.buyer.modules["arca"].module
        return module.runs.engine

    def _is_over(self, run: str) -> bool:
        return bool(self._engine.state(run).finished)

    def _gates(self, run: str) -> list[str]:
        return sorted(gate.step for gate in self._engine.state(run).gates.values())

    def close(self) -> None:
        asyncio.run(self.world.close())


@contextmanager
def market_of(seed: int) -> Iterator[Market]:
    market = Market(seed)
    try:
        yield market
    finally:
        market.close()
