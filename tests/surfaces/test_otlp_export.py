"""A real server process sends its spans to a real collector: OTLP over HTTP, protobuf."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from anabranch.work import tracing as ids

from .collector import Collector, Seen, collector, process, run, told, worker

OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def playbook(url: str, *more: str, name: str = "traced") -> str:
    return "\n".join(
        [
            "apiVersion: noetl.io/v2",
            "kind: Playbook",
            f"metadata: {{name: {name}}}",
            "workflow:",
            f"  - step: call\n    tool: {{kind: http, url: '{url}/flaky', method: GET}}",
            "    spec: {retry: {attempts: 3, delay: 10ms}}",
            *more,
        ]
    )


def tree(seen: Collector) -> dict[str, str]:
    """Name of the span → name of its parent."""
    by_id = {span.span: span.name for span in seen.spans}
    return {span.name: by_id.get(span.parent, span.parent) for span in seen.spans}


def inside(child: Seen, parent: Seen) -> bool:
    return parent.begin <= child.begin <= child.end <= parent.end


@pytest.mark.slow
def test_a_run_its_steps_and_every_attempt_arrive_at_a_collector(tmp_path: Path) -> None:
    async def work() -> None:
        async with collector() as seen:
            seen.refuse = 1
            named = told(seen.url, OTEL_SERVICE_NAME="harbour", OTEL_EXPORTER_OTLP_HEADERS="k=v")
            async with process(tmp_path / "store.db", named) as server:
                begun = await server.start(playbook(seen.url))
                assert await server.ended(begun) == "completed"
                await seen.until(lambda: seen.named("traced"))
                assert await server.stop() == 0
        assert seen.headers[0]["k"] == "v"
        assert {span.service for span in seen.spans} == {"harbour"}
        assert {span.trace for span in seen.spans} == {f"{ids.trace_id(begun):032x}"}
        assert tree(seen) == {"traced": "", "call": "traced", "call job": "call"}
        (root,), (step,) = seen.named("traced"), seen.named("call")
        first, second = sorted(seen.named("call job"), key=lambda span: span.begin)
        assert root.attributes["anabranch.status"] == "completed"
        assert {span.attributes["anabranch.run"] for span in seen.spans} == {begun}
        assert {span.attributes["anabranch.dialect"] for span in seen.spans} == {"noetl"}
        assert step.attributes["anabranch.step"] == "call"
        assert [first.attributes["anabranch.attempt"], second.attributes["anabranch.attempt"]] == [
            1,
            2,
        ]
        assert (first.status, first.attributes["anabranch.status"]) == (2, "error")
        assert (first.attributes["error.type"], second.status) == ("server_error", 1)
        assert "503" in first.message
        assert [name for name, _ in step.events] == ["job.retrying"]
        assert step.events[0][1]["anabranch.attempt"] == 2
        assert all(inside(span, step) for span in (first, second))
        assert inside(step, root)
        # What was called knows the very execution that called it.
        assert seen.called == [
            ("/flaky", f"00-{root.trace}-{first.span}-01"),
            ("/flaky", f"00-{root.trace}-{second.span}-01"),
        ]

    run(work())


@pytest.mark.slow
def test_a_run_begun_in_a_trace_belongs_to_it_and_so_does_its_child(tmp_path: Path) -> None:
    async def work() -> None:
        async with collector() as seen:
            (tmp_path / "child.yaml").write_text(playbook(seen.url, name="child"))
            parent = playbook(
                seen.url,
                "    next: {arcs: [{step: ask}]}",
                "  - step: ask",
                "    tool: {kind: playbook, path: child.yaml, return_step: call}",
            )
            async with process(tmp_path / "store.db", told(seen.url)) as server:
                begun = await server.start(parent, traceparent=OUTER)
                assert await server.ended(begun) == "completed"
                await seen.until(lambda: seen.named("traced") and seen.named("child"))
                unsampled = OUTER.removesuffix("01") + "00"
                quiet = await server.start(playbook(seen.url), traceparent=unsampled)
                assert await server.ended(quiet) == "completed"
                await server.start(playbook(seen.url, name="garbled"), traceparent="00-0-0-01")
                await seen.until(lambda: seen.named("garbled"))
                assert await server.stop() == 0
        traces = {span.trace for span in seen.spans if span.name != "garbled"}
        outer = ids.read(OUTER)
        assert outer is not None
        assert f"{outer.trace:032x}" in traces
        (root,), (child,), (ask,) = (
            seen.named("traced"), seen.named("child"), seen.named("ask job"),
        )  # fmt: skip
        assert (root.trace, root.parent) == (f"{outer.trace:032x}", f"{outer.span:016x}")
        assert (child.trace, child.parent) == (root.trace, ask.span)
        assert inside(child, ask)
        assert {span.trace for span in seen.spans} == {root.trace, seen.named("garbled")[0].trace}
        assert quiet not in {span.attributes["anabranch.run"] for span in seen.spans}
        unwanted = [header for _, header in seen.called if header.endswith("-00")]
        assert len(unwanted) == 1  # the caller's decision travels on
        assert seen.named("garbled")[0].parent == ""

    run(work())


@pytest.mark.slow
def test_workers_elsewhere_go_on_with_the_trace(tmp_path: Path) -> None:
    """They are told nothing of OpenTelemetry: the span comes with the job."""

    async def work() -> None:
        async with collector() as seen:
            (tmp_path / "child.yaml").write_text(playbook(seen.url, name="child"))
            far = "\n".join(
                [
                    *("apiVersion: noetl.io/v2", "kind: Playbook", "metadata: {name: traced}"),
                    *("workflow:", "  - step: far", "    spec: {pool: gpu}"),
                    f"    tool: {{kind: http, url: '{seen.url}/far', method: GET}}",
                    *("    next: {arcs: [{step: ask}]}", "  - step: ask", "    spec: {pool: gpu}"),
                    "    tool: {kind: playbook, path: child.yaml, return_step: call}",
                ]
            )
            async with (
                process(tmp_path / "store.db", told(seen.url)) as server,
                worker(server.url, "gpu"),
            ):
                begun = await server.start(far, traceparent=OUTER)
                assert await server.ended(begun) == "completed"
                await seen.until(lambda: seen.named("traced") and seen.named("child"))
        (root,), (job,), (ask,) = (
            seen.named("traced"), seen.named("far job"), seen.named("ask job"),
        )  # fmt: skip
        assert ("/far", f"00-{root.trace}-{job.span}-01") in seen.called
        assert job.attributes["anabranch.worker"] == "w1"
        (child,) = seen.named("child")
        assert (child.trace, child.parent) == (root.trace, ask.span)
        assert root.trace in OUTER

    run(work())


@pytest.mark.slow
def test_a_run_that_survives_a_kill_is_one_whole_trace(tmp_path: Path) -> None:
    """Also with spans that had ended and were still waiting to be sent when it was killed."""

    async def work() -> None:
        store = tmp_path / "store.db"
        async with collector() as seen:
            definition = playbook(
                seen.url,
                "    next: {arcs: [{step: hold}]}",
                "  - step: hold",
                f"    tool: {{kind: http, url: '{seen.url}/held', timeout: 60}}",
            )
            never = told(seen.url, OTEL_BSP_SCHEDULE_DELAY="600000")
            async with process(store, never) as server:
                finished = await server.start(playbook(seen.url, name="before"))
                assert await server.ended(finished) == "completed"
                begun = await server.start(definition)
                await seen.until(lambda: "/held" in dict(seen.called))
                server.kill()
            assert seen.spans == []
            async with process(store, told(seen.url)) as server:
                await seen.until(lambda: seen.named("before"))
                await seen.until(lambda: [p for p, _ in seen.called].count("/held") == 2)
                seen.held.set()
                assert await server.ended(begun) == "completed"
                await seen.until(lambda: seen.named("traced"))
                assert await server.stop() == 0
        spans = [span for span in seen.spans if span.attributes["anabranch.run"] == begun]
        assert {span.trace for span in spans} == {f"{ids.trace_id(begun):032x}"}
        assert sorted(span.name for span in spans) == [
            *("call", "call job", "hold", "hold job", "hold job", "traced"),
        ]
        lost, done = sorted(seen.named("hold job"), key=lambda span: span.begin)
        assert (lost.attributes["anabranch.status"], lost.status) == ("lost", 2)
        assert done.status == 1
        assert len({span.span for span in spans}) == len(spans)
        (root,) = seen.named("traced")
        assert all(inside(span, root) for span in spans)

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_a_collector_that_is_away_costs_spans_and_nothing_else(
    silent: bool, tmp_path: Path
) -> None:
    """Nobody listens there, or somebody who never answers."""

    async def work() -> None:
        with socket.socket() as hole:
            hole.bind(("127.0.0.1", 0))
            if silent:
                hole.listen(64)
            away = told(f"http://127.0.0.1:{hole.getsockname()[1]}", OTEL_BSP_MAX_QUEUE_SIZE="512")
            async with collector() as service, process(tmp_path / "store.db", away) as server:
                runs = [await server.start(playbook(service.url)) for _ in range(15)]
                for each in runs:
                    assert await server.ended(each) == "completed"
                assert (await server.get("/health"))["status"] == "ok"
                assert await server.stop() == 0

    run(work())


@pytest.mark.slow
def test_without_the_extra_a_setting_is_refused_and_a_variable_of_the_machine_is_not(
    tmp_path: Path,
) -> None:
    """The packages are hidden as if they were not installed."""
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')")

    async def work() -> None:
        bare = {"PYTHONPATH": str(hidden.parent)}
        asked = {**bare, "ANABRANCH_OTEL_ENDPOINT": "http://127.0.0.1:9/v1/traces"}
        with pytest.raises(AssertionError, match=r"pip install 'anabranch\[otel\]'"):
            async with process(tmp_path / "store.db", asked):
                pass
        standard = {**bare, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        async with collector() as service:
            async with process(tmp_path / "store.db", standard) as server:
                assert await server.ended(await server.start(playbook(service.url))) == "completed"
                assert await server.stop() == 0
            assert b"no traces are sent" in server.errors
            async with process(tmp_path / "store.db", bare) as server:
                assert await server.ended(await server.start(playbook(service.url))) == "completed"
                assert await server.stop() == 0
            assert b"trace" not in server.errors
            assert {header for _, header in service.called} == {""}

    run(work())


@pytest.mark.slow
def test_where_nobody_asks_for_traces_nothing_of_opentelemetry_is_imported() -> None:
    async def work() -> None:
        code = "import sys; from anabranch.surfaces.http import serve, traces; "
        code += "print([name for name in sys.modules if name.startswith('opentelemetry')])"
        made = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await made.communicate()
        assert out.strip() == b"[]"

    run(work())
