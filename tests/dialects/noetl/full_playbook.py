"""A playbook that uses every keyword in some spelling, and ways to change one place of it."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

RULES: list[dict[str, Any]] = [
    {
        "when": "{{ outcome.status == 'error' }}",
        "then": {"do": "retry", "attempts": 3, "backoff": "linear", "delay": 0.5},
    },
    {"when": "{{ iter.more }}", "then": {"do": "jump", "to": "fetch", "set_iter": {"page": 2}}},
    {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ iter.n }}"}}}},
]

FULL: dict[str, Any] = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "full", "description": "d", "labels": {"a": "b"}},
    "keychain": [
        {"name": "api", "kind": "bearer", "token": "{{ env.TOKEN }}", "scope": "local"},
        {"name": "db", "kind": "secret_manager", "provider": "env", "map": {"password": "P"}},
    ],
    "executor": {
        "profile": "local",
        "spec": {
            "entry_step": "a",
            "final_step": "z",
            "deadline": "1h",
            "on_failure": "handled",
            "result": {"inline_max_bytes": 100, "store": {"kind": "auto", "ttl": "1h"}},
            "policy": {"defaults": {"timeout": "9s"}},
            "fanout": {"max_concurrent": 3},
        },
    },
    "inputs": {
        "order": {"type": "string", "required": True, "description": "its number"},
        "size": {"enum": ["small", 2], "default": "small"},
        "n": "integer",
        "token": {"secret": True},
    },
    "workload": {"n": 1, "list": [1, 2], "id": "{{ job.uuid }}"},
    "workflow": [
        {
            "step": "a",
            "desc": "first",
            "when": "{{ true }}",
            "spec": {
                "timeout": "30s",
                "on_timeout": "skip",
                "join": "all",
                "retry": {"attempts": 3, "delay": 1, "backoff": "linear", "max_delay": "5s"},
                "policy": {
                    "admit": {
                        "rules": [
                            {"when": "{{ ctx.x }}", "then": {"allow": True}},
                            {"else": {"then": {"allow": False}}},
                        ]
                    },
                    "lifecycle": {"timeout_s": 5, "deadline_s": 50},
                },
            },
            "tool": {"kind": "python", "code": "x = {{ n }}", "args": {"n": "{{ workload.n }}"}},
            "set_ctx": {"total": {"reduce": "sum", "value": "{{ a.n }}"}},
            "set": {"ctx.y": 1},
            "next": {
                "spec": {"mode": "inclusive"},
                "arcs": [
                    {"step": "b", "when": "{{ event.name == 'step.done' }}", "args": {"k": [1]}},
                    {"step": "c", "set": {"ctx.via": "c"}},
                ],
            },
        },
        {"step": "b", "tool": [{"kind": "http", "url": "http://x", "timeout": {"connect": 1}}]},
        {
            "step": "c",
            "tool": {"label": {"kind": "shell", "cmds": ["a"]}},
            "next": ["b", "l", "o", "p"],
        },
        {
            "step": "l",
            "spec": {
                "loop_mode": "fanout",
                "fanout.fail_fast": True,
                "fanout": {
                    "max_shard_retries": 2,
                    "shard_size": "auto",
                    "tolerated_failure_percentage": 5,
                    "lease_s": 30,
                    "iter_key": "{{ iter.n }}",
                    "reducers": {"total": "sum"},
                },
            },
            "loop": {
                "in": {"range": [0, 10]},
                "iterator": "n",
                "spec": {"mode": "parallel", "max_in_flight": 5},
            },
            "tool": [
                {
                    "name": "fetch",
                    "kind": "http",
                    "url": "http://x",
                    "auth": "api",
                    "spec": {"policy": {"rules": RULES}, "result": {"select": ["a"]}},
                },
                {"kind": "workbook", "name": "add", "args": {"b": 2}},
                {"name": "save", "kind": "sqlite", "commands": ["insert"], "params": {"a": 1}},
            ],
            "next": {"arcs": [{"step": "z", "when": "{{ fanin.status == 'complete' }}"}]},
        },
        {
            "step": "o",
            "args": {"x": 1},
            "loop": {"in": "{{ workload.list }}", "iterator": "i", "mode": "async"},
            "result": {"output_select": ["a"]},
            "tool": {
                "call": {
                    "kind": "http",
                    "spec": {"endpoint": "http://y", "params": {"p": 1}},
                    "eval": [
                        {"expr": "{{ outcome.status == 'success' }}", "do": "continue"},
                        {"else": {"do": "fail", "set_vars": {"v": 1}}},
                    ],
                }
            },
        },
        {
            "step": "p",
            "tool": [
                {"name": "get", "kind": "artifact", "action": "get", "uri": "f.json"},
                {"name": "sec", "kind": "secrets", "provider": "env", "secret_name": "S"},
                {
                    "name": "n",
                    "kind": "noop",
                    "set": {"ctx.q": 1, "iter.r": 2, "w": 3},
                    "spec": {"policy": [{"when": "ctx.q", "do": "break"}]},
                },
                {"name": "kid", "kind": "playbook", "path": "a/b", "payload": {"x": 1}},
            ],
        },
        {"step": "z", "tool": {"kind": "decision", "ask": "ok?", "actors": ["kim"]}},
    ],
    "workbook": [{"name": "add", "tool": {"kind": "python", "args": {"a": 1}, "code": "c"}}],
}

odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["{{ a", "{{ a b }}", "{{ x.__class__ }}", "5x", "", "a", "zz", "noop"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in pairs:
        found += paths(item, (*here, key))
    return found


PATHS = paths(FULL)
WORDS = sorted({key for path in PATHS for key in path if isinstance(key, str)})


def changed(path: tuple[Any, ...], value: Any, *, rename: bool) -> Any:
    document = copy.deepcopy(FULL)
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    if rename and isinstance(holder, dict):
        name = str(value)[:20] if not isinstance(value, int) else WORDS[value % len(WORDS)]
        holder[name] = holder.pop(path[-1])
    else:
        holder[path[-1]] = value
    return document
