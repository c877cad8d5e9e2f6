"""An order from the offer of Dator to its result, between two whole nodes."""

from __future__ import annotations

from in_loop import in_loop
from modules.dator.support import Market


@in_loop
async def test_an_order_is_done_by_the_role_and_its_result_closes_it() -> None:
    market = Market()
    await market.open()
    await market.order()
    await market.world.advance(5)
    assert (await market.execution())["state"] == "awaiting_acceptance"
    result = await market.result()
    assert (result["status"], result["output"]) == ("completed", {"summary": "a lon"})
    assert len(market.role.calls) == 1
    queue = await market.queue()
    assert (queue["items"], [one["state"] for one in queue["ended"]]) == ([], ["delivered"])
    run = result["workflow/run-id"]
    steps = await market.ask("provider", "GET", f"/v1/workflows/runs/{run}/steps/completed")
    assert [one["step_id"] for one in steps["items"]] == ["order"]
    await market.close()
