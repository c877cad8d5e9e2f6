"""A definition that feeds itself meets a limit that says its name, and how to raise it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anabranch
from anabranch import Engine, Settings
from anabranch.app import RunResult

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t}\n"
DOUBLES = (
    HEAD + "workflow:\n  - step: a\n    tool: {kind: python, code: 'result = 1'}\n"
    "    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: a}]}\n"
)
LONG = (
    HEAD + "workload: {word: abcdefghij}\nworkflow:\n"
    "  - step: a\n    tool: {kind: python, code: 'result = \"abcdefghij\" * 100'}\n"
    "    next: {arcs: [{step: a}]}\n"
)


def problem_of(ended: RunResult) -> str:
    assert ended.status == "failed"
    assert ended.problem is not None
    return str(ended.problem["message"])


def test_a_run_that_doubles_its_tokens_meets_the_limit_of_step_runs() -> None:
    ended = anabranch.run(DOUBLES, settings=Settings(run_steps_max=60))
    assert "the limit run_steps_max is 60" in problem_of(ended)


def test_a_run_that_writes_without_end_meets_the_limit_of_its_log() -> None:
    ended = anabranch.run(LONG, settings=Settings(run_log_bytes_max=20_000))
    assert "the limit run_log_bytes_max is 20,000" in problem_of(ended)


def test_the_log_that_was_written_before_a_restart_counts(tmp_path: Path) -> None:
    """The run stands at a decision when its engine ends; the next one has a limit below its log."""
    text = HEAD + (
        "workflow:\n  - step: a\n    tool: {kind: noop, result: '" + "x" * 5_000 + "'}\n"
        "    next: {arcs: [{step: ask}]}\n"
        "  - step: ask\n    tool: {kind: decision, ask: go on?}\n"
        "    next: {arcs: [{step: b}]}\n  - step: b\n    tool: {kind: python, code: 'result = 1'}\n"
    )

    async def begin() -> str:
        async with Engine(tmp_path / "s.db", settings=Settings(snapshot_every=1)) as engine:
            run = await engine.start(text)
            await engine.wait(run, standing=True)
            return run

    async def go_on(run: str) -> RunResult:
        settings = Settings(run_log_bytes_max=4_000)
        async with Engine(tmp_path / "s.db", settings=settings) as engine:
            await engine.decide(run, "ask", "fulfil")
            return await engine.wait(run)

    ended = asyncio.run(go_on(asyncio.run(begin())))
    assert "the limit run_log_bytes_max is 4,000" in problem_of(ended)


def test_a_playbook_that_calls_itself_meets_the_limit_of_depth(tmp_path: Path) -> None:
    book = tmp_path / "self.yaml"
    book.write_text(
        HEAD + "workflow:\n  - step: again\n"
        f"    tool: {{kind: playbook, path: {book}, return_result: true}}\n"
    )
    ended = anabranch.run(book, settings=Settings(child_depth_max=3))
    assert "the limit child_depth_max is 3" in problem_of(ended)


def test_a_playbook_that_starts_itself_without_waiting_comes_to_an_end(tmp_path: Path) -> None:
    book = tmp_path / "self.yaml"
    book.write_text(
        HEAD + "workflow:\n  - step: again\n"
        f"    tool: {{kind: playbook, path: {book}, wait: false}}\n"
    )

    async def whole() -> list[str]:
        async with Engine(":memory:", settings=Settings(child_depth_max=3)) as engine:
            run = await engine.start(book)
            found = []
            for _ in range(10):
                ended = await engine.wait(run)
                found.append(ended.status)
                if ended.status != "completed":
                    break
                run = ended.result["run_id"]
            return found

    assert asyncio.run(whole()) == ["completed", "completed", "completed", "failed"]
