"""Every `error.kind` that a step of a playbook can end with: guards are compared with them.

A registered callable may have kinds of its own, so only what looks like one of these, and is none,
is a mistake.
"""

from __future__ import annotations

#: Of the work itself.
OF_WORK = (
    *("auth", "client_error", "config", "connection", "container", "not_found", "out_of_files"),
    *("parse", "python", "rate_limit", "resource", "result", "schema", "server_error", "shell"),
    *("storage_access", "storage_quota", "timeout", "tool_error"),
    *("db_connection", "db_constraint", "db_deadlock", "db_error", "db_timeout"),
)
#: Of the engine, which carries it out.
OF_THE_ENGINE = (
    *("aborted", "assertion", "cancelled", "child", "collection", "decision", "defect", "endless"),
    *("expression", "final_step", "impossible_join", "internal", "jump_limit", "loop", "lost"),
    *("no_route", "policy", "queue_ttl", "rejected", "retries", "shard", "skipped"),
    *("step_timeout", "transform", "unknown"),
)
#: Of asking others.
OF_PARTICIPANTS = (
    *("bad_reply", "directory", "gather_impossible", "no_means", "not_ordered", "order_expired"),
    *("refused", "targets", "unreachable"),
)
ERROR_KINDS = frozenset({*OF_WORK, *OF_THE_ENGINE, *OF_PARTICIPANTS})
