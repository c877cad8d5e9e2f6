"""A turn that was thrown away never happened: nothing of it is remembered."""

from __future__ import annotations

from random import Random

from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.prepare import compiler, prepare
from anabranch.runtime.core import Core
from anabranch.runtime.effects import Replied, Turned
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import recover
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.virtual.one_lane import OneLane
from anabranch.testing.virtual.world import UNLIMITED

from .support import KINDS, asking, playbook, step

PARENT = playbook(step("ask", "child", "use"), step("use", "noop"), name="parent")
CANCEL = s.Cancel("ann", "no longer wanted")


class Turns:
    """A core whose turns are written, or thrown away."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.nets = Nets(self.store, compiler(KINDS))
        self.core = Core(self.store, self.nets, OneLane(UNLIMITED, Random(1)))
        self._now = 0

    def begin(self, run: str, text: str, parent: str | None = None) -> None:
        prepared = prepare(text, KINDS)
        self.nets.put(prepared.definition, prepared.net)
        self.core.open_run(run, prepared.net)
        self.core.offer(run, s.Start(run=run, input={}, parent=parent))
        self.written()

    def turned(self) -> Turned:
        self._now += 1
        return self.core.turn(self._now)

    def written(self) -> Turned:
        turned = self.turned()
        self.store.commit(turned.batch)
        return turned

    def throw_away(self) -> None:
        """As an engine does that lost its partitions: it reads all of them again."""
        self.core.put_down(self.core.known)
        self.core.forget_turn()
        recover(self.core, self._now)


def test_an_end_that_was_not_recorded_refuses_nothing() -> None:
    turns = Turns()
    turns.begin("r1", asking())
    turns.core.offer("r1", CANCEL)
    assert turns.turned().batch.commits[0].head.finished
    turns.throw_away()
    turns.core.offer("r1", s.Pause("ann"), ticket=1)
    (reply,) = [one for one in turns.written().effects if isinstance(one, Replied)]
    assert reply.error is None


def test_a_parent_hears_of_no_end_of_a_child_that_was_not_recorded() -> None:
    """The job that began the child parks after the turn was thrown away, and asks how it is."""
    turns = Turns()
    turns.begin("r1", PARENT)
    (job,) = turns.core.live["r1"].state.jobs
    turns.begin("kid", asking(), parent=f"r1/{job}#1")
    turns.core.offer("kid", CANCEL)
    assert turns.turned().batch.commits[0].head.finished
    turns.throw_away()
    turns.written()  # the job is lost with the engine that did it, and goes out again
    again = turns.core.run("r1").state.jobs[job]
    assert (again.phase, again.attempt) == ("running", 2)
    turns.core.offer("r1", s.JobPark(job, again.attempt, "kid"))
    turns.written()
    assert turns.core.run("r1").state.jobs[job].phase == "parked"
