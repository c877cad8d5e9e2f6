"""Names that are too long break between their words, and a legend has one entry for a colour."""

from __future__ import annotations

from anabranch.operations.overview.overview import Slot
from anabranch.surfaces.ui.views.formatting import breakable
from anabranch.surfaces.ui.views.histograms import histogram_of


def test_a_name_may_break_after_what_joins_its_words() -> None:
    assert breakable("load_all/of-it") == "load_<wbr>all/<wbr>of-<wbr>it"
    assert breakable("plain") == "plain"
    assert breakable("_end_") == "_<wbr>end_"


def test_a_name_that_looks_like_markup_is_text() -> None:
    assert breakable("<b>/x&y") == "&lt;b&gt;/<wbr>x&amp;y"


def test_statuses_of_one_colour_share_an_entry_of_the_legend() -> None:
    counted = {"paused": 1, "waiting": 2, "step_timeout": 1, "failed": 1, "completed": 4}
    found = histogram_of([Slot(at=60_000, statuses=counted)], 1000, lambda _from, _to: "/runs")
    assert found.looks == [
        ("waiting, paused", "waiting"),
        ("completed", "done"),
        ("failed, step timeout", "failed"),
    ]
    assert found.bars[0].words.startswith("1970-01-01 00:01 UTC: ")
