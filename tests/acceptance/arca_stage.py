"""A definition on stage: played in virtual time, with its dispatch records and its snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.operations.read.dispatches import Dispatch, WorkflowStepDispatch, dispatches_of
from anabranch.operations.read.snapshots import snapshot_of
from anabranch.runtime.live_run import history
from anabranch.testing.play import RUN, Theatre
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.played import Played
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.virtual.world import EPOCH


@dataclass
class Staged:
    played: Played
    dispatches: list[Dispatch]
    snapshot: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.snapshot["status"])

    @property
    def records(self) -> list[WorkflowStepDispatch]:
        return [dispatch.record for dispatch in self.dispatches]

    def step(self, step_id: str) -> dict[str, Any]:
        (found,) = [step for step in self.snapshot["steps"] if step["step_id"] == step_id]
        return dict(found)

    def output(self, step_id: str = "s") -> Any:
        return self.step(step_id).get("output")

    def asked(self, step_id: str = "s") -> list[str]:
        """Who was asked, in order, again and again."""
        return [record.target for record in self.records if record.step_id == step_id]

    def ends(self, step_id: str = "s") -> dict[str, str]:
        """How the last request to each ended."""
        return {r.target: r.status for r in self.records if r.step_id == step_id}

    @property
    def problem(self) -> dict[str, Any]:
        return dict(self.snapshot["error"])


def stage(
    document: Mapping[str, Any],
    script: Mapping[str, Any] | None = None,
    *,
    decisions: Mapping[str, Any] | None = None,
    **given: Any,
) -> Staged:
    net = compiled(json.dumps(document), ())
    answers = Script(net, prepared(net, script or {}))
    theatre = Theatre(net, Scripts(answers, Script(net, decisions or {}, "decisions")))
    theatre.begin(s.Start(run=RUN, input=given))
    played = theatre.perform(100_000)
    log = history(theatre.store.read(RUN))
    return Staged(played, dispatches_of(net, RUN, log), snapshot_of(net, played.state, log))


def seconds(moment: str | None) -> float:
    """Since the run began."""
    assert moment is not None
    return datetime.fromisoformat(moment).timestamp() - EPOCH / 1000


# -- short definitions -------------------------------------------------------------------------


def step(step_id: str = "s", **fields: Any) -> dict[str, Any]:
    return {"step_id": step_id, "service_type": "text/summarise", **fields}


def ask(*participants: str, policy: str | None = None, step_id: str = "s", **fields: Any) -> Any:
    """A fan-out to these; what is not a field of a step belongs to `fan_in`."""
    fan_in = {"policy": policy} if policy is not None else {}
    for key in ("min_responses", "score_field", "score_order", "min_score", "max_score"):
        if key in fields:
            fan_in[key] = fields.pop(key)
    target = {"resolve": "static", "participants": list(participants)}
    return step(step_id, **{"target": target, "fan_in": fan_in, **fields})


def workflow(*steps: Any, **root: Any) -> dict[str, Any]:
    return {"workflow_id": "w", **root, "plan": {"steps": list(steps)}}
