"""What every store owes to webhooks: one order over all runs, cursors, deliveries in order."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import Conflict
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Hook, WebhookDelivery
from anabranch.store.ports import Store
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, a_head, refused


def a_hook(hook_id: str = "h1", **changes: object) -> Hook:
    hook = Hook(id=hook_id, url="https://example.org/in", secret="text:s", kinds=("run.*",))
    return replace(hook, **changes)


def a_delivery(run: str = "r1", seq: int = 1, **changes: object) -> WebhookDelivery:
    found = WebhookDelivery(hook="h1", run=run, seq=seq, kind="k", body=b"{}", found_at=NOW)
    return replace(found, **changes)


class HooksSuite:
    """A part of `StoreSuite`."""

    store: Store

    # One order over all runs

    def test_rows_of_all_runs_have_one_order(self) -> None:
        store = self.store
        assert (store.positions()[0], store.feed(0), store.runs_after(0)) == (0, [], set())
        store.commit(a_batch(a_commit("r2", 1), a_commit("r1", 2, 2)))
        store.commit(a_batch(a_commit("r2", 3, 2)))
        rows = store.feed(0)
        assert [(row.run, row.first_seq, row.count) for row in rows] == [
            ("r2", 1, 1),
            ("r1", 1, 2),
            ("r2", 2, 2),
        ]
        assert [row.events for row in rows if row.run == "r2"] == [
            record.events for record in store.read("r2")
        ]
        positions = [row.position for row in rows]
        assert positions == sorted(set(positions))
        assert store.positions()[0] == positions[-1]
        assert store.feed(positions[0], 1) == rows[1:2]
        assert store.feed(positions[-1]) == []
        assert store.runs_after(positions[1]) == {"r2"}

    def test_a_refused_commit_leaves_no_trace_in_the_order(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1)))
        with refused(Conflict, "another writer"):
            self.store.commit(a_batch(a_commit("r2", 1), a_commit("r1", 9)))
        assert [row.run for row in self.store.feed(0)] == ["r1"]

    def test_positions_are_not_given_out_again_after_a_purge(self) -> None:
        store = self.store
        store.commit(a_batch(a_commit("r1", 1)))
        done = replace(a_commit("r2", 1), head=a_head("r2", 1, finished=True))
        store.commit(a_batch(done))
        before = store.positions()[0]
        store.forget(["r2"])
        assert store.positions()[0] == before
        assert [row.run for row in store.feed(0)] == ["r1"]
        store.commit(a_batch(a_commit("r3", 1)))
        (row,) = store.feed(before)
        assert row.run == "r3"
        assert row.position > before

    def test_runs_are_counted_by_status_and_dialect(self) -> None:
        for run, status in (("r1", "running"), ("r2", "running"), ("r3", "waiting")):
            head = a_head(run, 1, status=status)
            self.store.commit(a_batch(replace(a_commit(run, 1), head=head)))
        dialect = a_head("r1", 1).dialect
        counts = [("running", dialect, 2), ("waiting", dialect, 1)]
        assert self.store.run_counts() == counts

    # Hooks

    def test_a_hook_is_kept_changed_and_dropped(self) -> None:
        store = self.store
        hook = a_hook(labels={"a": "b"}, dialect="noetl", name="n", created_at=5, cursor=3)
        store.add_hook(hook)
        with refused(Conflict, "h1"):
            store.add_hook(a_hook())
        store.add_hook(a_hook("h0", created_at=6))
        assert store.hook("h1") == hook
        assert [one.id for one in store.hooks()] == ["h1", "h0"]
        changed = replace(hook, url="https://example.net", enabled=False, cursor=99, created_at=9)
        assert store.change_hook(changed)
        assert store.hook("h1") == replace(changed, cursor=3, created_at=5)
        assert not store.change_hook(a_hook("h9"))
        assert store.drop_hook("h1")
        assert not store.drop_hook("h1")
        assert store.hook("h1") is None

    def test_a_cursor_moves_with_what_was_found_or_not_at_all(self) -> None:
        store = self.store
        store.add_hook(a_hook())
        assert store.advance_hook("h1", 0, 7, [a_delivery()])
        assert not store.advance_hook("h1", 0, 9, [a_delivery("r2")])
        assert not store.advance_hook("h9", 0, 9, [a_delivery("r3")])
        found = store.hook("h1")
        assert found is not None
        assert found.cursor == 7
        assert [one.run for one in store.deliveries(DeliveryFilter(hook="h1"))] == ["r1"]
        assert store.advance_hook("h1", 7, 8, [a_delivery(body=b"other")])
        assert store.delivery("h1", "r1", 1) == a_delivery(due=NOW)

    # Deliveries

    def test_of_one_run_only_the_first_is_due_and_the_next_when_it_is_over(self) -> None:
        store = self.store
        store.add_hook(a_hook())
        found = [a_delivery("r1", 1), a_delivery("r1", 4), a_delivery("r2", 2)]
        store.advance_hook("h1", 0, 1, found)
        assert self._due(NOW) == [("r1", 1), ("r2", 2)]
        assert self._due(NOW - 1) == []
        later = a_delivery("r1", 1, attempts=1, due=NOW + 50, last_at=NOW, last_error="no")
        assert store.settle_delivery(later, NOW)
        assert self._due(NOW) == [("r2", 2)]  # r1 waits as a whole, r2 does not
        assert not store.settle_delivery(later, NOW)  # the same attempt once more
        done = replace(later, attempts=2, state="done", due=None, last_status=200, last_error="")
        assert store.settle_delivery(done, NOW + 60)
        assert store.delivery("h1", "r1", 1) == done
        assert self._due(NOW + 60) == [("r2", 2), ("r1", 4)]
        assert not store.settle_delivery(replace(done, attempts=3), NOW)

    def test_a_dead_one_lets_the_next_go_and_can_be_sent_again(self) -> None:
        store = self.store
        store.add_hook(a_hook())
        store.advance_hook("h1", 0, 1, [a_delivery("r1", seq) for seq in (1, 2, 3)])
        dead = a_delivery("r1", 1, attempts=1, state="dead", last_at=NOW, last_error="gone")
        assert store.settle_delivery(dead, NOW)
        assert store.deliveries(DeliveryFilter(hook="h1", state="dead")) == [dead]
        assert not store.redeliver("h1", "r1", 2, NOW)
        assert not store.redeliver("h1", "r9", 1, NOW)
        assert store.redeliver("h1", "r1", 1, NOW + 9)
        assert self._due(NOW + 9) == [("r1", 2), ("r1", 1)]
        again = store.delivery("h1", "r1", 1)
        assert again == replace(dead, state="pending", attempts=0, due=NOW + 9, found_at=NOW + 9)
        store.settle_delivery(replace(again, attempts=1, state="done"), NOW + 9)
        assert self._due(NOW + 9) == [("r1", 2)]  # it was out: nothing behind it may start

    def test_all_dead_ones_are_sent_again_in_order_and_what_waits_is_due_at_once(self) -> None:
        store = self.store
        store.add_hook(a_hook())
        found = [a_delivery("r1", seq) for seq in (1, 2, 3)]
        store.advance_hook("h1", 0, 1, [*found, a_delivery("r2", 1), a_delivery("r3", 5)])
        for seq in (1, 2, 3):
            dead = a_delivery("r1", seq, attempts=1, state="dead", last_at=NOW)
            store.settle_delivery(dead, NOW)
        store.settle_delivery(a_delivery("r2", 1, attempts=1, due=NOW + 900, last_at=NOW), NOW)
        store.settle_delivery(a_delivery("r3", 5, attempts=1, due=NOW + 900, last_at=NOW), NOW)
        assert store.redeliver("h1", "r3", 5, NOW + 1)  # only sooner
        assert not store.redeliver("h1", "r3", 5, NOW + 1)
        assert self._due(NOW + 1) == [("r3", 5)]
        assert store.redeliver_dead("h1", NOW + 2, 2) == 2
        assert self._due(NOW + 2) == [("r3", 5), ("r1", 1), ("r2", 1)]
        first = store.delivery("h1", "r1", 1)
        assert first is not None
        assert (first.attempts, first.found_at) == (0, NOW + 2)
        store.settle_delivery(replace(first, attempts=1, state="done"), NOW + 3)
        assert self._due(NOW + 3) == [("r3", 5), ("r2", 1), ("r1", 2)]
        assert store.redeliver_dead("h1", NOW + 4, 100) == 1
        assert self._due(NOW + 9) == [("r3", 5), ("r2", 1), ("r1", 2)]  # the third waits for it
        assert store.redeliver_dead("h1", NOW + 5, 100) == 0
        assert store.backlog()["h1"].pending == 4

    def test_the_backlog_is_counted_and_what_is_over_is_forgotten(self) -> None:
        store = self.store
        store.add_hook(a_hook())
        store.add_hook(a_hook("h2", created_at=1))
        store.advance_hook("h1", 0, 1, [a_delivery(f"r{n}", 1, found_at=NOW + n) for n in range(4)])
        for run, state in (("r0", "done"), ("r1", "dead")):
            tried = a_delivery(run, 1, attempts=1, state=state, last_at=NOW + 5)
            store.settle_delivery(tried, NOW + 5)
        assert store.backlog() == {"h1": Backlog(2, 1, NOW + 2), "h2": Backlog()}
        assert store.forget_deliveries(NOW + 5) == 0
        assert store.forget_deliveries(NOW + 6, 1) == 1
        assert store.forget_deliveries(NOW + 6) == 1
        newest = store.deliveries(DeliveryFilter(hook="h1", limit=1))
        assert [one.run for one in newest] == ["r3"]
        before = (newest[0].found_at, "r3", 1)
        older = store.deliveries(DeliveryFilter(hook="h1", before=before))
        assert [one.run for one in older] == ["r2"]
        assert store.deliveries(DeliveryFilter(hook="h1", run="r9")) == []
        store.drop_hook("h1")
        assert store.deliveries(DeliveryFilter(hook="h1")) == []

    def _due(self, now: int) -> list[tuple[str, int]]:
        return [(one.run, one.seq) for one in self.store.due_deliveries("h1", now, 10)]
