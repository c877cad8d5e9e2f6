"""Steps over HTTP: tried now, skipped, and a redrive from one of them."""

from __future__ import annotations

from typing import Any

from anabranch.work.kinds.callables import Toolbox

from .. import access
from ..support import HELLO, playbook, run, serving, step


def toolbox() -> Toolbox:
    box = Toolbox()

    @box.tool(name="fetch")
    def fetch() -> None:
        raise ValueError("the disk is full")

    return box


#: Fails at once, and waits an hour before it is tried again.
STUCK = playbook(
    step("fetch", "fetch", "report", spec={"retry": {"attempts": 3, "delay": "1h"}}),
    step("report", result="{{ fetch }}"),
)


async def tried(client: Any, name: str, attempt: int) -> None:
    """Until it waits for this attempt."""
    words = ""
    while not words.startswith(f"its next try (attempt {attempt})"):
        waiting = (await client.get(f"/runs/{name}/explain")).json["waiting"]
        words = waiting[0]["waits_for"] if waiting else ""


def test_a_step_is_tried_now_and_then_skipped_with_a_result() -> None:
    async def go() -> None:
        async with serving(tools=toolbox()) as client:
            begun = await client.post("/runs", {"definition": STUCK})
            name = begun.json["run"]
            await tried(client, name, 2)
            shown = (await client.get(f"/runs/{name}")).json
            assert shown["steps"]["fetch"]["state"] == "retrying"
            told = await client.post(f"/runs/{name}/steps/fetch/retry", {"reason": "mended"})
            assert (told.status, told.json["run"]) == (200, name)
            await tried(client, name, 3)
            skipped = {"result": {"rows": 3}, "reason": "from the paper"}
            told = await client.post(f"/runs/{name}/steps/fetch/skip", skipped)
            assert told.status == 200
            assert await client.ended(name) == "completed"
            assert (await client.get(f"/runs/{name}")).json["result"] == {"rows": 3}

    run(go())


def test_what_does_not_apply_is_refused() -> None:
    async def go() -> None:
        async with serving() as client:
            begun = await client.post("/runs", {"definition": HELLO})
            name = begun.json["run"]
            await client.ended(name)
            for verb in ("retry", "skip"):
                refused = await client.post(f"/runs/{name}/steps/greet/{verb}", {})
                assert (refused.status, refused.code) == (409, "run_finished")
            wrong = await client.post(f"/runs/{name}/steps/greet/skip", {"token": -1})
            assert wrong.status == 422
            wrong = await client.post(f"/runs/{name}/steps/greet/skip", {"tokens": 1})
            assert wrong.status == 422
            missing = await client.get(f"/runs/{name}/redrive?from=nowhere")
            assert (missing.status, missing.code) == (422, "unknown_step")
            plan = (await client.get(f"/runs/{name}/redrive?from=greet")).json
            assert [one["how"] for one in plan["again"]] == ["asked"]
            again = await client.post(f"/runs/{name}/redrive", {"from": "greet"})
            assert again.status == 201
            assert await client.ended(again.json["run"]) == "completed"

    run(go())


def test_who_may_operate_and_not_decide_passes_by_no_question() -> None:
    """Whoever starts a run should not be able to approve it as well."""

    async def go() -> None:
        async with access.serving(pages=True, require_tokens="yes") as door:
            runs, decides = door.token("operate", name="olga"), door.token("decide", name="dan")
            both = {one: door.token("operate", "decide", name=one) for one in ("ann", "mal")}
            begun = await door.ask("POST", "/runs", runs, access.START)  # ann and bob may decide
            path = f"/runs/{begun.json['run']}/steps/ask/skip"
            for token in (runs, both["mal"]):
                for body in ({}, {"result": {"shipped": True}}):
                    refused = await door.ask("POST", path, token, body)
                    assert (refused.status, refused.code) == (403, "not_allowed"), refused.text
            assert (await door.ask("POST", path, decides, {})).code == "scope"
            shown = await door.ask("GET", path.partition("/steps")[0], runs)
            assert shown.json["status"] == "waiting"
            assert (await door.ask("POST", path, both["ann"], {})).status == 200

    run(go())
