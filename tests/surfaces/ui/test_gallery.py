"""Every page with everything on it: readable in light and dark, in wide and narrow windows, with
headings, landmarks and names, and without anything from elsewhere.

With `make pictures` they are kept in `test-artifacts/ui/gallery`, for people who look at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import anabranch.surfaces.ui
from anabranch.pools.backend import BackendAway, BackendUnfit
from pools.scripted import Script, use_scripts
from shared_store import PARTITIONS, fresh_schema

from ..cli.server_in_thread import served
from . import gallery, test_pools
from .parties import Market, market
from .plain import PlainPage
from .support import PICTURES, TWO_FRAMES, Server, chosen, picture
from .test_accessible import CONTRAST, STRUCTURE
from .test_guard import Locked
from .test_pages import NAMELESS, OUTSIDE, OVERLAPS
from .test_sign_in import sign_in

#: In this order a visit changes the size of its window as seldom as can be.
FORMS = {
    "light": (1280, 900),
    "dark": (1280, 900),
    "400-dark": (400, 844),
    "400": (400, 844),
    "320": (320, 640),
    "320-dark": (320, 640),
}
#: Where no pictures are made: either size and either scheme once. What can be read at 320 can be
#: read at 400, since no style begins between them; and no colour depends on the size.
LOOKED_AT = ("light", "320-dark")

#: Words that are cut in the middle because their box does not grow, outside of boxes that scroll
#: or that end in an ellipsis.
CUT = """() => [...document.querySelectorAll('main *, dialog[open] *')]
  .filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && one.clientWidth)
  .filter(one => {
    const style = getComputedStyle(one);
    return style.overflowX === 'hidden' && style.textOverflow !== 'ellipsis'
      && !one.closest('.unseen, svg, .skip, .timeline, .graph, .gutter')
      && one.childNodes.length && [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  }).map(one => one.outerHTML.slice(0, 120))"""

#: In a narrow window a table is a list, and the name of a column stands beside its value: those
#: that do not fit there.
NAMES = """() => {
  const pen = document.createElement('canvas').getContext('2d');
  const wide = [...document.querySelectorAll('.table-wrap td[data-label]')].filter(one => {
    const style = getComputedStyle(one, '::before');
    if (style.position !== 'absolute' || !one.checkVisibility()) return false;
    pen.font = style.font;
    return pen.measureText(one.dataset.label).width > parseFloat(getComputedStyle(one).paddingLeft);
  });
  return [...new Set(wide.map(one => one.dataset.label))];
}"""


#: Once a visit: headings, landmarks and names, whatever the size and the colours.
NAMED = f"() => ({{structure: ({STRUCTURE})(), nameless: ({NAMELESS})()}})"
#: Once for each size, as soon as it is laid out.
FITS = f"""async () => {{
  await ({TWO_FRAMES})();
  const open = document.querySelector('dialog[open]');
  return {{outside: ({OUTSIDE})(), overlaps: open ? [] : ({OVERLAPS})(), cut: ({CUT})(),
    names: ({NAMES})()}};  // a dialog lies on the page
}}"""


def look(page: Any, name: str) -> None:
    """In all forms, at one visit: a picture of each, and what a picture must not show."""
    wrong: dict[str, Any] = {}
    size = scheme = None
    for form, (width, height) in FORMS.items():
        if form not in LOOKED_AT and not PICTURES:
            continue
        if scheme != (scheme := "dark" if "dark" in form else "light"):
            page.emulate_media(color_scheme=scheme)
        found: dict[str, Any] = {}
        if size != (width, height):
            page.set_viewport_size({"width": width, "height": height})
            found |= page.evaluate(FITS)
            size = (width, height)
        if form == "light":
            found |= page.evaluate(NAMED)
        contrast = page.evaluate(CONTRAST)
        found |= {"faint": contrast["bad"], "unread": contrast["looked"] <= 8}
        picture(page, f"gallery/{name}.{form}", whole=page.locator("dialog[open]").count() == 0)
        wrong |= {f"{form} {kind}": what for kind, what in found.items() if what}
    assert wrong == {}


def test_below_400_pixels_no_style_begins() -> None:
    """What can be read at 320 can be read at 400, too, where only pictures are made."""
    folder = Path(anabranch.surfaces.ui.__file__).parent / "static"
    widths = [
        (sheet.name, int(width))
        for sheet in folder.glob("*.css")
        for width in re.findall(r"-width:\s*(\d+)px\s*\)", sheet.read_text())
    ]
    assert len(widths) > 5
    assert [one for one in widths if one[1] <= 400] == []


@contextmanager
def asks_only(page: Any, url: str) -> Iterator[None]:
    """Nothing that a page loads comes from elsewhere."""
    asked: list[str] = []

    def note(request: Any) -> None:
        asked.append(request.url)

    page.on("request", note)
    yield
    page.remove_listener("request", note)
    assert asked
    assert [one for one in asked if not one.startswith(f"{url}/")] == []


@pytest.fixture(scope="module")
def people() -> Iterator[Market]:
    with market() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, people: Market) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("gallery")), people.book()) as running:
        yield running


@pytest.fixture(scope="module")
def runs(server: Server, people: Market) -> dict[str, str]:
    return gallery.fill(server, people)


@pytest.mark.parametrize("name", chosen(gallery.PAGES, gallery.ALIKE))
def test_a_page_with_everything_on_it_can_be_read_in_every_form(
    page: Any, server: Server, runs: dict[str, str], name: str
) -> None:
    with asks_only(page, server.url):
        page.goto(gallery.PAGES[name].format(**runs))
        gallery.arrange(page, name)
        look(page, name)
        assert page.evaluate("document.fonts.status") == "loaded"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("fresh"))) as running:
        yield running


@pytest.mark.parametrize("name", chosen(gallery.EMPTY, gallery.ALIKE))
def test_a_page_with_nothing_on_it_can_be_read_in_every_form(
    page: Any, fresh: Server, name: str
) -> None:
    page.goto(fresh.url + gallery.EMPTY[name])
    look(page, name)


def test_a_page_with_nothing_on_it_says_what_it_is_for(fresh: Server) -> None:
    plain, silent = PlainPage(fresh.url), []
    for name, address in gallery.EMPTY.items():
        plain.goto(address)
        if plain.locator("main").inner_text().strip().count(" ") <= 2:
            silent.append(name)
    assert silent == []


def test_the_pages_of_a_cluster_can_be_read_in_every_form(browser: Any, postgres: str) -> None:
    place = fresh_schema(postgres)
    with (
        served(place, store_partitions=PARTITIONS) as first,
        served(place, store_partitions=PARTITIONS),
    ):
        page = browser.new_page(base_url=first.url, reduced_motion="reduce")
        page.goto("/cluster")
        page.get_by_role("heading", name="2 servers").wait_for()
        page.get_by_text("All of them").click()
        look(page, "cluster")
        page.goto("/overview")
        look(page, "cluster-overview")
        page.close()


def test_the_page_of_pools_on_compute_clusters_can_be_read_in_every_form(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        known = use_scripts(patch)
        known |= {"heavy": Script(slots=2, workers=2), "far": Script(), "gpu": Script()}
        known["far"].refuses = BackendAway("the scheduler at hpc.internal:8786 does not answer")
        known["gpu"].refuses = BackendUnfit("node-3 has Python 3.12.4, the engine has 3.11.9")
        with served(tmp_path_factory.mktemp("pools") / "runs.db", pools=test_pools.POOLS) as server:
            page = browser.new_page(base_url=server.url, reduced_motion="reduce")
            for text in (test_pools.LOOP, test_pools.STEP, test_pools.WAITS):
                test_pools.begun(page, server, text)
            backend = known["heavy"].backend
            assert backend is not None
            test_pools.given(backend, "frames", 2)
            page.goto("/pools")
            page.get_by_text("does not answer").first.wait_for()
            look(page, "pools-on-clusters")
            page.goto("/overview")
            look(page, "pools-overview")
            page.close()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Locked]:
    running = Locked(tmp_path)
    yield running
    running.stop()


def test_a_server_that_needs_a_token_can_be_read_in_every_form(
    browser: Any, locked: Locked
) -> None:
    page = browser.new_page(base_url=locked.url, reduced_motion="reduce")
    page.goto("/runs")
    look(page, "login-needed")
    sign_in(page, "anb_wrong")
    page.get_by_role("alert").wait_for()
    look(page, "login-refused")
    sign_in(page, locked.token("kim of the northern branches", "read"))
    page.locator("h1", has_text="Runs").wait_for()
    look(page, "signed-in")
    page.close()
