"""Drawings: the same picture in three forms, safe whatever the names are, and fast."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from anabranch.net.draw import dot, mermaid, svg
from anabranch.net.net import Admission, AdmitRule, Barrier, Decision, GatherRule, Net, Retry, Work
from anabranch.net.picture import guard_text, picture, shortened

from .support import joining, net, step

NASTY = '<script>alert("x")</script>&\'`|[]{}#;\\n'
SVG = "{http://www.w3.org/2000/svg}"
DRAWINGS: list[Callable[..., str]] = [mermaid, dot, svg]


def nested() -> Net:
    two_of_three = GatherRule(mode="quorum", k=2)
    return net(
        joining("A1", "B1 B2 B3", "J1", "B1 X1:valid B3", two_of_three),
        step("B1"),
        joining("B2", "C1 C2", "X1", "C1 C2", GatherRule(mode="any")),
        step("B3"),
        step("C1"),
        step("C2"),
        step("X1"),
        step("J1"),
    )


def texts(drawing: str) -> list[str]:
    """The words one sees; titles appear only under the pointer."""
    root = ET.fromstring(drawing)
    return [
        (node.text or "") + "".join(child.tail or "" for child in node)
        for node in root.iter(f"{SVG}text")
    ]


# -- what is shown ---------------------------------------------------------------------------


def test_steps_arrows_and_guards_are_shown_in_every_form() -> None:
    built = net(step("first", "second if ctx.ready", "third"), step("second"), step("third"))
    for draw in DRAWINGS:
        drawing = draw(built)
        for word in ("first", "second", "third", "else", "ctx.ready"):
            assert word in drawing


def test_entry_and_final_step_are_marked() -> None:
    built = net(step("a"), step("z"), final="z")
    assert 'n0(["a<br/>start · noop"])' in mermaid(built)
    assert 'n1[["z<br/>final · noop"]]' in mermaid(built)
    assert "penwidth=2" in dot(built)
    assert "peripheries=2" in dot(built)
    drawing = svg(built)
    assert drawing.count('class="anb-start"') == 1
    assert drawing.count('class="anb-inner"') == 1
    assert "at the end" in texts(drawing)


def test_details_say_what_may_hold_a_step_up() -> None:
    built = net(
        step("a", work=Work("python", retry=Retry(4)), timeout_ms=90_000),
        step("b", work=None, decision=Decision("?"), admission=Admission((AdmitRule(None, True),))),
        step("c", barrier=Barrier(), timeout_ms=250),
    )
    details = [box.detail for box in picture(built).boxes]
    assert details == [
        "python · ≤ 4 tries · ≤ 1.5 min",
        "decision · gate",
        "noop · joins all · ≤ 250 ms",
    ]


def test_joins_are_boxes_of_their_own_and_scopes_are_frames() -> None:
    shown = picture(nested())
    assert [box.title for box in shown.boxes if box.kind == "join"] == ["2 of 3", "1 of 2"]
    outer, inner = shown.frames
    assert inner.members < outer.members
    assert (outer.parent, inner.parent) == (None, 0)
    assert "subgraph s0" in mermaid(nested())
    assert "subgraph cluster_1" in dot(nested())
    assert svg(nested()).count('class="anb-frame"') == 2
    assert "2 of 3" in texts(svg(nested()))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (GatherRule(mode="all"), "all 2"),
        (GatherRule(mode="any"), "1 of 2"),
        (GatherRule(mode="best_of"), "best of 2"),
        (GatherRule(mode="quorum", k=2), "2 of 2"),
    ],
)
def test_joins_say_how_they_close(rule: GatherRule, words: str) -> None:
    built = net(joining("a", "b c", "j", "b c", rule), step("b"), step("c"), step("j"))
    assert words in texts(svg(built))


def test_a_run_is_coloured_and_says_so_in_words() -> None:
    built = net(step("a", "b"), step("b", "c"), step("c"))
    shown = picture(built, {"a": "done", "b": "deciding"}, {"a": 12})
    assert [box.look for box in shown.boxes] == ["done", "waiting", "plain"]
    drawing = svg(built, statuses={"a": "done", "b": "failed"}, counts={"a": 12, "b": 1})
    assert 'class="anb-box anb-done"' in drawing
    assert 'class="anb-box anb-failed"' in drawing
    assert {"×12", "done · noop", "failed · noop"} <= set(texts(drawing))
    assert "×1<" not in drawing
    assert "class n0 done" in mermaid(built, statuses={"a": "done"})
    assert "a ×12" in dot(built, statuses={}, counts={"a": 12})


def test_an_unknown_status_is_drawn_plain() -> None:
    assert picture(net(step("a")), {"a": "odd"}).boxes[0].look == "plain"


# -- safety ----------------------------------------------------------------------------------


def nasty() -> Net:
    guarded = step(NASTY, f"other if ctx.x == '{NASTY[:9]}'", description=NASTY)
    return net(guarded, step("other"), name=NASTY)


def test_svg_escapes_every_name() -> None:
    drawing = svg(nasty(), statuses={NASTY: NASTY})
    root = ET.fromstring(drawing)
    assert root.find(f".//{SVG}script") is None
    assert "<script" not in drawing
    names = [node.get("data-step") for node in root.iter(f"{SVG}g") if node.get("data-step")]
    assert names == [NASTY, "other"]


def test_svg_is_xml_even_with_control_characters() -> None:
    ET.fromstring(svg(net(step("a\x00\x1b\ud800b", description="\x07"))))


def test_mermaid_leaves_no_markup() -> None:
    for line in mermaid(nasty()).splitlines():
        label = re.search(r'"(.*)"', line)
        if label is not None:
            bare = label.group(1).replace("<br/>", "")
            assert not re.search(r"[<>\"'`&|\[\]{}\\]", bare)
            assert re.sub(r"#\d+;", "", bare).count("#") == 0


def test_dot_quotes_every_name() -> None:
    for line in dot(nasty()).splitlines():
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", line)
        assert "script" not in unquoted
        assert '"' not in unquoted


def test_long_names_and_guards_are_shortened_but_kept_as_titles() -> None:
    built = net(step("x" * 100, "y if " + "a and " * 30 + "b"), step("y"))
    drawing = svg(built)
    assert max(len(text) for text in texts(drawing)) <= 40
    titles = [node.text for node in ET.fromstring(drawing).iter(f"{SVG}title")]
    assert "x" * 100 in titles
    assert "a and " * 30 + "b" in titles


def test_words() -> None:
    assert guard_text("{{ a > 3 }}") == "a > 3"
    assert guard_text("{{ a }} and {{ b }}") == "{{ a }} and {{ b }}"
    assert shortened("a\n b", 9) == "a b"
    assert shortened("abcdef", 4) == "abc…"


# -- light, dark, size -----------------------------------------------------------------------


def test_svg_has_colours_for_light_and_dark() -> None:
    style = ET.fromstring(svg(net(step("a")))).find(f"{SVG}style")
    assert style is not None
    assert style.text is not None
    light, dark = style.text.split("@media(prefers-color-scheme:dark)")
    for look in ("plain", "active", "waiting", "done", "failed", "quiet"):
        assert f".anb-{look} rect" in light
        assert f".anb-{look} rect" in dark


@pytest.mark.soak
@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.parametrize("shape", ["chain", "fork", "dense"])
def test_five_hundred_steps_are_drawn_quickly(draw: Callable[..., str], shape: str) -> None:
    targets: dict[str, Callable[[int], list[str]]] = {
        "chain": lambda n: [f"s{n + 1}"] if n < 499 else [],
        "fork": lambda n: [f"s{m}" for m in range(1, 500)] if n == 0 else [],
        "dense": lambda n: [f"s{(n * 7 + m * 13 + 1) % 500}" for m in range(5)],
    }
    built = net(*[step(f"s{n}", "all", *targets[shape](n)) for n in range(500)])
    began = time.thread_time()
    assert "s499" in draw(built)
    assert time.thread_time() - began < 5


def test_arrows_to_unknown_steps_are_left_out() -> None:
    for draw in DRAWINGS:
        assert "nowhere" not in draw(net(step("a", "nowhere")))
