"""The hostile world: an engine that dies, a slow disk, a clock that leaps.

The engine may die at any point between computing a turn and letting its effects out. Whatever was
in memory is gone then, and the next engine knows only the store. After every committed event the
audit looks; whenever an engine comes up, its memory is compared with the log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import LawBroken
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.state import Job, State
from anabranch.kernel.summary import summarise
from anabranch.kernel.values import Wait
from anabranch.net.waits import waits_of
from anabranch.runtime.effects import DurableEvents, Execute, Turned
from anabranch.runtime.live_run import load_state
from anabranch.runtime.values.payloads import resolve
from anabranch.testing.simulated.parties import RUN, Parties
from anabranch.testing.virtual.post import Letter
from anabranch.testing.virtual.world import EPOCH

_PLACES = ("before commit", "after commit", "amid effects", "after effects")


class Chaos(Parties):
    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._in_flight: Turned | None = None  # computed, and not yet on disk
        self.moves = 0
        self._storm = self.dice.randint(20, 200)  # moves until nothing goes wrong any more

    def run_to_the_end(self, start: s.Start, limit: int, until: float | None) -> None:
        """Until the run has finished, or stands still with a reason."""
        self.begin(start)
        resting = False
        while not resting and not self._ended(until):
            self._count(limit)
            resting = not self._move()
        if not resting and self._all_finished():
            self._aftermath()
        self._last_look(resting=resting)
        self.calm = False

    def _ended(self, until: float | None) -> bool:
        too_late = until is not None and self.virtual_seconds > until
        return too_late or self._all_finished()

    def _all_finished(self) -> bool:
        return self.audit.state.finished and next(self.unfinished(), None) is None

    def _move(self) -> bool:
        """One turn, and if that was all, on to whatever comes next; false when nothing does."""
        self._trouble()
        self.claim_from_pools()
        self.turn()
        if self.dice.random() < 0.7:
            self._land()
        if self.dice.random() < 0.5:
            self.admit()
        if self.core.busy or self._all_finished() or self.pools_wait():
            return True
        if self._moves_of_people_come_first():
            return True
        by_itself = self._pass_time() or self._land() or self.admit(look=True)
        return by_itself or self._somebody_must()

    def _count(self, limit: int) -> None:
        self.moves += 1
        self.calm = self.moves > self._storm
        if self.audit.state.seq > limit or self.moves > limit:
            raise LawBroken(f"the run did not end within {limit:,} events and turns")

    @property
    def virtual_seconds(self) -> float:
        end = self.audit.state.finished_at or self.clock.now()
        return (end - EPOCH) / 1000

    # -- a turn ------------------------------------------------------------------------------

    def turn(self) -> None:
        if self._in_flight is not None and self.dice.random() < 0.5:
            self._land()
        turned = self.core.turn(self.clock.now())
        if not self.calm and self.dice.random() < self.faults.crash:
            self._crash_with(turned, self.dice.choice(_PLACES))
        elif not turned.batch.commits:
            self.let_out(turned.effects)
        else:
            self._land()
            if self.strikes("slow_disk"):
                self._in_flight = turned
            else:
                self.write(turned)
                self.let_out(turned.effects)

    def _land(self) -> bool:
        """The batch that was being written is durable: its effects leave."""
        turned, self._in_flight = self._in_flight, None
        if turned is None:
            return False
        self.write(turned)
        self.let_out(turned.effects)
        return True

    def write(self, turned: Turned) -> None:
        self.store.commit(turned.batch)
        for commit in turned.batch.commits:
            audit = self.audits[commit.head.run]
            self.recorded(commit.head.run, audit.committed(commit), audit.state)

    def execute(self, effect: Execute) -> None:
        self.audits[effect.run].executed(effect.job, effect.attempt)
        super().execute(effect)

    def published(self, news: DurableEvents) -> None:
        if news.final is not None:
            self.audits[news.run].same(news.final, "the finished run")

    def admit(self, *, look: bool = False) -> bool:
        """The engine may die when the store has decided and nobody was told."""
        if not any(net.limits for net in self.known.values()):
            return False
        told = self.admissions.decide(self.admissions.asking(), look=look)
        if not self.calm and told.admitted and self.dice.random() < self.faults.crash * 5:
            self._land()
            self.tally["crash amid admission"] += 1
            self._next_engine()
            return True
        self.admissions.tell(told)
        return bool(told.admitted or told.surplus)

    # -- the engine dies ---------------------------------------------------------------------

    def _crash_with(self, turned: Turned, place: str) -> None:
        if place == "before commit":
            if self._in_flight is not None and self.dice.random() < 0.5:
                self.write(self._in_flight)
        else:
            self._land()
            self.write(turned)
            self._memory_agrees()
            self.let_out(turned.effects[: self._effects_before(place, len(turned.effects))])
        self.tally[f"crash {place}"] += 1
        self._next_engine()

    def _effects_before(self, place: str, count: int) -> int:
        match place:
            case "after commit":
                return 0
            case "amid effects":
                return self.dice.randint(0, count)
            case _:
                return count

    def _next_engine(self) -> None:
        """A new engine on the same store, after a while."""
        self._in_flight = None
        self.clock.advance_to(self.later(600))
        self._compare()
        self.come_up(self.dice.choice((1, 5, 20, 200)))
        self.remind()

    def _memory_agrees(self) -> None:
        """With nothing left to write, the runs in memory are what the log adds up to."""
        for run, live in self.core.live.items():
            self.audits[run].same(live.state, "the state in memory")

    def _compare(self) -> None:
        for run, (snapshot, tail) in self.store.read_many(self._stored()).items():
            found = load_state(snapshot, tail, run)
            self.audits[run].same(found, "what a new engine reads from the store")
            explain(self.audits[run].net, found)  # must have an answer at any time

    def _stored(self) -> list[str]:
        return [run for run in self.audits if self.store.head(run) is not None]

    def _restart(self) -> None:
        """An orderly stop hands back what runs and records that, then an engine comes up."""
        self.core.taking_work = False
        for run, job, attempt in list(self.at_work):
            self.core.offer(run, s.JobLose(job, attempt, "the engine stopped"))
        self._land()
        while self.core.busy:
            super().turn()
        self._next_engine()

    # -- trouble and time --------------------------------------------------------------------

    def _trouble(self) -> None:
        if self.calm:
            return
        self.offer_elsewhere()
        if self.strikes("restart"):
            self._restart()
        if self._in_flight is None and self.strikes("evict"):
            self.core.evict(self.clock.now(), 0)
        run = self.dice.choice(list(self.audits))
        if self.strikes("spurious_tick"):
            self.core.offer(run, s.Tick())
        if self.strikes("clock_jump"):
            self.clock.advance_to(self.later(self.dice.choice((60, 3_600, 86_400))))
        if self.strikes("pause"):
            self.core.offer(run, s.Pause("an operator", "simulated"))
            self.post.send(self.later(300), Letter(run, s.Resume("an operator")))
        if self.strikes("signal"):
            self._signal(run)
        if self.strikes("tune"):
            self._tune(run)
        if self.strikes("retry_now"):
            self._retry_now(run)
        if self.strikes("skip"):
            self._skip(run)
        if self.strikes("cancel"):
            self.core.offer(run, s.Cancel("an operator", "simulated"))

    def _signal(self, run: str) -> None:
        """Somebody sends a signal, whether anything waits for it or not."""
        names = waits_of(self.audits[run].net).events
        if names and self.audits[run].state.run:
            self.core.offer(run, self.signal_to(Wait(self.dice.choice(names))))

    def _tune(self, run: str) -> None:
        loops = [loop.id for loop in self.audits[run].state.loops.values()]
        if loops:
            window = self.dice.choice((0, 1, 1, 2, 3, 5, 9))
            stimulus = s.TuneLoop(self.dice.choice(loops), window, not window, "an operator")
            self.core.offer(run, stimulus)

    def _retry_now(self, run: str) -> None:
        """Where something waits for its next try, as far as is known outside."""
        waiting = [job for job in self.audits[run].state.jobs.values() if job.phase == "backoff"]
        if waiting:
            job = self.dice.choice(waiting)
            self.core.offer(run, s.RetryNow(job.step, job.token, "an operator", "simulated"))

    def _skip(self, run: str) -> None:
        tokens = list(self.audits[run].state.tokens.values())
        if tokens:
            one, answered = self.dice.choice(tokens), self.dice.random() < 0.5
            stimulus = s.Skip(one.step, one.id, "an operator", "simulated", answered, {"given": 1})
            self.core.offer(run, stimulus)

    def _pass_time(self) -> bool:
        """On to the next instant at which something happens; timers may be noticed late."""
        letter, alarm = self.post.next_at(), self.core.next_alarm()
        coming = [at for at in (letter, alarm) if at is not None]
        if not coming:
            return False
        at = min(coming)
        if alarm == at and self.strikes("lost_wake"):
            at += self.dice.randint(1, 300_000)
        self.clock.advance_to(at)
        if self.dice.random() < 0.5:
            self.turn()  # timers of this instant before its letters
        self.deliver()
        return True

    def _moves_of_people_come_first(self) -> bool:
        if self.dice.random() >= self.faults.people or not self.somebody_acts():
            return False
        self.tally["people"] += 1
        return True

    def _somebody_must(self) -> bool:
        """Nothing moves by itself any more."""
        return self.remind() or self.somebody_acts()

    # -- the end -----------------------------------------------------------------------------

    def _aftermath(self) -> None:
        """Nothing that arrives after the end changes anything."""
        seq = [audit.state.seq for audit in self.audits.values()]
        if self.dice.random() < 0.3 and self.faults.crash:
            self._next_engine()
        for _ in range(5):
            self.core.offer(RUN, s.Tick())
            if not self._pass_time():
                break
            self.turn()
        if self._land() or seq != [audit.state.seq for audit in self.audits.values()]:
            raise LawBroken("something was recorded after the end of the run")

    def _last_look(self, *, resting: bool) -> None:
        self._land()
        for run, audit in self.unfinished():
            if resting:
                audit.rests_rightly()
                self._nothing_forgotten(run, audit.state)
        self._memory_agrees()
        self._compare()
        for run in self._stored():
            audit = self.audits[run]
            audit.whole_log(self.store.read(run))
            msgspec.json.encode(summarise(audit.net, audit.state))
            for result in audit.state.results.values():
                resolve(result, self.store.payload)  # no payload was lost

    def _nothing_forgotten(self, run: str, state: State) -> None:
        """Every job that is open at rest is in the hands of somebody."""
        held = any(token.phase in ("held", "deciding") for token in state.tokens.values())
        stands = state.paused or held
        for job in state.jobs.values():
            plan = self.at_work.get((run, job.id, job.attempt))
            hangs = plan is not None and plan.answer is None  # the script says so
            if not (hangs or state.paused or self._may_wait(job)):
                raise LawBroken(f"job {job.id} is {job.phase} and no worker or queue has it")
            stands = stands or hangs or job.phase == "parked"
        if not stands:
            raise LawBroken(f"run {run} is not finished, and nothing can move it")

    def _may_wait(self, job: Job) -> bool:
        """For a free worker, for a signal, or for a child run that itself waits."""
        if job.phase == "scheduled":
            return self.core.job_queues.at_work >= self.concurrency
        if job.wait is not None:  # for a signal; one that waits for time has a timer
            return bool(job.wait.event)
        child = self.audits.get(job.ticket) if job.phase == "parked" else None
        return child is not None and not child.state.finished
