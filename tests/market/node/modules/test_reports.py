"""Module reports: what is taken from them, and what refuses a report as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.node.modules.reports import CheckedReport, check_report

INVOKE = "/v1/middleware/invoke"


def check(**report: Any) -> CheckedReport:
    return check_report({"schema_version": "v1", "module_id": "arca", **report}, "arca", INVOKE)


def test_a_report_of_the_reference_is_taken() -> None:
    checked = check(
        module_name="Arca",
        module_version="1",
        capabilities=[
            {"capability_id": "x", "class": "base", "output_contract_ref": "x.v1"},
            {"capability_id": "y", "class": "other"},
        ],
        handles_service_types=["text/summarise"],
        workflow_kind_handlers=[{"workflow_kind": "k", "plan_schema_path": "/p"}],
        input_chains=[
            {"chain": "inbound-local", "local_routes": ["GET service-catalog"]},
            {"chain": "inbound-peer", "message_types": ["offer-catalog.push"]},
        ],
        host_capability_handlers=[{"capability_id": "publication.verify", "invoke_path": "/v"}],
        catalog_endpoints=[{"catalog_kind": "service", "path": "/c"}],
        operator_surfaces=[{"surface_id": "s", "rendering": "server-html"}],
        **{"api/surface": {"anything": 1}},
    )
    assert checked.handlers == {"publication.verify": "/v"}
    local, peer = checked.chains
    assert local.routes == (("GET", "/v1/enact/service-catalog"),)
    assert peer.invoke_path == INVOKE
    assert peer.fits("offer-catalog.push", None)
    assert not peer.fits("offer-catalog.fetch.response", None)


@pytest.mark.parametrize(
    ("route", "claimed"),
    [
        ("GET service-catalog", ("GET", "/v1/enact/service-catalog")),
        ("POST /v1/enact/a/b", ("POST", "/v1/enact/a/b")),
        ("service-catalog", ("GET", "/v1/enact/service-catalog")),
        ({"path": "x"}, ("GET", "/v1/enact/x")),
        ({"method": "PUT", "path": "x"}, ("PUT", "/v1/enact/x")),
        ({"method": "GET", "path": "/v1/enact/x"}, ("GET", "/v1/enact/x")),
    ],
)
def test_routes_are_below_enact(route: Any, claimed: tuple[str, str]) -> None:
    (chain,) = check(input_chains=[{"chain": "inbound-local", "local_routes": [route]}]).chains
    assert chain.routes == (claimed,)


@pytest.mark.parametrize(
    "route",
    [
        "GET /v1/modules",
        "GET /v1/enact/",
        "GET ../modules",
        "GET a/../../modules",
        "GET ",
        "get x",
        "BREW x",
        "GET x?y=1",
        {"method": "GET"},
        {"method": None, "path": "x"},
        {"method": 1, "path": "x"},
        7,
    ],
)
def test_no_other_route_can_be_claimed(route: Any) -> None:
    with pytest.raises(InputError) as refused:
        check(input_chains=[{"chain": "inbound-local", "local_routes": [route]}])
    assert refused.value.code == "report_route"
    assert refused.value.message.startswith("input_chains[0]")


@pytest.mark.parametrize(
    ("entry", "generic"),
    [
        ({}, True),
        ({"local_routes": ["GET x"]}, False),
        ({"local_routes": []}, True),
        ({"local_routes": ["GET x"], "message_types": ["m"]}, True),
        ({"local_routes": ["GET x"], "filter": {"a": 1}}, True),
        ({"local_routes": ["GET x"], "skip_generic_chain": False}, True),
        ({"local_routes": ["GET x"], "filter": {"a": 1}, "skip_generic_chain": True}, False),
    ],
)
def test_when_the_generic_chain_is_skipped(entry: dict[str, Any], generic: bool) -> None:
    (chain,) = check(input_chains=[{"chain": "inbound-local", **entry}]).chains
    assert chain.generic is generic


@pytest.mark.parametrize("phase", ["pre-input", "inbound-peer"])
def test_the_older_way_to_say_a_chain(phase: str) -> None:
    (chain,) = check(
        handles_peer_message_types=["a"],
        peer_message_filter={"x": 1},
        peer_message_phase=phase,
    ).chains
    assert chain.kind == phase
    assert chain.fits("a", {"x": 1})
    assert not chain.fits("a", {"x": 2})
    assert not chain.fits("b", {"x": 1})


def test_observe_chains_only_observe() -> None:
    (chain,) = check(observe_chains=[{"chain": "inbound-peer"}]).chains
    assert chain.observer


def deep(depth: int) -> Any:
    tree: Any = {"msg": "x"}
    for _ in range(depth):
        tree = {"AND": [tree]}
    return tree


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({"module_id": "dator"}, "report_module_id"),
        ({"module_id": ""}, "report_module_id"),
        ({"module_id": 7}, "report_schema"),
        ({"schema_version": "v2"}, "report_schema"),
        ({"capabilities": [{"capability_id": "x", "class": "base"}]}, "report_schema"),
        ({"capabilities": [{"capability_id": "x", "class": "root"}]}, "report_schema"),
        ({"input_chains": [{"chain": "outbound"}]}, "report_schema"),
        ({"input_chains": [{"chain": "audit", "observer": True}]}, "report_chain"),
        ({"input_chains": [{"chain": "inbound-local", "observer": True}]}, "report_chain"),
        ({"input_chains": [{"chain": "inbound-peer", "local_routes": ["GET x"]}]}, "report_chain"),
        ({"input_chains": [{"chain": "pre-send", "skip_generic_chain": True}]}, "report_chain"),
        (
            {"input_chains": [{"chain": "pre-send", "invoke_path": "http://evil/x"}]},
            "report_chain",
        ),
        ({"input_chains": [{"chain": "pre-input", "filter": deep(10_000)}]}, "filter_too_deep"),
        ({"input_chains": [{"chain": "pre-input", "filter": {}}]}, "filter_invalid"),
        ({"observe_chains": [{"chain": "inbound-broadcast"}]}, "report_chain"),
        ({"peer_message_filter": deep(10_000)}, "filter_too_deep"),
        ({"peer_message_filter": {}, "handles_peer_message_types": ["a"]}, "filter_invalid"),
        ({"input_chains": [{"chain": "pre-input"}] * 257}, "report_too_large"),
        (
            {"input_chains": [{"chain": "inbound-local", "local_routes": ["GET x"]}] * 2},
            "report_route",
        ),
        ({"host_capability_handlers": [{"capability_id": ""}]}, "report_handler"),
        ({"host_capability_handlers": [{"capability_id": "a"}] * 2}, "report_handler"),
        (
            {"host_capability_handlers": [{"capability_id": "a", "invoke_path": "../x"}]},
            "report_handler",
        ),
    ],
)
def test_a_wrong_report_is_refused_as_a_whole(report: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as refused:
        check(**report)
    assert refused.value.code == code


@pytest.mark.parametrize("document", [None, [], "report", {}])
def test_what_is_no_report_is_refused(document: Any) -> None:
    with pytest.raises(InputError):
        check_report(document, "arca", INVOKE)
