"""A worker begins the child that the recorded task says, with the input that the task says."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.workers import child_requests, job_data
from surfaces.worker.support import Server, playbook, run, serving, working

CHILD = playbook("  - {step: only, tool: {kind: noop, result: '{{ workload.n }}'}}\n")


def parent(task: str, **more: str) -> str:
    return playbook(f"  - {{step: far, spec: {{pool: gpu}}, tool: {task}}}\n", **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "other.yaml").write_text(CHILD)
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    return tmp_path


async def asked(server: Server, **body: Any) -> tuple[int, Any]:
    """Ask for a child of the one job that waits."""
    (task,) = (await server.claim(wait_seconds=20))["tasks"]
    child = body.pop("run", f"{task['run']}-{task['job']}")
    return await server.say(task, "children", {"run": child, **body})


async def workload(server: Server, child: str) -> Any:
    return (await server.parts.verbs.wait(child)).workload


def test_the_file_is_the_one_that_the_task_names(folder: Path) -> None:
    text = parent(f"{{kind: playbook, path: {folder}/child.yaml}}")

    async def scenario() -> None:
        async with serving() as server:
            for path in (f"{folder}/other.yaml", "/etc/passwd", f"{folder}/passwd", "child.yaml"):
                await server.start(text)
                status, answer = await asked(server, path=path)
                assert (status, answer["code"]) == (409, "child_path"), answer
                assert "root:" not in str(answer)
            await server.start(text)
            assert (await asked(server, path=f"{folder}/child.yaml"))[0] == 200

    run(scenario())


def test_the_input_is_the_one_that_the_task_says(folder: Path) -> None:
    task = f"{{kind: playbook, path: {folder}/child.yaml, args: {{n: '{{{{ workload.n }}}}'}}}}"

    async def scenario() -> None:
        async with serving() as server:
            await server.start(parent(task), n=7)
            given = {"n": 666, "more": "things"}
            status, begun = await asked(
                server, path=f"{folder}/child.yaml", input=given, waits=True, returns="only"
            )
            assert status == 200, begun
            assert await workload(server, begun["run"]) == {"n": 7}
            assert server.parts.engine.state(begun["run"]).parent is None, "the task does not wait"

    run(scenario())


def test_no_mark_of_a_worker_stands_for_a_text_that_the_task_says(folder: Path) -> None:
    """It would be another input: a text with stars around it is no mark."""
    task = f"{{kind: playbook, path: {folder}/child.yaml, args: {{n: '***bold***'}}}}"

    async def scenario() -> None:
        async with serving() as server:
            for mark in ("***bold***", "***\0***", f"***1.{'0' * 16}***\n", f"***1{'0' * 16}***"):
                await server.start(parent(task))
                sealed = {mark: "as I like it"}
                status, answer = await asked(
                    server, path=f"{folder}/child.yaml", sealed=sealed, waits=True
                )
                assert (status, answer["code"]) == (422, "sealed"), answer

    run(scenario())


def test_what_only_the_worker_knows_is_taken_from_it_and_nothing_else(folder: Path) -> None:
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool:
      - {{name: first, kind: noop, result: 5}}
      - name: second
        kind: playbook
        path: {folder}/child.yaml
        args: {{n: "{{{{ first }}}}", fixed: "{{{{ workload.fixed }}}}"}}
        wait: true
""")

    async def scenario() -> None:
        async with serving() as server:
            await server.start(text, fixed="as told")
            given = {"n": 5, "fixed": "as I like it", "more": "things"}
            status, begun = await asked(server, path=f"{folder}/child.yaml", input=given)
            assert status == 200, begun
            assert await workload(server, begun["run"]) == {"n": 5, "fixed": "as told"}

    run(scenario())


def test_a_path_that_only_the_worker_knows_has_to_be_named_or_near(folder: Path) -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    loop: {in: "{{ workload.files }}", iterator: file}
    tool: {kind: playbook, path: "{{ iter.file }}", args: {n: 1}}
""")

    async def scenario() -> None:
        async with serving() as server:
            files = [f"{folder}/child.yaml"]
            for path in ("/etc/passwd", f"{folder}/other.yaml", f"{folder}/child.yam"):
                await server.start(text, files=files)
                status, answer = await asked(server, path=path, input={"n": 1})
                assert (status, answer["code"]) == (409, "child_path"), answer
            await server.start(text, files=files)
            status, begun = await asked(server, path=files[0], input={"n": 1})
            assert status == 200, begun
            near = folder / "parent.yaml"
            near.write_text(text.replace("pooled", "near"))
            await server.parts.verbs.start(near, {"files": ["x"]})
            status, begun = await asked(server, path=f"{folder}/other.yaml", input={"n": 1})
            assert status == 200, begun
            await server.parts.verbs.start(near, {"files": ["x"]})
            status, answer = await asked(server, path=f"{folder}/passwd")
            assert (status, answer["code"]) == (409, "child_path"), answer

    run(scenario())


@pytest.mark.parametrize(
    "path",
    ["/no/\0.yaml", f"{'a/' * 1000}x.yaml", f"{'x' * 300}.yaml"],
    ids=["nul", "deep", "long"],
)
def test_a_path_that_there_cannot_be_is_refused(folder: Path, path: str) -> None:
    text = parent("{kind: playbook, path: '{{ keychain.nobody.knows }}'}")

    async def scenario() -> None:
        near = folder / "parent.yaml"
        near.write_text(text)
        async with serving() as server:
            await server.parts.verbs.start(near)
            status, answer = await asked(server, path=path)
            assert (status, answer["code"]) == (409, "child_path"), answer

    run(scenario())


def test_the_disk_is_looked_at_beside_the_event_loop_for_a_path_of_a_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[threading.Thread] = []

    def beside(origin: str | None, path: str) -> bool:
        looked.append(threading.current_thread())
        return child_requests.beside(origin, path)

    monkeypatch.setattr(job_data, "beside", beside)
    text = parent("{kind: playbook, path: '{{ keychain.nobody.knows }}'}")

    async def scenario() -> None:
        near = folder / "parent.yaml"
        near.write_text(text)
        async with serving() as server:
            await server.parts.verbs.start(near)
            assert (await asked(server, path=f"{folder}/child.yaml"))[0] == 200
            (task,) = looked
            assert task is not threading.current_thread()
            too_long = {"run": "r", "path": f"{'a/' * 10_000}x.yaml"}
            name = {"run": "r", "job": "1.0", "attempt": 1}
            status, answer = await server.say(name, "children", too_long)
            assert (status, answer["code"]) == (422, "schema")

    run(scenario())


def test_the_id_of_a_child_is_made_from_the_job(folder: Path) -> None:
    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(parent(f"{{kind: playbook, path: {folder}/child.yaml}}"))
            (task,) = (await server.claim(wait_seconds=20))["tasks"]
            for child in (f"{name}-9.0", f"{name}-{task['job']}0", f"{name}-{task['job']}.1"):
                body = {"path": f"{folder}/child.yaml", "run": child}
                status, answer = await server.say(task, "children", body)
                assert (status, answer["code"]) == (422, "bad_run_id"), answer

    run(scenario())


def test_a_run_that_somebody_else_began_is_no_child(folder: Path) -> None:
    """Its id can be known before: that of the parent may be chosen, too."""
    text = parent(f"{{kind: playbook, path: {folder}/child.yaml, wait: true}}")

    async def scenario() -> None:
        async with serving() as server:
            await server.parts.verbs.start(CHILD, {"n": "of somebody else"}, run="chosen-1.0")
            await server.parts.verbs.start(text, run="chosen")
            status, answer = await asked(server, path=f"{folder}/child.yaml")
            assert (status, answer["code"]) == (409, "run_exists"), answer

    run(scenario())


def test_what_is_wrong_with_the_file_is_told_to_the_log_and_not_to_the_worker(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    text = parent(f"{{kind: playbook, path: {folder}/passwd}}")

    async def scenario() -> None:
        async with serving() as server:
            await server.start(text)
            status, answer = await asked(server, path=f"{folder}/passwd")
            assert (status, answer["code"]) == (409, "child_refused"), answer
            assert "root:" not in str(answer)
            assert str(folder / "passwd") in caplog.text

    run(scenario())


def test_a_worker_of_ours_begins_children_as_the_definition_says(folder: Path) -> None:
    text = playbook(
        f"""
  - step: each
    spec: {{pool: gpu}}
    loop: {{in: [1, 2], iterator: n}}
    tool:
      - {{name: double, kind: noop, result: "{{{{ iter.n * 2 }}}}"}}
      - {{name: sub, kind: playbook, path: "{folder}/{{{{ workload.file }}}}",
         args: {{n: "{{{{ double }}}}"}}}}
"""
    )

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text, file="child.yaml")
            state = await server.parts.verbs.wait(name)
            assert None not in state.results["each"]["results"], state.problem
            begun = [one["run_id"] for one in state.results["each"]["results"]]
            found = [(await workload(server, child))["n"] for child in begun]
            assert found == [2, 4], state.problem

    run(scenario())


def named(server: Server, says: str, path: str = "etl/child") -> None:
    text = CHILD.replace("{name: pooled}", f"{{name: child, path: {path}}}")
    text = text.replace("{{ workload.n }}", says)
    server.parts.catalog.register([Draft(text, "child.yaml")], now=1)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("path: etl/child", "two"),
        ("path: etl/child, version: 1", "one"),
        ("path: etl/child, version: '{{ workload.n }}'", "one"),
        ("catalog_id: 1", "one"),
    ],
)
def test_a_worker_begins_a_child_of_the_catalog(how: str, says: str) -> None:
    async def scenario() -> None:
        async with serving() as server, working(server.url):
            named(server, "one")
            named(server, "two")
            begun = await server.start(parent(f"{{kind: playbook, {how}, wait: true}}"), n=1)
            state = await server.parts.verbs.wait(begun)
            assert state.status == "completed", state.problem
            assert state.results["far"]["result"] == says

    run(scenario())


def test_a_worker_chooses_no_other_path_version_or_number() -> None:
    fixed = "{kind: playbook, path: etl/child, version: 1}"
    loose = """
  - step: far
    spec: {pool: gpu}
    loop: {in: [1], iterator: n}
    tool: {kind: playbook, path: etl/child, version: "{{ iter.n }}"}
  - step: near
    tool: {kind: playbook, path: etl/other}
"""

    async def scenario() -> None:
        async with serving() as server:
            named(server, "one")
            named(server, "other", "etl/other")
            for text, path in (
                (parent(fixed), "etl/child"),
                (parent(fixed), "catalog://etl/child@2"),
                (parent(fixed), "catalog-id:1"),
                (playbook(loose), "etl/other"),
            ):
                await server.start(text)
                status, answer = await asked(server, path=path)
                assert (status, answer["code"]) == (409, "child_path"), (path, answer)
            await server.start(parent(fixed))
            assert (await asked(server, path="catalog://etl/child@1"))[0] == 200

    run(scenario())
