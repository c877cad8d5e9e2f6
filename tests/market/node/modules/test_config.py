"""The section `modules`: defaults, and every wrong setting by name before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.market.node.modules.config import (
    AcceptorConfig,
    HttpEndpoint,
    Launch,
    ModuleConfig,
    RestartPolicy,
    is_module_path,
    loopback_address,
    read_modules,
)


def executor(**more: Any) -> dict[str, Any]:
    http = {"endpoint": "http://127.0.0.1:47981", **more.pop("http", {})}
    launch = {"executable": "/bin/true", **more.pop("launch", {})}
    return {"id": "arca", "http": http, "launch": launch, **more}


def test_an_executor_has_defaults() -> None:
    (module,) = read_modules([executor()])
    assert (module.module, module.component, module.kind) == ("arca", "arca", "http_local_json")
    assert module.http.invoke_path == "/v1/middleware/invoke"
    assert module.restart_policy.mode == "on_failure"
    assert not module.grants_capability("offers.local.query")
    assert read_modules(None) == ()


def test_grants_name_one_capability_or_all_below_a_name() -> None:
    (module,) = read_modules([executor(grants=["offers.local.query", "peer.*"])])
    granted = ["offers.local.query", "peer.session.establish", "peer.message.dispatch"]
    refused = ["offers.local", "offers.local.query.more", "peer", "peerage.x", "signer.sign"]
    assert all(map(module.grants_capability, granted))
    assert not any(map(module.grants_capability, refused))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"id": "../x"}, "id"),
        ({"id": "a/b"}, "id"),
        ({"id": ""}, "id"),
        ({"module_id": "a·b"}, "module_id"),
        ({"component_id": "x" * 65}, "component_id"),
        ({"kind": "channel_json"}, "kind"),
        ({"colour": "red"}, "colour"),
        ({"auth-token": "X Arca"}, "auth-token"),
        ({"auth-token": "X-A\r\nEvil"}, "auth-token"),
        ({"auth-token-file": "relative"}, "auth-token-file"),
        ({"sandbox_profile": "strict"}, "sandbox_profile"),
        ({"grants": ["*"]}, "grants"),
        ({"grants": ["peer.**"]}, "grants"),
        ({"http": {"endpoint": "http://example.org:80"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://0.0.0.0:80"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://127.0.0.1"}}, "http.endpoint"),
        ({"http": {"endpoint": "https://127.0.0.1:80"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://u@127.0.0.1:80"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://127.0.0.1:99999"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://127.0.0.1.example.org:80"}}, "http.endpoint"),
        ({"http": {"endpoint": "http://[::2]:80"}}, "http.endpoint"),
        ({"http": {"ready_path": "readyz"}}, "http.ready_path"),
        ({"http": {"health_path": "/../x"}}, "http.health_path"),
        ({"http": {"invoke_path": "//evil.example/x"}}, "http.invoke_path"),
        ({"http": {"startup_timeout_ms": 0}}, "http.startup_timeout_ms"),
        ({"http": {"request_timeout_ms": -1}}, "http.request_timeout_ms"),
        ({"http": {"max_response_bytes": 0}}, "http.max_response_bytes"),
        ({"http": {"health_interval_ms": -1}}, "http.health_interval_ms"),
        ({"http": {"headers": {"A": "b\r\nc: d"}}}, "http.headers"),
        ({"http": {"method": "GET"}}, "http.method"),
        ({"launch": {"executable": ""}}, "launch.executable"),
        ({"launch": {"args": ["a\0b"]}}, "launch"),
        ({"launch": {"env": {"ORBIPLEX_NODE_CONFIG_DIR": "/x"}}}, "launch.env"),
        ({"launch": {"env": {"A=B": "x"}}}, "launch.env"),
        ({"launch": {"env": {"A": "x\0y"}}}, "launch.env"),
        ({"launch": {"cwd": "/a\0b"}}, "launch"),
        ({"restart_policy": {"mode": "always"}}, "restart_policy.mode"),
        ({"restart_policy": {"max_restarts": -1}}, "restart_policy"),
        ({"restart_policy": {"window_sec": 0}}, "restart_policy"),
        ({"acceptors": [{"acceptor_id": "", "artifact_schema": "s"}]}, "acceptors[0]"),
        (
            {"acceptors": [{"acceptor_id": "a", "artifact_schema": "s", "component_id": "other"}]},
            "acceptors[0].component_id",
        ),
        (
            {"acceptors": [{"acceptor_id": "a", "artifact_schema": "s", "invoke_path": "x"}]},
            "acceptors[0].invoke_path",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        read_modules([executor(**settings)])
    assert named in refused.value.message
    assert refused.value.code == "module_config"


@pytest.mark.parametrize(
    ("second", "named"),
    [
        ({"id": "arca"}, "id"),
        ({"id": "b", "module_id": "arca"}, "module_id"),
        ({"id": "b"}, "http.endpoint"),
        ({"id": "b", "http": {"endpoint": "http://localhost:47981"}}, "http.endpoint"),
        (
            {
                "id": "b",
                "http": {"endpoint": "http://127.0.0.1:2"},
                "acceptors": [{"acceptor_id": "a", "artifact_schema": "s"}],
            },
            "acceptor_id",
        ),
    ],
)
def test_two_modules_share_nothing_that_names_them(second: dict[str, Any], named: str) -> None:
    first = executor(acceptors=[{"acceptor_id": "a", "artifact_schema": "s"}])
    with pytest.raises(InputError, match=named):
        read_modules([first, executor(**second)])


def test_the_page_names_every_setting() -> None:
    page = (Path(__file__).parents[4] / "docs/modules.md").read_text(encoding="utf-8")
    structs = (ModuleConfig, HttpEndpoint, RestartPolicy, Launch, AcceptorConfig)
    names = {field.encode_name for one in structs for field in msgspec.structs.fields(one)}
    assert {name for name in names if name not in page} == set()


@pytest.mark.parametrize("section", ["modules", {"arca": {}}, [1], [{}]])
def test_a_section_that_is_no_list_of_executors_is_refused(section: Any) -> None:
    with pytest.raises(InputError, match="modules"):
        read_modules(section)


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("http://127.0.0.1:47981", ("127.0.0.1", 47981)),
        ("http://localhost:1/", ("127.0.0.1", 1)),
        ("http://[::1]:80", ("::1", 80)),
    ],
)
def test_loopback_endpoints(endpoint: str, address: tuple[str, int]) -> None:
    assert loopback_address(endpoint) == address


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/a", True),
        ("/v1/enact/service-catalog", True),
        ("/", False),
        ("/a/", False),
        ("/a//b", False),
        ("/a/../b", False),
        ("/a/.", False),
        ("/a?b", False),
        ("/a#b", False),
        ("/%2e%2e/x", False),
        ("a", False),
        ("/a b", False),
        ("/" + "a" * 256, False),
    ],
)
def test_paths_at_modules(path: str, good: bool) -> None:
    assert is_module_path(path) is good
