"""The arrows of a story name what nodes really write; `--kill` says which process dies where."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.market.node.parts import all_families
from anabranch.store.ports import Batch
from anabranch.store.stream_ports import StreamCard, StreamCommit
from anabranch.surfaces.cli.commands.stories import arguments
from anabranch.surfaces.stories.arrows import ARROWS, BY_NAME, OF_SETUP, Arrow
from anabranch.surfaces.stories.kills import KillPoint, all_points, points_of, read_point
from anabranch.surfaces.stories.story006 import PROVIDERS_MAX, Story006
from anabranch.surfaces.stories.story009 import Story009

FAMILIES = {family.name: family for family in all_families()}


def batch(family: str, *events: dict[str, Any]) -> Batch:
    card = StreamCard(
        stream="s", family=family, seq=len(events), state=b"{}", created_at=0, updated_at=0
    )
    data = msgspec.json.encode(events)
    return Batch(streams=[StreamCommit(card=card, events=data, count=len(events), at=0)])


def tags(family: str) -> set[str]:
    """The kinds of events that a family of a node has."""
    (kinds,) = get_args(FAMILIES[family]._events.type)
    return {str(one.__struct_config__.tag) for one in get_args(kinds) or (kinds,)}


@pytest.mark.parametrize("arrow", ARROWS, ids=lambda arrow: arrow.name)
def test_an_arrow_is_an_event_that_its_family_has(arrow: Arrow) -> None:
    run = {"status": "completed", "steps": [{"status": "awaiting_fan_out"}]}
    done = {"status": "completed", "steps": [{"status": "completed"}]}
    found = {
        tag
        for tag in tags(arrow.family)
        for shown in (run, done)
        if arrow.is_in(batch(arrow.family, {"type": tag, "run": shown, "based_on": 0, "step": {}}))
    }
    assert found, "no event of the family is this arrow"
    assert not arrow.is_in(batch("another", *({"type": tag} for tag in found)))


def test_arrows_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(ARROWS)
    assert set(OF_SETUP) < set(BY_NAME)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("ordered", KillPoint(BY_NAME["ordered"], "after", "")),
        ("before:ordered", KillPoint(BY_NAME["ordered"], "before", "")),
        ("after:taken@south/dator", KillPoint(BY_NAME["taken"], "after", "south/dator")),
        ("sent@south", KillPoint(BY_NAME["sent"], "after", "south")),
    ],
)
def test_a_place_to_kill_is_an_arrow_a_side_of_it_and_a_process(
    text: str, point: KillPoint
) -> None:
    assert read_point(text) == point
    assert read_point(point.text) == point


@pytest.mark.parametrize(
    ("text", "said"),
    [("order", "ordered"), ("beside:ordered", "neither before nor after"), ("", "no")],
)
def test_a_place_that_is_none_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_point(text)


def test_all_places_are_both_sides_of_every_arrow_of_a_run_and_every_process_it_needs() -> None:
    points = list(all_points("buyer", "south"))
    assert len(set(points)) == len(points)
    assert {point.arrow.name for point in points} == set(BY_NAME) - set(OF_SETUP)
    assert {point.when for point in points} == {"before", "after"}
    processes = {point.process for point in points}
    assert processes == {"", "buyer/arca", "south/dator", "south/role", "south", "buyer"}
    assert points_of("all", 0, "buyer", "south") == points
    assert points_of("", 0, "buyer", "south") == []


def test_a_random_place_follows_from_its_seed() -> None:
    chosen = [points_of("random", seed, "buyer", "south") for seed in range(30)]
    assert chosen == [points_of("random", seed, "buyer", "south") for seed in range(30)]
    assert len({tuple(one) for one in chosen}) > 5


def test_the_command_line_knows_the_variants_and_limits_of_the_stories() -> None:
    assert {one.number: one.variants for one in (Story006, Story009)} == arguments.VARIANTS
    assert arguments.PROVIDERS_MAX == PROVIDERS_MAX


@pytest.mark.parametrize("providers", [1, 2, 3, 7])
def test_the_order_of_story_006_goes_to_the_cheapest_provider(providers: int) -> None:
    story = Story006(providers=providers)
    prices = {plan.name: plan.offers[0].amount for plan in story.plans() if plan.offers}
    assert len(prices) == providers == len(set(prices.values()))
    assert prices[story.provider] == story.price == min(prices.values())
