"""What Python code sees as `context`: the names templates see, each value once.

The process that runs the code puts them together (`inline.assembled`); sent as they are seen, a
workload would travel three times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.noetl.names import identity_of
from anabranch.ids import run_number

#: Names of the kernel that have another form here, or mean nothing to code.
_OWN = frozenset(
    {
        *("workload", "ctx", "args", "results", "local", "payload", "answered_by", "event"),
        *("run", "first_run"),
    }
)
_EMPTY: Mapping[str, Any] = {}


def layers_of(names: Mapping[str, Any]) -> dict[str, Any]:
    local: Mapping[str, Any] = names.get("local") or _EMPTY
    args = names.get("args") or _EMPTY
    handed = args.get("iter")
    own = local.get("iter") or _EMPTY
    return {
        "workload": names.get("workload") or {},
        "ctx": names.get("ctx") or {},
        "args": {**identity_of(own), **args} if own else args,
        "iter": {**(handed if isinstance(handed, Mapping) else {}), **own},
        "tasks": local.get("results") or {},
        "steps": names.get("results") or {},
        "others": {key: value for key, value in names.items() if key not in _OWN},
        "reserved": _reserved(names, local, own),
    }


def _reserved(
    names: Mapping[str, Any], local: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    run = names.get("run")
    if run is not None:
        number = run_number(names.get("first_run") or run)
        found |= {"execution_id": number, "execution_number": number, "run": run, "run_id": run}
        found["job"] = {"uuid": run, "id": run, "execution_id": number}
    if "task" in local:
        found |= {"_task": local["task"], "_attempt": local["attempt"], "_prev": local["prev"]}
    if local.get("outcome") is not None:
        found |= {"outcome": local["outcome"], "output": local["outcome"]}
    if "index" in own:
        found |= {"loop_index": own["index"]}
        found["loop"] = {"index": own["index"], "first": own.get("_first")}
    return found
