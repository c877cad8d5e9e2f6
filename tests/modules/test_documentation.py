"""docs/market.md, modules.md and offer-catalog.md say what the modules do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from anabranch.market.node.modules.api.run_shapes import RunStatus, StepStatus
from anabranch.market.node.orders.ingress import CHECKS, RETRYABLE
from anabranch.market.node.orders.machine import STATES
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.work.orders import INPUT_BYTES
from anabranch.modules.kit.entries import PORTS
from anabranch.surfaces.stories.story006 import Story006
from anabranch.surfaces.stories.story009 import Story009

DOCS = Path(__file__).parents[2] / "docs"
MARKET = (DOCS / "market.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    level = heading.partition(" ")[0]
    after = MARKET.partition(f"\n{heading}\n")[2]
    assert after, heading
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.M)[0]


def firsts(text: str) -> set[str]:
    """The names in the first column of its tables."""
    cells = re.findall(r"^\| (`[^|]*`) \|", text, re.M)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_setting_of_arca_stands_in_one_page_with_its_default() -> None:
    pages = (
        (DOCS / name).read_text(encoding="utf-8") for name in ("modules.md", "offer-catalog.md")
    )
    rows = {
        name: line
        for page in pages
        for line in page.splitlines()
        if re.match(r"\| `[a-z_]+`", line)
        for name in re.findall(r"`([a-z_]+)`", line.split(" | ")[0])
    }
    for field in msgspec.structs.fields(ArcaConfig):
        assert field.name in rows, field.name
        if isinstance(field.default, int):
            assert re.search(rf"\b{field.default}\b", rows[field.name]), field.name


def test_every_state_of_runs_and_steps_stands_there() -> None:
    assert firsts(section("### A run")) == set(get_args(RunStatus))
    assert firsts(section("### A step")) == set(get_args(StepStatus))


def test_every_state_of_an_order_and_every_class_stands_there() -> None:
    text = section("### An order")
    assert firsts(text) == set(STATES)
    listed = re.findall(r"`([a-z-]+)`", text.partition("in the order of its checks:")[2])
    names = [name for name, _ in CHECKS if name != "other-reason"]
    assert listed[: len(names)] == names
    assert set(listed[len(names) + 1 :]) == set(RETRYABLE)


def test_stories_ports_and_limits_are_those_of_the_code() -> None:
    text = section("## The stories")
    for story in (Story006, Story009):
        assert [name for name in story.variants if f"`{name}`" not in text] == []
    assert INPUT_BYTES == 1024 * 1024
    modules = (DOCS / "modules.md").read_text() + (DOCS / "dator.md").read_text()
    assert [name for name, port in PORTS.items() if str(port) not in modules] == []
