"""What jobs print on a compute cluster comes with their outcome, whatever that is."""

from __future__ import annotations

from anabranch.operations.logs.log_lines import LogQuery, LogReader
from in_loop import in_loop
from pools.local_cluster import LocalCluster, Site, site

from .test_dispatcher import step


def printed(here: Site, run: str) -> list[str]:
    here.parts.engine.logs.flush()
    lines = LogReader(here.parts.store, run, LogQuery()).page().items
    return [f"{line.step}#{line.attempt} {line.stream}: {line.text}" for line in lines]


@in_loop
async def test_what_a_job_printed_comes_with_its_result() -> None:
    async with site(LocalCluster()) as here:
        run = await here.start(step("{kind: shell, command: 'echo far; echo away >&2'}"))
        await here.ended(run)
        assert sorted(printed(here, run)) == ["start#1 stderr: away", "start#1 stdout: far"]


@in_loop
async def test_what_a_job_printed_comes_with_its_failure() -> None:
    async with site(LocalCluster()) as here:
        run = await here.start(step("{kind: python, code: \"print('tried'); 1 / 0\"}"))
        await here.ended(run)
        first, *rest = printed(here, run)
        assert first == "start#1 stdout: tried"
        assert "ZeroDivisionError" in "\n".join(rest)
