"""The catalog against the plain model of the host's registry: random relays of several participants
over several routes, trust given and taken, peers that become known and unknown, time, restarts. So
both keep the same rules."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.market import OfferCatalog
from seeds import seeds

from ..node.offers.support import ME, START, numbered, relay
from ..node.offers.test_model import NAMES, ROWS_MAX, STEPS, Model, drawn


class Pair:
    """The catalog and the model, given the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = ManualClock(START)
        self.model = Model(remembers=False)
        self.catalog = self._opened()

    def _opened(self) -> OfferCatalog:
        return OfferCatalog(
            self._path, clock=self._clock, node_id=ME.node_id, max_rows=ROWS_MAX
        )  # fmt: skip

    def do(self, step: Any) -> str:
        match step:
            case ("relay", name, provider, sequence, origin, source, hops):
                document = relay(numbered(provider, name, sequence), origin, hops)
                found = self.catalog.admit(
                    document,
                    source_node=source.node_id,
                    known_peers={one.node_id for one in self.model.known},
                    by_peer=True,
                )
                said = name, provider, sequence, origin, source, hops
                assert found.status == self.model.relay(*said)
                return found.status
            case ("trust", keys):
                is_new = self.catalog.facts.trust(keys.participant_id)
                assert is_new == (keys not in self.model.trusted)
                self.model.trusted.add(keys)
            case ("distrust", keys):
                if keys in self.model.trusted:
                    self.catalog.facts.distrust(keys.participant_id)
                self.model.trusted.discard(keys)
            case ("known", keys, is_known):
                (self.model.known.add if is_known else self.model.known.discard)(keys)
            case ("time", milliseconds):
                self._clock.advance_to(self._clock.now() + milliseconds)
                self.catalog.purge()
                self.model.pass_time(milliseconds)
            case ("publish", name):
                self.model.publish(name)
                own = [numbered(ME, one, 1) for one in sorted(self.model.own)]
                assert self.catalog.put_local(own, ME.node_id) == len(own)
            case _:
                self.again()
        return str(step[0])

    def again(self) -> None:
        self.catalog.close()
        self.catalog = self._opened()

    def compare(self) -> None:
        words = ("untrusted", "federation", "explicit")
        for name in NAMES:
            row, kept = self.model.rows.get(name), self.catalog.row(name, hidden=True)
            seen = self.catalog.row(name)
            if name in self.model.own:
                assert kept is not None
                assert kept == seen
                assert (kept["source"], kept["offer"]) == ("local", numbered(ME, name, 1))
            elif row is None:
                assert kept is None
            else:
                assert kept is not None
                assert kept["trust_level"] == words[row.trust]
                assert kept["offer"] == numbered(row.provider, name, row.sequence)
                assert (kept["relay_origin_node_id"], kept["source_node_id"]) == tuple(
                    one.node_id for one in row.way
                )
                assert seen == (kept if row.trust else None)


@pytest.mark.parametrize("seed", seeds(100))
def test_the_catalog_keeps_what_the_model_keeps(seed: int, tmp_path: Path) -> None:
    dice, pair, seen = Random(seed), Pair(tmp_path / "offers.db"), set()
    for number in range(STEPS):
        step = drawn(dice)
        try:
            seen.add(pair.do(step))
            pair.compare()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {step}") from error
    pair.again()
    pair.compare()
    pair.catalog.close()
    assert {"stored", "stale", "rejected", "trust", "time"} <= seen
