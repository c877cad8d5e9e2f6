"""What an attempt prints: whole lines, within bounds, with what is missing known to the byte."""

from __future__ import annotations

import random
import threading
import tracemalloc

import pytest

from anabranch.kernel.values import Fault
from anabranch.store.work_log_ports import LogPiece, Stream
from anabranch.work.logs.attempt_log import NO_ITEM, WORD_LETTERS, AttemptLog, LogBatch
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.logs.limits import LogLimits
from seeds import seeds

from .support import LIMITS, a_log, closed, kept, lines, pieces

SECRET = "correct-horse-battery"


def test_lines_are_put_together_of_what_was_written() -> None:
    log = a_log()
    log.write("stdout", "one\ntw")
    log.write("stderr", "oops\n")
    assert [(one.stream, one.level, one.text) for one in pieces(log.take())] == [
        ("stdout", "info", "one"),
        ("stderr", "warning", "oops"),
    ]
    log.write("stdout", "o\nthree")
    log.write("log", "said\n", "error")
    assert lines(closed(log)) == ["two", "said", "three"]


@pytest.mark.parametrize("seed", seeds(200, least=20))
def test_words_that_are_held_until_their_line_ends_make_the_same_lines(seed: int) -> None:
    dice = random.Random(seed)
    held, plain = a_log(secrets=[SECRET]), a_log(secrets=[SECRET])
    found: dict[AttemptLog, list[LogPiece]] = {held: [], plain: []}
    for _ in range(dice.randint(1, 200)):
        stream: Stream = dice.choice(["stdout", "stdout", "stdout", "stderr"])
        item = dice.choice([NO_ITEM, NO_ITEM, 0, 1])
        text = dice.choice(["word", " ", "zwölf", "\n", "a\nb", SECRET[:9], SECRET[9:], "x" * 300])
        plain.write(stream, text, item=item)
        if text[-1] != "\n" and len(text) <= WORD_LETTERS:
            held.hold(stream, text, item)
        else:
            held.write(stream, text, item=item)
        if dice.random() < 0.05:
            for log, pieces_of in found.items():
                pieces_of += pieces(log.take())
    for log, pieces_of in found.items():
        pieces_of += closed(log)
    places = {(one.stream, one.item) for one in found[plain]}
    for place in places:
        by_log = [
            "\n".join(one.text for one in all_of if (one.stream, one.item) == place)
            for all_of in found.values()
        ]
        assert by_log[0] == by_log[1]
    assert found[held]
    assert {(one.stream, one.item) for one in found[held]} == places


def test_words_of_several_threads_are_all_there() -> None:
    log = a_log()

    def prints(number: int) -> None:
        for _ in range(500):
            log.hold("stdout", f"<{number}>", number)
            log.hold("stdout", f"<{number}>", number)
            log.write("stdout", "\n", item=number)

    threads = [threading.Thread(target=prints, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = closed(log)
    for number in range(4):
        text = "".join(one.text for one in found if one.item == number)
        assert text.count(f"<{number}>") == 1000


def test_the_time_of_a_line_is_that_of_its_first_word() -> None:
    times = iter(range(1000, 2000))
    log = AttemptLog(AttemptLogs(LIMITS, now=lambda: next(times)), "r1", "1.0", 1, "step")
    log.hold("stdout", "it")
    log.hold("stdout", " took long")
    log.write("stdout", "\n")
    (line,) = closed(log)
    assert (line.at, line.text) == (1000, "it took long")


def test_a_log_that_nothing_is_written_to_gives_nothing() -> None:
    log = a_log()
    log.write("stdout", "")
    assert closed(log) == []
    assert not log.used


def test_what_comes_after_the_end_is_not_taken() -> None:
    log = a_log()
    log.write("stdout", "in time\n")
    assert lines(closed(log)) == ["in time"]
    log.write("stdout", "too late\n")
    assert log.take() == []


def test_characters_that_come_in_halves_are_whole() -> None:
    log = a_log()
    for byte in "grün ✓\n".encode():
        log.write_bytes("stdout", bytes([byte]))
    assert lines(closed(log)) == ["grün ✓"]


def test_binary_output_is_shown_as_replaced_characters_with_a_note() -> None:
    log = a_log()
    log.write_bytes("stdout", bytes(range(256)) + b"\nplain\n")
    *shown, note = lines(closed(log))
    assert "plain" in shown
    assert all(letter.isprintable() or letter == "\t" for line in shown for letter in line)
    assert note.startswith("stdout had ")
    assert note.endswith("characters that are no text, shown as \ufffd")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;ZXZpbA==", ""),
        ("\x9b2Jgone", "gone"),
        ("a\x1bcb", "ab"),
        ("a\x00b\x07", "a\ufffdb\ufffd"),
        ("right\u202eleft", "right\ufffdleft"),
        ("half\udc80", "half\ufffd"),
        ("10%\r20%\r30%", "30%"),
        ("10%\r20%\r\nleft\rright\r\rend\r", "20%\nend"),
        ("windows\r\nend", "windows\nend"),
        ("a\tb", "a\tb"),
    ],
)
def test_what_terminals_obey_is_not_kept(written: str, shown: str) -> None:
    log = a_log()
    log.write("log", f"{written}\n")
    assert "\n".join(lines(closed(log))) == shown


def test_a_failure_is_a_line_with_the_traceback_of_the_users_code() -> None:
    log = a_log()
    log.failed(Fault("python", "ValueError: no", details={"traceback": '  File "x", line 1'}), 3)
    (piece,) = closed(log)
    assert piece.text == 'python: ValueError: no\n  File "x", line 1'
    assert (piece.stream, piece.level, piece.item) == ("log", "error", 3)


# -- bounds ----------------------------------------------------------------------------------------


def _written(log: AttemptLog, rng: random.Random) -> tuple[list[str], list[LogBatch]]:
    """Random lines in random parts, taken at random times."""
    printed = [
        f"{number:06d} " + "x" * rng.choice((0, 3, 30, 100))
        for number in range(rng.randrange(3000))
    ]
    text, taken = "".join(f"{line}\n" for line in printed), list[LogBatch]()
    while text:
        size = rng.choice((1, 7, 100, 5000))
        log.write("stdout", text[:size])
        text = text[size:]
        if rng.random() < 0.02:
            taken += log.take()
    log.close()
    return printed, taken + log.take()


@pytest.mark.parametrize("seed", seeds(400, least=40))
def test_of_any_output_the_head_and_the_tail_are_kept_and_the_rest_is_counted(seed: int) -> None:
    rng = random.Random(seed)
    limits = LogLimits(attempt_bytes=rng.choice((8192, 20_000, 70_000, 1024 * 1024)))
    printed, batches = _written(a_log(limits), rng)
    rows = kept(batches, limits)
    assert sum(row.size for row in rows) <= limits.attempt_bytes, seed
    total = sum(len(line) + 1 for line in printed)
    if total <= limits.head:
        assert lines(pieces(rows)) == printed, seed
    for row in rows:  # every row says where it belongs, whatever is missing before it
        shown = lines(pieces([row]))
        assert len(shown) == row.lines, seed
        assert shown == printed[row.first_line : row.first_line + row.lines], seed
        assert row.start == sum(len(line) + 1 for line in printed[: row.first_line]), seed
    if printed:
        assert rows[0].first_line == 0, seed
        assert rows[-1].first_line + rows[-1].lines == len(printed), seed


def test_a_gigabyte_streams_through_in_little_memory() -> None:
    """The same piece again and again, taken now and then: what is not kept is not held either."""
    log, chunk = a_log(), ("y" * 99 + "\n") * 10_000
    tracemalloc.start()
    try:
        first = lines(pieces(log.take()))
        for number in range(200):
            log.write("stdout", chunk)
            if number % 50 == 0:
                first += lines(pieces(log.take()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * 1024 * 1024
    log.close()
    log.take()
    assert log.dropped > 100 * 1024 * 1024
    assert set(first) == {"y" * 99}


def test_one_text_that_is_far_too_large_is_cut_at_once() -> None:
    log = a_log()
    log.write("stdout", "z" * (64 * 1024 * 1024))
    log.close()
    batches = log.take()
    assert sum(row.size for row in kept(batches, LogLimits())) <= LogLimits().attempt_bytes
    assert batches[0].start == 0
    assert batches[-1].start + batches[-1].size >= 60 * 1024 * 1024


# -- secrets ---------------------------------------------------------------------------------------


def test_a_secret_printed_in_halves_does_not_appear() -> None:
    for at in range(1, len(SECRET)):
        log = a_log(secrets=[SECRET])
        log.write("stdout", f"it is {SECRET[:at]}")
        found = pieces(log.take())
        log.write("stdout", f"{SECRET[at:]}!\n")
        assert lines(found + closed(log)) == ["it is ***!"]


def test_an_escape_sequence_hides_no_secret() -> None:
    log = a_log(secrets=[SECRET])
    log.write("stdout", f"{SECRET[:5]}\x1b[0m{SECRET[5:]}\n")
    assert lines(closed(log)) == ["***"]


def test_halves_of_two_items_are_told_apart() -> None:
    log = a_log(secrets=[SECRET])
    log.write("stdout", SECRET[:5], item=1)
    log.write("stdout", "other\n", item=2)
    log.write("stdout", f"{SECRET[5:]}\n", item=1)
    assert lines(closed(log)) == ["other", "***"]


def test_a_secret_of_several_lines_does_not_appear_whenever_it_is_taken() -> None:
    secret = "-----BEGIN-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END-----"
    for at in range(1, len(secret)):
        log = a_log(secrets=[secret])
        log.write("stdout", f"before\n{secret[:at]}")
        found = pieces(log.take())
        log.write("stdout", f"{secret[at:]}\nafter\n")
        shown = "\n".join(lines(found + closed(log)))
        assert "abcdefghijklmnop" not in shown, at
        assert "qrstuvwxyz012345" not in shown, at
        assert shown.startswith("before\n")
        assert shown.endswith("after")


@pytest.mark.parametrize("seed", seeds(200, least=20))
def test_no_part_of_a_secret_is_left_where_output_was_dropped(seed: int) -> None:
    """Whatever is dropped, and wherever: no line has more of the secret than a few characters."""
    rng = random.Random(seed)
    secret = "".join(rng.choice("ABCDEFGHJKLMNPQR") for _ in range(40))
    limits = LogLimits(attempt_bytes=rng.choice((4096, 9000)))
    log, found = a_log(limits, [secret]), []
    end = rng.choice(("\n", ""))
    for _ in range(300):
        text = f"value {secret} of {rng.randrange(1000)}{end}"
        at = rng.randrange(len(text))
        log.write("stdout", text[:at])
        log.write("stdout", text[at:])
        if rng.random() < 0.05:
            found += pieces(log.take())
    found += closed(log)
    shown = "\n".join(lines(found))
    for start in range(len(secret) - 8):
        assert secret[start : start + 8] not in shown, (seed, start)
