"""The attempts of a step, and the names of what each of them orders.

A `Task` says which attempt it is. `tries` counts the executions of its job that failed or took too
long, which the log of the run has; one that was lost with a process is not among them, so a step
that is done again after a crash has the same number. A step that begins anew (its task was not
fulfilled, an operator tries it again) has another job, whose id names the round: `7.0`, then
`7r1.0`. Round and tries together are the *attempt*: `a1`, `a2`; in the next round `r1a1`.

Ids of orders and requests follow from run, step and attempt, so whoever comes back after a crash
finds the order of before, and another attempt is another order.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from anabranch.market.node.orders.executions import with_prefix
from anabranch.work.port import Task

#: Letters that an order id may have; a run without a hyphen can be told from the step after it.
_RUN, _STEP = re.compile(r"[A-Za-z0-9][A-Za-z0-9:]*"), re.compile(r"[A-Za-z0-9:-]+")
#: In requests a colon comes after the run, which has none but that after `run`.
_REQUEST_RUN = re.compile(r"run:[A-Za-z0-9_.-]+|(?!run(?::|$))[A-Za-z0-9_.-]+")
_REQUEST_STEP = re.compile(r"[A-Za-z0-9:_.-]+")
_LABEL = re.compile(r"(?:r[1-9][0-9]{0,8})?a[1-9][0-9]{0,8}")
_NAMED = re.compile(
    rf"remote-execution:(?P<run>{_REQUEST_RUN.pattern}):{_REQUEST_STEP.pattern}:{_LABEL.pattern}"
)
_JOB = re.compile(r"[0-9]+(?:r([1-9][0-9]*))?\..+")
NAME_MAX = 200  # characters of run and step together, so that every id has its room
REQUEST = "remote-execution"


class Attempt(NamedTuple):
    run: str
    step: str
    label: str  # a1, a2 …; r1a1 … in later rounds

    @property
    def order_id(self) -> str:
        readable = _RUN.fullmatch(self.run) and _STEP.fullmatch(self.step)
        if readable and len(self.run) + len(self.step) <= NAME_MAX:
            return f"order:{self.run}-{self.step}-{self.label}"
        return f"order:{self._digest}-{self.label}"

    @property
    def execution_id(self) -> str:
        return with_prefix(self.order_id, "execution")

    @property
    def request_id(self) -> str:
        return f"{REQUEST}:{self._named}:{self.label}"

    @property
    def dispatch_id(self) -> str:
        return f"dispatch:{self._named}:remote:{self.label}"

    @property
    def _named(self) -> str:
        readable = _REQUEST_RUN.fullmatch(self.run) and _REQUEST_STEP.fullmatch(self.step)
        if readable and len(self.run) + len(self.step) <= NAME_MAX:
            return f"{self.run}:{self.step}"
        return self._digest

    @property
    def _digest(self) -> str:
        """Has no hyphen and no colon, so no readable name is the same."""
        return hashlib.sha256(f"{len(self.run)}:{self.run}{self.step}".encode()).hexdigest()[:48]


def attempt_of(task: Task) -> Attempt:
    return Attempt(task.run, step_of(task), label_of(task.job, task.tries))


def label_of(job: str, tries: int) -> str:
    found = _JOB.fullmatch(job)
    again = f"r{found.group(1)}" if found is not None and found.group(1) else ""
    return f"{again}a{tries}"


def step_of(task: Task) -> str:
    return str(task.inputs.get("step_id") or task.step)


def attempt_of_request(request_id: str, run: str, step: str) -> Attempt | None:
    """The attempt of this step that sent the request; None where none of it can have."""
    label = request_id.rpartition(":")[2]
    if not _LABEL.fullmatch(label):
        return None
    attempt = Attempt(run, step, label)
    return attempt if attempt.request_id == request_id else None


def is_of_another_run(request_id: str, run: str) -> bool:
    """Whether the request names a run that it can be read from, and another one."""
    named = _NAMED.fullmatch(request_id)
    return named is not None and named.group("run") != run
