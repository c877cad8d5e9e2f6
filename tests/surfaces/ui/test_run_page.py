"""One run in the browser: the graph moves, and it says why it waits."""

from __future__ import annotations

from typing import Any

import pytest

from .plain import PlainPage
from .scenes import THREE, drop_connections, is_live, shot, sleeping
from .support import OPINIONS, RULES, TWO_STEPS, Server, becomes, eventually, long_net

LOOK = "document.querySelector('g.anb-box[data-step={step}]').classList.contains('anb-{look}')"
TOKENS = "document.querySelector('g.anb-box[data-step={step}]').dataset.tokens"
TAKEN = "[...document.querySelectorAll('g.anb-taken')].map(x => x.dataset.from + x.dataset.to)"


def looks(page: Any, step: str, look: str) -> None:
    becomes(page, LOOK.format(step=step, look=look))


def test_the_graph_moves_while_the_run_runs_without_a_reload_or_a_new_layout(
    page: Any, server: Server
) -> None:
    run = server.start(TWO_STEPS, {"first": "g1", "second": "g2"})
    page.goto(f"/runs/{run}")
    looks(page, "dig", "active")
    looks(page, "fill", "plain")
    page.evaluate("window.stayed = document.querySelector('#graph g.anb-box[data-step=fill] rect')")
    place = page.evaluate("[stayed.getAttribute('x'), stayed.getAttribute('y')]")
    shot(page, "graph-1")
    server.steps.open("g1")
    looks(page, "dig", "done")
    looks(page, "fill", "active")
    shot(page, "graph-2")
    server.steps.open("g2")
    looks(page, "fill", "done")
    shot(page, "graph-3")
    assert page.locator("#status .badge").inner_text() == "completed"
    assert page.locator("#said").inner_text() == "The run is completed."  # for screen readers
    assert page.locator("#steps tr[data-step=fill] .badge").inner_text() == "done"
    assert page.evaluate("stayed.isConnected")
    assert page.evaluate("[stayed.getAttribute('x'), stayed.getAttribute('y')]") == place
    assert page.locator("#why-section").is_hidden()
    assert page.get_by_role("button", name="Redrive").is_hidden()  # nothing failed


def test_tokens_stand_at_their_steps_and_the_ways_they_took_are_drawn(
    page: Any, server: Server
) -> None:
    run = server.start(THREE, {"name": "tok"})
    assert eventually(lambda: len(server.parts.engine.state(run).jobs) == 3)
    page.goto(f"/runs/{run}")
    for step in ("one", "two", "three"):
        becomes(page, f"{TOKENS.format(step=step)} === '1'")
        assert "● 1" in page.locator(f"g.anb-box[data-step={step}]").text_content()
    becomes(page, f"{TAKEN}.sort().join() === 'beginone,beginthree,begintwo'")
    server.steps.open("tok2")
    becomes(page, f"{TOKENS.format(step='two')} === '0'")
    becomes(page, f"{TAKEN}.includes('twogather')")
    looks(page, "gather", "waiting")
    assert page.locator("#steps tr[data-step=gather] [data-here]").inner_text() == "1"
    shot(page, "graph-tokens")
    server.steps.open("tok1")
    server.steps.open("tok3")
    looks(page, "gather", "done")
    becomes(page, f"{TAKEN}.length === 6")
    becomes(page, f"{TOKENS.format(step='gather')} === '0'")


LAST = 3


def chain(doors: str) -> str:
    """Steps one after the other, each behind a door of its own."""
    steps = [
        f"  - step: s{number}\n    tool: {{kind: wait_at, args: {{door: {doors}-{number}}}}}\n"
        + (f"    next: {{arcs: [{{step: s{number + 1}}}]}}\n" if number < LAST else "")
        for number in range(LAST + 1)
    ]
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: chain}\nworkflow:\n"
    return head + "".join(steps)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_dot_goes_along_with_a_token_unless_people_want_no_motion(
    page: Any, server: Server, motion: str
) -> None:
    run = server.start(chain(motion))
    page.emulate_media(reduced_motion=motion)
    page.goto(f"/runs/{run}")
    is_live(page)
    looks(page, "s0", "active")
    page.evaluate(
        """() => { window.dots = 0; new MutationObserver(all => { for (const one of all)
        for (const node of one.addedNodes) if (node.classList?.contains('anb-token')) dots += 1; })
        .observe(document.querySelector('svg.anb-graph'), {childList: true}); }"""
    )
    for number in range(LAST + 1):
        server.steps.open(f"{motion}-{number}")
        looks(page, f"s{number}", "done")
    becomes(page, f"{TAKEN}.length === {LAST}")
    if motion == "no-preference":  # a way that a connection begins with has none
        becomes(page, "dots > 0")
    else:
        assert page.evaluate("dots") == 0


def test_a_join_is_drawn_with_its_rule_and_its_scope_and_says_when_it_closed(
    page: Any, server: Server
) -> None:
    run = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    page.goto(f"/runs/{run}")
    becomes(page, "document.querySelector('.anb-join text').textContent.includes('✓')")
    assert "2 of 3" in page.locator(".anb-join").text_content()
    assert "ORDER: 2 of 3 · kill" in page.locator(".anb-title").text_content()
    inside = """() => {
      const frame = document.querySelector('.anb-frame rect').getBoundingClientRect();
      return ['A', 'B', 'C', 'ORDER', 'DONE'].filter(name => {
        const box = document.querySelector(`g.anb-box[data-step=${name}] rect`)
          .getBoundingClientRect();
        return box.top >= frame.top && box.bottom <= frame.bottom && box.left >= frame.left
          && box.right <= frame.right; }); }"""
    assert page.evaluate(inside) == ["A", "B", "C"]  # the scope is a box around its members


def test_a_join_fills_before_ones_eyes_when_sleepers_are_woken(page: Any, server: Server) -> None:
    run = sleeping(server)
    page.goto(f"/runs/{run}")
    join = "document.querySelector('.anb-join text').textContent"
    becomes(page, f"{join} === '0 in, 2 of 3'")
    waits = page.locator("[data-part=waits]")
    assert waits.get_by_role("button", name="Wake A now").count() == 1
    waits.get_by_role("button", name="Wake A now").click()
    page.locator("#confirm").get_by_role("button", name="Yes, wake it").click()
    page.get_by_text("Woken: it continues now.").wait_for()
    becomes(page, f"{join} === '1 in, 2 of 3'")
    becomes(page, f"{TAKEN}.some(way => way.startsWith('A2 of 3'))")
    shot(page, "join-1-of-3")
    waits.get_by_role("button", name="Wake C now").click()
    page.locator("#confirm").get_by_role("button", name="Yes, wake it").click()
    becomes(page, f"{join} === '2 of 3 ✓'")
    waits.get_by_role("button", name="Wake DONE now").click()  # it follows the order, too
    page.locator("#confirm").get_by_role("button", name="Yes, wake it").click()
    looks(page, "DONE", "done")
    assert server.wait(run).status == "completed"


def test_why_it_waits_is_on_every_page_of_an_unfinished_run(
    plain: PlainPage, server: Server
) -> None:
    run = server.start(TWO_STEPS, {"first": "why", "second": "why"})
    assert eventually(lambda: server.parts.engine.state(run).jobs)
    for way in ("", "/timeline", "/events", "/joins", "/data", "/definition"):
        plain.goto(f"/runs/{run}{way}")
        why = plain.locator("[data-part=waits]")
        assert "dig" in why.inner_text()
        assert "at work (attempt 1)" in why.inner_text()
    server.steps.open("why")


def test_a_large_net_opens_where_something_happens(page: Any, server: Server) -> None:
    text = long_net(80).replace(
        "- step: s60\n    tool: {kind: noop}",
        "- step: s60\n    tool: {kind: wait_at, args: {door: large}}",
    )
    run = server.start(text)
    assert eventually(lambda: "s60" in server.parts.engine.state(run).steps)
    page.goto(f"/runs/{run}")
    seen = """(name => {
      const box = document.querySelector(`g.anb-box[data-step=${name}] rect`);
      const [a, b] = [box, document.getElementById('graph')].map(x => x.getBoundingClientRect());
      return a.top >= b.top && a.bottom <= b.bottom; })"""
    becomes(page, f"{seen}('s60') && !{seen}('s0')")  # all of it can be seen before the script runs
    page.get_by_role("button", name="Whole").click()
    becomes(page, f"{seen}('s0') && {seen}('s79')")
    page.get_by_role("button", name="Where it is").click()
    becomes(page, f"{seen}('s60') && !{seen}('s0')")
    server.steps.open("large")


def test_the_connection_is_taken_up_again_and_the_page_says_so(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "net1", "second": "net2"})
    page.goto(f"/runs/{run}")
    is_live(page)
    page.context.set_offline(True)
    drop_connections(server)
    becomes(page, "document.getElementById('live-state').textContent.includes('not connected')")
    server.steps.open("net1")
    # A proxy answers for a server that is away: a browser left to itself would give up.
    page.route("**/live/**", lambda route: route.fulfill(status=503), times=1)
    page.context.set_offline(False)
    looks(page, "dig", "done")  # what was missed is told
    is_live(page)
    server.steps.open("net2")
    looks(page, "fill", "done")
