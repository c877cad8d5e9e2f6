"""What work prints is kept per attempt, however it is printed, and never in the log of events."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.operations.logs.log_lines import GAP, LogLine, LogQuery, LogReader
from anabranch.parts import Parts
from anabranch.runtime.log_writer import LogWriter
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from anabranch.store.work_log_ports import LogFilter
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

from .support import playbook, run, step

SECRET = "correct-horse-battery"
log = logging.getLogger("shop")


def tools() -> Toolbox:
    box = Toolbox()

    @box.tool("speak")
    def speak(text: str = "spoken", fail_until: int = 0, task: Any = None) -> str:
        print(text)
        print("to stderr", file=sys.stderr)
        log.warning("logged %s", text)
        if task is not None and task.attempt <= fail_until:
            raise ValueError(f"attempt {task.attempt}")
        return text

    @box.tool("speak_async")
    async def speak_async(text: str) -> str:
        print(text, end="")
        await asyncio.sleep(0)
        print("!")
        return text

    @box.tool("speak_here", blocking=False)
    def speak_here(n: int) -> int:
        print("here", n)
        return n

    @box.tool("in_thread")
    def in_thread(n: int) -> int:
        print("thread", n)
        if n == 2:
            raise ValueError("two")
        return n

    @box.tool("halves")
    def halves(key: str) -> None:
        sys.stdout.write(key[:7])
        sys.stdout.write(key[7:] + "\n")
        log.warning("key=%s", key)
        raise ValueError(f"bad key {key}")

    return box


@asynccontextmanager
async def engine(store: str = ":memory:", **settings: Any) -> AsyncIterator[Parts]:
    chosen = Settings(store=store, **settings)
    opened = open_store(chosen)
    parts = Parts(opened, chosen, tools())
    await parts.open()
    try:
        yield parts
    finally:
        await parts.close()
        opened.close()


async def printed(parts: Parts, text: str, **given: Any) -> tuple[str, list[LogLine]]:
    """The run, when it has ended, and what it printed."""
    name = await parts.verbs.start(text, given)
    await parts.verbs.wait(name)
    return name, lines_of(parts, name)


def lines_of(parts: Parts, name: str, **wanted: Any) -> list[LogLine]:
    parts.engine.logs.flush()
    return LogReader(parts.store, name, LogQuery(**wanted)).page(lines=100_000).items


def plain(lines: list[LogLine]) -> list[tuple[str, str, str]]:
    return [(one.stream, one.level, one.text) for one in lines]


# -- where lines come from -------------------------------------------------------------------------


def test_a_callable_in_a_thread_is_heard_by_print_and_by_logging() -> None:
    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(step("s", "speak", args={"text": "hello"})))
        assert plain(lines) == [
            ("stdout", "info", "hello"),
            ("stderr", "warning", "to stderr"),
            ("log", "warning", "shop: logged hello"),
        ]
        assert {(one.step, one.attempt, one.item) for one in lines} == {("s", 1, None)}

    run(scenario())


def test_callables_at_the_same_time_are_told_apart() -> None:
    texts = [f"text-{number}" for number in range(20)]
    arcs = [{"step": text} for text in texts]
    workflow = [step("begin", next={"spec": {"mode": "inclusive"}, "arcs": arcs})]
    workflow += [step(text, "speak_async", args={"text": text}) for text in texts]

    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(*workflow))
        assert {(one.step, one.text) for one in lines} == {(text, f"{text}!") for text in texts}

    run(scenario())


def test_inline_code_is_heard_by_print_and_by_logging_once() -> None:
    code = (
        "import logging, sys\n"
        "print('out', end=''); print(' joined')\n"
        "print('err', file=sys.stderr)\n"
        "logging.info('informed')\n"
        "logging.getLogger('lib').warning('warned')\n"
        "return 5\n"
    )

    async def scenario() -> None:
        async with engine() as parts:
            name, lines = await printed(parts, playbook(step("s", "python", code=code)))
            assert parts.verbs.read.summary(name)["result"] == 5
        assert sorted(plain(lines)) == [
            ("log", "info", "informed"),
            ("log", "warning", "lib: warned"),
            ("stderr", "warning", "err"),
            ("stdout", "info", "out joined"),
        ]

    run(scenario())


def test_inline_code_that_fails_shows_its_own_lines_and_none_of_ours() -> None:
    code = "def main():\n    print('first')\n    return 1 / 0\n"

    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(step("s", "python", code=code)))
        said = "\n".join(one.text for one in lines if one.level == "error")
        assert "ZeroDivisionError" in said
        assert "return 1 / 0" in said
        assert "anabranch/" not in said
        assert lines[0].text == "first"

    run(scenario())


def test_shell_commands_are_heard_on_both_pipes() -> None:
    command = "echo out; echo err >&2; exit 3"

    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(step("s", "shell", command=command)))
        assert {("stdout", "info", "out"), ("stderr", "warning", "err")} < set(plain(lines))
        assert "shell: the command ended with exit status 3" in lines[-1].text

    run(scenario())


def test_lines_are_there_while_the_work_runs(tmp_path: Path) -> None:
    door = tmp_path / "door"
    command = f"echo begun; while [ ! -e {door} ]; do sleep 0.02; done; echo ended"

    async def scenario() -> None:
        async with engine(str(tmp_path / "s.db")) as parts:
            name = await parts.verbs.start(playbook(step("s", "shell", command=command)), {})
            while not parts.store.log_rows(LogFilter(run=name)):
                await asyncio.sleep(0.01)
            assert not parts.store.head(name).finished  # type: ignore[union-attr]
            door.touch()
            await parts.verbs.wait(name)
            assert [one.text for one in lines_of(parts, name)] == ["begun", "ended"]

    run(scenario())


def test_a_failed_callable_has_its_traceback_with_every_attempt() -> None:
    failing = step("s", "speak", args={"text": "try", "fail_until": 2})
    failing["spec"] = {"retry": {"attempts": 3, "delay": "1ms"}}

    async def scenario() -> None:
        async with engine() as parts:
            name, lines = await printed(parts, playbook(failing))
            assert [one.attempt for one in lines if one.text == "try"] == [1, 2, 3]
            second = lines_of(parts, name, attempt=2)
            assert {one.attempt for one in second} == {2}
            said = "\n".join(one.text for one in second if one.level == "error")
            assert "python: ValueError: attempt 2" in said
            assert 'raise ValueError(f"attempt {task.attempt}")' in said
            assert "callables.py" not in said

    run(scenario())


@pytest.mark.parametrize("kind", ["speak_here", "in_thread"])
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_of_a_loop_each_line_says_which_item_printed_it(kind: str, mode: str) -> None:
    each = step("each", kind, args={"n": "{{ iter.n }}"})
    each["loop"] = {"in": "{{ [5, 6, 7, 8] }}", "iterator": "n", "spec": {"mode": mode}}

    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(each))
        assert sorted((one.item, one.text.split()[-1]) for one in lines) == [
            (0, "5"),
            (1, "6"),
            (2, "7"),
            (3, "8"),
        ]

    run(scenario())


def test_an_item_that_fails_says_why_and_which_it_is() -> None:
    each = step("each", "in_thread", args={"n": "{{ iter.n }}"})
    each["loop"] = {"in": "{{ [1, 2, 3] }}", "iterator": "n"}
    each["spec"] = {"policy": {"failure": {"mode": "best_effort"}}}

    async def scenario() -> None:
        async with engine() as parts:
            _, lines = await printed(parts, playbook(each))
        errors = [one for one in lines if one.level == "error"]
        assert {one.item for one in errors} == {1}
        assert errors[0].text == "python: ValueError: two"

    run(scenario())


def test_a_child_run_and_a_redrive_have_logs_of_their_own(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(playbook(step("inner", "speak", args={"text": "from the child"}), name="c"))
    broken = step("broken", "python", code="print('tried')\nraise ValueError('no')")
    parent = playbook(step("call", "playbook", "broken", path=str(child)), broken)

    async def scenario() -> None:
        async with engine() as parts:
            name, lines = await printed(parts, parent)
            assert [one.text for one in lines if one.stream == "stdout"] == ["tried"]
            heads = parts.store.heads(HeadFilter())
            (inner,) = [head.run for head in heads if head.name == "c"]
            assert lines_of(parts, inner)[0].text == "from the child"
            again = await parts.verbs.redrive(name)
            await parts.verbs.wait(again)
            assert lines_of(parts, again)[0].text == "tried"
            assert lines_of(parts, name) == lines

    run(scenario())


def test_nothing_of_it_is_in_the_log_of_events(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with engine(str(tmp_path / "s.db")) as parts:
            text = playbook(step("s", "python", code="print('needle-' + 'in-haystack')"))
            name, lines = await printed(parts, text)
            assert lines[0].text == "needle-in-haystack"
            events = b"".join(row.events for row in parts.store.read(name))
            assert b"needle-in-haystack" not in events

    run(scenario())


# -- secrets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool",
    [
        {"kind": "halves", "args": {"key": "{{ keychain.key }}"}},
        {
            "kind": "python",
            "args": {"key": "{{ keychain.key }}"},
            "code": "import sys, logging\nsys.stdout.write(key[:7]); sys.stdout.flush()\n"
            "print(key[7:]); logging.warning('key=%s', key)\nraise ValueError(key)",
        },
        {
            "kind": "shell",
            "env": {"KEY": "{{ keychain.key }}"},
            "command": "printf '%.7s' $KEY; printf '%s\\n' ${KEY#???????}; echo $KEY >&2; exit 1",
        },
    ],
    ids=lambda tool: tool["kind"],
)
def test_a_secret_is_in_no_log_however_it_is_printed(
    tool: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", SECRET)
    keychain = [{"name": "key", "kind": "env", "variable": "THE_KEY"}]
    text = playbook({"step": "s", "tool": tool}, keychain=keychain)

    async def scenario() -> list[str]:
        async with engine(str(tmp_path / "s.db")) as parts:
            _, lines = await printed(parts, text)
            return [one.text for one in lines]

    shown = run(scenario())
    assert sum("***" in line for line in shown) >= 3, shown
    assert not [line for line in shown if SECRET in line or SECRET[7:] in line], shown
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()


# -- bounds ----------------------------------------------------------------------------------------


def test_an_attempt_keeps_its_head_and_its_tail_and_says_what_is_missing() -> None:
    code = "for n in range(30000): print(f'line {n:06d}')"

    async def scenario() -> None:
        async with engine(work_log_bytes_max=64 * 1024) as parts:
            name, lines = await printed(parts, playbook(step("s", "python", code=code)))
            assert lines[0].text == "line 000000"
            assert lines[-1].text == "line 029999"
            (gap,) = [one for one in lines if one.stream == GAP]
            shown = [one.text for one in lines if one.stream != GAP]
            assert gap.missing == 12 * (30_000 - len(shown))
            assert f"{gap.missing:,} bytes are missing" in gap.text
            at = lines.index(gap)
            assert [one.text for one in lines[:at]] == [f"line {n:06d}" for n in range(at)]
            assert sum(row.size for row in parts.store.log_rows(LogFilter(run=name))) <= 64 * 1024

    run(scenario())


def test_a_run_keeps_the_first_and_the_newest_attempts() -> None:
    each = step("each", "python", code="print('x' * 3000)", args={"n": "{{ iter.n }}"})
    each["loop"] = {"in": "{{ range(40) | list }}", "iterator": "n", "spec": {"mode": "sequential"}}
    each["spec"] = {"loop_mode": "fanout", "fanout": {"shard_size": 1, "max_concurrent": 1}}

    async def scenario() -> None:
        async with engine(run_work_log_bytes_max=30_000, work_log_bytes_max=8192) as parts:
            name, lines = await printed(parts, playbook(each))
            assert parts.store.log_state(name).size <= 30_000
            items = [one.item for one in lines]
            assert items[0] == 0
            assert items[-1] == 39
            assert len(set(items)) < 40
            assert parts.engine.logs.dropped_bytes > 0

    run(scenario())


# -- the writer ------------------------------------------------------------------------------------


class Refusing(MemoryStore):
    """Takes no logs."""

    refusals = 0

    def append_logs(self, *_given: Any) -> None:
        self.refusals += 1
        raise StoreError("the disk is full", code="store_full")


def test_a_store_that_takes_no_logs_holds_up_no_run(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        chosen, store = Settings(), Refusing()
        parts = Parts(store, chosen, tools())
        await parts.open()
        try:
            name, lines = await printed(parts, playbook(step("s", "speak")))
            assert (parts.store.head(name).status, lines) == ("completed", [])  # type: ignore[union-attr]
            assert store.refusals
        finally:
            await parts.close()

    run(scenario())
    assert "what work printed is lost while this lasts: the disk is full" in caplog.text


def test_another_writer_of_the_same_run_costs_no_line() -> None:
    async def scenario() -> None:
        async with engine() as parts:
            name, lines = await printed(parts, playbook(step("s", "speak")))
            known = parts.engine.logs._runs[name]
            known.number = 0  # as if another server had written meanwhile
            parts.engine.logs._runs[name] = known
            before = parts.store.log_rows(LogFilter(run=name))
            logs = parts.engine.logs
            task = _task(name)
            attempt = logs.of(task, None)
            attempt.write("stdout", "more\n")
            attempt.close()
            assert [one.text for one in lines_of(parts, name)][-1] == "more"
            assert len(lines_of(parts, name)) == len(lines) + 1
            assert parts.store.log_rows(LogFilter(run=name))[: len(before)] == before

    run(scenario())


def _task(name: str) -> Any:
    from anabranch.work.port import Task

    return Task(run=name, step="s", job="9.0", attempt=1, key="k", kind="noop", inputs={})


STREAMS = """
import anabranch, asyncio, logging, sys, threading
box = anabranch.Toolbox()
@box.tool("speak")
def speak():
    print("spoken", file=sys.stderr)
    logging.getLogger("shop").error("logged")
def state():
    return sys.stdout, sys.stderr, logging.getLogRecordFactory(), list(logging.root.handlers)
async def main():
    before = state()
    async with anabranch.Engine(store=":memory:", toolbox=box) as engine:
        await engine.wait(await engine.start({quiet!r}))
        assert "anabranch-logs" not in {{thread.name for thread in threading.enumerate()}}
        assert state() == before
        await engine.wait(await engine.start({speaking!r}))
        assert sys.stdout is not before[0]
        assert list(logging.root.handlers) == before[3]
    assert state() == before
asyncio.run(main())
"""


def test_streams_are_wrapped_by_what_prints_and_are_as_before_when_the_engine_is_closed() -> None:
    """In a process of its own: in this one, engines of other tests may be open."""
    program = STREAMS.format(
        quiet=playbook(step("s", "noop")), speaking=playbook(step("s", "speak"))
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=HANG_SECONDS
    )
    assert ended.returncode == 0, ended.stderr


def test_what_is_printed_still_goes_where_it_went() -> None:
    async def scenario() -> None:
        async with engine() as parts:
            await printed(parts, playbook(step("s", "speak", args={"text": "seen"})))

    seen = io.StringIO()
    with contextlib.redirect_stdout(seen):
        run(scenario())
    assert seen.getvalue() == "seen\n"


PROGRAM = """
import anabranch, asyncio, sys
text = {text!r}
async def main():
    async with anabranch.Engine(store={store!r}) as engine:
        await engine.start(text)
        print("started", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


def test_after_kill_nine_what_was_written_is_there_and_the_next_attempt_goes_on(
    tmp_path: Path,
) -> None:
    door, store = tmp_path / "door", str(tmp_path / "s.db")
    command = f"echo try; while [ ! -e {door} ]; do sleep 0.02; done; echo done"
    program = PROGRAM.format(text=playbook(step("s", "shell", command=command)), store=store)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        _until_printed(store, b"try")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(HANG_SECONDS)
    door.touch()

    async def scenario() -> list[tuple[int, str]]:
        async with engine(store) as parts:
            (head,) = parts.store.heads(HeadFilter())
            await parts.verbs.wait(head.run)
            return [(one.attempt, one.text) for one in lines_of(parts, head.run)]

    assert run(scenario()) == [(1, "try"), (2, "try"), (2, "done")]


def _until_printed(store: str, text: bytes) -> None:
    opened = SqliteStore(store, read_only=True)
    try:
        while True:
            for head in opened.heads(HeadFilter()):
                if any(text in row.pieces for row in opened.log_rows(LogFilter(run=head.run))):
                    return
            time.sleep(0.02)
    finally:
        opened.close()


def test_metrics_count_what_is_stored() -> None:
    async def scenario() -> None:
        async with engine() as parts:
            await printed(parts, playbook(step("s", "speak", args={"text": "x" * 100})))
            logs: LogWriter = parts.engine.logs
            assert logs.stored_bytes > 100
            text = parts.engine.engine_metrics.registry.text()
            assert f"anabranch_log_bytes_stored_total {logs.stored_bytes}" in text

    run(scenario())


def test_pieces_are_plain_json() -> None:
    async def scenario() -> None:
        async with engine() as parts:
            name, _ = await printed(parts, playbook(step("s", "speak")))
            # The writer's timer may pass between two lines, so they can be in several rows.
            rows = parts.store.log_rows(LogFilter(run=name))
            pieces = [piece for row in rows for piece in json.loads(row.pieces)]
            assert [piece[1] for piece in pieces] == ["stdout", "stderr", "log"]

    run(scenario())
