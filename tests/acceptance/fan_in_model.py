"""What a workflow definition means, written a second time and from scratch.

It knows nothing of the engine: it reads a definition as plain JSON together with how everybody
behaves, and says what must come of it. It is slow and simple on purpose. Time goes in instants; at
each of them letters are read first, then what is due is done, then requests go out.

How a participant behaves is a list, one entry for each time it is asked (the last one repeats):

    {"does": "answers", "after": ms, "value": …}    usable
    {"does": "refuses" | "talks nonsense", "after": ms, "value": …}
    {"does": "is away", "after": ms}                it cannot be reached
    {"does": "is silent"}
    any of them with "deaf": True                   it cannot be stopped
"""

from __future__ import annotations

from typing import Any

from .fan_in_parts import (
    Request,
    StepRun,
    answers_needed,
    counted,
    delay_of,
    failure_delay,
    measure,
    milliseconds,
    older_delay,
    output_of,
    timeout_delay,
    verdict_of,
)

Definition = dict[str, Any]
Behaviour = dict[str, Any]
LETTER, DEADLINE, ATTEMPT, RETRY, STEP, WAKE, ABANDON = range(7)  # the order of one instant
PATIENCE = 1_500  # with work that does not stop, after the deadline
OVER = ("completed", "skipped", "failed", "step_timeout", "cancelled")


class Model:
    def __init__(
        self,
        definition: Definition,
        behaviours: dict[tuple[str, str], list[Behaviour]],
        found: dict[str, list[list[str]]] | None = None,
    ) -> None:
        self.behaviours = behaviours
        self.found = found or {}  # what the search of a step finds, round by round
        self.used: dict[Any, int] = {}
        self.now = 0
        self.agenda: list[tuple[int, int, int, Any]] = []  # at, kind, order, what
        self.numbers = 0
        self.to_send: list[tuple[StepRun, int]] = []
        self.requests: list[Request] = []
        self.status = ""
        self.ending = ""
        self.paused = False
        self.finished_at: int | None = None
        specs = definition["plan"]["steps"]
        self.steps = {
            spec["step_id"]: StepRun(spec, place, {*spec.get("depends_on", ())})
            for place, spec in enumerate(specs)
        }
        new = ("target", "fan_in", "timing", "fulfillment")
        default = 16 if any(key in spec for spec in specs for key in new) else 1
        self.room = definition.get("max_parallel_steps", default)
        self.deadline = milliseconds(definition["deadline"]) if "deadline" in definition else None
        if self.deadline is not None:
            self.at(self.deadline, DEADLINE, None)

    # -- time ----------------------------------------------------------------------------------

    def at(self, when: int, kind: int, what: Any, order: int | None = None) -> None:
        self.numbers += 1
        self.agenda.append((when, kind, self.numbers if order is None else order, what))

    def forget(self, kind: int, step: StepRun) -> None:
        self.agenda = [
            entry for entry in self.agenda if entry[1] != kind or entry[3][0] is not step
        ]

    def play(self) -> Model:
        self.begin_what_can()
        self.send()
        self.look_whether_it_is_over()
        while self.finished_at is None:
            self.agenda.sort(key=lambda entry: entry[:3])
            ready = [entry for entry in self.agenda if not self.held(entry[1])]
            if not ready:
                break
            self.now = ready[0][0]
            due = [entry for entry in ready if entry[0] <= self.now]
            for entry in due:
                if entry in self.agenda and not self.held(entry[1]):
                    self.agenda.remove(entry)
                    self.happen(entry[1], entry[3])
            self.send()
            self.look_whether_it_is_over()
        return self

    def held(self, kind: int) -> bool:
        """A run that is paused begins nothing."""
        return self.paused and kind in (RETRY, WAKE)

    def happen(self, kind: int, what: Any) -> None:
        match kind:
            case 0:
                self.answer(*what)
            case 1:
                self.time_of_the_run_is_up()
            case 2:
                self.attempt_over(what[0])
            case 3:
                self.to_send.append((what[0], 0))
            case 4:
                self.round_over(what[0])
            case 5:
                self.begin(what[0])
            case 6:
                self.agenda = [entry for entry in self.agenda if entry[1] != LETTER]

    def time_of_the_run_is_up(self) -> None:
        for step in self.steps.values():
            if step.open and self.candidates(step):
                self.round_over(step)  # whatever follows from it is not begun any more
        if self.alive():
            self.wind_down("deadline_exceeded")
        else:
            self.at(self.now + PATIENCE, ABANDON, None)

    def candidates(self, step: StepRun) -> list[Request]:
        """Of a step that waits for the best: the usable answers so far, if they are enough."""
        if step.policy != "best_of":
            return []
        found = [r for r in step.asked if r is not None and r.outcome == "usable"]
        away = sum(r is not None and r.outcome == "unreachable" for r in step.asked)
        enough = len(found) >= answers_needed(step, len(step.targets) - away)
        return found if enough else []

    def closing_time(self, step: StepRun) -> int | None:
        """Of a step that waits for the best: a hundredth of the time of the run before its end."""
        if step.policy != "best_of" or self.deadline is None:
            return None
        closing = self.deadline - min(self.deadline // 100, 1_000)
        return closing if closing > self.now else None

    def alive(self) -> bool:
        return any(s.status in ("queued", "active", "deciding") for s in self.steps.values())

    def look_whether_it_is_over(self) -> None:
        deaf = any(entry[1] == LETTER and entry[3][1].deaf for entry in self.agenda)
        if self.alive() or deaf or (self.paused and not self.ending):
            return
        self.finished_at = self.now
        endings = {step.status for step in self.steps.values()}
        self.status = self.ending or ("step_timeout" if "step_timeout" in endings else "completed")
        left = "deadline_exceeded" if self.status == "deadline_exceeded" else "cancelled"
        for step in self.steps.values():
            if step.status in ("pending", "cancelled"):
                step.status = left

    # -- the plan ------------------------------------------------------------------------------

    def begin_what_can(self) -> None:
        """Whoever waits for nobody any more, in the order of the plan, while there is room."""
        done = {name for name, step in self.steps.items() if step.status in OVER[:2]}
        for step in self.steps.values():
            if step.status == "pending" and step.waits_for <= done and not self.ending:
                step.status = "queued"
        for step in self.steps.values():
            busy = sum(other.status in ("active", "deciding") for other in self.steps.values())
            if step.status == "queued" and busy < self.room:
                step.status = "active"
                self.numbers += 1
                step.begun = self.numbers
                self.begin(step)

    def finish(self, step: StepRun, status: str) -> None:
        step.status = status
        for kind in (ATTEMPT, RETRY, STEP, WAKE):
            self.forget(kind, step)
        self.begin_what_can()

    def wind_down(self, status: str) -> None:
        if self.ending:
            return
        self.ending, self.paused = status, False
        self.to_send.clear()
        for step in self.steps.values():
            if step.status in ("queued", "active", "deciding"):
                self.close(step, "cancelled")
                step.status = "cancelled"
        self.agenda = [entry for entry in self.agenda if entry[1] == LETTER]
        if self.deadline is not None:
            self.at(max(self.now, self.deadline) + PATIENCE, ABANDON, None)

    # -- asking --------------------------------------------------------------------------------

    def begin(self, step: StepRun) -> None:
        """A round: whom to ask, and until when."""
        step.status, step.failures, step.timeouts = "active", 0, 0
        closing = self.closing_time(step) if step.fans_out else None
        own = self.now + step.timeout if step.fans_out and step.timeout is not None else None
        step.hurries = closing is not None and (own is None or closing <= own)
        until = closing if step.hurries else own
        if until is not None:
            self.at(until, STEP, (step,), step.begun)
        if step.targets and not step.fans_out:
            self.open(step, step.targets)  # the provider stays the same
            return
        target = step.spec.get("target", {})
        if target.get("resolve") == "static":
            self.open(step, self.allowed(step, target["participants"]))
        else:
            self.to_send.append((step, -1))

    def allowed(self, step: StepRun, names: list[str]) -> list[str]:
        once = list(dict.fromkeys(names))
        limit = step.spec.get("target", {}).get("limit", len(once))
        return once[: limit if step.fans_out else 1]

    def open(self, step: StepRun, targets: list[str]) -> None:
        step.targets, step.open = targets, True
        step.asked = [None] * len(targets)
        if not targets:
            self.close(step, "cancelled")
            self.came_to_nothing(step, "no_targets")
            return
        least = step.spec.get("fan_in", {}).get("min_responses", 1)
        if step.policy in ("quorum", "best_of") and step.fans_out and len(targets) < least:
            self.close(step, "cancelled")
            if step.spec["target"]["resolve"] == "static":
                self.failed(step)  # the list stays as short as it is
            else:
                self.came_to_nothing(step, "quorum_unreachable")
            return
        self.to_send += [(step, slot) for slot in range(len(targets))]

    def next_of(self, key: Any, entries: list[Any]) -> Any:
        used = self.used.get(key, 0)
        self.used[key] = used + 1
        return entries[min(used, len(entries) - 1)]

    def send(self) -> None:
        """Requests leave at the end of an instant, searches first, unless the run is paused."""
        self.to_send.sort(key=lambda one: one[1] >= 0)
        while self.to_send and not self.paused:
            step, slot = self.to_send.pop(0)
            if step.status != "active":
                continue
            if slot < 0:
                found = self.next_of(step.name, self.found[step.name])
                self.at(self.now, LETTER, (step, Request(step.name, "", 0, 0, value=found)))
            elif step.open:
                self.ask(step, slot)

    def ask(self, step: StepRun, slot: int) -> None:
        target = step.targets[slot]
        does = self.next_of((step.name, target), self.behaviours[step.name, target])
        attempt = step.tries + step.failures + step.timeouts + 1
        request = Request(step.name, target, self.now, attempt, deaf=does.get("deaf", False))
        step.asked[slot] = request
        self.requests.append(request)
        if not step.fans_out and step.timeout is not None:
            self.at(self.now + step.timeout, ATTEMPT, (step,), step.begun)
        if does["does"] != "is silent":
            self.at(self.now + does["after"], LETTER, (step, request, does))

    # -- hearing -------------------------------------------------------------------------------

    def answer(self, step: StepRun, request: Request, does: Behaviour | None = None) -> None:
        if does is None:
            self.open(step, self.allowed(step, request.value))
            return
        if request.status != "pending":
            return  # too late
        said = does["does"]
        request.outcome = {"answers": "usable", "is away": "unreachable"}.get(said, "negative")
        request.status = "cancelled" if said == "is away" else "responded"
        if said != "is away":
            self.numbers += 1
            request.value, request.answered_at = does["value"], self.now
            request.order = self.numbers
        if step.fans_out:
            self.weigh(step)
            return
        self.forget(ATTEMPT, step)
        if said == "answers":
            self.settle(step, [request])
        else:
            self.one_refused(step)

    def weigh(self, step: StepRun) -> None:
        """Has it heard enough, or can it never?"""
        count = counted(step)
        if not count.reachable:
            self.close(step, "cancelled")
            self.came_to_nothing(step, "no_reachable_targets")
            return
        enough, can = measure(step, count)
        if enough:
            self.settle(step, count.heard if step.policy == "all" else count.usable)
        elif not can:
            self.close(step, "cancelled")
            none = not count.usable and not count.waiting
            self.came_to_nothing(step, "no_usable_response" if none else "not_enough_responses")

    def settle(self, step: StepRun, answers: list[Request]) -> None:
        """The step has its output."""
        step.output = output_of(step, answers)
        self.close(step, "cancelled")
        self.judge(step)

    def close(self, step: StepRun, status: str) -> None:
        """Nobody waits for the rest any more."""
        step.open = False
        self.forget(STEP, step)
        self.forget(ATTEMPT, step)
        for request in step.asked:
            if request is not None and request.status == "pending":
                request.status = status
        step.tries = max([step.tries, *(r.attempt for r in step.asked if r is not None)])
        self.agenda = [
            entry
            for entry in self.agenda
            if entry[1] != LETTER or entry[3][0] is not step or entry[3][1].deaf
        ]

    # -- when it went wrong --------------------------------------------------------------------

    def came_to_nothing(self, step: StepRun, code: str) -> None:
        step.code = code
        older = not step.fans_out and "max_retries" in step.spec
        delay = older_delay if older else delay_of
        if not self.again(step, delay(step, step.round + 1)):
            self.failed(step)

    def again(self, step: StepRun, delay: int | None) -> bool:
        """Begin the step anew."""
        if delay is None:
            return False
        step.round += 1
        self.forget(STEP, step)
        if delay:
            self.at(self.now + delay, WAKE, (step,), step.begun)
        else:
            self.begin(step)
        return True

    def round_over(self, step: StepRun) -> None:
        """The time of a fan-out is up."""
        answers = self.candidates(step)
        if answers:
            for request in step.asked:
                if request is not None and request.status == "pending":
                    request.status = "timeout"
            self.settle(step, answers)
            return
        if step.hurries:
            return  # the deadline itself says what becomes of it
        self.close(step, "timeout")
        if not self.again(step, delay_of(step, step.round + 1)):
            self.timed_out(step)

    def one_refused(self, step: StepRun) -> None:
        step.failures += 1
        delay = failure_delay(step, step.failures)
        if delay is None:
            self.close(step, "cancelled")
            self.failed(step)
        else:
            self.ask_once_more(step, delay)

    def attempt_over(self, step: StepRun) -> None:
        """The one that an ordinary step asked took too long."""
        request = step.asked[0]
        assert request is not None
        request.status = "timeout"
        self.agenda = [
            entry for entry in self.agenda if entry[1] != LETTER or entry[3][1] is not request
        ]
        step.timeouts += 1
        delay = timeout_delay(step)
        if delay is None:
            self.close(step, "timeout")
            self.timed_out(step)
        else:
            self.ask_once_more(step, delay)

    def ask_once_more(self, step: StepRun, delay: int) -> None:
        if delay:
            self.at(self.now + delay, RETRY, (step,), step.begun)
        else:
            self.to_send.append((step, 0))

    def failed(self, step: StepRun) -> None:
        match step.spec.get("fail_policy", "abort_workflow"):
            case "abort_workflow":
                step.status = "failed"
                self.wind_down("failed")
            case "skip":
                self.finish(step, "skipped")
            case "pause":
                step.status = "deciding"
                self.paused = True

    def timed_out(self, step: StepRun) -> None:
        match step.timing.get("on_timeout", "fail"):
            case "fail":
                self.finish(step, "step_timeout")
            case "skip":
                self.finish(step, "skipped")
            case "abort_workflow":
                step.status = "step_timeout"
                self.wind_down("step_timeout")

    # -- is the task done? ---------------------------------------------------------------------

    def judge(self, step: StepRun) -> None:
        step.executed = True
        rule = step.spec.get("fulfillment", {"policy": "auto"})
        if rule["policy"] in ("requester_confirmation", "never"):
            step.status = "deciding"
            return
        verdict = verdict_of(step, rule)
        if verdict is not None:
            step.fulfilled = verdict
        self.after_judgement(step, rule, verdict)

    def after_judgement(self, step: StepRun, rule: dict[str, Any], verdict: bool | None) -> None:
        word = "continue"
        if verdict is False:
            word = rule.get("on_not_fulfilled", "pause")
        elif verdict is None:
            word = rule.get("on_error", "fail")
        if step.fans_out:
            delay = delay_of(step, step.round + 1)
        else:
            delay = failure_delay(step, step.failures + 1)
        if word == "continue":
            self.finish(step, "completed")
        elif word == "pause":
            step.status = "deciding"
            self.paused = True
        elif word == "fail" or delay is None:
            self.failed(step)
        else:
            step.executed = False
            step.failed_before += step.failures + 1
            step.late_before += step.timeouts
            self.again(step, delay)
