"""What the node says to modules, and keeps for them, passes the check of documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from anabranch.market.documents import check
from anabranch.market.node.ports import InboundMessage

from .support import NoSigner, ScriptedModule, decision, hosted, in_process, run

NODE_ID = "node:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"
HEAD = {"schema_version": "v1"}


def passes(document: Any, kind: str) -> bool:
    assert check(document, kind=kind) == []
    return True


def test_calls_of_modules(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(NoSigner, "node_id", NODE_ID)

    async def scenario() -> None:
        module = ScriptedModule(
            "arca",
            module_name="Arca",
            module_version="1",
            middleware_contract_version="v1",
            input_chains=[
                {"chain": "inbound-peer"},
                {"chain": "inbound-local", "local_routes": ["GET service-catalog"]},
            ],
        )
        module.answers["/v1/middleware/invoke"] = decision("allow")
        config = in_process("arca", grants=["workflow.*"])
        async with hosted(module, configs=[config], data_dir=tmp_path) as node:
            await node.part.peer_message(
                InboundMessage(msg="m", payload=1, correlation_id="c", remote_node_id=NODE_ID)
            )
            await node.ask("GET", "/v1/enact/service-catalog", query={"a": "b"})
        assert passes(module.answers["/v1/middleware/init"], "middleware-module-report")
        assert passes(module.bodies("/v1/middleware/init")[0], "middleware-init")
        peer, local = module.bodies()
        assert passes(peer, "peer-message-invoke.v1")
        assert passes(local, "local-input-invoke.v1")

    run(scenario())


def test_answers_to_modules(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=[in_process("arca", enabled=False)], data_dir=tmp_path) as node:

            async def ask(called: str, **body: Any) -> Any:
                return (await node.ask("POST", f"/v1/module/{called}", body, as_="arca")).body

            key = {**HEAD, "record_kind": "k", "record_id": "r"}
            store = "store/records"
            answers = [
                await ask(f"{store}/put", capability_id="module_store_put", payload=1, **key),
                await ask(f"{store}/get", capability_id="module_store_get", **key),
                await ask(f"{store}/list", capability_id="module_store_list", **HEAD),
                await ask(f"{store}/delete", capability_id="module_store_delete", **key),
                await ask(f"{store}/get", capability_id="module_store_get", **key),
            ]
            outcomes = ["stored", "found", "listed", "deleted", "missing"]
            assert [one["outcome"] for one in answers] == outcomes
            assert all(passes(one, "module-store-response") for one in answers)
            note = {**HEAD, "capability_id": "notify_emit", "level": "info", "title": "t"}
            assert passes(await ask("notify", body="", **note), "notify-emit-response")
            file = {**HEAD, "capability_id": "artifact_write", "path": "a", "json": 1}
            written = await ask("artifact/write", content_type="application/json", **file)
            assert written["outcome"] == "written"
            assert passes(written, "artifact-write-response")
            made = await ask("workflow/runs", run_id="run:1", steps=[{"step_id": "s"}])
            assert made["revision"] == 1
            assert passes(made, "workflow-run-snapshot.v1")

    run(scenario())


def test_the_examples_of_endpoints_fit_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with hosted(configs=[in_process("arca", enabled=False)], data_dir=tmp_path) as node:
            tried = 0
            for endpoint in node.part.endpoints():
                if endpoint.example is not None:
                    msgspec.convert(endpoint.example, endpoint.body)
                    path = endpoint.path.format(run="run:1", step="ask")
                    answer = await node.ask(endpoint.method, path, endpoint.example, as_="arca")
                    assert answer.status == 200, (endpoint.path, answer.body)
                    tried += 1
            assert tried == 9

    run(scenario())
