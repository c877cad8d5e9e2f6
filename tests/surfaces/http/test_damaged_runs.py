"""A server over a store in which one run is damaged: it says so, and serves the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from damage import damage

from .support import ASKING, run, serving


@pytest.mark.parametrize("how", ["truncated row", "unknown status", "labels no JSON"])
def test_a_damaged_run_is_told_with_a_problem_and_a_warning_of_health(
    how: str, tmp_path: Path
) -> None:
    async def work() -> None:
        path = tmp_path / "store.db"
        async with serving(path) as client:
            bad, good = await client.start(ASKING), await client.start(ASKING)
            await client.stands(good)
        damage(path, bad, how)
        async with serving(path) as client:
            for what in ("", "/explain", "/joins"):
                reply = await client.get(f"/runs/{bad}{what}")
                assert (reply.status, reply.code) == (500, "damaged_run"), reply.text
                assert bad in reply.json["detail"]
                assert (await client.get(f"/runs/{good}{what}")).status == 200
            refused = await client.post(f"/runs/{bad}/cancel", {})
            assert (refused.status, refused.code) == (500, "damaged_run")
            listed = (await client.get("/runs")).json["items"]
            assert {row["run"]: bool(row["damage"]) for row in listed} == {
                bad: how != "truncated row",  # a list does not read logs
                good: False,
            }
            approvals = (await client.get("/approvals")).json["items"]
            assert good in [row["run"] for row in approvals]
            health = (await client.get("/health")).json
            assert (health["status"], health["ready"]) == ("warn", True)
            assert any("1 run is set aside" in reason for reason in health["reasons"])
            assert bad not in str(health)

    run(work())
