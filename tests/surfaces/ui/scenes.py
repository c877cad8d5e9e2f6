"""More runs to look at, and what people do with pages: answering questions, reading rows."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.runtime.live_run import history

from .support import OPINIONS, RULES, VALID, Server, becomes, eventually, picture

#: Its second step fails at all of its tries; a way around it is not there.
FAILING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: failing}
workload: {door: "", error: the statement is missing}
workflow:
  - step: fetch
    tool: {kind: item, args: {n: 1, bad: 7, door: "{{ workload.door }}"}}
    next: {arcs: [{step: match}]}
  - step: match
    desc: Match payments with invoices
    spec: {retry: {attempts: 3, delay: 1ms}}
    tool: {kind: item, args: {n: 7, bad: 7, error: "{{ workload.error }}"}}
    next: {arcs: [{step: report, when: "{{ event.name == 'step.done' }}"}]}
  - step: report
    tool: {kind: noop}
"""

#: One branch fails, and the run takes another way.
HANDLED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: handled}
executor: {spec: {on_failure: handled}}
workflow:
  - step: guess
    tool: {kind: item, args: {n: 7, bad: 7, error: no idea}}
    next:
      arcs:
        - {step: good, when: "{{ event.name == 'step.done' }}"}
        - {step: fallback, when: "{{ event.name == 'step.failed' }}"}
  - step: good
    tool: {kind: noop}
  - step: fallback
    tool: {kind: noop}
"""

#: Three at once, each behind a door of its own; a barrier waits for all of them.
THREE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: three}
workload: {name: x}
workflow:
  - step: begin
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: one}, {step: two}, {step: three}]}
  - step: one
    tool: {kind: wait_at, args: {door: "{{ workload.name }}1"}}
    next: {arcs: [{step: gather}]}
  - step: two
    tool: {kind: wait_at, args: {door: "{{ workload.name }}2"}}
    next: {arcs: [{step: gather}]}
  - step: three
    tool: {kind: wait_at, args: {door: "{{ workload.name }}3"}}
    next: {arcs: [{step: gather}]}
  - step: gather
    spec: {join: all}
    tool: {kind: noop}
"""

#: Asked of two people by name, with a time to answer.
NAMED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: named}
workflow:
  - step: may_i
    spec: {timeout: 2h}
    tool: {kind: decision, ask: "Delete last year?", actors: [kim, sam]}
"""

#: What follows the order sleeps for an hour unless it is woken.
SLEEPY = {**RULES, "ORDER": {**VALID, "onValid": {"waitSec": 3600}}}


def sleeping(server: Server) -> str:
    """A session whose three processes sleep in front of a join of two."""
    run = server.start(OPINIONS, {"amount": 5}, rules=SLEEPY)
    assert eventually(
        lambda: (
            [
                token.step
                for token in server.parts.engine.state(run).tokens.values()
                if token.phase == "sleeping"
            ]
            == ["A", "B", "C"]
        )
    )
    return run


def confirm(page: Any, answer: str = "Yes", reason: str = "") -> None:
    if reason:
        page.locator("#confirm-why").fill(reason)
    page.locator("#confirm").get_by_role("button", name=answer).click()


def events_of(server: Server, run: str, kind: type[e._Event]) -> list[Any]:
    return [event for _, event in history(server.store.read(run)) if isinstance(event, kind)]


def shot(page: Any, name: str) -> None:
    """A picture of what the window shows."""
    picture(page, name, whole=False)


def run_of(page: Any) -> str:
    """The run whose page it is."""
    name: str = page.url.split("/runs/")[1].partition("?")[0].partition("/")[0]
    return name


def is_live(page: Any) -> None:
    becomes(page, "document.getElementById('live-state').textContent === 'live'")


def drop_connections(server: Server) -> None:
    """All that browsers have with it."""

    async def close(protocol: Any) -> None:
        protocol.force_close()

    listening = server._runner.server
    assert listening is not None, "the server has begun"
    for protocol in list(listening.connections):
        server.call(close(protocol))
