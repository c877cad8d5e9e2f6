"""What of two runs is compared, in words that both have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Two words for one thing: first that of a host, then that of a book.
_CODES = {
    "peer_unreachable": "unreachable",
    "peer_backoff": "unreachable",
    "offer-not-found": "unknown_participant",
}


def compared(played: Mapping[str, Any]) -> dict[str, Any]:
    snapshot = played["snapshot"]
    return {
        "status": snapshot["status"],
        "error": _code(snapshot.get("error")),
        "failed": (snapshot.get("error") or {}).get("step_id"),
        "steps": {step["step_id"]: _step(step) for step in snapshot["steps"]},
        "dispatches": sorted(map(_dispatch, played["dispatches"])),
        "decided": played["decided"],
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    task = step["task"]
    return {
        "status": step["status"],
        "attempt": step["attempt"],
        "completed": step["execution"]["completed"],
        "output": _without_messages(step.get("output")),
        "selected": _without_messages(step.get("selected_output")),
        "fulfilled": task["fulfilled"],
        "decided_by": task.get("decided_by"),
        "reason": task.get("reason"),
        "error": _code(step.get("error")),
    }


def _without_messages(output: Any) -> Any:
    """Words for people about answers that are none differ; their codes do not."""
    if isinstance(output, Mapping):
        error = output.get("error")
        if isinstance(error, Mapping):
            return {**output, "error": error.get("code")}
        return {key: _without_messages(value) for key, value in output.items()}
    return [_without_messages(one) for one in output] if isinstance(output, list) else output


def _code(error: Mapping[str, Any] | None) -> str:
    code = str((error or {}).get("code", ""))
    return _CODES.get(code, code)


def _dispatch(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """Why nothing was sent is said in words, which differ."""
    sent = one["status"] != "cancelled"
    return (
        one["step_id"], one["attempt"], one["target"], one["status"], one["outcome"],
        one["selected"], one.get("score") or 0.0, one.get("reason", "") if sent else "",
    )  # fmt: skip


def mirrored(played: Mapping[str, Any]) -> dict[str, Any]:
    """What the host was shown at last, as far as it shows it."""
    return _shown(played["shown"])


def to_mirror(played: Mapping[str, Any]) -> dict[str, Any]:
    """The same from the log of the run."""
    return _shown(played["snapshot"])


def _shown(run: Mapping[str, Any]) -> dict[str, Any]:
    steps = {
        step["step_id"]: (
            step["status"], step["attempt"], step["execution"], step["task"]["fulfilled"],
            step.get("selected_output", step.get("output")), step.get("output_digest"),
            (step.get("error") or {}).get("code"), step.get("finished_at"),
            [(one["dispatch_id"], one["status"], one.get("outcome") or "")
             for one in step["dispatches"]],
        )
        for step in run["steps"]
    }  # fmt: skip
    return {"status": run["status"], "finished_at": run["finished_at"], "steps": steps}
