"""Redrives of whole definitions: playbooks with loops and approvals, and Arca plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import Redrive, plan_redrive
from anabranch.kernel.state import State
from anabranch.runtime.live_run import history
from anabranch.testing import error, ok
from anabranch.testing.play import RUN, Theatre
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.script import Script, Scripts

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: redriven}\n"
HANDLED = "executor: {spec: {on_failure: handled}}\n"


class Plays:
    """A definition that is played, and played again as a redrive of the last time."""

    def __init__(self, definition: Any) -> None:
        self.net = compiled(definition)
        self.plan: Redrive | None = None
        self.did: list[str] = []  # what was carried out the last time
        self.asked: list[str] = []  # and at which steps somebody was asked

    def play(
        self, script: Mapping[str, Any], decisions: Mapping[str, Any] = {}, *, run: str = RUN
    ) -> State:
        entries = {name: self._noting(name, entry) for name, entry in script.items()}
        self.did, self.asked = [], []
        answers = Script(self.net, prepared(self.net, entries))
        theatre = Theatre(self.net, Scripts(answers, Script(self.net, decisions, "decisions")))
        reuse = self.plan.reuse if self.plan is not None else {}
        origin = "origin" if self.plan is not None else None
        theatre.begin(s.Start(run=run, origin=origin, reuse=reuse))
        state = theatre.perform(10_000).state
        happened = history(theatre.store.read(RUN))
        steps = {each.token: each.step for _, each in happened if isinstance(each, e.TokenCreated)}
        self.asked = [steps[each.token] for _, each in happened if isinstance(each, e.GateOpened)]
        self.plan = plan_redrive(self.net, happened)
        return state

    def _noting(self, name: str, entry: Any) -> Callable[[Any], Any]:
        def take(task: Any) -> Any:
            self.did.append(name)
            return entry(task) if callable(entry) else entry

        return take


def item_of(task: Any) -> int:
    return int(task.inputs["params"]["x"])


LOOP = """
  - step: fill
    loop: {in: {range: 6}, iterator: x}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: [{name: t, kind: http, url: "https://example.org", params: {x: "{{ iter.x }}"}}]
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: http, url: "https://example.org", params: {all: "{{ fill }}"}}
    next: {arcs: [{step: approve}]}
  - {step: approve, tool: {kind: decision, ask: "Send the report?"}}
"""


def test_a_report_behind_a_redriven_loop_is_made_again_and_approved_again() -> None:
    plays = Plays(HEAD + HANDLED + "workflow:" + LOOP)

    def report(task: Any) -> Any:
        return {"sum": sum(each or 0 for each in task.inputs["params"]["all"]["results"])}

    def fails(task: Any) -> Any:
        return error("broken", retryable=False) if item_of(task) in (2, 4) else item_of(task)

    first = plays.play({"fill/t": fails, "report": report}, {"approve": ok()})
    assert first.results["report"] == {"sum": 0 + 1 + 3 + 5}
    assert plays.plan is not None
    again = {fate.step: (fate.cause and fate.cause.how, fate.left) for fate in plays.plan.again}
    assert again == {"fill": ("items", 2), "report": ("arc", -1), "approve": ("arc", -1)}
    second = plays.play({"fill/t": item_of, "report": report}, {"approve": ok()})
    assert second.results["report"] == {"sum": 15}
    assert plays.did == ["fill/t", "fill/t", "report"], "the four items that succeeded are kept"
    assert plays.asked == ["approve"]


def test_what_the_items_of_a_loop_wrote_is_there_in_the_redriven_run() -> None:
    plays = Plays(
        HEAD + HANDLED + "workflow:\n"
        "  - step: count\n"
        "    loop: {in: {range: 5}, iterator: x, spec: {mode: parallel, max_in_flight: 2}}\n"
        "    spec: {policy: {failure: {mode: best_effort}}}\n"
        "    tool:\n"
        "      - name: t\n"
        "        kind: http\n"
        "        url: https://example.org\n"
        "        params: {x: '{{ iter.x }}'}\n"
        "        set_ctx: {total: {reduce: sum, value: '{{ iter.x }}'}}\n"
    )

    def fails(task: Any) -> Any:
        return error("broken", retryable=False) if item_of(task) == 3 else item_of(task)

    assert plays.play({"count/t": fails}).ctx == {"total": 0 + 1 + 2 + 4}
    assert plays.play({"count/t": item_of}).ctx == {"total": 10}
    assert plays.did == ["count/t"]


def test_a_loop_whose_items_read_what_other_items_wrote_begins_anew() -> None:
    """Item 4 counted on item 3, which failed: its answer cannot be kept."""
    plays = Plays(
        HEAD + HANDLED + "workflow:\n"
        "  - step: count\n"
        "    loop: {in: {range: 5}, iterator: x}\n"
        "    spec: {policy: {failure: {mode: best_effort}}, fanout: {shard_size: 1}}\n"
        "    tool:\n"
        "      - name: t\n"
        "        kind: http\n"
        "        url: https://example.org\n"
        "        params: {x: '{{ iter.x }}', n: '{{ ctx.n | default(0) }}'}\n"
        "        set_ctx: {n: '{{ ctx.n | default(0) + 1 }}'}\n"
    )

    def fails(task: Any) -> Any:
        return error("broken", retryable=False) if item_of(task) == 3 else item_of(task)

    assert plays.play({"count/t": fails}).ctx == {"n": 4}
    assert plays.play({"count/t": item_of}).ctx == {"n": 5}
    assert plays.did == ["count/t"] * 5


def test_a_step_that_was_handed_the_reference_of_a_kept_loop_is_kept() -> None:
    """The reference names the run, and it is another run now."""
    plays = Plays(
        HEAD + "workflow:\n"
        "  - step: fill\n"
        "    loop: {in: {range: 3}, iterator: x}\n"
        "    spec: {loop_mode: fanout}\n"
        "    tool:\n"
        "      - {name: t, kind: http, url: 'https://example.org', params: {x: '{{ iter.x }}'}}\n"
        "    next: {arcs: [{step: use, args: {ref: '{{ fanin.refs }}'}}]}\n"
        "  - step: use\n"
        "    tool: {kind: http, url: 'https://example.org', params: {ref: '{{ args.ref }}'}}\n"
        "    next: {arcs: [{step: last}]}\n"
        "  - {step: last, tool: {kind: http, url: 'https://example.org'}}\n"
    )
    plays.play({"fill/t": item_of, "use": 1, "last": error("broken", retryable=False)})
    assert plays.play({"fill/t": item_of, "use": 1, "last": 2}, run="another").status == "completed"
    assert plays.did == ["last"]


def arca(*steps: dict[str, Any]) -> str:
    return json.dumps({"workflow_id": "w", "plan": {"steps": steps}})


SOLICIT: dict[str, Any] = {
    "step_id": "solicit",
    "service_type": "text/summarise",
    "target": {"resolve": "static", "participants": ["ann", "bob", "cy"]},
    "fan_in": {"policy": "best_of", "score_field": "/price", "score_order": "asc"},
    "timing": {"timeout": "PT30S"},
}
ORDER: dict[str, Any] = {
    "step_id": "order",
    "service_type": "text/summarise",
    "input": {"price": {"from": "/steps/solicit/output/price"}},
    "target": {"resolve": "static", "participants": ["dee"]},
    "fan_in": {"policy": "any_one"},
    "depends_on": ["solicit"],
}


def priced(price: int) -> Any:
    return {"status": "offer", "price": price}


def test_a_solicitation_that_succeeded_is_not_asked_again_not_even_those_who_failed_there() -> None:
    plays = Plays(arca(SOLICIT, ORDER))
    no = error("broken", retryable=False)
    first = plays.play({"ann": priced(3), "bob": no, "cy": priced(2), "dee": no})
    assert first.status == "failed"
    second = plays.play({"ann": priced(1), "bob": priced(1), "cy": priced(1), "dee": {"done": 1}})
    assert (second.status, plays.did) == ("completed", ["dee"])
    assert second.results["solicit"] == priced(2), "the offer that won is the one that was ordered"


def test_a_solicitation_behind_what_is_done_again_is_asked_again_and_judged_again() -> None:
    search: dict[str, Any] = {
        "step_id": "scope",
        "service_type": "text/scope",
        "target": {"resolve": "static", "participants": ["eve"]},
        "fan_in": {"policy": "any_one"},
        "fail_policy": "skip",
    }
    judged = {"fulfillment": {"policy": "requester_confirmation"}, "depends_on": ["scope"]}
    plays = Plays(arca(search, {**SOLICIT, **judged}))
    offers = {"ann": priced(3), "bob": priced(4), "cy": priced(5)}
    no = error("broken", retryable=False)
    first = plays.play({"eve": no, **offers}, {"solicit": ok()})
    assert (first.status, plays.asked) == ("completed", ["solicit"])
    second = plays.play({"eve": {"scope": "all"}, **offers}, {"solicit": ok()})
    assert second.status == "completed"
    assert plays.did == ["eve", "ann", "bob", "cy"]
    assert plays.asked == ["solicit"]


def test_an_order_that_reads_a_step_that_is_done_again_is_placed_again() -> None:
    """By reference alone: nothing but `/steps/rate/output` leads from one to the other."""
    rate: dict[str, Any] = {
        "step_id": "rate",
        "service_type": "fx/rate",
        "target": {"resolve": "static", "participants": ["eve"]},
        "fan_in": {"policy": "any_one"},
        "fail_policy": "skip",
    }
    bill = {**ORDER, "input_from": ["rate"], "input": {"text": "bill"}, "depends_on": []}
    plays = Plays(arca(rate, bill))
    seen: list[Any] = []

    def billed(task: Any) -> Any:
        seen.append(task.inputs["input"]["upstream"])
        return {"billed": True}

    plays.play({"eve": error("broken", retryable=False), "dee": billed})
    plays.play({"eve": {"rate": 2}, "dee": billed})
    assert seen == [{"rate": None}, {"rate": {"rate": 2}}]
