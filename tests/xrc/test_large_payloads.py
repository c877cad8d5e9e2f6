"""Payloads too large to travel with the log come to what the oracle says, which knows no size.

Every field of every payload is kept beside the log and its stand-in is recorded, here and there
after a crash at every commit. The oracle hands on the values themselves.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.step import step
from anabranch.net.net import Net
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.offload import PayloadOffloader
from anabranch.runtime.values.payloads import Light, brings_ref, resolve
from anabranch.runtime.values.stored_values import RunValues, StoredValues
from anabranch.work.values.payloads import holds_ref
from seeds import part

from .agree import Pair, replayed, walked
from .documents import document, some_slow
from .kernel_run import KernelRun
from .lower import LEFT, TOLD, compiled
from .oracle import Session
from .shrink import report, shrink
from .test_crashes import CrashingRun, crashed_in

SHARDS = 10
PAIRS = 1_000
INLINE_MAX = 1  # bytes: numbers stay, everything else is put aside


class Beside:
    """What is kept beside the log, and how the kernel reads it."""

    def __init__(self) -> None:
        self.payloads: dict[str, bytes] = {}
        self.light = PayloadOffloader(self._keep, INLINE_MAX, None)
        self.forget()

    def forget(self) -> None:
        """As in a process that has just been started."""
        self.values = StoredValues(
            self.payloads.get,
            self._keep_value,
            lambda _run, _sha256: True,
            inline_bytes_max=INLINE_MAX,
            value_bytes_max=None,
        )

    def _keep(self, _run: str, sha256: str, content: bytes) -> None:
        self.payloads[sha256] = content

    def _keep_value(self, run: str, live: LiveRun, light: Light) -> None:
        self._keep(run, light.sha256, light.content)
        live.holds_refs = True


class LargeRun(KernelRun):
    """A session whose values are all too large."""

    def __init__(self, net: Net, start: str, *more: Any) -> None:
        self.beside = Beside()
        self.holds_refs = False
        super().__init__(net, start, *more)

    def decide(self, stimulus: s.Stimulus) -> list[e.Event]:
        stimulus = self.beside.light.fit("7", stimulus)
        self.holds_refs = self.holds_refs or brings_ref(stimulus)
        live = LiveRun(self.net, self.state, holds_refs=self.holds_refs)
        values = RunValues(self.beside.values, live, "7", live.holds_refs)
        events = step(self.net, self.state, stimulus, self.at, values)
        self.holds_refs = live.holds_refs
        return events

    def whole(self, payload: Any) -> Any:
        return resolve(payload, self.beside.payloads.get)


class LargeCrashingRun(LargeRun, CrashingRun):
    def crash(self) -> list[int]:
        self.beside.forget()
        self.holds_refs = True  # perhaps
        return super().crash()


def first_difference(chosen: range) -> Pair | None:
    for seed in chosen:
        rng = Random(f"large {seed}")
        orchestration, start = document(rng)
        net = compiled(orchestration, rng.choice((TOLD, LEFT)))
        pair, difference = walked(orchestration, net, start, rng, LargeRun)
        if difference:
            return pair
    return None


@pytest.mark.parametrize("shard", some_slow(SHARDS))
def test_large_payloads_are_handed_on_like_small_ones(shard: int) -> None:
    pair = first_difference(part(shard, SHARDS, PAIRS))
    if pair is not None:
        small = shrink(pair, lambda one: bool(replayed(one, LargeRun)))
        pytest.fail(report(small, LargeRun))


@pytest.mark.parametrize("shard", some_slow(SHARDS))
def test_large_payloads_outlive_a_crash_at_every_commit(shard: int) -> None:
    for seed in part(shard, SHARDS, PAIRS // 2):
        rng = Random(f"large crash {seed}")
        orchestration, start = document(rng)
        net = compiled(orchestration, rng.choice((TOLD, LEFT)))
        kernel = LargeCrashingRun(net, start, rng)
        difference = crashed_in(kernel, Session(orchestration, start), rng)
        assert not difference, f"seed {seed}: {difference}"


def test_no_field_of_a_payload_stays_in_the_log() -> None:
    """Or the two above would compare nothing but small values."""
    kernel = LargeRun(compiled({"id": "one", "structure": _CHAIN}), "A")
    kernel.act(("start", 1))
    kernel.act(("finish", 1, "valid", {"a": "text"}, 0))
    (after,) = kernel.state.tokens.values()
    assert holds_ref(after.payload["a"])
    assert kernel.seen(2)[3] == {"a": "text"}


_RULE = "0x" + "00" * 19 + "01"
_CHAIN = {"A": {"rule": _RULE, "onValid": {"spawns": ["B"]}}, "B": {"rule": _RULE}}
