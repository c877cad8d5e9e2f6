"""What a worker says that its job has printed: checked and cleaned before it is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from anabranch.errors import InputError
from anabranch.operations.logs.log_lines import LEVELS
from anabranch.work.logs.attempt_log import LogBatch
from anabranch.work.logs.clean_text import printable

BATCHES_MAX = 256
BATCH_BYTES = 256 * 1024
NUMBER_MAX = 2**53


def check_batches(batches: Sequence[LogBatch]) -> None:
    if len(batches) > BATCHES_MAX:
        raise _wrong(f"there are {len(batches)} batches, over the limit of {BATCHES_MAX}")
    for batch in batches:
        _check(batch)


def _check(batch: LogBatch) -> None:
    numbers = (batch.first_line, batch.start, *(piece.at for piece in batch.pieces))
    if not batch.pieces or any(not 0 <= number <= NUMBER_MAX for number in numbers):
        raise _wrong("a batch has no pieces, or a number that cannot be")
    size = sum(len(piece.text.encode("utf-8", "replace")) + 1 for piece in batch.pieces)
    lines = sum(piece.text.count("\n") + 1 for piece in batch.pieces)
    if not size <= batch.size <= BATCH_BYTES or batch.lines != lines:
        raise _wrong(
            f"a batch of {size:,} bytes and {lines:,} lines says {batch.size:,} bytes and "
            f"{batch.lines:,} lines; at most {BATCH_BYTES:,} bytes are taken at once"
        )
    for piece in batch.pieces:
        if piece.level not in LEVELS:
            raise _wrong(f"{piece.level[:50]!r} is no level: {', '.join(LEVELS)}")
        if not -1 <= piece.item <= NUMBER_MAX:
            raise _wrong(f"{piece.item} is no item")


def _wrong(message: str) -> InputError:
    return InputError(message, code="log_batch")


def clean_batches(batches: Sequence[LogBatch], clean: Callable[[str], str]) -> list[LogBatch]:
    """In any thread: a worker may have cut what it printed into very many pieces."""
    check_batches(batches)
    return [cleaned(batch, clean) for batch in batches]


def cleaned(batch: LogBatch, clean: Callable[[str], str]) -> LogBatch:
    """Whatever the worker has done with it: nothing of it is for a terminal to obey, and `clean`
    leaves no secret of the run in it."""
    pieces = [
        msgspec.structs.replace(piece, text=clean(printable(piece.text))) for piece in batch.pieces
    ]
    return msgspec.structs.replace(batch, pieces=pieces)
