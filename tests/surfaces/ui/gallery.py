"""A server with everything on its pages, for tests that look at each of them and for people who do.

Names and texts are those of everyday use, some of them long. `PAGES` has the addresses, `fill`
makes the runs that they name, and `arrange` opens what a person opens there (a drawer, a dialog).
"""

from __future__ import annotations

from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.operations.access.credentials import CredentialChange, CredentialDraft
from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.overview.views import Views
from anabranch.operations.schedules.schedules import ScheduleDraft
from anabranch.operations.triggers.triggers import (
    AfterDraft,
    HookDraft,
    SignalDraft,
    TriggerDraft,
)
from anabranch.runtime.jobs.pool_queues import WorkerReport

from .parties import EXAMPLES, Market, solicit
from .scenes import FAILING, HANDLED, NAMED, THREE, sleeping
from .support import (
    ASKED,
    HELD,
    LOOP,
    OPINIONS,
    RULES,
    TWO_STEPS,
    Server,
    eventually,
    long_net,
)
from .test_definitions import BROKEN, FORMS
from .test_joins import CHAINED, FULFILMENT, MEETING
from .test_signals import WAITING
from .test_timeline_folds import PATIENT

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
LONG_NAME = "reconcile_payments_of_the_northern_branches"

#: Prints in every way, at every level, and then fails with a traceback.
TALKS = f"""{HEAD}metadata: {{name: {LONG_NAME}, description: Every night.}}
workload: {{account: "CH93 0076 2011 6238 5295 7", amounts: [1250, 99.5, 3]}}
workflow:
  - step: fetch_statement
    desc: Fetch the statement of the account
    tool:
      kind: python
      args: {{amounts: "{{{{ workload.amounts }}}}"}}
      code: |
        import logging, sys
        logging.getLogger().setLevel(logging.DEBUG)
        print("statement of 2026-11-16 with", len(amounts), "lines")
        logging.debug("asked https://bank.example/statements?account=CH93&page=1")
        logging.info("the page has " + "a rather long line, which goes on and on " * 6)
        logging.warning("line 3 has no reference")
        print("balance differs by 0.01", file=sys.stderr)
        result = {{"lines": len(amounts), "sum": sum(amounts), "amounts": amounts}}
    next: {{arcs: [{{step: match_lines}}]}}
  - step: match_lines
    desc: Match every line with an invoice
    spec: {{retry: {{attempts: 3, delay: 1ms}}}}
    tool:
      kind: python
      args: {{found: "{{{{ fetch_statement }}}}"}}
      code: |
        import logging
        logging.error("no invoice for the line over 99.50 CHF")
        invoices = {{1250: "R-1", 3: "R-3"}}
        result = [invoices[one] for one in found["amounts"]]
    next: {{arcs: [{{step: report, when: "{{{{ event.name == 'step.done' }}}}"}}]}}
  - step: report
    tool: {{kind: noop}}
"""

#: At most one run of a customer at a time.
LIMITED = f"""{HEAD}metadata: {{name: invoice_customer}}
concurrency: {{key: "{{{{ input.customer }}}}", limit: 1, when_full: queue}}
workload: {{customer: acme}}
workflow:
  - step: send
    tool: {{kind: wait_at, args: {{door: never}}}}
"""

CATALOG = f"""{HEAD}metadata: {{name: NAME, path: NAME}}
workload: {{order: "VERSION"}}
workflow:
- step: only
  tool: {{kind: noop}}
"""

POOLED = TWO_STEPS.replace("step: dig\n", "step: dig\n    spec: {pool: gpu}\n")
THOUSANDS = LOOP.replace("shard_size: 10,", "shard_size: 200,")


def fill(server: Server, people: Market) -> dict[str, str]:
    """Bring everything onto the pages; the runs of their addresses."""
    people.open("north", "south", "west", "odd", "publication.verify")
    _keep(server)
    _schedule(server)
    _trigger(server)
    _work(server)
    return {
        **_runs(server),
        **_orchestrations(server),
        **_asked(server, people),
        **_loops(server),
        **_kept(server),
    }


def _draft(name: str, version: int = 1) -> Draft:
    return Draft(CATALOG.replace("NAME", name).replace("VERSION", str(version)), name)


def _keep(server: Server) -> None:
    """Credentials, paths of the catalog and saved views."""
    kept, now = server.parts.credentials, server.parts.engine.clock.now()
    data = {"host": "db.example", "user": "ledger", "password": "not-shown"}
    about = "The ledger, read only; ask the data team before you rotate it"
    kept.add(
        CredentialDraft(name="ledger_db", type="postgres", data=data, description=about), "ann"
    )
    kept.add(CredentialDraft(name="shop", type="secret", data="not-shown"), "ann")
    kept.rotate("shop", CredentialChange(data="not-shown-either"), "bob")
    catalog = server.parts.catalog
    catalog.register([_draft("orders/quotes"), _draft("reports/nightly")], now, "ann")
    catalog.register([_draft("orders/quotes", 2)], now + 1, "bob")
    views = Views(server.store)
    views.save("Broken last night", "status=failed&age=24h", "ann", now)
    views.save("Everything of the team for the northern branches", "label=team%3Dnorth", "bob", now)


def _schedule(server: Server) -> None:
    add, path = server.parts.scheduling.schedules.add, "reports/nightly"
    add(ScheduleDraft(name="nightly", path=path, cron="0 3 * * *", timezone="Europe/Berlin"))
    add(ScheduleDraft(name="hourly_for_the_northern_branches", path=path, every="1h", paused=True,
                      overlap="queue", jitter="30s"))  # fmt: skip
    add(ScheduleDraft(name="once", path=path, at="2127-01-01T00:00:00Z", labels={"year": "2127"}))
    server.parts.scheduling.schedules.run_now("nightly")
    assert eventually(lambda: server.parts.scheduling.schedules.show("nightly").fired == 1)


def _trigger(server: Server) -> None:
    aliases, add = server.parts.triggering.aliases, server.parts.triggering.triggers.add
    aliases.set("prod", "orders/quotes@1", "ann")
    aliases.set("prod", "orders/quotes@2", "bob")
    after = AfterDraft(definition="reports/nightly", labels={"tenant": "north"})
    add(TriggerDraft(name="paid", hook=HookDraft(credential="shop"), path="prod"))
    add(TriggerDraft(name="report_after_load", after=after, path="orders/quotes", paused=True))
    to_run = SignalDraft(name="paid", labels={"order": "{{ body.order }}"})
    add(TriggerDraft(name="tell_the_order", hook=HookDraft(auth="token"), signal=to_run))


def _work(server: Server) -> None:
    """Workers: one at work, one idle, and a queue."""
    about = WorkerReport(host="build-7.example", pid=4711, version="0.1.0", places=4,
                         kinds=["noop", "python", "shell", "http"])  # fmt: skip
    server.start(POOLED, labels={"team": "north"})
    server.start(POOLED)
    claim = server.parts.pools.claim
    server.call(claim("gpu", "build-7-4711", wait_seconds=5, lease_seconds=3600, about=about))
    server.call(claim("small", "laptop-of-kim", about=WorkerReport(host="laptop", pid=12)))


def _runs(server: Server) -> dict[str, str]:
    """Playbooks in every state, and the pages of one run."""
    north = {"team": "north", "ticket": "https://tracker.example/browse/PAY-4711"}
    failed = server.run(TALKS, labels=north)
    server.steps.open("first")
    atwork = server.start(TWO_STEPS, {"first": "first", "second": "never"}, labels=north)
    asked = server.run(ASKED)
    for text in (HELD, NAMED, HANDLED):
        server.run(text)
    paused = server.start(THREE)
    server.call(server.parts.verbs.send(paused, s.Pause("kim", "the bank is closed")))
    cancelled = server.start(THREE)
    server.call(server.parts.verbs.send(cancelled, s.Cancel("kim", "a wrong account")))
    signal = server.start(WAITING, {})
    limited = [server.start(LIMITED) for _ in range(3)]
    folded = server.run(PATIENT)
    long = server.run(long_net(60))
    queued = server.start(POOLED)
    brief = server.run(FAILING)
    return {
        "failed": failed,
        "atwork": atwork,
        "asked": asked,
        "paused": paused,
        "cancelled": cancelled,
        "signal": signal,
        "limited": limited[-1],
        "folded": folded,
        "long": long,
        "queued": queued,
        "brief": brief,
    }


def _orchestrations(server: Server) -> dict[str, str]:
    owner = {"owner": "0x" + "a1" * 20}
    done = server.run(OPINIONS, {"amount": 5}, rules=RULES, labels=owner)
    wrong = server.run(OPINIONS, {"other": 5}, rules=RULES, labels=owner)
    asleep = sleeping(server)
    slow = {**RULES, "C": {**RULES["C"], "onValid": {"waitSec": 600}}, "D": RULES["A"]}
    half = server.start(CHAINED, {"amount": 5}, rules=slow, labels=owner)
    assert eventually(lambda: server.parts.engine.state(half).phases.get("sleeping"))
    return {
        "half": half,
        "done": done,
        "wrong": wrong,
        "asleep": asleep,
    }


def _asked(server: Server, people: Market) -> dict[str, str]:
    names = ("north", "south", "west", "odd", "away")
    best = server.run(solicit(*names, policy="best_of", name="cheapest_summary"))
    waiting = server.start(solicit("north", "east", "away", policy="best_of", name="still_asking"))
    people.says("publication.verify", {"ok": False})
    judged = server.run(solicit("north", policy="any_one", fulfillment=FULFILMENT))
    barrier = server.start(MEETING)
    retry = {"timeout": "PT10M", "retry": {"max_attempts": 2, "backoff": "PT0.1S"}}
    rounds = server.run(solicit("west", "away", policy="any_one", timing=retry))
    assert eventually(lambda: server.parts.engine.state(barrier).gathers)
    assert eventually(lambda: len(server.parts.engine.state(waiting).jobs) == 1)
    return {
        "best": best,
        "waiting": waiting,
        "judged": judged,
        "barrier": barrier,
        "rounds": rounds,
    }


def _loops(server: Server) -> dict[str, str]:
    many = server.run(THOUSANDS, {"count": 2_000, "error": "the item has no address"})
    open_loop = server.start(LOOP, {"count": 500, "door": "never"})
    return {
        "many": many,
        "open_loop": open_loop,
    }


def _kept(server: Server) -> dict[str, str]:
    kept = server.store.head(server.run(FORMS))
    assert kept is not None
    return {
        "kept": kept.definition,
    }


#: Pages by name; in braces the runs that `fill` makes.
PAGES = {
    "run-failed": "/runs/{failed}",
    "run-failed-timeline": "/runs/{failed}/timeline",
    "run-failed-logs": "/runs/{failed}/logs",
    "run-failed-logs-errors": "/runs/{failed}/logs?level=error",
    "run-failed-logs-none": "/runs/{failed}/logs?search=nowhere",
    "run-failed-events": "/runs/{failed}/events",
    "run-failed-data": "/runs/{failed}/data",
    "run-failed-definition": "/runs/{failed}/definition",
    "run-failed-redrive": "/runs/{failed}/redrive",
    "run-failed-joins": "/runs/{failed}/joins",
    "step-failed": "/runs/{failed}/steps/match_lines",
    "step-done": "/runs/{failed}/steps/fetch_statement",
    "step-not-run": "/runs/{failed}/steps/report",
    "drawer": "/runs/{failed}",
    "drawer-timeline": "/runs/{brief}/timeline",
    "run-at-work": "/runs/{atwork}",
    "run-asked": "/runs/{asked}",
    "step-asked": "/runs/{asked}/steps/approve",
    "run-paused": "/runs/{paused}",
    "run-cancelled": "/runs/{cancelled}",
    "run-signal": "/runs/{signal}",
    "run-signal-data": "/runs/{signal}/data",
    "run-queued-by-limit": "/runs/{limited}",
    "run-queued-in-pool": "/runs/{queued}",
    "step-queued": "/runs/{queued}/steps/dig",
    "timeline-folded": "/runs/{folded}/timeline",
    "run-long": "/runs/{long}",
    "xrc-done": "/runs/{done}",
    "xrc-joins": "/runs/{done}/joins",
    "xrc-half-joined": "/runs/{half}/joins",
    "xrc-receipts": "/runs/{done}/receipts",
    "xrc-problem": "/runs/{wrong}",
    "xrc-asleep": "/runs/{asleep}",
    "xrc-asleep-joins": "/runs/{asleep}/joins",
    "xrc-asleep-timeline": "/runs/{asleep}/timeline",
    "step-rule": "/runs/{done}/steps/B",
    "step-asleep": "/runs/{asleep}/steps/A",
    "sessions": "/sessions",
    "sessions-none": "/sessions?owner=nobody",
    "sessions-waker": "/sessions?waker=0x" + "c3" * 20,
    "arca-run": "/runs/{best}",
    "arca-joins": "/runs/{best}/joins",
    "arca-rounds": "/runs/{rounds}/joins",
    "arca-asked": "/runs/{best}/dispatches",
    "asked-nobody": "/runs/{brief}/dispatches",
    "arca-timeline": "/runs/{best}/timeline",
    "arca-waiting": "/runs/{waiting}",
    "arca-waiting-joins": "/runs/{waiting}/joins",
    "arca-judged": "/runs/{judged}/joins",
    "barrier-joins": "/runs/{barrier}/joins",
    "loop": "/runs/{many}",
    "loop-panel": "/runs/{many}/loops/each",
    "loop-failed-items": "/runs/{many}/loops/each?state=failed",
    "loop-shards": "/runs/{many}/timeline",
    "loop-step": "/runs/{many}/steps/each",
    "loop-open": "/runs/{open_loop}/loops/each",
    "overview": "/overview",
    "overview-hour": "/overview?window=1h",
    "runs": "/runs",
    "runs-filtered": "/runs?status=failed&status=waiting&dialect=noetl&from=2020-01-01T00:00",
    "runs-none": "/runs?name=nobody&label=team%3Dnobody",
    "runs-ticked": "/runs",
    "runs-many": "/runs",
    "approvals": "/approvals",
    "definitions": "/definitions",
    "definitions-problems": "/definitions",
    "definitions-none": "/definitions?name=nothing",
    "definitions-form": "/definitions?fingerprint={kept}",
    "definitions-form-wrong": "/definitions?fingerprint={kept}",
    "definitions-template": "/definitions",
    "definitions-versions": "/definitions?path=orders/quotes",
    "schedules": "/schedules",
    "triggers": "/triggers",
    "participants": "/participants",
    "participants-looked-at": "/participants",
    "credentials": "/credentials",
    "workers": "/workers",
    "pools": "/pools",
    "cluster-none": "/cluster",
    "login": "/login",
    "error-no-page": "/nowhere",
    "error-no-run": "/runs/01a0b0c0",
    "error-search": "/runs?search=" + "a+" * 9,
    "keys": "/runs",
    "confirm": "/runs?status=running",
}

#: Those whose parts other pages show as well, in the same template: `make soak` and
#: `make pictures` visit them, too.
ALIKE = {
    *("run-failed-logs-errors", "run-failed-logs-none", "run-failed-joins", "step-not-run"),
    *("step-asked", "step-queued", "step-asleep", "drawer-timeline", "run-cancelled"),
    *("run-signal-data", "run-queued-in-pool", "run-long", "xrc-problem", "xrc-asleep-joins"),
    *("xrc-asleep-timeline", "sessions-none", "sessions-waker", "asked-nobody", "arca-timeline"),
    *("arca-waiting", "arca-waiting-joins", "barrier-joins", "loop-failed-items", "loop-step"),
    *("loop-open", "overview-hour", "runs", "runs-none", "definitions", "definitions-none"),
    *("definitions-form", "participants", "cluster-none", "login", "error-no-run", "error-search"),
    *("run-failed-events", "run-failed-definition", "step-done", "run-paused", "run-signal"),
    *("run-queued-by-limit", "xrc-done", "xrc-asleep", "step-rule", "arca-run", "arca-rounds"),
    *("arca-judged", "loop", "runs-ticked", "definitions-problems", "definitions-form-wrong"),
    *("definitions-template", "participants-looked-at", "error-no-page", "keys"),
    *("empty-runs", "empty-approvals", "empty-schedules", "empty-triggers", "empty-participants"),
    *("empty-credentials", "empty-workers", "empty-pools", "empty-definitions", "empty-sessions"),
    *("timeline-folded", "arca-joins", "xrc-half-joined", "run-at-work", "runs-filtered", "pools"),
}

#: Pages of a server that has nothing yet.
EMPTY = {
    "empty-overview": "/overview",
    "empty-runs": "/runs",
    "empty-approvals": "/approvals",
    "empty-definitions": "/definitions",
    "empty-schedules": "/schedules",
    "empty-triggers": "/triggers",
    "empty-sessions": "/sessions",
    "empty-participants": "/participants",
    "empty-credentials": "/credentials",
    "empty-workers": "/workers",
    "empty-pools": "/pools",
}


def arrange(page: Any, name: str) -> None:
    """Open what a person opens on the page of this name."""
    do = _ARRANGED.get(name)
    if do is not None:
        do(page)
    if "timeline" in name or name == "loop-shards":
        page.locator("#timeline rect.seg").first.wait_for()


def _drawer(page: Any) -> None:
    page.locator("#steps tr[data-step=match_lines] a").click()
    page.locator("#drawer[open] #step-title").wait_for()


def _drawer_timeline(page: Any) -> None:
    page.locator("#timeline rect.seg").first.wait_for()
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#drawer[open] #step-title").wait_for()


def _shards(page: Any) -> None:
    page.get_by_role("button", name="Shards").click()
    page.locator("#timeline .lane-shard").first.wait_for()


def _many(page: Any) -> None:
    page.get_by_label("Tick all").check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("heading", name="Cancel").wait_for()


def _problems(page: Any) -> None:
    page.get_by_role("textbox", name="Text").fill(BROKEN)
    page.locator("#marks button").first.wait_for()


def _wrong_field(page: Any) -> None:
    page.get_by_label("list").fill("[1,")
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator(".field-error").wait_for()


def _unfold(page: Any) -> None:
    page.locator("#run .card summary").first.click()


def _template(page: Any) -> None:
    text = (EXAMPLES / "arca" / "template.json").read_text()
    page.get_by_role("textbox", name="Text").fill(text)
    page.get_by_label("text needed").wait_for()


def _look(page: Any) -> None:
    page.get_by_role("button", name="Look whether they are there").click()
    page.get_by_text("can be asked").wait_for()


def _confirm(page: Any) -> None:
    page.locator("table.runs tbody .who a").first.click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#confirm[open]").wait_for()


_ARRANGED: dict[str, Any] = {
    "drawer": _drawer,
    "drawer-timeline": _drawer_timeline,
    "loop-shards": _shards,
    "runs-ticked": lambda page: page.get_by_label("Tick all").check(),
    "runs-many": _many,
    "arca-rounds": lambda page: page.locator("details.earlier summary").first.click(),
    "arca-asked": _unfold,
    "xrc-receipts": _unfold,
    "definitions-problems": _problems,
    "definitions-form-wrong": _wrong_field,
    "definitions-template": _template,
    "participants-looked-at": _look,
    "keys": lambda page: page.keyboard.press("?"),
    "confirm": _confirm,
}
