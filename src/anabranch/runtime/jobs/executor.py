"""The executor: carries out jobs and brings their answers back.

Each execution is an asyncio task (or done in place, for work that never waits). Being told to stop
cancels the task; the executor says "discharged" only when it has really ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from functools import partial
from typing import Any, TypeVar

import msgspec

from anabranch.errors import AnabranchError, ExpressionError
from anabranch.expressions.budget import BREATHE_WORK, TakesLong, within_one_budget
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import Job, State
from anabranch.kernel.values import INTERNAL, Answer, failed
from anabranch.net.net import Net
from anabranch.runtime.effects import Execute, Stop
from anabranch.runtime.jobs.tasks import prepare_task
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.outage import AGAIN_SECONDS
from anabranch.runtime.values.loading import READ_BYTES_MAX, Loader
from anabranch.runtime.values.payloads import resolved
from anabranch.runtime.values.sealing import Unsealed
from anabranch.settings import Settings
from anabranch.store.cluster_ports import Cluster
from anabranch.work.evaluations import LoopShare, evaluate, share_of_loop
from anabranch.work.faults import not_prepared, unexpected
from anabranch.work.logs.attempt_log import print_target
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.port import Parked, Performer, Task, parked_job
from anabranch.work.run_at_work import run_at_work
from anabranch.work.run_queues import RunQueues
from anabranch.work.secrets.redaction import Redactor, given_to_work, giving, with_credentials
from anabranch.work.tracing import working_in

Offer = Callable[[str, s.Stimulus], None]
Key = tuple[str, str, int]  # run, job, attempt
Deed = Callable[[], Coroutine[Any, Any, Answer | Parked]]

log = logging.getLogger("anabranch.engine")

#: How long the end of an engine waits for work that was told to stop.
STOP_SECONDS = 5.0
JOB_WORK = BREATHE_WORK // 250  # to begin a job, beside what its inputs take: some 20 µs
LEASE_ENDED = "the lease of the server had ended"
_NOT_PREPARED = "the task cannot be prepared"
_NOT_DELIVERED = "the answer cannot be recorded"


class SecretScope(msgspec.Struct, frozen=True):
    """Where the secrets are: hands those of a run out, and learns when the run is over."""

    keyring: Callable[[Net, Mapping[str, Any], str], Awaitable[Mapping[str, Any]]]
    release: Callable[[str], None]


class Executor:
    def __init__(
        self,
        performers: Mapping[str, Performer],
        offer: Offer,
        content: Callable[[str, str], bytes | None],  # of a payload, as far as a run may read it
        safe: SecretScope | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._performers = performers
        self._safe = safe
        self._offer = offer
        self._content = content
        self._in_place = {
            kind: perform_now
            for kind, performer in performers.items()
            if (perform_now := getattr(performer, "perform_now", None)) is not None
        }
        #: Kinds some of whose tasks can be done in place; None is their answer for any other.
        self._at_once = {
            kind: perform_at_once
            for kind, performer in performers.items()
            if (perform_at_once := getattr(performer, "perform_at_once", None)) is not None
        }
        self._prints = {
            kind for kind in self._in_place if getattr(performers[kind], "prints", False)
        }
        #: Who keeps what work prints, if anybody does.
        self.logs: AttemptLogs | None = None
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._told: dict[Key, Stop] = {}
        self._closing = False
        self._share: LoopShare | None = None  # of the loop in which it works
        #: Jobs that begin when that has something left for their inputs.
        self._deferred: RunQueues[tuple[LiveRun | None, Execute]] = RunQueues()
        #: On a store that several servers share.
        self.cluster: Cluster | None = None
        self.left_behind: set[asyncio.Task[None]] = set()  # told to stop, and still at it
        #: Whether this engine owns a run at this moment; None: it owns all of them.
        self.may_act_for: Callable[[str], bool] | None = None
        #: Of large values, for the inputs of one job.
        self.read_bytes_max = settings.expression_bytes_max if settings else READ_BYTES_MAX
        self.traces = False  # somebody makes spans: work is told which one is its own

    @property
    def _failed_reads(self) -> int:
        """How many reads of the store have failed because it was away."""
        return self.cluster.failed_reads if self.cluster is not None else 0

    @property
    def at_work(self) -> int:
        return len(self._tasks) + len(self._deferred)

    def execute(self, live: LiveRun | None, effect: Execute) -> None:
        """Begin the job, at once or soon: to work the inputs of many out may take long."""
        share = self._share
        if share is None:
            share = self._share = share_of_loop()
        if not share.is_used_up:
            self._begin(share, live, effect)
            return
        run = effect.run
        if run not in self._deferred:  # among whatever else waits, it has its turns
            share.call_in_turn(partial(self._begin_deferred, run), run)
        self._deferred.add(run, (live, effect))

    def _begin(self, share: LoopShare, live: LiveRun | None, effect: Execute) -> None:
        share.used += JOB_WORK
        if share.used > BREATHE_WORK and not share.is_used_up:
            share.end_round()
        if live is None:  # who is told that loads the run
            self._hand_back(effect, "its run was not in memory")
            return
        job = live.state.jobs.get(effect.job)
        if job is None or job.phase != "running" or job.attempt != effect.attempt:
            return  # over before it began: a kill in the very next turn
        if self._closing:
            self._hand_back(effect, "the engine stopped")
            return
        perhaps_gone = job.gather or job.token not in live.state.tokens
        if perhaps_gone and nobody_waits(live.state, job):
            # Its gather closed while the batch was written.
            self._offer(effect.run, s.JobLose(effect.job, effect.attempt, "nobody waits for it"))
            return
        net = live.net
        if net.keychain or net.asks_credentials or live.sealed.values:
            self._send_out(effect, partial(self._with_secrets, live, effect))
            return
        missed = self._failed_reads if self.cluster is not None else 0
        try:
            fetch = partial(self._content, effect.run)
            build = prepare_task(
                live, effect.job, traces=self.traces, bytes_max=self.read_bytes_max
            )
            task = share.evaluate(build, fetch)
        except TakesLong:
            self._send_out(effect, partial(self._done_when_built, live, effect))
            return
        except AnabranchError as error:
            if self.cluster is not None and self._failed_reads != missed:
                self._hand_back(effect, "the store was away")
            else:
                self._deliver(effect, not_built(error))
            return
        except Exception as error:
            self._deliver(effect, unexpected(error, _NOT_PREPARED))
            return
        performer = self._performers.get(task.kind)
        if performer is None:
            message = f"there is no work of kind {task.kind!r}"
            self._deliver(effect, failed("config", message, retryable=False))
        elif task.kind in self._in_place:
            perform_now = self._in_place[task.kind]
            if self.logs is not None and task.kind in self._prints:
                self._deliver(effect, _heard(self.logs, perform_now, task))
            else:
                self._deliver(effect, _guarded(perform_now, task))
        elif task.kind in self._at_once and (answer := self._done_at_once(task)) is not None:
            self._deliver(effect, answer)
        else:
            self._send_out(effect, partial(carry_out, performer, task, self.logs))

    def _begin_deferred(self, run: str) -> None:
        """One of this run; then it is the turn of another."""
        share = self._share
        assert share is not None
        if run not in self._deferred:
            return  # it was abandoned
        live, effect = self._deferred.take_of(run)
        if run in self._deferred:
            share.call_in_turn(partial(self._begin_deferred, run), run)
        if self.may_act_for is not None and not self.may_act_for(run):
            self._hand_back(effect, LEASE_ENDED)
        else:
            self._begin(share, live, effect)

    def _done_at_once(self, task: Task) -> Answer | Parked | None:
        perform = self._at_once[task.kind]
        return (
            _heard(self.logs, perform, task) if self.logs is not None else _guarded(perform, task)
        )

    async def _with_secrets(self, live: LiveRun, effect: Execute) -> Answer | Parked:
        """Work of a run with secrets: what is handed out while its inputs are rendered, and while
        it is done, is what its answer is cleaned of."""
        scope = Redactor.of_job()
        with giving(scope):
            answer = await self._done_when_built(live, effect)
        try:
            return answer if isinstance(answer, Parked) else await scope.answer_aside(answer)
        except Exception as error:
            return _not_delivered(error)

    async def _done_when_built(self, live: LiveRun, effect: Execute) -> Answer | Parked:
        """Work whose task takes some time to build."""
        missed = self._failed_reads if self.cluster is not None else 0
        try:
            with within_one_budget():
                task = await self._task(live, effect)
            if task is None:
                return failed("cancelled", "nobody waits for it any more", retryable=False)
        except AnabranchError as error:
            if self._failed_reads == missed:
                return not_prepared(error)
            await asyncio.sleep(AGAIN_SECONDS)  # the store was away: it is prepared again
            return await self._done_when_built(live, effect)
        except Exception as error:
            return unexpected(error, _NOT_PREPARED)
        performer = self._performers.get(task.kind)
        if performer is None:
            return failed("config", f"there is no work of kind {task.kind!r}", retryable=False)
        return await carry_out(performer, task, self.logs)

    async def _task(self, live: LiveRun, effect: Execute) -> Task | None:
        """None where the run went on without it meanwhile."""
        keyring = await self._keyring(live)
        fetch = partial(self._content, effect.run)

        def build(*, apart: bool = False) -> Callable[[], Task | None]:
            if _goes_on_without(live.state, effect.job):
                return _nothing
            prepared = prepare_task(
                live,
                effect.job,
                traces=self.traces,
                apart=apart,
                bytes_max=self.read_bytes_max,
            )
            return partial(prepared, fetch, keyring)

        return await with_credentials(lambda: build()(), partial(build, apart=True))

    async def _keyring(self, live: LiveRun) -> Mapping[str, Any] | None:
        if not live.net.has_secrets or self._safe is None:
            return None
        state = live.state
        load = Loader(partial(self._content, state.run), self.read_bytes_max)
        workload = await evaluate(partial(resolved, state.workload, load))
        if state.sealed:
            workload = Unsealed(workload, live.sealed.marks)
        return await self._safe.keyring(live.net, workload, state.run)

    def _send_out(self, effect: Execute, work: Deed) -> None:
        key = (effect.run, effect.job, effect.attempt)
        running = asyncio.get_running_loop().create_task(self._see_to(effect, work))
        self._tasks[key] = running
        running.add_done_callback(partial(self._stopped, effect))

    async def _see_to(self, effect: Execute, work: Deed) -> None:
        run_at_work.set(effect.run)  # of this task only
        key = (effect.run, effect.job, effect.attempt)
        if self.may_act_for is not None and not self.may_act_for(effect.run):
            self._tasks.pop(key, None)  # the process was stopped since; nothing has left it
            self._hand_back(effect, LEASE_ENDED)
            return
        answer = await work()
        if self._tasks.pop(key, None) is None:
            return  # it was left behind, and nobody waits for it
        told = self._told.pop(key, None)
        if told is not None and told.discharge and isinstance(answer, Parked):
            self._offer(effect.run, s.JobDischarge(effect.job))  # too late to wait outside
            return
        self._deliver(effect, answer)  # here and not in the callback: that comes a round later

    def _stopped(self, effect: Execute, done: asyncio.Task[None]) -> None:
        """The execution has ended; if it is still listed, it did not come to an answer."""
        key = (effect.run, effect.job, effect.attempt)
        if self._tasks.pop(key, None) is None:
            return
        told = self._told.pop(key, None)
        if told is not None:
            if told.discharge:
                self._offer(effect.run, s.JobDischarge(effect.job))
        elif not done.cancelled() and (error := done.exception()) is not None:
            self._deliver(effect, unexpected(error, _NOT_DELIVERED))
        elif self._closing:
            self._hand_back(effect, "the engine stopped")
        else:  # handed back it would go out again at once, and for ever
            self._deliver(effect, failed(INTERNAL, "the work cancelled itself"))

    def _hand_back(self, effect: Execute, why: str = "the engine stopped") -> None:
        given = s.JobLose(effect.job, effect.attempt, why, counted=False)
        self._offer(effect.run, given)

    def _deliver(self, effect: Execute, answer: Answer | Parked) -> None:
        """Offer what the work came to; what cannot be offered fails the attempt."""
        try:
            if isinstance(answer, Parked):
                self._offer(effect.run, _park(effect, answer))
            else:
                self._offer(effect.run, s.JobReport(effect.job, effect.attempt, answer))
        except Exception as error:
            said = _not_delivered(error)
            self._offer(effect.run, s.JobReport(effect.job, effect.attempt, said))

    def stop(self, effect: Stop) -> None:
        if effect.outside:
            return
        if effect.abandoned:
            for found, deaf in list(self._tasks.items()):
                if found[:2] == (effect.run, effect.job):
                    self._leave_behind(found, deaf)
            return
        key = (effect.run, effect.job, effect.attempt)
        task = self._tasks.get(key)
        if task is not None:
            self._told[key] = effect
            task.cancel()
        elif effect.discharge:  # it was done in place, or its answer is already on the way
            self._offer(effect.run, s.JobDischarge(effect.job))

    @property
    def runs(self) -> set[str]:
        """Those that something is done for."""
        return {run for run, _, _ in self._tasks} | self._deferred.runs

    def abandon(self, runs: Set[str]) -> None:
        """Stop whatever is done for these runs; nobody wants to hear of it."""
        for run in runs & self._deferred.runs:
            self._deferred.drop(run)
        for key, task in self._tasks.items():
            if key[0] in runs:
                self._told[key] = Stop(*key, discharge=False)
                task.cancel()

    async def finish(self, grace_seconds: float) -> None:
        """Wait for what runs; hand back what takes longer than the grace."""
        self._closing = True
        while self._deferred:
            self._hand_back(self._deferred.take()[1])
        if self._tasks and grace_seconds > 0:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_SECONDS)
        for key, task in list(self._tasks.items()):
            self._leave_behind(key, task)

    def _leave_behind(self, key: Key, task: asyncio.Task[None]) -> None:
        """It goes on although it was told to stop: the program ends without it."""
        log.warning("run %s: job %s does not stop, and is left behind", key[0], key[1])
        del self._tasks[key]
        self._told.pop(key, None)
        self.left_behind.add(task)
        task.add_done_callback(self.left_behind.discard)
        # Or the end of the loop would wait for it, and then complain of it.
        asyncio._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def _park(effect: Execute, parked: Parked) -> s.JobPark:
    return parked_job(effect.job, effect.attempt, parked)


async def carry_out(
    performer: Performer, task: Task, logs: AttemptLogs | None = None
) -> Answer | Parked:
    """Do the work, in an asyncio task of its own; what it was given of secrets by then or meanwhile
    is in no answer. What it prints, and why it failed, is kept by `logs`."""
    outer = given_to_work()  # whoever opened that scope also cleans
    scope = Redactor.of_job() if outer is None else outer
    printed = logs.of(task, scope) if logs is not None else None
    print_target.set(printed)
    try:
        with giving(scope):
            doing = _in_span(performer, task) if task.trace else performer.perform(task)
            answer: object = await doing
    except Exception as defect:  # of the performer: whatever it raises, its job has an answer
        answer = _defect(f"the {task.kind} performer failed: {defect!r}")
    except BaseException:  # it was told to stop
        if printed is not None:
            printed.close()
        raise
    if printed is not None:
        printed.end(answer)
    if isinstance(answer, Parked):
        return answer
    if not isinstance(answer, Answer):
        kind = type(answer).__name__
        return _defect(f"the {task.kind} performer gave a {kind} for an answer")
    return await scope.answer_aside(answer) if outer is None else answer


async def _in_span(performer: Performer, task: Task) -> Answer | Parked:
    with working_in(task.trace):
        return await performer.perform(task)


def _not_delivered(error: Exception) -> Answer:
    """Only the type of the error: its text may quote what could not be cleaned of secrets."""
    return failed(INTERNAL, f"{_NOT_DELIVERED}: {type(error).__name__}")


def _defect(message: str) -> Answer:
    return failed("defect", message, retryable=False)


A = TypeVar("A")


def _guarded(perform_now: Callable[[Task], A], task: Task) -> A | Answer:
    try:
        return perform_now(task)
    except Exception as defect:
        return _defect(f"the {task.kind} performer failed: {defect!r}")


def _heard(logs: AttemptLogs, perform_now: Callable[[Task], A], task: Task) -> A | Answer:
    printed = logs.of(task, None)
    before = print_target.set(printed)
    answer = _guarded(perform_now, task)
    print_target.reset(before)
    if printed.lock is not None or (isinstance(answer, Answer) and answer.fault is not None):
        printed.end(answer)
    return answer


def _nothing() -> None:
    return None


def _goes_on_without(state: State, name: str) -> bool:
    job = state.jobs.get(name)
    return job is None or nobody_waits(state, job)


def nobody_waits(state: State, job: Job) -> bool:
    """The job only drains: its token is gone, or has gone on to ask everybody again."""
    return job.token not in state.tokens or bool(job.gather and job.gather not in state.gathers)


def not_built(error: AnabranchError) -> Answer:
    """The inputs of a job cannot be worked out: nobody was asked to do anything."""
    code = "" if error.code == ExpressionError.code else error.code
    return failed(ExpressionError.code, str(error), code=code, retryable=False)
