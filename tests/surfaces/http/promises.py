"""How much of what an OpenAPI document promises is asked: all of it in `make soak`, in `make test`
the first case of every kind that each operation has, the same ones every time."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from schemathesis.schemas import BaseSchema

EVERYTHING = bool(os.environ.get("ANABRANCH_SOAK"))


def schema_of(document: dict[str, Any]) -> BaseSchema:
    """Made-up cases beside those that a document implies are for `make soak`."""
    schema = schemathesis.openapi.from_dict(document)
    if not EVERYTHING:
        schema.config.phases.update(phases=["examples", "coverage"])
    return schema


class Choice:
    """Which cases are asked: of each operation and part of a request the first that must be taken
    and the first that must be refused, and one method that the path has not."""

    def __init__(self) -> None:
        self._asked: set[tuple[str, ...]] = set()

    def has(self, case: Any, caller: str = "") -> bool:
        if EVERYTHING or case.meta.phase.name != "coverage":
            return True
        found = case.meta.phase.data
        method = case.method if found.scenario == "unspecified_http_method" else ""
        kind = (found.parameter_location or "") if not method else "method"
        key = (caller, case.operation.label, case.meta.generation.mode, kind)
        is_new = key not in self._asked
        self._asked.add(key)
        return is_new
