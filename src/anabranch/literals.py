"""The closed sets of words that commands, routes and stores take.

Light to load: the command line names them in its help without loading what they are about.
"""

from __future__ import annotations

from typing import Literal

RunStatus = Literal[
    "queued",
    "running",
    "waiting",
    "paused",
    "completed",
    "failed",
    "partial",
    "cancelled",
    "deadline_exceeded",
    "step_timeout",
]

Reducer = Literal["set", "sum", "min", "max", "append", "merge"]
ItemState = Literal["succeeded", "failed", "running", "pending"]
BulkVerb = Literal["pause", "resume", "cancel", "redrive", "patch", "purge"]
DispatchStatus = Literal["pending", "responded", "timeout", "cancelled"]
DeliveryState = Literal["pending", "done", "dead"]
#: Keys of a playbook task that make it wait for its child.
AWAIT_CHILD = ("return_step", "return_result", "result_step", "wait")
PRIORITY_MAX = 1000  # of a run, and as far below 0
