"""Nobody is left out: keys reach everything, screen readers find their way, texts can be read.

The measures of structure and of contrast are here; `test_gallery.py` applies them to every page.
"""

from __future__ import annotations

from typing import Any

import pytest

from .scenes import FAILING, is_live, sleeping
from .support import ASKED, LOOP, OPINIONS, RULES, TWO_STEPS, Server, becomes, chosen

PAGES = (
    *("runs", "run", "failed", "sleeping", "joined", "timeline", "events", "data", "definition"),
    *("step", "step failed", "drawer"),
    *("loop", "approvals", "pools", "many", "empty", "error", "overview"),
)
#: Those whose controls other pages have as well, in the same template.
ALIKE = {
    *("failed", "sleeping", "events", "definition", "step failed", "empty", "error", "joined"),
    *("data", "pools", "many", "step", "timeline"),
}


#: A step that no worker does.
POOLED = TWO_STEPS.replace("step: dig\n", "step: dig\n    spec: {pool: gpu}\n")


@pytest.fixture(scope="module")
def addresses(server: Server) -> dict[str, str]:
    server.steps.open("acc")
    failed = server.run(FAILING, labels={"team": "blue"})
    waiting = server.start(TWO_STEPS, {"first": "acc", "second": "never"})
    asked = server.run(ASKED)
    loop = server.run(LOOP, {"count": 60})
    joined = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    server.start(POOLED)
    return {
        "runs": "/runs",
        "run": f"/runs/{waiting}",
        "failed": f"/runs/{failed}",
        "sleeping": f"/runs/{sleeping(server)}",
        "joined": f"/runs/{joined}",
        "timeline": f"/runs/{failed}/timeline",
        "events": f"/runs/{failed}/events",
        "data": f"/runs/{asked}/data",
        "definition": f"/runs/{failed}/definition",
        "step": f"/runs/{asked}/steps/approve",
        "step failed": f"/runs/{failed}/steps/match",
        "drawer": f"/runs/{failed}",
        "loop": f"/runs/{loop}/loops/each",
        "approvals": "/approvals",
        "pools": "/pools",
        "many": "/runs",
        "empty": "/runs?name=nobody",
        "error": "/nowhere",
        "overview": "/overview",
    }


def open_page(page: Any, addresses: dict[str, str], name: str) -> None:
    page.goto(addresses[name])
    page.wait_for_load_state("load")
    if name == "many":
        page.get_by_label("Tick all").check()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("heading", name="Cancel").wait_for()
    if name == "drawer":
        page.locator("#steps tr[data-step=match] a").click()
        page.locator("#drawer[open] #step-title").wait_for()
    if name == "timeline":
        page.wait_for_selector("#timeline rect.seg")


#: The colour of a text against what is painted below it. Colours are asked of a canvas, so that any
#: way to write them is understood. Shapes of a drawing that lie below a text count, too.
CONTRAST = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const known = new Map();
  const rgba = text => {
    if (!known.has(text)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = '#000';
      pen.fillStyle = text;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], [r2, g2, b2]) =>
    [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const faded = ([r, g, b, a], part) => [r, g, b, a * part];
  const light = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const papers = new Map([[null, [255, 255, 255, 1]]]);
  const behind = element => {
    if (!papers.has(element)) papers.set(element,
      over(rgba(getComputedStyle(element).backgroundColor), behind(element.parentElement)));
    return papers.get(element);
  };
  const opacities = new Map([[null, 1]]);
  const opacity = element => {
    if (!opacities.has(element)) opacities.set(element,
      getComputedStyle(element).opacity * opacity(element.parentElement));
    return opacities.get(element);
  };
  const shapes = new Map();
  const painted = svg => {
    if (!shapes.has(svg)) shapes.set(svg, [...svg.querySelectorAll('rect')].map(shape => {
      const style = getComputedStyle(shape);
      const seen = shape.checkVisibility() && style.fill !== 'none'
        && !style.fill.startsWith('url');
      return seen && {shape, box: shape.getBoundingClientRect(),
        ink: faded(rgba(style.fill), style.opacity * style.fillOpacity)};
    }).filter(Boolean));
    return shapes.get(svg);
  };
  const under = (text, svg) => {
    const box = text.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    let paper = behind(svg);
    for (const {shape, box: r, ink} of painted(svg)) {
      if (x < r.left || x > r.right || y < r.top || y > r.bottom) continue;
      if (!(shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      paper = over(ink, paper);
    }
    return paper;
  };
  const bad = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility({opacityProperty: true})) continue;
    if (element.closest('script, style, title, option, .unseen, .skip, :disabled')
        || element.closest('dialog:not([open])')) continue;
    const svg = element.closest('svg');
    const style = getComputedStyle(element);
    const paper = svg ? under(element, svg) : behind(element);
    const ink = over(faded(rgba(svg ? style.fill : style.color), opacity(element)), paper);
    looked += 1;
    const found = ratio(ink, paper);
    if (found < 4.5) bad.push([node.data.trim().slice(0, 40), element.className.baseVal
      ?? element.className, Math.round(found * 100) / 100]);
  }
  for (const field of document.querySelectorAll('input[placeholder], textarea[placeholder]')) {
    if (!field.checkVisibility()) continue;
    const style = getComputedStyle(field, '::placeholder');
    const paper = behind(field);
    const found = ratio(over(faded(rgba(style.color), style.opacity), paper), paper);
    if (found < 4.5) bad.push([field.placeholder, 'placeholder', found]);
  }
  return {looked, bad};
}"""


def test_the_measure_of_contrast_notices_a_faint_text(page: Any) -> None:
    page.goto("/runs")
    page.evaluate("document.querySelector('h1').style.opacity = 0.35")
    assert [text for text, _, _ in page.evaluate(CONTRAST)["bad"]] == ["Runs"]


STRUCTURE = """() => {
  const wrong = [];
  const seen = one => one.checkVisibility({visibilityProperty: true});
  const heads = [...document.querySelectorAll('h1, h2, h3, h4')].filter(seen)
    .filter(one => !one.closest('dialog'));
  let before = 0;
  for (const head of heads) {
    const level = Number(head.tagName[1]);
    if (level > before + 1) wrong.push(`${head.tagName} after h${before}: ${head.textContent}`);
    before = level;
  }
  if (heads.filter(one => one.tagName === 'H1').length !== 1) wrong.push('not one h1');
  if (heads[0]?.tagName !== 'H1') wrong.push('the first heading is no h1');
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`twice: #${id}`);
  for (const name of ['aria-labelledby', 'aria-describedby', 'for', 'list']) {
    for (const one of document.querySelectorAll(`[${name}]`)) {
      for (const id of one.getAttribute(name).split(' '))
        if (!document.getElementById(id)) wrong.push(`${name} leads nowhere: ${id}`);
    }
  }
  for (const mark of ['header', 'nav[aria-label]', 'main', 'footer']) {
    if (!document.querySelector(mark)) wrong.push(`no ${mark}`);
  }
  for (const one of document.querySelectorAll('nav, section, aside, [role=group], article')) {
    if (seen(one) && !one.getAttribute('aria-label') && !one.getAttribute('aria-labelledby'))
      wrong.push(`nameless: ${one.outerHTML.slice(0, 80)}`);
  }
  for (const table of document.querySelectorAll('table')) {
    const head = table.tHead?.rows[0];
    if (head && [...head.cells].some(one => one.tagName !== 'TH')) wrong.push('a head of no heads');
    if (!head && !table.querySelector('th[scope=row]')) wrong.push('a table without heads');
  }
  for (const image of document.querySelectorAll('img')) {
    if (!image.hasAttribute('alt')) wrong.push('an image without words');
  }
  for (const svg of document.querySelectorAll('svg')) {
    const told = svg.getAttribute('aria-label') || svg.querySelector('title')
      || svg.getAttribute('aria-hidden');
    if (!told) wrong.push(`a drawing without words: ${svg.outerHTML.slice(0, 80)}`);
  }
  if (document.getElementById('said').getAttribute('aria-live') !== 'polite') wrong.push('silent');
  if (document.querySelector('[aria-live=assertive]')) wrong.push('it shouts');
  return wrong;
}"""


CONTROLS = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.disabled
    && one.type !== 'hidden' && !one.closest('dialog:not([open])')
    && (document.querySelector('dialog[open]')?.contains(one) ?? true))
  .map((one, at) => one.dataset.tab = String(at))"""

HERE = """() => {
  const one = document.activeElement;
  if (one === document.body || !one.dataset.tab) return null;
  const style = getComputedStyle(one);
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  const box = one.getBoundingClientRect();
  const inside = box.bottom > 0 && box.top < innerHeight;
  return {tab: one.dataset.tab, ring, inside, what: one.outerHTML.slice(0, 100)};
}"""


#: Nothing new comes in: parts that are drawn again in between would have to be counted again.
STILL = """window.EventSource = class { addEventListener() {} close() {} };
window.setInterval = () => 0;"""


@pytest.fixture(scope="module")
def still(context: Any) -> Any:
    page = context.new_page()
    page.add_init_script(STILL)
    return page


@pytest.mark.parametrize("name", chosen(PAGES, ALIKE))
def test_the_tab_key_reaches_every_control_and_shows_where_it_is(
    still: Any, addresses: dict[str, str], name: str
) -> None:
    page = still
    open_page(page, addresses, name)
    wanted = set(page.evaluate(CONTROLS))
    reached: set[str] = set()
    for _ in range(3 * len(wanted) + 20):  # a field for a date has several stops of its own
        page.keyboard.press("Tab")
        here = page.evaluate(HERE)
        if here is None:
            continue
        assert here["ring"], here
        assert here["inside"], here
        reached.add(here["tab"])
        if reached == wanted:
            break
    assert reached == wanted


def test_what_happens_is_said_politely_and_only_when_it_matters(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "say1", "second": "say2"})
    page.goto(f"/runs/{run}")
    is_live(page)
    page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(document.getElementById('said')"
        ".textContent)).observe(document.getElementById('said'), {childList: true})"
    )
    server.steps.open("say1")
    becomes(page, "document.querySelector('[data-step=fill]').dataset.status === 'running'")
    assert page.evaluate("heard") == []  # a step is not news to everybody
    server.steps.open("say2")
    becomes(page, "heard.join() === 'The run is completed.'")


def test_the_graph_has_a_table_that_says_the_same(page: Any, addresses: dict[str, str]) -> None:
    page.goto(addresses["failed"])
    becomes(page, "document.querySelector('[data-step=match]').dataset.status === 'failed'")
    drawn = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('g.anb-box')]"
        ".map(x => [x.dataset.step, x.dataset.status]))"
    )
    rows = page.locator("#steps tbody tr")
    table = {
        row.locator("td").nth(0).inner_text(): row.locator("td").nth(1).inner_text()
        for row in rows.all()
    }
    assert drawn == {"fetch": "done", "match": "failed", "report": ""}
    assert table == {"fetch": "done", "match": "failed", "report": "did not run"}
    assert "the table below has the same" in page.locator("#graph").get_attribute("aria-label")


def test_colour_is_never_the_only_sign(page: Any, addresses: dict[str, str]) -> None:
    page.goto(addresses["failed"])
    words = "document.querySelector('g[data-step=match] .anb-detail').textContent"
    becomes(page, f"{words}.startsWith('failed')")
    page.goto("/runs?status=failed")
    sign = page.evaluate(
        "getComputedStyle(document.querySelector('.counter[aria-current]'), '::before').content"
    )
    assert sign == '"✓"'
    page.goto(addresses["timeline"])
    page.wait_for_selector("#timeline rect.seg-bad")
    assert page.locator("#timeline .lane-failed").text_content().startswith("✗")
    empty = "[...document.querySelectorAll('.badge')].filter(one => !one.textContent.trim()).length"
    assert page.evaluate(empty) == 0


@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_nothing_moves_for_those_who_asked_for_that(
    page: Any, addresses: dict[str, str], motion: str, moves: bool
) -> None:
    page.emulate_media(reduced_motion=motion)
    page.goto(addresses["run"])
    takes = page.evaluate("parseFloat(getComputedStyle(document.querySelector('.badge'))"
                          ".transitionDuration)")  # fmt: skip
    assert bool(takes) is moves
    animated = "document.getAnimations().filter(one => one.playState === 'running').length"
    assert page.evaluate(animated) == 0 or moves
