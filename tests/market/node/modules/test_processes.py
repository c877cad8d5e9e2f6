"""Modules as real processes: started, killed, restarted, stopped, and every way to misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.clock import SystemClock
from anabranch.store.memory.store import MemoryStore
from free_ports import free_port

from .support import Hosted, hosted, message, run

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("child_module.py")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc says who listens where")


def child(mode: str = "good", **more: Any) -> dict[str, Any]:
    http = {
        "endpoint": f"http://127.0.0.1:{free_port()}",
        "startup_timeout_ms": 60_000,
        "request_timeout_ms": 30_000,
        "health_interval_ms": 0,
        **more.pop("http", {}),
    }
    launch = {"executable": sys.executable, "args": ["-S", "-E", str(SCRIPT), mode]}
    return {"id": "m", "auth-token": "X-M-Auth", "http": http, "launch": launch, **more}


async def view(node: Hosted) -> Any:
    return (await node.ask("GET", "/v1/modules/m")).body


async def until(node: Hosted, state: str, restarts: int = 0) -> None:
    module = node.part.modules["m"]
    while module.state != state or module.restarts < restarts:
        await module.change()


def starts(data_dir: Path) -> list[int]:
    """The processes that got so far as to say so."""
    file = data_dir / "middleware/m/starts"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_module_is_started_with_its_contract_and_ended_with_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        secret = {"NODE_SECRET": "do not tell"}
        os.environ.update(secret)
        try:
            async with hosted(configs=[child()], data_dir=tmp_path, clock=SystemClock()) as node:
                assert (await view(node))["state"] == "ready"
                facts = await node.part.peer_message(message())
                tokens = node.part.tokens
        finally:
            del os.environ["NODE_SECRET"]
        home, env = tmp_path / "middleware/m", facts["env"]
        assert {name: env[name] for name in env if name.startswith("ORBIPLEX_")} == {
            "ORBIPLEX_MIDDLEWARE_HOME": str(home),
            "ORBIPLEX_MIDDLEWARE_CONFIG_DIR": str(Path(sys.executable).parent / "config"),
            "ORBIPLEX_NODE_CONFIG_DIR": str(tmp_path / "config"),
            "ORBIPLEX_MIDDLEWARE_MODULE_ID": "m",
            "ORBIPLEX_MIDDLEWARE_ENDPOINT": env["ORBIPLEX_MIDDLEWARE_ENDPOINT"],
            "ORBIPLEX_HOST_CAPABILITY_BASE_URL": "http://127.0.0.1:1",
            "ORBIPLEX_HOST_CAPABILITY_AUTH_HEADER": "X-Orbiplex-Module-Authtok",
            "ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": str(home / "host-authtok"),
            "ORBIPLEX_MIDDLEWARE_AUTH_HEADER": "X-M-Auth",
            "ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE": str(home / "authtok"),
        }
        assert "NODE_SECRET" not in env
        assert (home / "host-authtok").read_text() == tokens.of_module("m")
        assert not alive(facts["pid"])
        log = (home / "module.log").read_text()
        assert "token [redacted]" in log
        assert not any(one in log for one in tokens.secrets())
        assert stat.S_IMODE((home / "module.log").stat().st_mode) == 0o600

    run(scenario())


def test_a_module_that_is_killed_is_started_again_and_its_store_is_as_it_was(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        config = child(restart_policy={"max_restarts": 2, "window_sec": 3600})
        async with hosted(
            configs=[config], data_dir=tmp_path, store=store, clock=SystemClock()
        ) as node:
            record = {
                "schema_version": "v1", "capability_id": "module_store_put",
                "record_kind": "k", "record_id": "r", "payload": 1,
            }  # fmt: skip
            await node.ask("POST", "/v1/module/store/records/put", record, as_="m")
            for restarts in (1, 2):
                os.kill(starts(tmp_path)[-1], signal.SIGKILL)
                await until(node, "ready", restarts)
            assert (await node.ask("GET", "/v1/enact/state")).status == 200
            assert (await view(node))["last_problem"]["code"] == "crashed"
            os.kill(starts(tmp_path)[-1], signal.SIGKILL)
            await until(node, "failed")
            away = await node.ask("GET", "/v1/enact/state")
            assert (away.status, away.headers["Retry-After"]) == (503, "2")
            get = {key: record[key] for key in ("schema_version", "record_kind", "record_id")}
            get["capability_id"] = "module_store_get"
            found = await node.ask("POST", "/v1/module/store/records/get", get, as_="m")
            assert found.body["record"]["payload"] == 1
            await node.ask("POST", "/v1/modules/m/start")
            await until(node, "ready")
        assert len(starts(tmp_path)) == 4
        assert not any(map(alive, starts(tmp_path)))

    run(scenario())


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("lies", "report_module_id"),
        ("huge", "report_too_large"),
        ("deep", "report_too_deep"),
        pytest.param("own-port", "foreign_port", marks=LINUX),
        pytest.param("exposed", "foreign_port", marks=LINUX),
    ],
)
def test_a_module_that_lies_or_does_more_than_it_may_is_ended_at_once(
    tmp_path: Path, mode: str, code: str
) -> None:
    async def scenario() -> None:
        async with hosted(configs=[child(mode)], data_dir=tmp_path, clock=SystemClock()) as node:
            seen = await view(node)
            assert (seen["state"], seen["restarts"]) == ("failed", 0)
            assert seen["last_problem"]["code"] == code
            assert seen["routes"] == []
            assert not any(secret in str(seen) for secret in node.part.tokens.secrets())
            assert not any(map(alive, starts(tmp_path)))

    run(scenario())


@pytest.mark.parametrize(
    ("mode", "http", "code", "restarts"),
    [
        ("crash", {}, "crashed", 2),
        ("silent", {"request_timeout_ms": 300}, "module_timeout", 1),
        ("elsewhere", {"startup_timeout_ms": 1500}, "startup_timeout", 1),
    ],
)
def test_a_module_that_fails_is_tried_again_as_often_as_its_policy_says(
    tmp_path: Path, mode: str, http: dict[str, Any], code: str, restarts: int
) -> None:
    async def scenario() -> None:
        config = child(mode, http=http, restart_policy={"max_restarts": restarts})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            seen = await view(node)
            assert (seen["state"], seen["last_problem"]["code"]) == ("failed", code)
            assert seen["restarts"] == restarts
            assert not any(map(alive, starts(tmp_path)))

    run(scenario())


def test_a_module_that_ends_well_stays_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=[child()], data_dir=tmp_path, clock=SystemClock()) as node:
            assert await node.part.peer_message(message("leave")) is None
            await until(node, "stopped")
            assert (await view(node))["last_problem"]["code"] == "exited"
        assert len(starts(tmp_path)) == 1

    run(scenario())


def test_an_answer_of_ten_megabytes_is_a_failed_call_and_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child(grants=["test.*"])
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            answer = await node.ask("POST", "/v1/host/capabilities/test.huge", {}, as_="m")
            assert answer.status == 502
            assert answer.body["code"] == "host_capability_dispatch_failed"
            assert answer.body["reason"] == "module_response_too_large"
            assert (await view(node))["ready"]

    run(scenario())


def test_a_module_that_never_answers_a_message_lets_it_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child(http={"request_timeout_ms": 1500})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            assert (await node.part.message("peer", message("hang"))).kind == "passed"
            seen = await view(node)
            assert (seen["state"], seen["last_problem"]["code"]) == ("ready", "module_timeout")

    run(scenario())


def test_a_module_that_is_not_well_is_degraded_until_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child(http={"health_interval_ms": 20})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            (tmp_path / "middleware/m/sick").touch()
            await until(node, "degraded")
            seen = await view(node)
            assert (seen["ready"], seen["last_problem"]["code"]) == (False, "unhealthy")
            assert (await node.ask("GET", "/v1/enact/state")).status == 503
            (tmp_path / "middleware/m/sick").unlink()
            await until(node, "ready")
            assert (await node.ask("GET", "/v1/enact/state")).status == 200

    run(scenario())


@LINUX
def test_a_port_that_is_opened_later_is_found_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child(http={"health_interval_ms": 20})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            await node.part.peer_message(message("listen"))
            await until(node, "failed")
            assert (await view(node))["last_problem"]["code"] == "foreign_port"

    run(scenario())


def test_a_module_that_is_killed_while_it_is_looked_at_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child(http={"health_interval_ms": 1})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            for restarts in (1, 2, 3):
                os.kill(starts(tmp_path)[-1], signal.SIGKILL)
                await until(node, "ready", restarts)

    run(scenario())


def test_a_module_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        config = child("stubborn", http={"stop_timeout_ms": 100})
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            answer = await node.ask("POST", "/v1/modules/m/stop")
            assert answer.body["state"] == "stopped"
            assert not any(map(alive, starts(tmp_path)))

    run(scenario())


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"launch": {"executable": "/nothing/here"}}, "preflight_executable", "launch.executable"),
        ({"launch": {"executable": "no-such-program"}}, "preflight_executable", "executable"),
        ({"launch": {"executable": str(SCRIPT)}}, "preflight_executable", "launch.executable"),
        ({"launch": {"executable": "/bin/sh", "cwd": "/nothing"}}, "preflight_folder", "cwd"),
        ({"module_dir": "BAD LAYER"}, "config_layer", "bad.json"),
    ],
)
def test_what_preflight_finds_is_said_and_nothing_is_started(
    tmp_path: Path, change: dict[str, Any], code: str, named: str
) -> None:
    async def scenario() -> None:
        config = {**child(), **change}
        if change.get("module_dir"):
            config["module_dir"] = str(tmp_path / "module")
            (tmp_path / "module/config").mkdir(parents=True)
            (tmp_path / "module/config/bad.json").write_text("{")
        async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
            seen = await view(node)
            assert (seen["state"], seen["last_problem"]["code"]) == ("failed", code)
            assert named in seen["last_problem"]["message"]
        assert not (tmp_path / "middleware/m/starts").exists()

    run(scenario())


def test_a_port_that_another_process_has_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
            config = child(
                http={"endpoint": endpoint, "startup_timeout_ms": 50},
                restart_policy={"mode": "never"},
            )
            async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
                seen = await view(node)
                assert (seen["state"], seen["last_problem"]["code"]) == ("failed", "preflight_port")
                assert endpoint in seen["last_problem"]["message"]

    run(scenario())


def test_stopping_does_not_wait_for_a_start_that_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            config = child(
                http={
                    "endpoint": f"http://127.0.0.1:{taken.getsockname()[1]}",
                    "startup_timeout_ms": 3_600_000,
                },
                enabled=False,
            )
            async with hosted(configs=[config], data_dir=tmp_path, clock=SystemClock()) as node:
                await node.ask("POST", "/v1/modules/m/start")
                await asyncio.sleep(0.05)
                answer = await node.ask("POST", "/v1/modules/m/stop")
                assert answer.body["state"] == "stopped"

    run(scenario())


def test_a_node_without_a_data_folder_starts_no_process() -> None:
    async def scenario() -> None:
        async with hosted(configs=[child()], clock=SystemClock()) as node:
            assert (await view(node))["last_problem"]["code"] == "preflight_folder"

    run(scenario())
