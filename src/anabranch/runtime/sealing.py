"""Sealed input: secrets that the work of a run may use and that nothing else ever sees.

They are taken out of the input before the run starts, kept beside the log in the same transaction
as its first event, laid over the payload when a job is handed to its performer, and wiped in the
transaction that holds the end of the run. Whatever the work says is looked through for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anabranch.errors import DamagedRun, InputError
from anabranch.kernel.values import Answer
from anabranch.net.net import Net
from anabranch.store.ports import Batch
from anabranch.work.redaction import Redactor

LENGTH_MAX = 512  # characters of one sealed value

Input = Mapping[str, Any]


@dataclass(slots=True)
class Sealed:
    """The secrets of one run in memory."""

    values: Mapping[str, str] = field(default_factory=dict)
    unwritten: bool = False  # its store does not have them yet
    _redactor: Redactor | None = None

    def clean(self, answer: Answer) -> Answer:
        """The answer without what is sealed, wherever the work may have put it."""
        if not self.values:
            return answer
        if self._redactor is None:
            self._redactor = Redactor()
            for value in self.values.values():
                self._redactor.learn(value)
        return self._redactor.answer(answer)

    def keep(self, batch: Batch, run: str, *, over: bool) -> None:
        """Let the batch write them with the first event of their run, or wipe them with its end."""
        if over:
            if self.values and not self.unwritten:
                batch.unsealed.append(run)
        elif self.unwritten:
            encoded = {key: msgspec.json.encode(value) for key, value in self.values.items()}
            batch.sealed[run] = encoded
            self.unwritten = False


def split(net: Net, given: Input) -> tuple[Input, Sealed]:
    """The input that may be recorded, and what is sealed."""
    if not net.sealed:
        return given, Sealed()
    kept = {key: value for key, value in given.items() if key.startswith(net.sealed)}
    for key, value in kept.items():
        if not isinstance(value, str) or not 0 < len(value) <= LENGTH_MAX:
            raise InputError(
                f"the secret {key!r} must be a text of 1 to {LENGTH_MAX} characters",
                code="secret",
            )
    shown = {key: value for key, value in given.items() if key not in kept}
    return shown, Sealed(kept, unwritten=bool(kept))


def opened(stored: Mapping[str, bytes], run: str) -> Sealed:
    """What a store has kept for a run."""
    try:
        values = {key: msgspec.json.decode(value, type=str) for key, value in stored.items()}
    except ValueError:  # not a word of what it holds
        raise DamagedRun(run, "one of its sealed values cannot be decoded") from None
    return Sealed(values)
