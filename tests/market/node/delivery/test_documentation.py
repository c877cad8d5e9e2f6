"""The page about deliveries names every setting, status, failure class and endpoint there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from anabranch.market.documents.delivery import FAILURE_CLASSES, STATUSES
from anabranch.market.node.deferred.clamp import DeferredConfig
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.envelope import refused
from market.node.delivery.support import delivery_world

PAGE = (Path(__file__).parents[4] / "docs" / "deliveries.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("config", [DeliveryConfig, DeferredConfig])
def test_every_setting_is_on_the_page(config: type[msgspec.Struct]) -> None:
    settings = PAGE.partition("## Settings")[2]
    missing = [name for name in config.__struct_fields__ if f"`{name}`" not in settings]
    assert missing == []


@pytest.mark.parametrize("setting", DeliveryConfig.__struct_fields__)
def test_numbers_on_the_page_are_the_defaults(setting: str) -> None:
    default = getattr(DeliveryConfig(), setting)
    if not isinstance(default, int | float) or setting == "max_bytes":
        return
    settings = PAGE.partition("## Settings")[2].splitlines()
    row = next(line for line in settings if f"`{setting}`" in line)
    names = re.findall(r"`(\w+)`", row.split("|")[1])
    said = [text.strip() for text in row.split("|")[3].split(",")]
    assert float(said[names.index(setting)]) == default


def test_every_status_and_failure_class_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert set(STATUSES) <= set(rows)
    assert set(FAILURE_CLASSES) <= set(rows)


def test_the_status_of_what_is_refused_at_once_is_on_the_page() -> None:
    said = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}):", PAGE, re.MULTILINE))
    assert len(said) == 7
    assert {name: refused(name, "").status for name in said} == {
        name: int(status) for name, status in said.items()
    }


def test_every_path_is_on_the_page() -> None:
    node = delivery_world("a")["a"].node
    assert node is not None
    for part in node.parts[1:]:
        for endpoint in part.endpoints():
            first = endpoint.path.split("/{")[0]
            assert first in PAGE, endpoint.path
