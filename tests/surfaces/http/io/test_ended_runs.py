"""What is answered of an ended run is made once; of any other, each time."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from anabranch.errors import NotFound
from anabranch.store.ports import Head
from anabranch.surfaces.http.io.ended_runs import LARGEST_BYTES, EndedRuns
from anabranch.surfaces.http.io.readers import ReadHandle


class Read:
    """A reader with one run, which counts how often it is asked to show it."""

    def __init__(self, *, finished: bool = True, loop: str = "done", size: int = 1) -> None:
        self.head: Head | None = Head(
            run="r1",
            definition="d",
            name="n",
            dialect="noetl",
            status="completed" if finished else "running",
            seq=3,
            created_at=1000,
            updated_at=2000,
            finished=finished,
        )
        self.loop, self.size, self.shown = loop, size, 0
        self.redrives: list[str] = []

    def find(self, run: str) -> Head:
        if self.head is None:
            raise NotFound(f"there is no run {run!r}")
        return msgspec.structs.replace(self.head, run=run)

    def redriven_by(self, heads: list[Head]) -> dict[str, list[str]]:
        return {head.run: list(self.redrives) for head in heads}

    def show_head(self, head: Head) -> dict[str, Any]:
        self.shown += 1
        return {
            "run": head.run,
            "seq": head.seq,
            "loops": [{"status": self.loop}],
            "x": "x" * self.size,
        }


def handle(read: Read, *, near: bool = True) -> ReadHandle:
    return ReadHandle(cast(Any, None), cast(Any, read), cast(Any, None), near)


def asked_twice(read: Read, *, near: bool = True, most: int = 10**6) -> int:
    """How often it was made."""
    ended, by = EndedRuns(most), handle(read, near=near)
    assert ended.show(by, "r1") == ended.show(by, "r1")
    return read.shown


def test_an_ended_run_is_shown_once_with_its_instants() -> None:
    read, ended = Read(), EndedRuns()
    first = ended.show(handle(read), "r1")
    assert ended.show(handle(read), "r1") is first
    said = json.loads(first)
    assert (said["created"], said["updated"]) == (
        "1970-01-01T00:00:01.000+00:00",
        "1970-01-01T00:00:02.000+00:00",
    )


@pytest.mark.parametrize(
    "read", [Read(finished=False), Read(loop="open"), Read(size=LARGEST_BYTES)]
)
def test_what_may_change_or_is_large_is_made_each_time(read: Read) -> None:
    assert asked_twice(read) == 2


def test_what_a_thread_reads_is_not_kept() -> None:
    assert asked_twice(Read(), near=False) == 2


def test_a_run_whose_head_is_another_is_shown_anew_and_one_that_is_gone_is_gone() -> None:
    read, ended = Read(), EndedRuns()
    ended.show(handle(read), "r1")
    assert read.head is not None
    read.head = msgspec.structs.replace(read.head, seq=9)  # purged, and its id given to another
    assert json.loads(ended.show(handle(read), "r1"))["seq"] == 9
    read.head = None
    with pytest.raises(NotFound):
        ended.show(handle(read), "r1")


def test_a_run_that_is_redriven_meanwhile_is_shown_anew() -> None:
    read, ended = Read(), EndedRuns()
    ended.show(handle(read), "r1")
    read.redrives.append("r2")
    ended.show(handle(read), "r1")
    assert ended.show(handle(read), "r1")
    assert read.shown == 2


def test_the_oldest_make_room() -> None:
    read, ended = Read(size=300), EndedRuns(1000)
    for run in ("r1", "r2", "r1", "r3"):  # r1 was asked for after r2
        ended.show(handle(read), run)
    assert read.shown == 3
    ended.show(handle(read), "r1")
    assert read.shown == 3
    ended.show(handle(read), "r2")
    assert read.shown == 4
