"""`anabranch.run` for scripts and notebooks, and `@tool` in all its places."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import DefinitionError, InputError, Settings, Toolbox
from anabranch.work.port import Task
from hangs import HANG_SECONDS

from .support import asking, chain, file_of, playbook, step

HELLO = playbook(step("hello", "noop", result="hello {{ workload.who }}"), workload={"who": "you"})


def test_run_takes_a_text_a_path_and_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(HELLO)
    mapping = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "m"},
        "workflow": [{"step": "s", "tool": {"kind": "noop", "result": "hello you"}}],
    }
    for source in (HELLO, file, str(file), mapping):
        assert anabranch.run(source).result == "hello you"
    assert anabranch.run(HELLO, {"who": "me"}).result == "hello me"


def test_run_gives_back_a_run_that_somebody_has_to_move() -> None:
    result = anabranch.run(asking("ann"))
    assert (result.status, result.problem) == ("waiting", None)


def test_run_keeps_the_run_where_it_is_told_to(tmp_path: Path) -> None:
    first = anabranch.run(HELLO, store=file_of(tmp_path))
    second = anabranch.run(HELLO, store=tmp_path / "store.db")
    assert first.run != second.run
    assert (tmp_path / "store.db").exists()


def test_run_works_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> str:
        return str(anabranch.run(chain(2)).status)

    assert asyncio.run(cell()) == "completed"


def test_run_works_in_several_threads_at_once() -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(anabranch.run(HELLO).status)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["completed"] * 4


@pytest.mark.slow
def test_run_works_in_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import anabranch\n"
        "@anabranch.tool('double')\n"
        "def double(n: int) -> int:\n"
        "    return 2 * n\n"
        f"text = {playbook(step('d', 'double', args={'n': '{{ workload.n }}'}))!r}\n"
        "result = anabranch.run(text, {'n': 21})\n"
        "print(result.status, result.result)\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    said = [line for line in done.stderr.splitlines() if " took " not in line]  # of a busy machine
    assert (done.stdout, said) == ("completed 42\n", [])


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("nowhere.yaml", InputError, "nowhere.yaml: there is no such file"),
        ("", InputError, "is a directory"),
        ("a: [\n", DefinitionError, "syntax"),
        ({"workflow": {1, 2}}, InputError, "not plain data"),
        (7, InputError, "a path, a text or a mapping, not int"),
    ],
)
def test_run_says_what_is_wrong_with_a_definition(
    source: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        anabranch.run(source)


def test_all_problems_come_at_once() -> None:
    text = playbook(
        {"step": "a", "tool": {"kind": "nope"}, "next": {"arcs": [{"step": "c"}]}, "x": 1}
    )
    with pytest.raises(DefinitionError) as refused:
        anabranch.run(text)
    assert [p.code for p in refused.value.problems] == [
        "unknown-kind",
        "unknown-step",
        "unknown-key",
    ]


# -- tools -----------------------------------------------------------------------------------


def test_a_tool_runs_in_the_loop_in_a_thread_or_in_place() -> None:
    box, places = Toolbox(), dict[str, str]()

    def here(name: str) -> None:
        try:
            asyncio.get_running_loop()
            loop = "loop"
        except RuntimeError:
            loop = "no loop"
        main = threading.current_thread() is threading.main_thread()
        places[name] = f"{'main' if main else 'other'}, {loop}"

    @box.tool("in_loop")
    async def in_loop() -> None:
        here("in_loop")

    @box.tool("in_thread")
    def in_thread() -> None:
        here("in_thread")

    @box.tool("in_place", blocking=False)
    def in_place() -> None:
        here("in_place")

    text = playbook(step("a", "in_loop", "b"), step("b", "in_thread", "c"), step("c", "in_place"))
    assert anabranch.run(text, toolbox=box).status == "completed"
    assert places == {
        "in_loop": "main, loop",
        "in_thread": "other, no loop",
        "in_place": "main, loop",
    }


def test_tools_in_threads_and_in_the_loop_overlap() -> None:
    """None of the eight ends before all of them have begun."""
    box = Toolbox()
    begun: list[bool] = []
    everybody = threading.Event()

    def begin() -> None:
        begun.append(True)
        if len(begun) == 8:
            everybody.set()

    @box.tool("nap")
    def nap() -> None:
        begin()
        assert everybody.wait(HANG_SECONDS)

    @box.tool("doze")
    async def doze() -> None:
        begin()
        while not everybody.is_set():
            await asyncio.sleep(0.005)

    arcs = [{"step": f"{kind}{n}"} for kind in ("nap", "doze") for n in range(4)]
    text = playbook(
        step("fork", "noop", next={"spec": {"mode": "inclusive"}, "arcs": arcs}),
        *(step(f"{kind}{n}", kind) for kind in ("nap", "doze") for n in range(4)),
    )
    assert anabranch.run(text, toolbox=box).status == "completed"


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda: {1, 2}, "result", "is not JSON"),
        (lambda: float("nan"), "result", "is not JSON"),
        (lambda: {"a": {1: 2}}, "result", "result.a"),
        (lambda: object(), "result", "is not JSON"),
        (lambda: 1 / 0, "python", "division by zero"),
    ],
)
@pytest.mark.parametrize("blocking", [True, False])
def test_a_result_that_is_not_json_is_a_clear_error(
    make: Any, code: str, words: str, blocking: bool
) -> None:
    box = Toolbox()
    box.add("make", make, blocking=blocking)
    result = anabranch.run(playbook(step("s", "make")), toolbox=box)
    assert result.status == "failed"
    assert result.problem is not None
    assert result.problem["code"] == code
    assert words in result.problem["message"]


def test_a_tool_can_ask_for_its_task_and_sees_the_same_key_in_every_attempt() -> None:
    box, keys = Toolbox(), list[tuple[int, str]]()

    @box.tool("flaky", blocking=False)
    def flaky(task: Task) -> str:
        keys.append((task.attempt, task.key))
        if task.attempt < 3:
            raise ConnectionError("not yet")
        return task.step

    spec = {"retry": {"attempts": 3, "delay": "1ms"}}
    result = anabranch.run(playbook(step("s", "flaky", spec=spec)), toolbox=box)
    assert (result.status, result.result) == ("completed", "s")
    assert keys == [(n, f"{result.run}/1.0") for n in (1, 2, 3)]


def test_settings_reach_the_engine() -> None:
    settings = Settings(processes_max=1, result_bytes_max=10, inline_bytes_max=5)
    result = anabranch.run(
        playbook(step("s", "noop", result="a long enough text")), settings=settings
    )
    assert result.problem is not None
    assert "ANABRANCH_RESULT_BYTES_MAX" in result.problem["message"]
