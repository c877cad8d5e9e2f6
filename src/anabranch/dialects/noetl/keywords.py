"""Words that mean something in a playbook, wherever they stand.

Under `spec` of a step or a task keys are free: one that nobody knows is noted and has no effect.
One of these words is no free key. Its author means what it says elsewhere, and would not get it.
"""

from __future__ import annotations

from anabranch.dialects.noetl.tasks.keys import ALIASES, COMMON, KINDS
from anabranch.dialects.result_policy import KEYS

_STEP = (
    *("step", "tool", "loop", "next", "arcs", "when", "vars", "args", "input", "set", "set_vars"),
    *("set_ctx", "set_iter", "set_shared", "set_prev", "result", "output", "case", "eval", "sink"),
    *("assert", "retry", "join", "pool", "timeout", "on_timeout", "loop_mode", "fanout"),
)
_POLICY = (
    *("policy", "admit", "lifecycle", "failure", "emit", "rules", "on_unmatched", "mode", "before"),
    *("after", "finally", "timeout_s", "deadline_s", "then", "else", "do", "attempts", "delay"),
    *("backoff", "to", "iterator", "max_in_flight", "exec", "cursor", "frame", "collection"),
)
_EXECUTOR = (
    *("entry_step", "final_step", "no_next_is_error", "on_failure", "fail_fast", "held"),
    *("final_failure", "undefined", "deadline", "keychain", "workload", "workbook"),
    *("workflow", "executor"),
)

MEANT = frozenset(
    {*_STEP, *_POLICY, *_EXECUTOR, *COMMON, *KEYS}
    | {key for keys in KINDS.values() for key in keys}
    | {key for keys in ALIASES.values() for key in keys}
)
