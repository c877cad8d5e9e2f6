"""Reading a file that somebody names: regular ones only, so many bytes, so much time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch import files
from hangs import HANG_SECONDS


@pytest.fixture(autouse=True)
def threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_threads", files._Threads())


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set at the end, so that no thread of a test outlives it."""
    event = threading.Event()
    yield event
    event.set()


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 1000)
    assert files.read_limited(file, 1000) == b"x" * 1000
    with pytest.raises(files.FileRefused, match=r"larger than 999 bytes \(setting some_bytes\)"):
        files.read_limited(file, 999, "some_bytes")


def test_the_limit_is_on_what_is_read_and_not_on_what_the_file_says() -> None:
    assert os.stat("/proc/self/maps").st_size == 0
    with pytest.raises(files.FileRefused, match="larger than 10 bytes"):
        files.read_limited("/proc/self/maps", 10)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "nothing", "nul"])
def test_what_is_not_a_regular_file_is_refused_without_waiting(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "it")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "nul":
        path += "\0"
    with pytest.raises(files.FileRefused):
        files.read_limited(path, 10)


def test_a_read_without_an_answer_is_given_up_and_counted(stuck: threading.Event) -> None:
    async def scenario() -> None:
        with pytest.raises(files.FileTimeout, match=r"no answer of the file system within 0.05 s"):
            await files.in_thread(stuck.wait, "/mnt/a", 0.05)
        assert files.hanging() == 1
        assert await files.in_thread(lambda: 5, "/mnt/b") == 5  # others go on
        stuck.set()
        async with asyncio.timeout(HANG_SECONDS):
            while files.hanging():
                await asyncio.sleep(0.001)

    asyncio.run(scenario())


def test_so_many_threads_and_no_more_are_left_behind(stuck: threading.Event) -> None:
    async def scenario() -> None:
        reads = [files.in_thread(stuck.wait, n, 0.05) for n in range(2 * files.THREADS_MAX)]
        given_up = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(one, files.FileTimeout) for one in given_up)
        assert files.hanging() == files.THREADS_MAX
        with pytest.raises(files.FileTimeout, match="16 earlier reads"):
            await files.in_thread(lambda: 5, "/mnt/b")

    asyncio.run(scenario())


def test_many_reads_share_few_threads() -> None:
    async def scenario() -> None:
        reads = [files.in_thread(lambda n=n: n, n) for n in range(200)]  # type: ignore[misc]
        assert await asyncio.gather(*reads) == list(range(200))

    asyncio.run(scenario())
    named = [each for each in threading.enumerate() if each.name.startswith("anabranch-files")]
    assert all(each.daemon for each in named)
