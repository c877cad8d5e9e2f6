"""Every `error.kind` that a step of a playbook can end with: guards are compared with them.

A template that compares a kind with an older word for it says the same as with the word of today.

A registered callable may have kinds of its own, so only what looks like one of these, and is none,
is a mistake.
"""

from __future__ import annotations

import re

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
    *("transform", "unknown"),
)
#: Of asking others.
OF_PARTICIPANTS = (
    *("bad_reply", "directory", "gather_impossible", "no_means", "not_ordered", "order_expired"),
    *("refused", "targets", "unreachable"),
)
ERROR_KINDS = frozenset({*OF_WORK, *OF_THE_ENGINE, *OF_PARTICIPANTS})
#: Older words, and those of today.
OLDER = {"step_timeout": "timeout"}
_ASKS = re.compile(r"\berror\.kind\b")
_OLDER = re.compile(r"(['\"])(" + "|".join(OLDER) + r")\1")


def in_words_of_today(template: str) -> str:
    if not _ASKS.search(template):
        return template
    return _OLDER.sub(lambda found: f"{found[1]}{OLDER[found[2]]}{found[1]}", template)
