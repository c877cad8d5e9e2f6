"""The colours of the sheet: every pair of text and ground can be read, in light and in dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SHEET = Path(__file__).parents[3] / "src/anabranch/surfaces/ui/static/anabranch.css"
NAMED = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
KINDS = ("plain", "active", "waiting", "done", "partial", "failed", "quiet")
#: Text on what it stands on.
TEXTS = [
    *((ink, ground) for ink in ("ink", "soft", "link") for ground in ("paper", "card", "shade")),
    *((f"{kind}-ink", f"{kind}-fill") for kind in KINDS),
    ("accent-ink", "accent"),
    *((f"{kind}-ink", "card") for kind in ("failed", "waiting", "done", "plain")),
]
#: What has to be seen without being read: bars, borders of badges, the ring of the focus.
SHAPES = [
    ("focus", "paper"),
    ("focus", "card"),
    *((f"{kind}-line", "card") for kind in KINDS if kind != "quiet"),
]


def colours(scheme: int) -> dict[str, str]:
    found = {name: pair[scheme] for name, *pair in NAMED.findall(SHEET.read_text())}
    assert len(found) > 30  # the sheet still writes them this way
    return found


def brightness(colour: str) -> float:
    """As WCAG counts it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXTS, 4.5), (SHAPES, 3.0)], ids=["text", "shapes"])
def test_every_colour_stands_out_from_its_ground(
    scheme: int, pairs: list[tuple[str, str]], least: float
) -> None:
    known = colours(scheme)
    faint = {
        f"{ink} on {ground}": round(contrast(known[ink], known[ground]), 2)
        for ink, ground in pairs
        if contrast(known[ink], known[ground]) < least
    }
    assert faint == {}


def test_the_contrast_of_black_on_white_is_twenty_one() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21.0
    assert contrast("#777777", "#ffffff") < 4.5
