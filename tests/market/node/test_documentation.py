"""docs/node.md has every route of a node, every field of its configuration, and every state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from anabranch.market.node.deferred.clamp import DeferredConfig
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.records import Status
from anabranch.market.node.directory.settings import DirectorySettings
from anabranch.market.node.folder import SECTIONS, NodeFile
from anabranch.market.node.modules.config import (
    AcceptorConfig,
    HttpEndpoint,
    Launch,
    ModuleConfig,
    RestartPolicy,
)
from anabranch.market.node.modules.supervisor import ModuleState
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.orders.config import OrdersConfig
from anabranch.market.node.orders.machine import STATES
from anabranch.market.node.peers.settings import PeerSettings
from anabranch.testing.market import World

PAGE = (Path(__file__).parents[3] / "docs" / "node.md").read_text(encoding="utf-8")
SECTION_TYPES = {
    "peers": PeerSettings, "directory": DirectorySettings, "offers": OffersConfig,
    "orders": OrdersConfig, "delivery": DeliveryConfig, "deferred": DeferredConfig,
}  # fmt: skip


def section(heading: str) -> str:
    level = heading.partition(" ")[0]
    after = PAGE.partition(f"\n{heading}\n")[2]
    assert after, heading
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.M)[0]


def table(text: str) -> dict[str, str]:
    """What stands in the second column, by each name of the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            names = re.findall(r"`([^`]+)`", cells[0])
            said = re.findall(r"`([^`]*)`", cells[1]) or [cells[1]]
            values = said if len(said) == len(names) else said * len(names)
            found.update(zip(names, values, strict=False))
    return found


def test_every_route_stands_there_with_those_who_may_call_it() -> None:
    world = World(nodes=["one"])
    node = world["one"].node
    assert node is not None
    rows = {
        f"{one.method} {one.path}": ", ".join(one.scopes)
        for one in node.api.endpoints
    }  # fmt: skip
    assert table(section("## Endpoints")) == rows
    world["one"].stop()


def test_every_field_of_node_json_stands_there() -> None:
    plain = [name for name in NodeFile.__struct_fields__ if name not in SECTIONS]
    text = section("## node.json")
    assert [name for name in plain if f"\n| `{name}` |" not in text] == []
    assert {name for name in SECTIONS if f"\n### `{name}`\n" in text} == set(SECTIONS) - {"modules"}


@pytest.mark.parametrize("name", SECTION_TYPES)
def test_every_field_of_a_section_stands_there_with_its_default(name: str) -> None:
    kind: Any = SECTION_TYPES[name]
    shown = table(section(f"### `{name}`"))
    assert set(shown) == set(kind.__struct_fields__)
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, int | float | str):
            default = msgspec.json.encode(field.default).decode()
            assert shown[field.name] == default, field.name


def test_every_field_of_an_executor_stands_there() -> None:
    nested: dict[str, Any] = {
        "launch": Launch, "http": HttpEndpoint, "restart_policy": RestartPolicy,
    }  # fmt: skip
    wanted = {one for one in ModuleConfig.__struct_encode_fields__ if one not in nested}
    for name, kind in nested.items():
        wanted |= {f"{name}.{one}" for one in kind.__struct_fields__}
    text = section("## Modules")
    shown = table(text.partition("**What a module finds")[0])
    assert set(shown) == wanted
    assert [one for one in AcceptorConfig.__struct_fields__ if f"`{one}`" not in text] == []


def test_every_state_stands_there() -> None:
    text = section("## States")
    states = (*STATES, *get_args(Status), *get_args(ModuleState))
    assert [state for state in states if f"`{state}`" not in text] == []
