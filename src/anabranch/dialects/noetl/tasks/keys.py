"""Which keys the tasks of each kind take, which of them they need, and their other names."""

from __future__ import annotations

from collections.abc import Mapping

SQL_KINDS = ("postgres", "duckdb", "sqlite")
_SQL = (
    *("command", "commands", "query", "command_b64", "commands_b64", "query_b64"),
    *("params", "auth", "dsn", "database", "read_only", "script"),
)

#: For each kind the keys it takes, apart from those every task has.
KINDS: Mapping[str, tuple[str, ...]] = {
    "noop": ("result", "message"),
    "python": ("code", "code_b64", "script", "libs", "auth"),
    "http": (
        *("url", "method", "headers", "params", "body", "json", "form"),
        *("auth", "verify_ssl", "follow_redirects"),
    ),
    "shell": ("command", "cmds", "shell", "cwd", "env", "capture"),
    "script": ("script", "job", "interpreter", "env", "cwd"),
    "container": ("runtime", "script", "env"),
    "postgres": (*_SQL, "pool"),
    "duckdb": (*_SQL, "as_objects"),
    "sqlite": _SQL,
    "transfer": ("source", "target", "mapping", "mode", "key", "chunk_size"),
    "nats": (
        *("operation", "bucket", "key", "value", "pattern", "stream", "subject", "data"),
        *("headers", "seq", "last", "ttl", "url", "auth"),
    ),
    "gcs": ("source", "data", "destination", "auth", "content_type", "metadata"),
    "playbook": (
        *("path", "version", "catalog_id", "return_step", "return_result", "result_step", "wait"),
        *("poll_interval", "task"),
    ),
    "workbook": ("task",),
    "secrets": ("provider", "secret_name", "path", "root", "value", "auth"),
    "artifact": (
        *("action", "result_ref", "uri", "data", "compress", "checksum", "auth"),
        *("offset", "limit"),
    ),
    "decision": ("ask", "actors", "on_reject"),
    "wait": ("for", "until", "event", "filter"),
}
#: Other names for the same key, by kind.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "python": {"code_b64": "code"},
    "http": {"endpoint": "url", "payload": "body", "data": "body"},
    **{
        kind: {
            "command_b64": "command",
            "commands_b64": "commands",
            "query_b64": "query",
            "db": "database",
        }
        for kind in SQL_KINDS
    },
    "playbook": {"payload": "args"},
    "secrets": {"secret_name": "name"},
    "artifact": {"compression": "compress"},
}
#: One of these must be there.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "python": ("code", "script"),
    "http": ("url",),
    "shell": ("command", "cmds"),
    "script": ("script",),
    "container": ("runtime",),
    **dict.fromkeys(SQL_KINDS, ("command", "commands", "query", "script")),
    "nats": ("operation",),
    "gcs": ("destination",),
    "playbook": ("path", "catalog_id"),
    "secrets": ("name", "path", "value"),
}
#: For each operation of `nats` the keys that it cannot do without.
NATS_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "kv_get": ("bucket", "key"),
    "kv_put": ("bucket", "key", "value"),
    "kv_delete": ("bucket", "key"),
    "kv_purge": ("bucket", "key"),
    "kv_keys": ("bucket",),
    "publish": ("subject", "data"),
    "js_publish": ("subject", "data"),
    "js_get_msg": ("stream",),
    "js_stream_info": ("stream",),
}
#: Only one of these may be there.
EXCLUSIVE = (
    *(("code", "script"), ("command", "cmds"), ("body", "json", "form")),
    *(
        ("command", "commands", "query", "script"),
        ("return_step", "result_step"),
        ("result_ref", "uri"),
    ),
)
#: Keys that say what is so anyway, or nothing.
IGNORED: Mapping[str, Mapping[str, str]] = {
    "duckdb": {"as_objects": "rows are mappings from the names of columns"},
    "shell": {"capture": "what a command prints is kept, up to a limit"},
    "playbook": {"task": "the path says which playbook it is"},
}
#: Keys that have a meaning in playbooks which cannot be run so far.
LATER = ("sink", "eval", "policy", "output", "result")
#: Keys that every task may have.
COMMON = (
    *("name", "kind", "desc", "args", "input", "spec", "timeout", "timeout_seconds"),
    *("set_ctx", "set_iter", "set_shared", "set_prev", "loop", "tool"),
)
