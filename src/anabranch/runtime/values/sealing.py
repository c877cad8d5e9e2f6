"""Sealed input: secrets that the work of a run may use and that nothing else ever sees.

They are taken out of the input before the run starts, kept beside the log in the same transaction
as its first event, and wiped in the transaction that holds the end of the run. There are three ways
to become sealed: a definition says which keys of its input are, by how they begin (`Net.sealed`) or
one by one (`Input.secret`), and whoever begins a child may have put secrets of its own into the
arguments. Of the last two a mark stays in its place, `***1.5b0c9f2e71d84a36***`, and whoever reads
the input for work finds the value there. Part of the mark is drawn by lot: no text that somebody
has written beforehand can stand for the secret.

Work that was given one is looked through for it. Guards and arcs decide what is recorded: to them
a sealed argument is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any

import msgspec

from anabranch.errors import DamagedRun, ExpressionError, InputError
from anabranch.kernel import stimuli as s
from anabranch.kernel.empty import EMPTY
from anabranch.net.net import Net
from anabranch.store.ports import Batch
from anabranch.work.secrets.redaction import STARS, Redactor, given_to_work

LENGTH_MAX = 512  # characters of one value that is sealed by how its key begins
SECRET_MAX = 64 * 1024  # characters of one secret input
KEY_MAX = 200  # characters of the key of a sealed value
MARKS_MAX = 10_000  # of one child
_SECRET = f"{STARS}s"  # a mark that stands nowhere: a secret that is part of the values sealed
_MARK = re.compile(rf"{re.escape(STARS)}s?[0-9]{{1,9}}\.[0-9a-f]{{16}}{re.escape(STARS)}")

Input = Mapping[str, Any]
Said = s.JobReport | s.JobPark | s.JobProgress | s.JobLose


class Sealed(msgspec.Struct, gc=False):
    """The secrets of one run in memory: by the key of the payload they belong to, or by mark."""

    values: Mapping[str, Any] = EMPTY
    unwritten: bool = False  # its store does not have them yet

    @property
    def marks(self) -> Mapping[str, Any]:
        return {key: value for key, value in self.values.items() if key.startswith(STARS)}

    def scope(self) -> Redactor:
        """Knows all of them: where nobody can tell what the work has read."""
        scope = Redactor.of_job()
        for value in self.values.values():
            scope.learn(str(value))
        return scope

    def clean(self, said: Said) -> Said:
        """What a worker elsewhere says of its job, without what is sealed."""
        if not self.values:
            return said
        scope = self.scope()
        match said:
            case s.JobReport():
                return msgspec.structs.replace(said, answer=scope.answer(said.answer))
            case s.JobPark():
                ticket, memory = scope.text(said.ticket), scope.clean(said.memory)
                wait = None if said.wait is None else scope.wait(said.wait)
                return msgspec.structs.replace(said, ticket=ticket, memory=memory, wait=wait)
            case s.JobProgress():
                return msgspec.structs.replace(said, progress=scope.clean(said.progress))
            case s.JobLose():
                return msgspec.structs.replace(said, reason=scope.text(said.reason))

    def clean_text(self) -> Callable[[str], str]:
        """How texts of a worker are cleaned, likewise."""
        return self.scope().text if self.values else str

    def clean_value(self, value: Any) -> Any:
        """That of a payload of a worker, likewise; the same one where nothing is in it."""
        return self.scope().clean(value) if self.values else value

    def lay_over(self, names: dict[str, Any], workload: Input, keys: Sequence[str]) -> None:
        """Into the names that the templates of a job see."""
        marks = self.marks
        if keys or marks:
            names["workload"] = Unsealed(workload, marks, keys)
        if not self.values:
            return
        scope = given_to_work()
        payload = unsealed(names["payload"], marks) if marks else names["payload"]
        own = {key: value for key, value in self.values.items() if not key.startswith(STARS)}
        if scope is not None:
            for value in own.values():
                scope.learn(value)
        names["payload"] = {**payload, **own}

    def keep(self, batch: Batch, run: str, *, over: bool) -> None:
        """Let the batch write them with the first event of their run, or wipe them with its end."""
        if over:
            if self.values and not self.unwritten:
                batch.unsealed.append(run)
        elif self.unwritten:
            encoded = {key: msgspec.json.encode(value) for key, value in self.values.items()}
            batch.sealed[run] = encoded
            self.unwritten = False


class Unsealed(Mapping[str, Any]):
    """The input as work sees it. What it reads it was given."""

    __slots__ = ("_keys", "_marks", "_values")

    def __init__(self, values: Input, marks: Input, keys: Sequence[str] = ()) -> None:
        self._values = values
        self._marks = marks
        self._keys = keys

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        found = unsealed(value, self._marks)
        if key in self._keys and found == value:
            raise ExpressionError(
                f"workload.{key} holds a secret of the run before, and secrets are not stored: "
                "start it again from where the secret is"
            )
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def unsealed(value: Any, marks: Input) -> Any:
    """The value with every secret back in its place."""
    if isinstance(value, str):
        if value not in marks:
            return value
        _give(marks[value], marks)
        return marks[value]
    if isinstance(value, Mapping):
        return {key: unsealed(each, marks) for key, each in value.items()}
    return [unsealed(each, marks) for each in value] if isinstance(value, list) else value


def _give(value: Any, marks: Input) -> None:
    """Whoever reads it was given the secrets in it: those that stand there, or else all."""
    scope = given_to_work()
    if scope is not None:
        secrets = [str(each) for mark, each in marks.items() if mark.startswith(_SECRET)]
        for secret in [each for each in secrets if each in str(value)] or secrets:
            scope.learn(secret)


def seal(given: Input, scope: Redactor | None) -> tuple[Input, dict[str, Any]]:
    """Arguments for a child that may be recorded, and the secrets of this scope by their marks."""
    if scope is None or not scope.knows_any:
        return given, {}
    marks: dict[str, Any] = {}
    lot = token_hex(8)

    def walk(value: Any) -> Any:
        if isinstance(value, Mapping):
            for key in value:
                if scope.text(str(key)) != key:
                    raise InputError("a secret cannot be the name of an argument", code="secret")
            return {key: walk(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [walk(each) for each in value]
        if isinstance(value, bool) or not scope.holds_secret(value):
            return value
        mark = f"{STARS}{len(marks) + 1}.{lot}{STARS}"
        marks[mark] = value
        return mark

    shown = walk(given)
    if not marks:
        return given, {}
    whole = "\n".join(map(str, marks.values()))
    for number, secret in enumerate(scope.secrets, 1):
        if scope.finds(whole, secret):
            marks[f"{_SECRET}{number}.{lot}{STARS}"] = secret
    return shown, marks


def checked_marks(marks: Input | None) -> Input | None:
    """The marks of a worker. They stand for secrets in what it was left to say, and for no other
    text, whatever stars are in it: it could change the recorded arguments of the child otherwise.
    And they become keys of the store."""
    for mark in marks or {}:
        if not _MARK.fullmatch(mark):
            raise InputError(f"{mark[:40]!r} is no mark of a secret", code="sealed")
    if len(marks or {}) > MARKS_MAX:
        raise InputError(f"a child is given at most {MARKS_MAX:,} secrets", code="sealed")
    return marks


def split(net: Net, given: Input, marks: Input | None = None) -> tuple[Input, Sealed]:
    """The input that may be recorded, and what is sealed."""
    sealed: Input = dict(marks or {}) or EMPTY
    if net.inputs:
        given, sealed = _seal_declared(net, given, sealed)
    if not net.sealed:
        return given, Sealed(sealed, unwritten=bool(sealed))
    kept = {
        key: unsealed(value, sealed) for key, value in given.items() if key.startswith(net.sealed)
    }
    for key, value in kept.items():
        _require_secret(key, value, LENGTH_MAX)
    shown = {key: value for key, value in given.items() if key not in kept}
    return shown, Sealed({**sealed, **kept}, unwritten=bool(sealed or kept))


def _seal_declared(net: Net, given: Input, marks: Input) -> tuple[Input, Input]:
    """Put marks in the place of secret inputs, unless a parent or the run before has done so."""
    keys = [key for key in net.secret_inputs if given.get(key) is not None]
    fresh = [key for key in keys if not (isinstance(given[key], str) and given[key] in marks)]
    if not fresh:
        return given, marks
    lot, shown, found = token_hex(8), dict(given), dict(marks)
    for number, key in enumerate(sorted(fresh), 1):
        shown[key] = f"{STARS}{number}.{lot}{STARS}"
        found |= marks_of(key, shown[key], given[key])
    return shown, found


def marks_of(key: str, mark: str, secret: Any) -> dict[str, str]:
    """What is sealed of an input that is a secret as a whole."""
    _require_secret(key, secret, SECRET_MAX)
    return {mark: secret, f"{_SECRET}{mark.removeprefix(STARS)}": secret}


def _require_secret(key: str, value: Any, most: int) -> None:
    if len(key) > KEY_MAX or not key.isprintable():
        raise InputError(
            f"the secret {key[:40]!r} needs a printable name of at most {KEY_MAX} characters",
            code="secret",
        )
    if isinstance(value, str) and _MARK.fullmatch(value):
        raise InputError(
            f"{key!r} was given the mark that stands for a secret of another run, and not the "
            "secret",
            code="secret",
        )
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise InputError(
            f"the secret {key!r} must be a text of 1 to {most:,} characters", code="secret"
        )


def sealed_keys(shown: Input, marks: Input) -> tuple[str, ...]:
    """The arguments that hold a mark."""
    if not marks:  # a large input is not walked for nothing
        return ()
    return tuple(key for key, value in shown.items() if unsealed(value, marks) != value)


def opened(stored: Mapping[str, bytes], run: str) -> Sealed:
    """What a store has kept for a run."""
    try:
        values = {key: msgspec.json.decode(value) for key, value in stored.items()}
    except ValueError:  # not a word of what it holds
        raise DamagedRun(run, "one of its sealed values cannot be decoded") from None
    return Sealed(values)
