"""Work that finds no file left to open (EMFILE) may be tried again, and loses none on its way."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.faults import out_of_files
from anabranch.work.file_policy import EVERYWHERE
from anabranch.work.loops.collections.files import open_file
from anabranch.work.registry import close_all, standard_performers
from anabranch.work.secrets.keychain_kinds import read_secret_file

from .support import fault_of, open_descriptors, perform, run, task


@contextmanager
def no_file_left(spare: int = 0) -> Iterator[None]:
    """Only so many more can be opened, whatever is open by now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_numbers()) + 1 + spare, hard))
        while len(free := _free()) > spare:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        del free
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def open_numbers() -> list[int]:
    with os.scandir("/proc/self/fd") as found:
        return [int(each.name) for each in found]


def _free() -> list[int]:
    held: list[int] = []
    try:
        while True:
            held.append(os.dup(0))
    except OSError:
        return held
    finally:
        for each in held:
            os.close(each)


TASKS: dict[str, dict[str, Any]] = {
    "shell": {"command": "true"},
    "python": {"code": "return 1"},
    "python, a script": {"script": "{folder}/script.py"},
    "sqlite": {"command": "select 1", "database": "{folder}/new.db"},
    "artifact": {"action": "get", "uri": "{folder}/script.py"},
}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the open files")
@pytest.mark.parametrize("spare", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("name", TASKS)
def test_work_that_finds_no_file_left_can_be_tried_again(
    name: str, spare: int, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("return 1")
    kind = name.partition(",")[0]
    given = {k: v.format(folder=tmp_path) for k, v in TASKS[name].items()}

    async def scenario() -> None:
        performers = standard_performers()
        performer = performers[kind]
        before = open_descriptors()
        with no_file_left(spare):
            answer = await perform(performer, task(kind, **given))
        if answer.status != "ok":  # with a few to spare it may do
            fault = fault_of(answer)
            assert fault.retryable, fault
            assert open_descriptors() == before
        else:
            assert spare, answer
        again = await perform(performer, task(kind, **given))
        assert again.status == "ok", again
        await close_all(performers)

    run(scenario())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at the open files")
def test_a_file_of_a_loop_or_a_keychain_is_no_mistake_of_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("one")
    with no_file_left(), pytest.raises(InputError) as loop:
        open_file(str(path), EVERYWHERE)
    assert getattr(loop.value, "retryable", False)
    with no_file_left(), pytest.raises(InputError) as secret:
        read_secret_file(path)
    assert out_of_files(secret.value)
