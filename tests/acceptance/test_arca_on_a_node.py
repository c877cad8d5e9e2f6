"""`anabranch arca serve`, launched by a real node: a run from its definition to the last receipt.

The provider is a node without modules, whose operator answers by hand. The module is killed and its
node is restarted while an order waits; nothing is ordered twice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quick_starts
from anabranch.modules.kit.entries import executor_entry
from free_ports import free_port
from hangs import HANG_SECONDS

from .node_processes import NodeProcess, wait_until

OFFER = {
    "offer/id": "offer:summaries", "service/type": "text/summarise", "pricing/amount": 250,
    "pricing/currency": "ORC", "confirmation/mode": "self-confirmed",
}  # fmt: skip
DEFINITION = {
    "workflow_id": "summary",
    "plan": {
        "steps": [
            {
                "step_id": "summarise",
                "service_type": "text/summarise",
                "target": {"resolve": "task_type", "task_type": "text/summarise"},
                "request_input": {"text": "{{input.text}}"},
                "fulfillment": {"policy": "requester_confirmation"},
            }
        ]
    },
}


@pytest.fixture
def nodes(
    tmp_path: Path, quick_python: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    python = getattr(request, "param", str(quick_python))
    quick: dict[str, Any] = {
        "delivery": {"retry_seconds_min": 0.1, "retry_seconds_max": 0.5},
        "directory": {"sync_ms": 500},
    }
    provider = NodeProcess(tmp_path / "provider", **quick)
    arca = executor_entry("arca", port=free_port(), executable=python)
    arca["restart_policy"] = {"max_restarts": 100}
    buyer = NodeProcess(tmp_path / "buyer", seeds=(provider.url,), modules=(arca,), **quick)
    provider.start()
    buyer.start()
    yield provider, buyer
    for node in (provider, buyer):
        if node.process is not None and node.process.poll() is None:
            node.kill()


def ready(buyer: NodeProcess) -> Any:
    def look() -> Any:
        module = buyer.surely("GET", "/v1/modules/arca").body
        assert module["state"] != "failed", module
        return module if module["ready"] else None

    return wait_until(look)


def arca(buyer: NodeProcess, *words: str) -> tuple[int, Any]:
    """A command, and what it prints for programs."""
    done = quick_starts.run(
        [sys.executable, "-m", "anabranch", "arca", *words, "--json", "--node",
         str(buyer.folder.path)],
        text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("nodes", [sys.executable], indirect=True)  # its connections are looked at
def test_a_run_is_ordered_confirmed_and_paid_once_over_kills(
    nodes: tuple[NodeProcess, NodeProcess], tmp_path: Path
) -> None:
    provider, buyer = nodes
    _trade(provider, buyer)
    (tmp_path / "summary.json").write_text(json.dumps(DEFINITION))
    words = ("run", str(tmp_path / "summary.json"), "--input", "text=a b c", "--run-id", "run:s")
    code, begun = arca(buyer, *words)
    assert (code, begun["run_id"]) == (0, "run:s")
    (request,) = wait_until(lambda: provider.items("/v1/inbox"))

    pid = ready(buyer)["pid"]
    assert _talks_to(pid) <= {buyer.port}, "it opens no connection but that to its host"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ready(buyer)["pid"] != pid)
    buyer.kill()
    buyer.revive()
    ready(buyer)
    assert arca(buyer, *words)[1]["run_id"] == "run:s", "the same id is the same run"

    answer = {"status": "completed", "output": {"summary": "a to c"}}
    path = f"/v1/inbox/{request['request_id']}/answer"
    assert provider.surely("POST", path, answer).status == 200

    def accepted() -> bool:
        (execution,) = buyer.items("/v1/executions")
        if execution["state"] == "awaiting_acceptance":
            buyer.surely("POST", f"/v1/executions/{execution['execution_id']}/accept")
        return bool(execution["state"] == "released")

    wait_until(accepted)
    wait_until(lambda: arca(buyer, "show", "run:s")[1]["status"] == "paused")
    code, _ = arca(buyer, "confirm", "run:s", "summarise", "--actor", "kim")
    assert code == 0
    wait_until(lambda: arca(buyer, "show", "run:s")[1]["status"] == "completed")

    (step,) = arca(buyer, "show", "run:s")[1]["steps"]
    assert step["output"] == {"summary": "a to c"}
    assert step["task"]["decided_by"] == "kim"
    assert step["order_id"] == "order:run:s-summarise-a1"
    assert step["receipt_id"]
    assert len(buyer.items("/v1/executions")) == 1, "nothing was ordered twice"
    assert len(provider.items("/v1/inbox")) == 1
    levels = sorted(one["level"] for one in buyer.items("/v1/notifications"))
    assert levels == ["info", "warning"]
    kept = buyer.folder.path / "middleware" / "arca" / "output" / "runs" / "run:s.json"
    assert json.loads(kept.read_text())["status"] == "completed"
    tokens = [(kept.parents[2] / name).read_text() for name in ("authtok", "host-authtok")]
    log = (kept.parents[2] / "module.log").read_text()
    assert not any(token in log for token in tokens)
    buyer.stop()
    assert not buyer.check().problems


def test_a_bad_definition_is_told_with_all_its_problems(
    nodes: tuple[NodeProcess, NodeProcess], tmp_path: Path
) -> None:
    _, buyer = nodes
    ready(buyer)
    wrong = {"workflow_id": "w", "plan": {"steps": [{"step_id": "a"}, {"step_id": "a"}]}}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong, indent=1))
    done = quick_starts.run(
        [sys.executable, "-m", "anabranch", "arca", "run", str(tmp_path / "wrong.json"),
         "--node", str(buyer.folder.path)],
        text=True, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) >= 2, done.stderr
    assert arca(buyer, "runs")[1] == []


def test_configuration_comes_in_layers_and_a_wrong_one_is_told(
    tmp_path: Path, quick_python: Path
) -> None:
    entry = executor_entry("arca", port=free_port(), executable=str(quick_python))
    factory = tmp_path / "factory"
    (factory / "config").mkdir(parents=True)
    (factory / "config" / "00-arca.json").write_text('{"arca": {"poll_max_ms": 100}}')
    entry |= {"module_dir": str(factory), "restart_policy": {"mode": "never"}}
    node = NodeProcess(tmp_path / "node", modules=(entry,))
    over = node.folder.path / "config" / "arca.json"
    over.write_text('{"arca": {"poll_first_ms": 50}}')
    try:
        node.start()
        ready(node)
        over.write_text('{"arca": {"poll_first_ms": 200}}')  # more than the most of the factory
        node.surely("POST", "/v1/modules/arca/restart")
        wait_until(lambda: node.surely("GET", "/v1/modules/arca").body["state"] == "failed")
        log = (node.folder.path / "middleware" / "arca" / "module.log").read_text()
        assert "poll_first_ms is at most poll_max_ms" in log
    finally:
        node.kill()


def _trade(provider: NodeProcess, buyer: NodeProcess) -> None:
    """The buyer has money, and knows and trusts the offer of the provider."""
    assert provider.surely("POST", "/v1/service-offers", OFFER).status == 201
    trusted = {"participant_id": provider.participant_id}
    assert buyer.surely("POST", "/v1/trusted-providers", trusted).status in (200, 201)
    fetched = buyer.surely("POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
    assert fetched.status == 200, fetched
    ready(buyer)
    asked = {"node_ids": [provider.node_id], "timeout_ms": 5000}
    found = buyer.surely("POST", "/v1/enact/catalog/remote-query", asked)
    assert found.body["status"] == "complete", found
    paid = {"amount": 1000, "idempotency_key": "k"}
    assert buyer.surely("POST", "/v1/ledger/top-up", paid).status in (200, 201)


def _talks_to(pid: int) -> set[int]:
    """Ports of others that a process has open connections to (Linux; elsewhere nothing)."""
    folder = Path(f"/proc/{pid}")
    if not folder.exists():
        return set()
    inodes = set()
    for link in (folder / "fd").iterdir():
        try:
            inodes.add(os.readlink(link).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    rows = [line.split() for line in (folder / "net/tcp").read_text().splitlines()[1:]]
    own = [row for row in rows if row[9] in inodes]
    listening = {row[1] for row in own if row[3] == "0A"}
    return {
        int(row[2].rpartition(":")[2], 16)
        for row in own
        if row[3] != "0A" and row[1] not in listening
    }
