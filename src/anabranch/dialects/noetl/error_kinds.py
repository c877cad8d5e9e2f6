"""Every `error.kind` that a step of a playbook can end with: guards are compared with them.

A template that compares a kind with an older word for it says the same as with the word of today.

A registered callable may have kinds of its own, so only what looks like one of these, and is none,
is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

ALL: tuple[str, ...] = ()
#: Some of their calls go over HTTP.
_CALLS = ("http", "gcs", "artifact", "secrets", "transfer")
_COMMANDS = ("shell", "script", "container")
_SQL = ("postgres", "sqlite", "duckdb", "transfer")
#: Of the work itself, each with the kinds of tasks that give it.
OF_WORK: Mapping[str, tuple[str, ...]] = {
    "auth": (*_CALLS, "nats", "postgres", *_COMMANDS),
    "client_error": (*_CALLS, "nats"),
    "config": ALL,
    "connection": (*_CALLS, "nats", "duckdb", "python", *_COMMANDS),
    "container": ("container",),
    "db_connection": _SQL,
    "db_constraint": _SQL,
    "db_deadlock": _SQL,
    "db_error": _SQL,
    "db_timeout": _SQL,
    "not_found": ALL,
    "out_of_files": ALL,
    "parse": (*_CALLS, "nats", "postgres"),
    "python": ("python",),
    "rate_limit": _CALLS,
    "resource": ("python", *_COMMANDS),
    "result": ALL,
    "schema": ("python", *_COMMANDS),
    "script": ("script",),
    "server_error": (*_CALLS, "nats"),
    "shell": ("shell",),
    "storage_access": ALL,
    "storage_quota": _SQL,
    "timeout": ALL,
    "tool_error": ("python",),
}
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
#: Of every step, whatever its tasks are.
OF_EVERY_STEP = frozenset(
    {*OF_THE_ENGINE, *(kind for kind, tasks in OF_WORK.items() if tasks == ALL)}
)
#: The kinds of tasks whose errors are known: others are callables, or wait for a child, from which
#: anything may come.
KNOWN_TASKS = frozenset(
    {"noop", "pipeline", "wait", *(kind for tasks in OF_WORK.values() for kind in tasks)}
)
#: Older words, and those of today.
OLDER = {"step_timeout": "timeout"}
_ASKS = re.compile(r"\berror\.kind\b")
_OLDER = re.compile(r"(['\"])(" + "|".join(OLDER) + r")\1")


def in_words_of_today(template: str) -> str:
    if not _ASKS.search(template):
        return template
    return _OLDER.sub(lambda found: f"{found[1]}{OLDER[found[2]]}{found[1]}", template)


def error_kinds_of(tasks: Iterable[str]) -> frozenset[str]:
    """What steps with tasks of these kinds can end with."""
    kinds = frozenset(tasks)
    return OF_EVERY_STEP | {kind for kind, given in OF_WORK.items() if kinds.intersection(given)}
