"""The runs of Arca in pages, newest first, with the statuses that the host knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import LIMIT, LIMIT_MAX, whole_number
from anabranch.store.ports import Head, HeadFilter, Store
from anabranch.work.participants.performers import rfc3339

#: What the engine calls what the host calls so.
_OF_HOST: Mapping[str, tuple[str, ...]] = {
    "active": ("running", "waiting", "paused"),
    "pending": (),
    "paused": ("waiting", "paused"),
    "completed": ("completed", "partial"),
}
_OF_ENGINE = {"waiting": "paused", "partial": "completed"}


def listed(store: Store, query: Mapping[str, str]) -> dict[str, Any]:
    """Reads `status`, `workflow_id`, `limit` and `before`."""
    limit = whole_number(query, "limit", LIMIT, least=1, most=LIMIT_MAX)
    status = query.get("status")
    statuses = () if status is None else _OF_HOST.get(status, (status,))
    if status is not None and not statuses:
        return {"items": []}  # no run of the engine is ever so
    wanted = HeadFilter(
        statuses=statuses,
        name=query.get("workflow_id"),
        before=_place(query["before"]) if "before" in query else None,
        limit=limit,
    )
    heads = store.heads(wanted)
    page: dict[str, Any] = {"items": [_row(head) for head in heads]}
    if len(heads) == limit:
        page["next"] = f"{heads[-1].created_at}.{heads[-1].run}"
    return page


def _row(head: Head) -> dict[str, Any]:
    return {
        "run_id": head.run,
        "workflow_id": head.name,
        "status": _OF_ENGINE.get(head.status, head.status),
        "problems": head.problems,  # of a completed run: what did not end as it should
        "created_at": rfc3339(head.created_at),
        "updated_at": rfc3339(head.updated_at),
    }


def _place(text: str) -> tuple[int, str]:
    at, _, run = text.partition(".")
    if not run or not (at.isascii() and at.isdigit() and len(at) < 18):
        raise NodeError(400, "bad_query", "`before` is the `next` of an earlier page")
    return int(at), run
