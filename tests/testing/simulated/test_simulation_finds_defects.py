"""Break something on purpose: the simulation finds it, and the printed seed finds it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import evolve, timing
from anabranch.kernel.state import State, encode_state
from anabranch.runtime import core, live_run, reactions, recovery
from anabranch.runtime.child_runs import ChildRuns
from anabranch.runtime.effects import Execute
from anabranch.runtime.reactions import Reactions
from anabranch.testing import Faults, SimulationFailed, never, ok, simulate
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net

from ..support import calls, chain, net, to

Break = Callable[[pytest.MonkeyPatch], None]


def _drop_deliveries(patch: pytest.MonkeyPatch) -> None:
    """Evolving forgets what was delivered."""
    patch.setitem(evolve._TABLE, e.Delivered, lambda _state, _event, _at: None)


def _forget_branch_ends(patch: pytest.MonkeyPatch) -> None:
    """Now and then the end of a token is not counted."""
    real = evolve._TABLE[e.TokenFinished]

    def finished(state: State, event: Any, at: int) -> None:
        real(state, event, at)
        state.counts.finished -= event.token == 3

    patch.setitem(evolve._TABLE, e.TokenFinished, finished)


def _sleep_through_retries(patch: pytest.MonkeyPatch) -> None:
    """The timer of a retry does nothing."""
    patch.setitem(timing._DUE, "retry", lambda _turn, _name: None)


def _run_twice(patch: pytest.MonkeyPatch) -> None:
    """Every execution is sent out twice."""
    real = Reactions.started

    def started(self: Reactions, live: Any, event: Any) -> None:
        real(self, live, event)
        self.effects.append(Execute(live.state.run, event.job, event.attempt))

    patch.setitem(reactions._FOLLOW_UPS, e.JobStarted, started)


def _forget_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A new engine does not look at what was running."""
    patch.setattr(recovery, "go_on", lambda core, live, _now: core.set_alarm(live))


def _incomplete_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A snapshot leaves the context out."""
    real = encode_state

    def encode(state: State) -> bytes:
        kept, state.ctx = state.ctx, {}
        try:
            return real(state)
        finally:
            state.ctx = kept

    patch.setattr(live_run, "encode_state", encode)


def _deaf_parents(patch: pytest.MonkeyPatch) -> None:
    """A parent is not told that its child run has ended."""
    patch.setattr(ChildRuns, "tell_parent", lambda _self, _child: None)


def _wrong_heads(patch: pytest.MonkeyPatch) -> None:
    """The index card of a run forgets when it wants to be woken."""
    patch.setattr(core, "next_wake", lambda _state: None)


@pytest.mark.parametrize(
    "break_it",
    [
        _drop_deliveries,
        _forget_branch_ends,
        _sleep_through_retries,
        _run_twice,
        _forget_after_a_crash,
        _incomplete_snapshots,
        _deaf_parents,
        _wrong_heads,
    ],
)
def test_a_defect_is_found_and_its_seed_finds_it_again(
    break_it: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises(SimulationFailed) as found:
        simulate(random_net, 300, patches=RANDOM_PATCHES)
    seed = found.value.seed
    with pytest.raises(SimulationFailed) as again:
        simulate(random_net, [seed], patches=RANDOM_PATCHES)
    assert str(again.value) == str(found.value)
    monkeypatch.undo()
    simulate(random_net, [seed], patches=RANDOM_PATCHES)


def test_the_message_says_what_where_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _run_twice(monkeypatch)
    with pytest.raises(SimulationFailed) as found:
        simulate(random_net, [7], patches=RANDOM_PATCHES)
    lines = str(found.value).splitlines()
    assert lines[0].startswith("seed 7: ")
    assert "was sent out twice" in lines[0]
    assert lines[1] == "  repeat it with: simulate(random_net, seeds=[7], …the same arguments)"
    assert lines[3] == "  the last events:"
    assert 1 <= len(found.value.events) <= 15
    assert isinstance(found.value, AssertionError)


def test_a_file_is_repeated_with_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: one}\n"
        "workflow: [{step: a, tool: {kind: noop}}]\n"
    )
    assert simulate(file, 20).seeds == 20
    _run_twice(monkeypatch)
    with pytest.raises(SimulationFailed) as found:
        simulate(file, [3])
    assert found.value.repeat == f"anabranch simulate {file} --seed 3"
    with pytest.raises(SimulationFailed) as found:
        simulate(str(file), [3], input={"x": 1})
    assert found.value.repeat == f"simulate({str(file)!r}, seeds=[3], …the same arguments)"


def test_a_run_that_cannot_end_is_found() -> None:
    endless = net(calls("ping", branches=to("pong")), calls("pong", branches=to("ping")))
    with pytest.raises(SimulationFailed, match="did not end within 500 events"):
        simulate(endless, [1], limit=500, faults=Faults.none())


def test_an_assertion_of_the_script_names_its_seed() -> None:
    def expects(task: Any) -> Any:
        assert task.attempt == 1, "an attempt was lost"
        return ok()

    with pytest.raises(SimulationFailed, match="AssertionError: an attempt was lost"):
        simulate(chain(), 200, script={"b": expects})


def test_work_that_never_answers_is_a_legitimate_wait() -> None:
    sums = simulate(chain(2), 50, script={"b": never()}, faults=Faults.only("crash", "slow_disk"))
    assert sums.statuses == {"running": 50}
