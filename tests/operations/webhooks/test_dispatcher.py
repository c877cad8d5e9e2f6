"""Notifications follow from the log: none is lost, none of a run is overtaken, failures wait."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.kernel import events as e
from anabranch.operations.runs.purge import purge
from anabranch.store.hook_ports import INTERNAL, DeliveryFilter, Hook
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS

from ..support import run
from .deliveries import Scene, ids


def test_a_hook_is_told_of_the_events_it_asked_for_and_of_no_others() -> None:
    async def work() -> None:
        scene = Scene()
        scene.whole_run("before")  # hooks begin with what comes after them
        scene.hook("run.finished", labels={"tenant": "a"}, name="order", dialect="noetl")
        scene.whole_run("r1", labels={"tenant": "a", "more": "x"})
        scene.whole_run("r2", labels={"tenant": "b"})
        scene.whole_run("r3", labels={"tenant": "a"}, name="other")
        scene.whole_run("r4", labels={"tenant": "a"}, dialect="arca")
        await scene.rounds()
        (notice,) = scene.receiver.came
        assert (notice["kind"], notice["run"], notice["seq"]) == ("run.finished", "r1", 3)
        assert notice["fields"] == {"status": "completed"}
        assert notice["labels"] == {"tenant": "a", "more": "x"}
        assert notice["time"].startswith("2023-11-14T22:13:20")

    run(work())


def test_patterns_take_all_kinds_that_begin_so_and_a_hook_may_begin_at_the_beginning() -> None:
    async def work() -> None:
        scene = Scene()
        scene.whole_run("r1")
        scene.hook("run.*", begin="beginning")
        scene.record("r1x", e.RunStarted("r1x", "d", "order", {}), e.TokenSlept(1))
        await scene.rounds(4)
        assert sorted(ids(scene.receiver.came)) == [("r1", 1), ("r1", 2), ("r1", 3), ("r1x", 1)]

    run(work())


def test_private_keys_stay_inside_and_too_large_a_notice_says_where_the_whole_is() -> None:
    async def work() -> None:
        scene = Scene(webhook_body_bytes=1000)
        scene.hook("run.started")
        scene.record("r1", e.RunStarted("r1", "d", "order", {"_secret": "xyz", "open": 1}))
        scene.record("r2", e.RunStarted("r2", "d", "order", {"long": "x" * 2000}))
        await scene.rounds()
        small, large = sorted(scene.receiver.came, key=lambda notice: str(notice["run"]))
        assert small["fields"]["workload"] == {"open": 1}
        assert large["fields"] is None
        assert large["omitted"]["get"] == "/api/v1/runs/r2/events?after=0&limit=1"
        assert large["omitted"]["bytes"] > 2000

    run(work())


def test_a_failing_delivery_holds_back_only_the_later_ones_of_its_run() -> None:
    async def work() -> None:
        scene = Scene()
        scene.hook("run.*")
        scene.receiver.answer = lambda notice: 500 if notice["run"] == "bad" else 200
        scene.whole_run("bad")
        scene.whole_run("good")
        await scene.rounds(4)
        assert ids(scene.receiver.came) == [("bad", 1), ("good", 1), ("good", 2), ("good", 3)]
        scene.receiver.answer = lambda _notice: 200
        await scene.rounds()
        assert len(scene.receiver.came) == 4  # not before its time
        scene.pass_time(1)
        await scene.rounds(3)
        assert ids(scene.receiver.came)[4:] == [("bad", 1), ("bad", 2), ("bad", 3)]

    run(work())


def test_retries_wait_twice_as_long_each_time_and_end_at_the_age_limit() -> None:
    async def work() -> None:
        scene = Scene(webhook_age_hours=10 / 3600)
        hook = scene.hook("run.started")
        scene.receiver.answer = lambda _notice: None
        scene.record("r1", e.RunStarted("r1", "d", "order", {}))
        came = []
        for _ in range(13):
            await scene.rounds()
            came.append(len(scene.receiver.came))
            scene.pass_time(1)
        # After 1, 2 and 4 seconds, and a last time when ten have passed.
        assert came == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5]
        (card,) = scene.hooks.deliveries(DeliveryFilter(hook=hook.id))
        assert (card.state, card.attempts, card.last_error) == ("dead", 5, "no connection")
        assert scene.hooks.show(hook.id).dead == 1

    run(work())


def test_after_a_dead_letter_its_run_goes_on_and_it_can_be_sent_again_under_its_id() -> None:
    async def work() -> None:
        scene = Scene(webhook_age_hours=0)
        hook = scene.hook("run.*")
        scene.receiver.answer = lambda notice: 503 if notice["seq"] == 1 else 200
        scene.whole_run("r1")
        await scene.rounds(4)
        assert ids(scene.receiver.came) == [("r1", 1), ("r1", 2), ("r1", 3)]
        (dead,) = scene.hooks.deliveries(DeliveryFilter(hook=hook.id, state="dead"))
        assert dead.id == f"{hook.id}:r1:1"
        assert dead.last_status == 503
        scene.receiver.answer = lambda _notice: 204
        assert scene.hooks.redeliver_dead(hook.id) == 1
        await scene.rounds()
        assert scene.receiver.taken == [f"{hook.id}:r1:2", f"{hook.id}:r1:3", dead.id]
        assert scene.hooks.redeliver(hook.id, f"{hook.id}:r1:3").state == "pending"
        await scene.rounds()
        assert scene.receiver.taken[-1] == f"{hook.id}:r1:3"

    run(work())


def test_a_full_queue_leaves_the_rest_in_the_log_until_there_is_room() -> None:
    async def work() -> None:
        scene = Scene(webhook_backlog_max=4)
        hook = scene.hook("run.started")
        scene.receiver.answer = lambda _notice: 500
        for number in range(4):
            scene.record(f"r{number}", e.RunStarted(f"r{number}", "d", "order", {}))
        await scene.rounds()
        for number in range(4, 8):
            scene.record(f"r{number}", e.RunStarted(f"r{number}", "d", "order", {}))
        await scene.rounds(2)
        stands = scene.hooks.show(hook.id)
        assert (stands.pending, stands.behind) == (4, 4)
        scene.receiver.answer = lambda _notice: 200
        for _ in range(4):
            scene.pass_time(5)
            await scene.rounds(2)
        assert {name.split(":")[1] for name in scene.receiver.taken} == {f"r{n}" for n in range(8)}
        assert scene.hooks.show(hook.id).pending == 0

    run(work())


def test_a_hook_that_is_off_keeps_its_place_and_goes_on_from_there() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.finished", enabled=False)
        scene.whole_run("r1")
        await scene.rounds()
        assert scene.receiver.came == []
        stored = scene.store.hook(hook.id)
        assert stored is not None
        scene.store.change_hook(replace(stored, enabled=True))
        await scene.rounds()
        assert ids(scene.receiver.came) == [("r1", 3)]

    run(work())


def test_a_purge_waits_until_every_enabled_hook_has_looked() -> None:
    async def work() -> None:
        scene = Scene()
        scene.hook("run.finished")
        scene.whole_run("r1")
        later = scene.clock.now() + 1000
        assert purge(scene.store, 0, later).runs == 0
        await scene.rounds()
        assert purge(scene.store, 0, later).runs == 1
        assert ids(scene.receiver.came) == [("r1", 3)]

    run(work())


def test_a_purge_keeps_what_a_paused_trigger_is_to_act_on_and_nothing_else() -> None:
    async def work() -> None:
        scene = Scene()
        trigger = Hook(
            id="tr.t",
            url=f"{INTERNAL}t",
            secret="none:trigger",
            kinds=("run.finished",),
            labels={"tenant": "a"},
            enabled=False,
        )
        scene.store.add_hook(trigger)
        scene.whole_run("awaited", labels={"tenant": "a"})
        scene.whole_run("other", labels={"tenant": "b"})
        later = scene.clock.now() + 1000
        assert purge(scene.store, 0, later).runs == 1
        assert scene.store.head("awaited") is not None
        end = scene.store.positions()[0]
        assert scene.store.advance_hook("tr.t", 0, end, [])
        assert purge(scene.store, 0, later).runs == 1

    run(work())


def test_what_was_out_when_the_courier_died_is_sent_again_under_the_same_id() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.started")
        scene.receiver.hold = asyncio.Event()
        scene.record("r1", e.RunStarted("r1", "d", "order", {}))
        await scene.dispatcher.round()
        while not scene.receiver.came:
            await asyncio.sleep(0)
        await scene.dispatcher.close()  # nobody hears the answer
        scene.receiver.hold = None
        scene.another_courier()
        await scene.rounds()
        assert [notice["id"] for notice in scene.receiver.came] == [f"{hook.id}:r1:1"] * 2

    run(work())


def test_a_cursor_that_finds_nothing_is_written_when_the_courier_stops() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("gate.opened")
        scene.whole_run("r1")
        await scene.rounds()
        stored = scene.store.hook(hook.id)
        assert stored is not None
        assert stored.cursor == 0  # not worth a transaction
        await scene.dispatcher.close()
        assert scene.hooks.show(hook.id).behind == 0

    run(work())


@pytest.mark.parametrize("seed", range(6))
def test_under_faults_and_crashes_each_run_is_told_in_order_and_nothing_is_lost(
    seed: int, tmp_path: Path
) -> None:
    """Whatever fails, dies or comes twice: the first arrivals of a run are in its order."""

    async def work() -> None:
        dice = random.Random(seed)
        store = SqliteStore(tmp_path / "store.db", synchronous="NORMAL")
        scene = Scene(store)
        scene.hook("*")

        def answer(notice: object) -> int | None:
            if dice.random() < 0.4:
                return dice.choice([None, 500, 302])
            return 200

        scene.receiver.answer = answer
        runs = [f"r{number}" for number in range(6)]
        for run_id in runs:
            scene.record(run_id, e.RunStarted(run_id, "d", "order", {}))
        for step in range(60):
            if step < 30:
                scene.record(
                    dice.choice(runs), *[e.TokenSlept(n) for n in range(dice.choice([1, 3]))]
                )
            await scene.dispatcher.round()
            if dice.random() < 0.3:  # the process dies with deliveries out
                for task in list(scene.dispatcher._out.values()):
                    task.cancel()
                await asyncio.sleep(0)
                scene.another_courier()
            else:
                await scene.rounds()
            scene.pass_time(dice.choice([0.5, 2, 60]))
        scene.receiver.answer = lambda _notice: 200
        for _ in range(40):
            scene.pass_time(3600)
            await scene.rounds()
        for run_id in runs:
            head = store.head(run_id)
            assert head is not None
            seen = [
                int(name.split(":")[2]) for name in scene.receiver.taken if f":{run_id}:" in name
            ]
            assert list(dict.fromkeys(seen)) == list(range(1, head.seq + 1)), f"seed {seed}"
        store.close()

    run(work())


def test_what_is_settled_while_the_next_ones_are_looked_up_is_not_sent_twice() -> None:
    async def work() -> None:
        scene = Scene()
        scene.hook("*")
        scene.receiver.hold = asyncio.Event()
        scene.record("r1", e.TokenSlept(1))
        await scene.dispatcher.round()
        loop, plain = asyncio.get_running_loop(), scene.store.due_deliveries
        hold, over = scene.receiver.hold, threading.Event()

        def slowly(hook_id: str, now: int, limit: int) -> list[Any]:
            """What was found is old when it comes back."""
            found = plain(hook_id, now, limit)
            loop.call_soon_threadsafe(hold.set)
            assert over.wait(HANG_SECONDS)
            return found

        (out,) = scene.dispatcher._out.values()
        out.add_done_callback(lambda _done: over.set())
        scene.store.due_deliveries = slowly  # type: ignore[method-assign]
        await scene.dispatcher.round()
        await scene.rounds()
        assert len(scene.receiver.came) == 1

    run(work())
