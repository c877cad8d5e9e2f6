"""The registry against a model that is written from the rules alone: random relays of several
participants over several routes, trust given and taken, peers that become known and unknown, time,
and restarts."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from seeds import SHARE, seeds

from .support import HOUR, OTHER, PEER, STRANGER, Desk, Keys, numbered, relay

NAMES = ("offer:a", "offer:b", "offer:c")
NODES = (PEER, OTHER, STRANGER)
ROWS_MAX = 2

HISTORIES = 100 if SHARE >= 1 else 50  # of which a part: they are long
STEPS = 120


def drawn(dice: Random) -> tuple[Any, ...]:
    """One step; mostly relays, and those mostly of few ids, so that they meet."""
    pick = dice.choice
    match dice.randrange(12):
        case 0:
            return "trust", pick(NODES)
        case 1:
            return "distrust", pick(NODES)
        case 2:
            return "known", pick(NODES), dice.random() < 0.6
        case 3:
            return "time", pick([1, HOUR // 2, HOUR])
        case 4 if dice.random() < 0.3:
            return ("restart",)
        case 5 if dice.random() < 0.1:
            return "publish", pick(NAMES)
    source, hops = pick(NODES), pick([0, 0, 1])
    origin = source if hops == 0 and dice.random() < 0.9 else pick(NODES)
    provider = pick([PEER, PEER, OTHER, STRANGER])
    return "relay", pick(NAMES), provider, dice.randrange(8), origin, source, hops


class Row(NamedTuple):
    provider: Keys
    sequence: int
    trust: int  # 2: the provider, 1: the way, 0: nothing
    way: tuple[Keys, Keys]  # origin and source
    since: int

    @property
    def share(self) -> Keys:
        return self.provider if self.trust == 2 else self.way[1]


class Model:
    def __init__(self, *, remembers: bool = True) -> None:
        self._remembers = remembers
        self.rows: dict[str, Row] = {}
        self.gone: dict[str, Row] = {}  # had to leave; no version before them is taken
        self.own: set[str] = set()
        self.trusted: set[Keys] = set()
        self.known: set[Keys] = {PEER, OTHER}
        self.now = 0

    def relay(
        self, name: str, provider: Keys, sequence: int, origin: Keys, source: Keys, hops: int
    ) -> str:
        if (hops == 0 and origin is not source) or name in self.own:
            return "rejected"
        way = origin, source
        row, trust = self.rows.get(name), self._trust(provider, way)
        gone = self.gone.get(name)
        if row is None and gone and gone.provider is provider and sequence < gone.sequence:
            return "stale"
        if row is None:
            return self._new(name, Row(provider, sequence, trust, way, self.now))
        if row.provider is not provider:
            if trust <= row.trust:
                return "rejected"
            self.rows[name] = Row(provider, sequence, trust, way, self.now)
            return "stored"
        before = self._trust(provider, row.way)
        if sequence <= row.sequence:
            if trust > before:
                self.rows[name] = row._replace(trust=trust, way=way)
            else:
                self.rows[name] = row._replace(trust=before)
            self._purge()
            return "stale"
        if before > trust:
            trust, way = before, row.way
        self.rows[name] = Row(provider, sequence, trust, way, self.now)
        return "stored"

    def _new(self, name: str, row: Row) -> str:
        if len(self.rows) >= ROWS_MAX:
            leaving = self._leaving(row)
            if not leaving:
                return "rejected"
            left = self.rows.pop(leaving)
            if left.trust and self._remembers:
                self.gone[leaving] = left
        self.rows[name] = row
        self.gone.pop(name, None)
        return "stored"

    def _leaving(self, new: Row) -> str:
        """The oldest one of whoever has the most of what is trusted least."""
        for trust in range(new.trust + 1):
            shares: dict[Keys, list[tuple[int, str]]] = {}
            for key, one in self.rows.items():
                if one.trust == trust:
                    shares.setdefault(one.share, []).append((one.since, key))
            most = min(shares.values(), key=lambda one: (-len(one), min(one)), default=[])
            if trust < new.trust and most:
                return min(most)[1]
            if trust and trust == new.trust and len(most) > len(shares.get(new.share, ())) + 1:
                return min(most)[1]
        return ""

    def _trust(self, provider: Keys, way: tuple[Keys, Keys]) -> int:
        return 2 if provider in self.trusted else int({*way} <= self.known)

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self._purge()

    def _purge(self) -> None:
        self.rows = {
            key: row for key, row in self.rows.items() if row.trust or row.since + HOUR > self.now
        }

    def publish(self, name: str) -> None:
        self.own.add(name)
        self.rows.pop(name, None)


class Pair:
    """The registry and the model, given the same."""

    def __init__(self) -> None:
        self.desk, self.model = Desk({"observed_max": ROWS_MAX}), Model()

    def do(self, step: Any) -> None:
        match step:
            case ("relay", name, provider, sequence, origin, source, hops):
                document = relay(numbered(provider, name, sequence), origin, hops)
                outcome, _ = self.desk.admit(document, source)
                said = name, provider, sequence, origin, source, hops
                assert outcome == self.model.relay(*said)
            case ("trust", keys):
                self.desk.ask("POST", "/v1/trusted-providers", _participant(keys))
                self.model.trusted.add(keys)
            case ("distrust", keys):
                self.desk.ask("DELETE", f"/v1/trusted-providers/{keys.participant_id}")
                self.model.trusted.discard(keys)
            case ("known", keys, is_known):
                self._known(keys, is_known)
            case ("time", milliseconds):
                self.desk.pass_time(milliseconds)
                self.model.pass_time(milliseconds)
            case ("publish", name):
                draft = {"offer/id": name, "service/type": "x", "pricing/amount": 0}
                assert self.desk.ask("POST", "/v1/service-offers", draft)[0] == 201
                self.model.publish(name)
            case _:
                self.desk = self.desk.again()

    def _known(self, keys: Keys, is_known: bool) -> None:
        if is_known:
            self.desk.directory.known[keys.node_id] = "http://node"
            self.model.known.add(keys)
        else:
            self.desk.directory.known.pop(keys.node_id, None)
            self.model.known.discard(keys)

    def compare(self) -> None:
        rows = self.model.rows
        kept = {name: self.desk.trust_of(name) for name in NAMES if self.desk.trust_of(name)}
        words = ("untrusted", "federation", "explicit")
        assert kept == {name: words[row.trust] for name, row in rows.items()}
        assert self.desk.seen() == sorted(name for name, row in rows.items() if row.trust)
        for name in NAMES:
            found = self.desk.part.offer(name)
            if name in self.model.own:
                assert found is not None
                assert "pricing/amount" in found
                assert found["service/type"] == "x"
            elif name in rows and rows[name].trust:
                row = rows[name]
                assert found == numbered(row.provider, name, row.sequence)
            else:
                assert found is None


def _participant(keys: Keys) -> dict[str, str]:
    return {"participant_id": keys.participant_id}


@pytest.mark.parametrize("seed", seeds(HISTORIES))
def test_the_registry_keeps_what_the_model_keeps(seed: int) -> None:
    dice, pair = Random(seed), Pair()
    for number in range(STEPS):
        step = drawn(dice)
        try:
            pair.do(step)
            pair.compare()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {step}") from error
    pair.desk = pair.desk.again()
    pair.compare()
