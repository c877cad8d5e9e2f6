"""docs/dator.md says what the module does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from anabranch.modules.dator.config import (
    DatorConfig,
    DispatchConfig,
    OfferConfig,
    PushConfig,
    RoleConfig,
    dator_config,
    require_roles,
)
from anabranch.modules.dator.requests import DONE, OPEN, ORDERS, Ending, State
from modules.dator.support import Market
from modules.dator.test_admission import WRONG

PAGE = (Path(__file__).parents[3] / "docs" / "dator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "shape", [DatorConfig, OfferConfig, RoleConfig, PushConfig, DispatchConfig]
)
def test_every_setting_has_its_row(shape: type[msgspec.Struct]) -> None:
    prefix = "dispatch." if shape is DispatchConfig else ""
    names = [field for field in shape.__struct_fields__ if field != "dispatch"]
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in names if f"`{prefix}{name}`" not in rows] == []


def test_every_state_and_kind_of_record_is_explained() -> None:
    words = [*State.__args__, *Ending.__args__, OPEN, DONE, ORDERS]  # type: ignore[attr-defined]
    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_every_reason_of_a_rejection_is_listed() -> None:
    reasons = {reason for _, reason in WRONG.values() if not reason.startswith("envelope-")}
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in PAGE] == []


def test_the_configuration_of_the_page_can_be_used() -> None:
    example = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0]
    require_roles(dator_config(json.loads(example)))


def test_every_route_is_listed() -> None:
    market = Market()
    for route in market.modules[-1].report()["input_chains"][1]["local_routes"]:
        method, path = route.split()
        known = [f"`{method} /v1/enact/{path}`", f"`…/{path.rpartition('/')[2]}`"]
        assert any(one in PAGE for one in known), route
