"""A secret changes what is shown, never what is decided: whole runs, through the engine."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.settings import Settings

LONG = "hunter2-hunter3-hunter4"
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
SETTINGS = Settings(poll_seconds=0.05)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_SECRET", "test")
    monkeypatch.setenv("LONG_SECRET", LONG)


KEYS = """keychain:
  - {name: db, kind: env, map: {password: SHORT_SECRET}}
  - {name: api, kind: env, map: {token: LONG_SECRET}}
  - {name: dsn, kind: static, value: "pg://u:{{ keychain.api.token }}@h"}
"""


def playbook(folder: Path, body: str, name: str = "p.yaml", head: str = HEAD) -> Path:
    path = folder / name
    path.write_text(head + body)
    return path


class Seen:
    """A run and everything that anybody is shown of it."""

    def __init__(self, result: Any, events: list[Any], show: Any, explain: Any) -> None:
        self.result = result
        self.events = events
        self.show = show
        self.text = repr((result, events, show, explain))

    @property
    def answers(self) -> dict[str, Any]:
        named = [event.fields for event in self.events if event.kind == "job.reported"]
        return {each["job"]: each["answer"] for each in named}


async def seen(engine: Engine, run: str) -> Seen:
    result = await engine.wait(run)
    events = [event async for event in engine.events(run)]
    return Seen(result, events, engine.read.show(run), engine.read.explain(run))


def carried_out(path: Path, store: Path | None = None, **given: Any) -> Seen:
    async def scenario() -> Seen:
        async with Engine(store or ":memory:", settings=SETTINGS) as engine:
            return await seen(engine, await engine.start(path, given))

    return asyncio.run(scenario())


def bytes_of(store: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(store.parent.glob(f"{store.name}*")))


# -- the innocent side -----------------------------------------------------------------------

INNOCENT = """workflow:
  - step: start
    tool: {kind: shell, command: "printf 'the latest contest hunter2-hunter3-hunter4'"}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: right, when: "{{ start.stdout == 'the latest contest hunter2-hunter3-hunter4' }}"}
        - {step: wrong}
  - step: right
    tool: {kind: python, code: "def main():\\n    return {'test': 'test', 'n': ['a test']}"}
  - step: wrong
    tool: {kind: noop}
"""


def test_a_step_that_was_given_no_secret_is_recorded_as_it_answered(tmp_path: Path) -> None:
    with_keys = carried_out(playbook(tmp_path, KEYS + INNOCENT, "a.yaml"))
    without = carried_out(playbook(tmp_path, INNOCENT, "b.yaml"))
    assert with_keys.result.result == without.result.result
    assert list(with_keys.answers.values()) == list(without.answers.values())
    assert "redacted" not in repr(with_keys.answers)


GIVEN = """workflow:
  - step: start
    tool:
      kind: python
      args: {a: "{{ keychain.db.password }}", b: "{{ keychain.api.token }}"}
      code: |
        result = {"test": a, "said": "the latest contest", "all": [b, "x " + b.upper(), 7]}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: python, code: "result = 'the latest'"}
"""


def test_what_is_cleaned_depends_on_length_and_the_run_says_so(tmp_path: Path) -> None:
    run = carried_out(playbook(tmp_path, KEYS + GIVEN))
    first, after = run.answers.values()
    assert first["result"] == {
        "test": "***",
        "said": "the latest contest",
        "all": ["***", "x ***", 7],
    }
    assert first["redacted"] == 3
    assert "redacted" not in after
    assert run.show["redacted"] == {"start": 3}
    assert "hunter2" not in run.text


REDRIVEN = """workflow:
  - step: start
    tool: {kind: noop, result: {said: "{{ keychain.api.token }}"}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: [1, 2], iterator: n}
    tool: {kind: noop, result: "{{ iter.n }} {{ keychain.api.token }}"}
    next: {arcs: [{step: flaky}]}
  - step: flaky
    tool: {kind: shell, command: "test -e {{ workload.path | sh }}"}
"""


def test_a_redriven_run_says_where_there_are_stars_in_what_it_takes_over(tmp_path: Path) -> None:
    path = playbook(tmp_path, "workload: {path: ''}\n" + KEYS + REDRIVEN)
    there = tmp_path / "there"

    async def scenario() -> list[Any]:
        async with Engine(":memory:", settings=SETTINGS) as engine:
            runs = [await engine.start(path, {"path": str(there)})]
            await engine.wait(runs[0])
            for mended in (False, True):  # from what was done, and from what was taken over
                if mended:
                    there.touch()
                runs.append(await engine.redrive(runs[-1]))
                await engine.wait(runs[-1])
            return [engine.read.show(run) for run in runs]

    shown = asyncio.run(scenario())
    assert [each["status"] for each in shown] == ["failed", "failed", "completed"]
    assert [each["redacted"] for each in shown] == [{"start": 1, "each": 2}] * 3


def test_a_short_secret_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "anabranch"):
        carried_out(playbook(tmp_path, KEYS + GIVEN))
    warnings = [each for each in caplog.messages if "fewer than 8 characters" in each]
    assert len(warnings) == 1
    assert "keychain.db" in warnings[0]
    assert "test" not in warnings[0]


# -- cuts ------------------------------------------------------------------------------------


def shell(code: str) -> str:
    return f"""workflow:
  - step: start
    tool:
      kind: shell
      env: {{S: "{{{{ keychain.api.token }}}}"}}
      command: |
        {code}
"""


@pytest.mark.parametrize("before", range(0, 24, 4))
def test_a_secret_is_not_cut_in_two_by_the_tail_of_a_failure(tmp_path: Path, before: int) -> None:
    code = f"printf '%s' x$S; head -c {4000 - before} /dev/zero | tr '\\0' a; exit 3"
    run = carried_out(playbook(tmp_path, KEYS + shell(code)))
    (answer,) = run.answers.values()
    stdout = answer["fault"]["details"]["stdout"]
    assert set(stdout) <= {"a", "*"}, stdout[:40]
    assert len(stdout) >= 4000 - before


@pytest.mark.parametrize("before", [290, 280, 299])
def test_nor_by_the_last_line_in_the_message(tmp_path: Path, before: int) -> None:
    code = f"head -c {before} /dev/zero | tr '\\0' a >&2; printf '%s' $S >&2; exit 3"
    run = carried_out(playbook(tmp_path, KEYS + shell(code)))
    (answer,) = run.answers.values()
    assert "hunter" not in answer["fault"]["message"]
    assert "aaa***" in answer["fault"]["message"]


@pytest.mark.parametrize("encode", ["cat", "base64", "xxd -p"])
def test_nor_by_the_capture_of_a_stream(tmp_path: Path, encode: str) -> None:
    if encode == "xxd -p":
        encode = "od -An -tx1 | tr -d ' \\n'"
    code = f"printf '%s' $S | {encode}; head -c 1048566 /dev/zero | tr '\\0' @"
    run = carried_out(playbook(tmp_path, KEYS + shell(code)))
    (answer,) = run.answers.values()
    whole = run.result.result
    text = repr(answer["result"]) + repr(whole)
    written = base64.b64encode(LONG.encode()).decode()
    for trace in ("hunter4", written[-9:-1], LONG.encode().hex()[-10:]):
        assert trace not in text


def test_nor_by_what_python_prints_or_raises(tmp_path: Path) -> None:
    code = """workflow:
  - step: start
    tool:
      kind: python
      args: {s: "{{ keychain.api.token }}"}
      code: |
        print(s + "b" * (64 * 1024 - 10), end="")
        raise ValueError("a" * 3970 + s)
"""
    run = carried_out(playbook(tmp_path, KEYS + code))
    assert "hunter" not in run.text
    (answer,) = run.answers.values()
    assert answer["fault"]["details"]["output"].lstrip("*b") == ""


@pytest.mark.parametrize("between", range(12, 48, 6))
def test_an_excerpt_of_a_statement_shows_no_part_of_a_secret(tmp_path: Path, between: int) -> None:
    pytest.importorskip("duckdb")
    code = f"""workflow:
  - step: start
    tool:
      kind: duckdb
      command: >-
        select {"1 +" * 30} 1, '{{{{ keychain.api.token }}}}' as {"b" * between}, nothing_here
        from range(10) where 2 = 2
"""
    run = carried_out(playbook(tmp_path, KEYS + code))
    (answer,) = run.answers.values()
    assert answer["fault"]["kind"] == "db_error"
    for part in ("hunter", "unter", "nter4", "ter4'"):
        assert part not in answer["fault"]["message"]


# -- secrets that many others came after -----------------------------------------------------


def test_a_run_keeps_its_secrets_whatever_others_come_by(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in the log of the process, for as long as the run lives."""
    code = """workflow:
  - step: start
    tool: {kind: shell, command: "sleep 0.3; echo {{ keychain.api.token }}"}
"""

    async def scenario() -> Seen:
        async with Engine(":memory:", settings=SETTINGS) as engine:
            run = await engine.start(playbook(tmp_path, KEYS + code))
            redactor = engine._open.redactor
            while not redactor.knows_any:
                await asyncio.sleep(0.01)
            for number in range(600):
                redactor.learn(f"another-secret-{number}", "")
            assert redactor.text(LONG) == "***"
            found = await seen(engine, run)
            for number in range(600):
                redactor.learn(f"yet-another-secret-{number}", "")
            assert redactor.text(LONG) == LONG
            return found

    run = asyncio.run(scenario())
    assert run.result.result["stdout"] == "***\n"
    assert "hunter" not in run.text


# -- children --------------------------------------------------------------------------------

CHILD = """workload: {password: "", nested: {}}
workflow:
  - step: start
    tool:
      {kind: shell, command: "printf '%s' \\"$P\\" | wc -c", env: {P: "{{ workload.password }}"}}
    next: {arcs: [{step: innocent}]}
  - step: innocent
    tool: {kind: python, code: "result = 'the hunter2-hunter3-hunter4'"}
    next: {arcs: [{step: echo}]}
  - step: echo
    tool: {kind: python, args: {p: "{{ workload.nested.list[0] }}"}, code: "result = [p, len(p)]"}
"""
PARENT = """workflow:
  - step: start
    tool:
      kind: playbook
      path: %s
      wait: true
      args:
        password: "{{ keychain.api.token }}"
        nested: {list: ["a {{ keychain.api.token }} b"], pin: "{{ keychain.db.password }}"}
        plain: 7
"""


def test_a_child_is_given_a_secret_that_its_log_does_not_show(tmp_path: Path) -> None:
    child = playbook(tmp_path, CHILD, "child.yaml")
    parent = playbook(tmp_path, KEYS + PARENT % child)
    store = tmp_path / "runs.db"

    async def scenario() -> tuple[Seen, Seen]:
        async with Engine(store, settings=SETTINGS) as engine:
            run = await engine.start(parent, {})
            mother = await seen(engine, run)
            (head,) = [each for each in engine.read.runs() if each["run"] != run]
            return mother, await seen(engine, head["run"])

    mother, own = asyncio.run(scenario())
    assert mother.result.status == "completed", mother.text
    counted, innocent, echoed = own.answers.values()
    assert int(counted["result"]["stdout"]) == len(LONG)
    assert innocent["result"] == f"the {LONG}"
    assert echoed["result"] == ["a *** b", len(LONG) + 4]
    assert own.events[0].fields["workload"]["password"].startswith("***")
    assert own.events[0].fields["workload"]["plain"] == 7
    assert own.events[0].fields["sealed"] == ["password", "nested"]
    assert "hunter" not in mother.text
    assert "hunter" not in own.text.replace(f"the {LONG}", "")
    assert LONG.encode() not in bytes_of(store).replace(f"the {LONG}".encode(), b"")


def test_no_text_that_somebody_gives_stands_for_a_secret_of_a_child(tmp_path: Path) -> None:
    """A name that looks like a mark reaches the work of the child as it is."""
    body = """workload: {password: "", name: ""}
workflow:
  - step: start
    tool:
      kind: python
      args: {p: "{{ workload.password }}", name: "{{ workload.name }}"}
      code: "result = [len(p), len(name)]"
"""
    child = playbook(tmp_path, body, "child.yaml")
    parent = playbook(
        tmp_path,
        KEYS
        + f"""workload: {{name: ""}}
workflow:
  - step: start
    tool:
      kind: playbook
      path: {child}
      return_step: start
      args: {{password: "{{{{ keychain.api.token }}}}", name: "{{{{ workload.name }}}}"}}
""",
    )

    async def scenario(name: str) -> Seen:
        async with Engine(":memory:", settings=SETTINGS) as engine:
            return await seen(engine, await engine.start(parent, {"name": name}))

    for name in ("***1***", "***s1***"):
        run = asyncio.run(scenario(name))
        assert run.result.status == "completed", run.text
        assert run.result.result["result"] == [len(LONG), len(name)]


def test_a_child_goes_on_with_its_secret_after_the_engine_was_gone(tmp_path: Path) -> None:
    body = """workload: {password: ""}
workflow:
  - step: start
    when: "{{ ctx.go | default(false) }}"
    tool: {kind: python, args: {p: "{{ workload.password }}"}, code: "result = len(p)"}
"""
    child = playbook(tmp_path, body, "child.yaml")
    parent = playbook(tmp_path, KEYS + PARENT % child)
    store = tmp_path / "runs.db"

    async def begin() -> str:
        async with Engine(store, settings=SETTINGS) as engine:
            run = await engine.start(parent, {})
            for _ in range(1000):
                for each in engine.read.runs():
                    if each["run"] != run and each["status"] == "waiting":
                        return str(each["run"])
                await asyncio.sleep(0.02)
        raise AssertionError("no child")

    async def go_on(child_run: str) -> Seen:
        async with Engine(store, settings=SETTINGS) as engine:
            await engine.patch(child_run, {"go": True})
            return await seen(engine, child_run)

    child_run = asyncio.run(begin())
    assert LONG.encode() in bytes_of(store), "beside the log, while the run lives"
    own = asyncio.run(go_on(child_run))
    assert own.result.status == "completed", own.text
    assert own.result.result == len(LONG)
    assert LONG.encode() not in bytes_of(store), "wiped with the end of the run"


def test_a_guard_that_reads_a_secret_argument_is_told(tmp_path: Path) -> None:
    body = """workload: {password: ""}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: end, when: "{{ workload.password == 'x' }}"}]}
  - step: end
    tool: {kind: noop}
"""
    child = playbook(tmp_path, body, "child.yaml")
    run = carried_out(playbook(tmp_path, KEYS + PARENT % child))
    assert run.result.status == "failed"
    assert "workload.password is a secret" in run.text
