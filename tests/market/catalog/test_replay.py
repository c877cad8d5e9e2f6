"""Replaying Agora: every record once, whatever ends the process, and none that is not sound."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.clock import ManualClock
from anabranch.errors import InputError
from anabranch.market import OfferCatalog, check
from anabranch.market.catalog import replay as replays
from anabranch.market.catalog.facts import Counts
from anabranch.market.catalog.replay import Replay
from anabranch.market.documents import sign

from ..node.offers.support import ME, PEER, START, STRANGER, Keys, numbered, offer, rfc3339

TOPIC = "orbiplex/offer-catalog/v1/shared/offers"


def record(content: Any, author: Keys = PEER, /, **changes: Any) -> dict[str, Any]:
    name = content.get("offer/id", "x") if isinstance(content, dict) else "x"
    key = base64.urlsafe_b64encode(author.participant._key.public_key().public_bytes_raw())
    document = {
        "schema": "agora-record.v1",
        "record/id": f"record:{name}",
        "record/kind": "offer-snapshot",
        "topic/key": TOPIC,
        "author/participant-id": author.participant_id,
        "authored/at": rfc3339(START),
        "content/schema": "service-offer.v1",
        "content": content,
        **changes,
    }
    signed = sign("agora-record.v1", document, author.participant)
    shown = {**signed["signature"], "key/public": key.decode().rstrip("=")}
    return {**signed, "signature": shown}


def line(document: Any) -> bytes:
    return msgspec.json.encode(document) + b"\n"


class Desk:
    """A catalog and a file of records, over as many processes as a test likes."""

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.folder = folder
        self.source = source or folder / "agora.jsonl"
        self.clock = ManualClock(START)
        self.open()

    def open(self) -> None:
        path = self.folder / "offers.db"
        self.catalog = OfferCatalog(path, clock=self.clock, node_id=ME.node_id)
        self.catalog.facts.trust(PEER.participant_id)
        self.replay = Replay(self.catalog, self.source)

    def again(self) -> None:
        self.catalog.close()
        self.open()

    def write(self, *documents: Any, file: str = "") -> None:
        path = self.source / file if file else self.source
        with path.open("ab") as out:
            out.writelines(line(one) for one in documents)

    def run(self, batches: int = 100) -> Counts:
        total = Counts()
        for _ in range(batches):
            batch = self.replay.read()
            if batch is None:
                break
            counts = self.replay.admit(batch)
            assert counts is not None
            total += counts
        return total

    def names(self) -> list[str]:
        return sorted(row["offer"]["offer/id"] for row in self.catalog.rows())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_snapshots_are_admitted_once_with_the_record_they_came_in(desk: Desk) -> None:
    assert check(record(offer()), kind="agora-record.v1", at=START) == []
    desk.write(record(offer()), record(numbered(STRANGER, "offer:s", 1), STRANGER))
    assert desk.run() == Counts(stored=2)
    assert desk.names() == ["offer:summaries"], "nobody vouches for the stranger"
    row = desk.catalog.row("offer:summaries")
    assert row is not None
    assert row["agora_record_id"] == "record:offer:summaries"
    assert row["trust_level"] == "explicit"
    assert row["source_node_id"] is None
    assert desk.run() == Counts()
    desk.write(record(numbered(PEER, "offer:summaries", 9)))
    assert desk.run() == Counts(stored=1)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (record({**offer(), "pricing/amount": 1}), "wrong-signature"),
        ({**record(offer()), "authored/at": rfc3339(START - 1)}, "wrong-signature"),
        (record(offer(), **{"authored/at": rfc3339(START + 3_600_000)}), "not-yet-valid"),
        (record(offer(**{"expires-at": rfc3339(START)})), "expired"),
        (record(numbered(ME, "offer:own", 1), PEER), "local-offer"),
        (record(offer(**{"service/description": "x" * 65_536})), "too-large"),
        (record({"no": "offer"}), "missing-field"),
        ({"record/kind": "offer-snapshot"}, "missing-field"),
        ([1], "not-json"),
        (None, "not-json"),
    ],
)
def test_what_is_not_sound_is_rejected_told_and_passed_by(
    desk: Desk, given: Any, code: str
) -> None:
    desk.write(given, record(offer()))
    assert desk.run() == Counts(stored=1, rejected=1)
    (told,) = desk.catalog.facts.diagnostics()
    assert (told["code"], told["origin"]) == (code, "replay:agora.jsonl")


def test_other_records_and_empty_lines_are_passed_by(desk: Desk) -> None:
    other = {"record/kind": "workflow-completed"}
    desk.write(other)
    desk.source.write_bytes(desk.source.read_bytes() + b"\n  \n")
    desk.write(record(offer(), **{"authored/at": rfc3339(START + 60_000)}))
    assert desk.run() == Counts(stored=1, ignored=1), "the clock of an author may be ahead"


def test_a_line_without_its_end_waits_for_it(desk: Desk) -> None:
    data = line(record(offer()))
    desk.source.write_bytes(data[:-10])
    assert desk.run() == Counts()
    desk.source.write_bytes(data)
    assert desk.run() == Counts(stored=1)


def test_a_line_that_is_too_long_is_rejected_and_passed_by(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "CHUNK_BYTES", 5_000)
    desk.source.write_bytes(b"x" * 12_000 + b"\n")
    desk.write(record(offer()))
    assert desk.run() == Counts(stored=1, rejected=3)


def test_a_crash_between_any_two_steps_loses_nothing_and_repeats_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ends after it has read, and after it has admitted; a change that fails is none."""
    monkeypatch.setattr(replays, "RECORDS_AT_ONCE", 2)
    names = [f"offer:n{number}" for number in range(7)]
    desk.write(*(record(numbered(PEER, name, 1)) for name in names))
    total = Counts()
    for round_ in range(8):
        batch = desk.replay.read()
        if batch is None:
            break
        if round_ % 2 == 0:
            desk.again()  # read, and never admitted
            batch = desk.replay.read()
            assert batch is not None
        with monkeypatch.context() as broken:
            broken.setattr(replays, "note", _died)
            with pytest.raises(KeyboardInterrupt):
                desk.replay.admit(batch)
        counts = desk.replay.admit(batch)
        assert counts is not None
        total += counts
        desk.again()
    assert total == Counts(stored=7), "none was stale: none came twice"
    assert desk.names() == names
    (state,) = desk.replay.state()
    assert state["position"] == state["size"]
    assert state["stored"] == 7


def _died(*_: Any) -> None:
    raise KeyboardInterrupt


def test_of_two_processes_that_read_the_same_lines_one_admits_them(desk: Desk) -> None:
    desk.write(record(offer()))
    batch = desk.replay.read()
    assert batch is not None
    assert desk.replay.admit(batch) == Counts(stored=1)
    assert desk.replay.admit(batch) is None


def test_a_reset_cursor_reads_everything_again(desk: Desk) -> None:
    desk.write(record(offer()))
    desk.run()
    desk.catalog.facts.reset_cursors()
    assert desk.run() == Counts(stale=1)


def test_a_file_that_became_shorter_is_read_anew(desk: Desk) -> None:
    desk.write(record(offer()), record(numbered(PEER, "offer:b", 1)))
    desk.run()
    desk.source.unlink()
    desk.write(record(numbered(PEER, "offer:c", 1)))
    assert desk.run() == Counts(stored=1)
    assert [one["code"] for one in desk.catalog.facts.diagnostics()] == ["file-restarted"]
    assert desk.run() == Counts()


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    source = tmp_path / "agora"
    source.mkdir()
    desk = Desk(tmp_path, source)
    assert desk.run() == Counts()
    desk.write(record(numbered(PEER, "offer:b", 1)), file="2026-06.jsonl")
    desk.write(record(numbered(PEER, "offer:a", 1)), file="2026-05.ndjson")
    desk.write(record(numbered(PEER, "offer:no", 1)), file="notes.txt")
    assert desk.run() == Counts(stored=2)
    desk.write(record(numbered(PEER, "offer:c", 1)), file="2026-05.ndjson")
    assert desk.run() == Counts(stored=1)
    assert desk.names() == ["offer:a", "offer:b", "offer:c"]
    assert [one["file"] for one in desk.replay.state()] == ["2026-05.ndjson", "2026-06.jsonl"]


def test_a_source_that_is_not_there_is_told(desk: Desk) -> None:
    with pytest.raises(InputError) as caught:
        desk.replay.read()
    assert caught.value.code == "agora_source"


def test_a_file_in_whose_place_another_one_was_put_is_read_anew(desk: Desk) -> None:
    """Also where it is longer than the first one was: whoever writes them may begin a new one."""
    desk.write(record(offer()))
    desk.run()
    desk.source.unlink()
    more = [numbered(PEER, f"offer:{name}", 1) for name in "bcd"]
    desk.write(*map(record, more))
    assert desk.run() == Counts(stored=3)
    assert [one["code"] for one in desk.catalog.facts.diagnostics()] == ["file-restarted"]
    desk.again()
    assert desk.run() == Counts()
    desk.write(record(numbered(PEER, "offer:e", 1)))
    assert desk.run() == Counts(stored=1)


def test_a_file_that_was_emptied_and_written_past_its_cursor_is_read_anew(desk: Desk) -> None:
    desk.write(record(offer()))
    desk.run()
    desk.source.write_bytes(b"")
    assert desk.run() == Counts()
    desk.write(*(record(numbered(PEER, f"offer:{name}", 1)) for name in "bc"))
    assert desk.run() == Counts(stored=2)


def test_records_whose_parties_are_no_names_are_passed_by(desk: Desk) -> None:
    wrong = {**record(offer()), "content": {"provider/participant-id": [], "offer/id": {}}}
    desk.write(wrong, record(offer()))
    batch = desk.replay.read()
    assert batch is not None
    assert desk.catalog.parties(desk.replay.contents(batch), "") == ({PEER.participant_id}, set())
    assert desk.run() == Counts(stored=1, rejected=1)
