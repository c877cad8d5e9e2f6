"""What a task of the kind `nats` asks of its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.lookups import is_literal

#: For each operation the keys that it cannot do without.
OPERATIONS: Mapping[str, tuple[str, ...]] = {
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


def check_nats(task: Section, given: dict[str, Any]) -> None:
    if given.pop("ttl", None) is not None:
        task.ignored("ttl", "how long values are kept is said by the bucket")
    if "args" in task:
        task.ignored("args", "an operation is told what to do by its own keys")
    node = task.node.get("operation")
    if not isinstance(node, Scalar) or not is_literal(node):
        return
    operation = str(node.value)
    if operation.startswith("object_"):
        what = f"the operation {operation!r} of {task.what}"
        task.findings.not_yet(node.position, what, "keep large values as artifacts")
        return
    chosen = task.choice("operation", tuple(OPERATIONS), "kv_get")
    if chosen == operation:
        for key in OPERATIONS[operation]:
            if key not in task:
                task.require(key, f"{operation} needs `{key}`")
