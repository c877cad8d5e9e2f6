"""The rows of `modules` in node.json for the modules that come with Anabranch.

`anabranch node init --with arca --with dator` writes them; the operator may change every field.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

Kind = Literal["arca", "dator"]

PORTS: dict[Kind, int] = {"arca": 47981, "dator": 47971}
GRANTS: dict[Kind, tuple[str, ...]] = {
    "arca": (
        "offers.local.query",
        "offers.trust.query",
        "offers.fetch",
        "seed.directory.query",
        "peer.*",
        "artifact.delivery.send",
        "service.orders.submit",
        "workflow.template.sign",
    ),
    "dator": (
        "offers.local.query",
        "offers.publish",
        "seed.directory.query",
        "peer.*",
        "artifact.delivery.send",
        "workflow.step.completed.publish",
    ),
}
ACCEPTORS: dict[Kind, dict[str, Any]] = {
    "arca": {"acceptor_id": "arca-results", "artifact_schema": "service-order.result.v1"},
    "dator": {
        "acceptor_id": "dator-requests",
        "artifact_schema": "service-order.dispatch.request.v1",
    },
}
HEADERS: dict[Kind, str] = {"arca": "X-Arca-Auth", "dator": "X-Dator-Auth"}


def executor_entry(
    kind: Kind,
    *,
    port: int = 0,
    grants: tuple[str, ...] = (),
    executable: str = "",
    in_process: bool = False,
) -> dict[str, Any]:
    """`port` 0 is the default one of the module; `grants` are further host capabilities that it
    may ask for, such as those of decision sources. `in_process` is for tests."""
    entry: dict[str, Any] = {
        "id": kind,
        "grants": list(dict.fromkeys((*GRANTS[kind], *grants))),
        "acceptors": [ACCEPTORS[kind]],
    }
    if in_process:
        return {**entry, "kind": "in_process"}
    return {
        **entry,
        "auth-token": HEADERS[kind],
        "launch": {
            "executable": executable or sys.executable,
            "args": ["-m", "anabranch", kind, "serve"],
        },
        "http": {
            "endpoint": f"http://127.0.0.1:{port or PORTS[kind]}",
            "startup_timeout_ms": 30_000,
            "request_timeout_ms": 60_000,  # a question to other catalogs may wait for them
            "max_response_bytes": 16 * 1024 * 1024,
        },
    }
