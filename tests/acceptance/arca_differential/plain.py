"""The plain side: the engine of `anabranch run` with a book of participants, in virtual time.

The functions of the book answer as the peers of the hosted side do. What a host adds is what they
add: an order that nobody carries out ends when its time is over, and one that may not cost so much
is refused; a peer that says nothing is given up at last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Literal

from anabranch.errors import Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer
from anabranch.market.directory import PassportDirectory
from anabranch.modules.arca.config import ArcaConfig
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.dispatches import Dispatch
from anabranch.operations.runs.verbs import Verbs, decision
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.work.participants.book import Book
from anabranch.work.participants.performers import (
    CapabilityPerformer,
    DispatchPerformer,
    RequestPerformer,
    TargetsPerformer,
)
from anabranch.work.participants.rotation import Rotation
from anabranch.work.port import Parked, Performer, Task
from modules.arca.work.support import LoopClock
from virtual import run_virtually

from .cases import AWAY, CAPABILITY, EMPTY, SELLING, UNKNOWN, Case, Script, Told
from .market import ACTOR, DECIDES_SECONDS, WORK_SECONDS, Market, fan_reply

#: Until Arca gives a peer up that says nothing, in a step without a time limit.
SILENCE_SECONDS = ArcaConfig().silence_ms / 1000 + 5
#: How much longer the hosted side may take for anything, and to know of an order that has expired.
MOMENT_SECONDS, POLL_SECONDS = 0.03, ArcaConfig().poll_max_ms / 1000


class Plain:
    """Runs cases of a market; whose turn it is goes on from case to case."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._rows = market.directory()
        self.rotation = Rotation()
        self._before = Rotation()  # of the case that was played last

    def played(self, case: Case) -> dict[str, Any]:
        self._before = deepcopy(self.rotation)
        return self._play(case, self.rotation, None)

    def shaken(self, case: Case, number: int) -> dict[str, Any]:
        """What the case that was played last comes to where everything takes a moment more, each
        thing its own."""
        return self._play(case, deepcopy(self._before), Random(f"{case.number} {number}"))

    def _play(self, case: Case, rotation: Rotation, dice: Random | None) -> dict[str, Any]:
        return run_virtually(_Performance(self._market, self._rows, case, rotation, dice).play())


class _Performance:
    def __init__(
        self,
        market: Market,
        rows: Sequence[Any],
        case: Case,
        rotation: Rotation,
        dice: Random | None,
    ) -> None:
        self._market = market
        self._rows = rows
        self._case = case
        self._rotation = rotation
        self._dice = dice
        self._script = Script(case)

    async def play(self) -> dict[str, Any]:
        clock = LoopClock()
        book = Book({
            "participants": {
                self._market.names[name]: {
                    "function": partial(self._asked, name), **self._listing(name),
                }
                for name in (*SELLING, AWAY, EMPTY)
            },
            "capabilities": {CAPABILITY: self._judged},
            "directory": {
                "passports": [row["passport"] for row in self._rows],
                "issuers": sorted({row["passport"]["issuer/participant_id"] for row in self._rows}),
                "bindings": {row["node_id"]: row["anchor_identity"] for row in self._rows},
            },
        })  # fmt: skip
        directory = PassportDirectory(book, clock)
        directory.rotation = self._rotation
        directory.read()
        store = MemoryStore()
        settings = replace(Settings(), poll_seconds=3_600.0)
        performers: dict[str, Performer] = {
            "targets": TargetsPerformer(directory),
            "dispatch": DispatchPerformer(book, clock),
            "request": RequestPerformer(book, clock),
            "capability": CapabilityPerformer(book, clock),
        }
        if self._dice is not None:
            performers = {kind: _Shaken(one, self._dice) for kind, one in performers.items()}
        loop = EngineLoop(
            store, Nets(store, compiler()), performers, clock=clock, settings=settings,
            seconds=lambda: clock.now() / 1000,
        )  # fmt: skip
        loop.be_patient()
        await loop.open()
        try:
            return await self._run(Verbs(loop, lambda: ()), loop)
        finally:
            await loop.close(grace_seconds=0)
            await book.close()

    def _listing(self, name: str) -> dict[str, Any]:
        if name == EMPTY:
            return {}
        return {
            "service_types": list(self._market.offers[name]), "price": self._market.prices[name],
        }  # fmt: skip

    async def _run(self, verbs: Verbs, loop: EngineLoop) -> dict[str, Any]:
        run = self._case.run
        news = asyncio.Event()
        loop.listen(lambda _news: news.set())
        await verbs.start(self._case.definition, {}, run=run)
        decided: list[tuple[str, str]] = []
        while not loop.state(run).finished:
            while not (loop.state(run).gates or loop.state(run).finished):
                news.clear()
                await news.wait()
            await asyncio.sleep(DECIDES_SECONDS)
            for step in _gates(loop, run):
                if step in _gates(loop, run):  # one decision may end the run
                    decided.append((step, await self._decide(verbs, step)))
        return {
            "snapshot": verbs.read.snapshot(run),
            "dispatches": [self._shown(one) for one in verbs.read.dispatches(run)],
            "decided": decided,
        }

    def _shown(self, one: Dispatch) -> dict[str, Any]:
        """Where the host of a buyer speaks in the place of the provider, no provider has said
        anything: then nothing was sent, or nothing came back."""
        shown = one.inspection()
        if self._case.fans_out(one.record.step_id):
            return shown
        if one.record.target == self._market.names[UNKNOWN]:
            return shown | {"outcome": ""}
        said = one.record.response
        code = said["error"]["code"] if isinstance(said, Mapping) and "error" in said else ""
        return {**shown, **_OF_THE_HOST.get(code, {})}

    async def _decide(self, verbs: Verbs, step: str) -> str:
        said = self._script.decision(step)
        verdict: Literal["fulfil", "reject"] = "fulfil" if said else "reject"
        if said is not None:
            try:
                await verbs.send(self._case.run, decision(step, verdict, ACTOR, "", None))
                return verdict
            except Refused as refusal:
                if refusal.code != "decided_by_source":
                    raise
        await verbs.send(self._case.run, s.Resume(ACTOR) if said else s.Cancel(ACTOR))
        return "resume" if said else "cancel"

    # -- the functions of the book -----------------------------------------------------------

    async def _asked(self, name: str, request: Mapping[str, Any]) -> Any:
        step = request["step_id"]
        if self._case.fans_out(step):
            if name == AWAY:
                raise ConnectionError("its node is down")
            told = self._script.answer(step, name, request["dispatch_id"])
            return await self._solicited(name, told, request)
        return await self._ordered(name, request)

    async def _solicited(self, name: str, told: Told, request: Mapping[str, Any]) -> Any:
        if told.does == "silent":
            await asyncio.sleep(SILENCE_SECONDS)
            return _error("no_response")
        await asyncio.sleep(told.after_ms / 1000)
        if told.does != "offer":
            return fan_reply(told.does, request["dispatch_id"])
        offer = self._market.offers[name].get(request["service_type"])
        named = {"schema_version": "v1", "dispatch_id": request["dispatch_id"]}
        if offer is None:
            return {**named, "status": "no_offer_available"}
        return {**named, "status": "offer", "offer": offer}

    async def _ordered(self, name: str, request: Mapping[str, Any]) -> Any:
        total = self._market.prices[name] * request.get("request_units", 1)
        if request.get("max_amount") is not None and total > request["max_amount"]:
            return _error("price-exceeded")
        told = self._script.answer(request["step_id"], name, request["dispatch_id"])
        if name == AWAY or told.does == "silent":
            late = POLL_SECONDS * self._dice.random() if self._dice is not None else 0.0
            await asyncio.sleep(WORK_SECONDS + late)
            return _error("expired")
        await asyncio.sleep(told.after_ms / 1000)
        if told.does == "completed":
            return {**told.value, "made_of": request["input"]}
        return {"status": told.does, "error": {"code": told.value, "message": "it did not work"}}

    async def _judged(self, request: Mapping[str, Any]) -> Any:
        told = self._script.verdict(request["input"]["step"])
        await asyncio.sleep(told.after_ms / 1000)
        if told.does == "away":
            raise ConnectionError("it is away")
        return told.value


def _gates(loop: EngineLoop, run: str) -> list[str]:
    return sorted(gate.step for gate in loop.state(run).gates.values())


class _Shaken:
    """Work that takes a moment more."""

    def __init__(self, work: Performer, dice: Random) -> None:
        self._work = work
        self._dice = dice

    async def perform(self, task: Task) -> Answer | Parked:
        await asyncio.sleep(self._dice.random() * MOMENT_SECONDS)
        return await self._work.perform(task)


#: What the host knows of a dispatch that it has answered itself.
_OF_THE_HOST: Mapping[str, Mapping[str, str]] = {
    "price-exceeded": {"status": "cancelled", "outcome": ""},
    "expired": {"status": "timeout", "outcome": ""},
}


def _error(code: str) -> dict[str, Any]:
    return {"status": "error", "error": {"code": code, "message": ""}}
