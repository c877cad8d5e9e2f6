"""Dator and a role as processes of a node: configured, killed, restarted, asked with commands."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quick_starts
from anabranch.modules.dator.config import dator_config
from anabranch.modules.dator.drafts import offer_id_of
from anabranch.modules.kit.entries import executor_entry
from free_ports import free_ports
from hangs import HANG_SECONDS

from .node_processes import QUICK, NodeProcess, wait_until

pytestmark = pytest.mark.slow

FUNCTION = """
import os, time
from pathlib import Path
HOME = Path(os.environ["ORBIPLEX_MIDDLEWARE_HOME"])
(HOME / "pid").write_text(str(os.getpid()))

def summarise(given, task):
    with (HOME / "calls").open("a") as calls:
        calls.write(task["dispatch/id"] + "\\n")
    while given.get("hold") and not (HOME / "free").exists():
        time.sleep(0.02)
    return {"summary": " ".join(given["text"].split()[:5])}
"""
ROLE = "role.summarise"


class Provider(NodeProcess):
    """A node with Dator, and with a role that it starts as well."""

    def __init__(self, folder: Path, python: Path, **offer: Any) -> None:
        dator_port, role_port = free_ports(2)
        dator = executor_entry("dator", port=dator_port, executable=str(python))
        dator["launch"]["args"].append("--json")  # it says its pid
        dator["http"]["health_interval_ms"] = 200
        dator["restart_policy"] = {"max_restarts": 100}
        role = {
            "id": "role",
            "launch": {
                "executable": str(python),
                "args": ["-m", "anabranch", "dator", "role", "--function", "summaries:summarise"],
                "cwd": str(folder),
                "env": {"PYTHONPATH": str(folder)},
            },
            "http": {"endpoint": f"http://127.0.0.1:{role_port}", "startup_timeout_ms": 60_000},
            "auth-token": "X-Role-Auth",
            "restart_policy": {"max_restarts": 100},
        }
        super().__init__(folder, modules=(dator, role), delivery=QUICK)
        (folder / "summaries.py").write_text(FUNCTION)
        self.role_home = folder / "middleware" / "role"
        section = {
            "offers": [
                {
                    "service_type": "text/summarise",
                    "pricing_amount": 250,
                    "confirmation_mode": "self-confirmed",
                    "dispatch": {"capability_id": ROLE},
                    **offer,
                }
            ],
            "roles": {
                ROLE: {
                    "endpoint": f"http://127.0.0.1:{role_port}",
                    "auth_header": "X-Role-Auth",
                    "token_file": str(self.role_home / "authtok"),
                }
            },
        }
        self.offer_id = offer_id_of(dator_config({"dator": section}).offers[0], self.node_id)
        (folder / "config" / "dator.json").write_text(json.dumps({"dator": section}))

    def calls(self) -> list[str]:
        file = self.role_home / "calls"
        return file.read_text().split() if file.exists() else []

    def command(self, *words: str) -> tuple[int, Any]:
        """`anabranch dator …` at this node, with `--json`."""
        done = quick_starts.run(
            [sys.executable, "-m", "anabranch", "dator", *words, "--json"],
            env={**os.environ, "ANABRANCH_NODE": str(self.folder.path)},
            timeout=HANG_SECONDS,
        )
        text = done.stdout.decode()
        return done.returncode, json.loads(text) if text.strip() else done.stderr.decode()


class Pair:
    def __init__(self, folder: Path, python: Path, **offer: Any) -> None:
        self.provider = Provider(folder / "provider", python, **offer)
        self.buyer = NodeProcess(
            folder / "buyer", seeds=(self.provider.url,), delivery=QUICK,
            directory={"sync_ms": 500}, peers={"backoff_max_ms": 300},
        )  # fmt: skip

    def start(self) -> None:
        for node in (self.provider, self.buyer):
            node.start()
        path = f"/v1/service-offers/{self.provider.offer_id}"
        wait_until(lambda: self.provider.surely("GET", path).status == 200)
        trusted = {"participant_id": self.provider.participant_id}
        assert self.buyer.surely("POST", "/v1/trusted-providers", trusted).status == 201
        asked = {"node_id": self.provider.node_id}
        wait_until(
            lambda: self.buyer.surely("POST", "/v1/service-offers/fetch", asked).status == 200
        )
        assert self.buyer.surely("POST", "/v1/ledger/top-up", {"amount": 1000}).status == 201

    def order(self, name: str, **given: Any) -> None:
        wish = {
            "offer_id": self.provider.offer_id,
            "order_id": f"order:{name}",
            "input": {"text": "a b c d e f", **given},
        }
        answer = self.buyer.surely("POST", "/v1/orders", wish)
        assert answer.body["status"] == "opened-execution", answer

    def result(self, name: str) -> Any:
        path = f"/v1/executions/execution:{name}/result"
        return wait_until(
            lambda: found.body if (found := self.buyer.surely("GET", path)).status == 200 else None,
            self.provider,
        )

    def end(self) -> None:
        for node in (self.buyer, self.provider):
            if node.process is not None and node.process.poll() is None:
                node.stop()
                assert node.check().problems == []


@pytest.fixture
def pair(tmp_path: Path, quick_python: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(tmp_path, quick_python, **getattr(request, "param", {}))
    try:
        made.start()
        yield made
        made.end()
    finally:
        for node in (made.buyer, made.provider):
            if node.process is not None and node.process.poll() is None:
                node.kill()


@pytest.mark.soak  # the test with the kills has the same order done
def test_an_order_is_done_by_a_role_in_a_process_of_its_own(pair: Pair) -> None:
    pair.order("one")
    result = pair.result("one")
    assert (result["status"], result["output"]) == ("completed", {"summary": "a b c d e"})
    assert len(pair.provider.calls()) == 1
    code, offers = pair.provider.command("offers")
    assert code == 0
    assert [one["offer/id"] for one in offers] == [pair.provider.offer_id]
    wait_until(lambda: pair.provider.command("queue")[1] == [])
    code, ended = pair.provider.command("queue", "--all")
    assert (code, [one["state"] for one in ended]) == (0, ["delivered"])


@pytest.mark.parametrize("pair", [{"queue_auto_accept": False}], indirect=True)
def test_an_operator_decides_with_commands(pair: Pair) -> None:
    pair.order("one")
    pair.order("two")
    wait_until(lambda: len(pair.provider.command("queue")[1]) == 2)
    code, waiting = pair.provider.command("queue")
    assert (code, {one["state"] for one in waiting}) == (0, {"waiting"})
    assert pair.provider.command("accept", "remote-execution:order:one")[0] == 0
    assert pair.provider.command("reject", "remote-execution:order:two", "--reason", "busy")[0] == 0
    assert pair.result("one")["status"] == "completed"
    assert pair.result("two")["error"] == {"code": "rejected-by-provider", "message": "busy"}
    code, problem = pair.provider.command("accept", "remote-execution:order:three")
    assert (code, problem["problem"]["code"]) == (2, "unknown_request")


def test_whoever_is_killed_at_work_the_order_is_done(pair: Pair) -> None:
    for victim in ("role", "dator", "node"):
        kill_at_work(pair, victim)


def kill_at_work(pair: Pair, victim: str) -> None:
    provider = pair.provider
    before = len(provider.calls())
    (provider.role_home / "free").unlink(missing_ok=True)
    pair.order(victim, hold=True)
    wait_until(lambda: len(provider.calls()) == before + 1)
    if victim == "node":
        provider.kill()
        provider.revive()
    else:
        os.kill(pid_of(provider, victim), signal.SIGKILL)
    times = 1 if victim == "dator" else 2  # a role that lives on knows what it does already
    wait_until(lambda: len(provider.calls()) == before + times)
    (provider.role_home / "free").touch()
    result = pair.result(victim)
    assert (result["status"], result["output"]) == ("completed", {"summary": "a b c d e"})
    calls = provider.calls()[before:]
    assert calls == calls[:1] * times, f"always the same dispatch: {victim}"


def pid_of(provider: Provider, module: str) -> int:
    if module == "role":
        return int((provider.role_home / "pid").read_text())
    log = provider.folder.path / "middleware" / module / "module.log"
    return int(re.findall(r'"pid": ?(\d+)', log.read_text())[-1])
