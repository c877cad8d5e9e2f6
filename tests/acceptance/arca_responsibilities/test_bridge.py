"""Must: a guest of the host, which lends it everything that is signed or sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.identities import is_signed_by
from anabranch.modules.kit.environment import read_environment
from modules import test_layout
from modules.arca.work.stage import Make, step

from .test_fan_out import CHEAPEST, HOLDERS, LIMIT


def test_the_report_declares_routes_and_messages(made: Make) -> None:
    stage = made({"anna": 0})
    shown = stage.ask("GET", "/v1/modules/arca")
    assert (shown["state"], shown["conflicts"]) == ("ready", [])
    routes = {f"{one['method']} {one['path']}" for one in shown["routes"]}
    assert {"GET /v1/enact/service-catalog", "POST /v1/enact/catalog/remote-query"} <= routes
    chains = shown["report"]["input_chains"]
    messages = {name for one in chains if one["chain"] == "inbound-peer"
                for name in one.get("message_types", ())}  # fmt: skip
    assert {"offer-catalog.fetch.response", "offer-catalog.push"} <= messages


def test_home_and_tokens_come_from_the_environment(tmp_path: Path) -> None:
    layers = {"factory": {"arca": {"poll_first_ms": 1, "poll_max_ms": 2}},
              "operator": {"arca": {"poll_max_ms": 3}}}  # fmt: skip
    for name, layer in layers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "arca.json").write_text(json.dumps(layer))
    for name in ("shown", "own"):
        (tmp_path / f"{name}-token").write_text(f"{name} secret\n")
    env = {
        "ORBIPLEX_MIDDLEWARE_HOME": str(tmp_path / "home"),
        "ORBIPLEX_MIDDLEWARE_CONFIG_DIR": str(tmp_path / "factory"),
        "ORBIPLEX_NODE_CONFIG_DIR": str(tmp_path / "operator"),
        "ORBIPLEX_HOST_CAPABILITY_BASE_URL": "http://127.0.0.1:1",
        "ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": str(tmp_path / "own-token"),
        "ORBIPLEX_MIDDLEWARE_AUTH_HEADER": "X-Arca-Auth",
        "ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE": str(tmp_path / "shown-token"),
    }
    found = read_environment(env, "arca", "http://127.0.0.1:47981")
    assert (found.home, found.address) == (tmp_path / "home", ("127.0.0.1", 47981))
    assert (found.host_token, found.auth_token) == ("own secret", "shown secret")
    assert found.config == {"arca": {"poll_first_ms": 1, "poll_max_ms": 3}}, "the operator is last"
    for name in ("ORBIPLEX_MIDDLEWARE_HOME", "ORBIPLEX_HOST_CAPABILITY_BASE_URL"):
        with pytest.raises(InputError, match="started by its node"):
            read_environment({**env, name: ""}, "arca", "http://127.0.0.1:47981")


def test_arca_opens_no_peer_socket_and_signs_nothing(made: Make) -> None:
    """By its imports, and by what it hands to its host in a whole run. That its process has no
    connection but the one to its host is looked at in tests/acceptance/test_arca_on_a_node.py."""
    test_layout.test_only_the_clients_for_loopback_open_connections_and_nothing_signs()
    stage = made({"anna": 100})
    stage.start(
        [
            step("offers", target=HOLDERS, fan_in=CHEAPEST, timing=LIMIT),
            step("order", input={}, depends_on=["offers"],
                 offer_ref={"from": "/steps/offers/output/offer"}),
        ]
    )  # fmt: skip
    assert stage.ended()["status"] == "completed"
    (draft,) = [body for _, path, body in stage.calls if path == "/v1/service-orders"]
    assert not {"signature", "buyer/node-id", "buyer/subject-id"} & set(draft)
    order = stage.ask("GET", "/v1/executions/execution:run:one-order-a1")["order"]
    assert is_signed_by(order, stage.buyer.participant_id), "its host does"
    asked = {path for _, path, _ in stage.calls}
    assert not any("sign" in path or "passport" in path for path in asked)
    assert all(_signatures(body) <= _given(stage) for _, _, body in stage.calls)


def _signatures(body: Any) -> set[str]:
    if isinstance(body, dict):
        own = {body["signature"]["value"]} if isinstance(body.get("signature"), dict) else set()
        return own.union(*(_signatures(one) for one in body.values()))
    if isinstance(body, list):
        return set().union(*(_signatures(one) for one in body))
    return set()


def _given(stage: Any) -> set[str]:
    """Those that the host or a provider has made."""
    offers = stage._ask("anna", "GET", "/v1/service-offers")["offers"]
    return _signatures(offers) | _signatures(
        stage.ask("GET", "/v1/executions/execution:run:one-order-a1")
    )
