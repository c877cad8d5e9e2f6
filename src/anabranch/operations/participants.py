"""The participants of an engine: who there is and how they have answered, and whether a book is
right, by itself and for the definitions that are to be run with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anabranch import files
from anabranch.clock import SystemClock
from anabranch.dialects.source import read_source
from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import events as e
from anabranch.market.directory import PassportDirectory
from anabranch.market.identities import Ed25519Signatures
from anabranch.net.net import Net, Step
from anabranch.net.problems import Position, Problem, Severity, did_you_mean
from anabranch.runtime.live_run import history
from anabranch.settings import Settings
from anabranch.store.ports import HeadFilter, Store
from anabranch.work.participants.book import BOOK_LIMITS, Book, BookError, read_book
from anabranch.work.participants.entries import Listing
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import ParticipantQuery

RUNS_RECALLED = 50
ROWS_RECALLED = 500
BYTES_RECALLED = 256 * 1024

#: Who can be asked: a book, a mapping of its shape, or the path of a file that holds one.
Participants = Book | Mapping[str, Any] | str | os.PathLike[str]


def book_from(given: Participants | None, settings: Settings, sharing: Book | None = None) -> Book:
    """Who can be asked: as given, or as in the file that the settings name."""
    if isinstance(given, Book):
        return given
    limits = HttpLimits(
        total_seconds=settings.participant_seconds, reply_bytes=settings.participant_reply_bytes
    )
    signatures = Ed25519Signatures()
    if isinstance(given, Mapping):
        return Book(given, limits=limits, signatures=signatures)
    path = given if given is not None else settings.participants
    if not path:
        return Book(limits=limits)
    return read_book(Path(path), limits=limits, signatures=signatures, sharing=sharing)


def book_name(given: Participants | None, settings: Settings) -> str:
    """Where the participants are listed, for whoever opens a run again."""
    if isinstance(given, Book | Mapping):
        return "a book that its program gave"
    return os.fspath(given) if given is not None else settings.participants


def rows(book: Book) -> list[dict[str, Any]]:
    """Everybody in the book, and those of a directory who were asked, with how they answered."""
    others = [name for name in book.health.names() if name not in book.listings]
    listed = [*book.listings.values(), *(Listing(name, place="directory") for name in others)]
    return [{**_described(one), **book.health.fields(one.participant)} for one in listed]


def _described(one: Listing) -> dict[str, Any]:
    return {
        "participant": one.participant,
        "place": one.place,
        "service_types": list(one.service_types),
        "price": one.price,
        "labels": dict(one.labels),
        "signed": one.signed,
    }


def asked_before(store: Store) -> list[str]:
    """Whom the newest runs asked, in that order, so that turns go on after a restart.

    A bounded look: some runs, and none with a log too long to be read at once."""
    asked: list[tuple[int, str]] = []
    for head in store.heads(HeadFilter(dialect="arca", limit=RUNS_RECALLED)):
        if head.damage or store.weight(head.run, 0, ROWS_RECALLED + 1)[1] > BYTES_RECALLED:
            continue
        try:
            log = history(store.read(head.run, limit=ROWS_RECALLED), run=head.run)
        except AnabranchError:  # damaged: whoever opens it is told
            continue
        for at, event in log:
            if isinstance(event, e.GatherOpened) and event.kind == "fan":
                asked += [(at, name) for name in event.labels]
    return [name for _, name in sorted(asked, key=lambda one: one[0])]


# -- checking a book -------------------------------------------------------------------------------


class _Recording(Mapping[str, str]):
    """The environment; what is not in it is remembered, and stands for itself."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def __getitem__(self, name: str) -> str:
        found = os.environ.get(name)
        if not found:
            self.missing.append(name)
        return found or "not-set"

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)

    def __contains__(self, name: object) -> bool:
        return True


class BookCheck:
    """A book as far as it could be read, and everything that is wrong with it.

    Nobody is asked and nothing is fetched: sources of the directory that are URLs are left alone.
    """

    def __init__(self, path: str) -> None:
        self.problems: list[Problem] = []
        self._start = Position(1, 1, path)
        self._environment = _Recording()
        self.book = self._read(Path(path))
        self._directory: PassportDirectory | None = None
        for name in dict.fromkeys(self._environment.missing):
            message = f"the environment variable {name} is not set here"
            hint = "set it where the book is used"
            self._warn(self._start, "missing-variable", message, hint)
        if self.book is not None and self.book.directory:
            self._read_directory(self.book)

    def _read(self, path: Path) -> Book | None:
        try:
            data = files.read_limited(path, BOOK_LIMITS.bytes_max)
        except InputError as error:
            hint = "name a file that can be read"
            self.problems.append(Problem(self._start, "no-file", error.message, hint))
            return None
        document = read_source(data, file=str(path), limits=BOOK_LIMITS)
        if document.problems:
            self.problems += document.problems
            return None
        try:
            return read_book(path, environment=self._environment, signatures=Ed25519Signatures())
        except BookError as error:
            self.problems += error.problems
        except InputError as error:
            self.problems.append(Problem(self._start, "bad-book", error.message))
        return None

    def _read_directory(self, book: Book) -> None:
        sources = [book.directory.get(part) for part in ("passports", "revocations", "bindings")]
        if any(isinstance(source, str) and "://" in source for source in sources):
            return
        try:
            directory = PassportDirectory(book, SystemClock())
            directory.read()
        except AnabranchError as error:
            message = f"the directory of passports: {error.message}"
            self.problems.append(Problem(self._start, "bad-book", message))
            return
        self._directory = directory
        for refused in directory.cache.refused:
            message = f"a document of the directory does not count: {refused}"
            self._warn(self._start, "bad-passport", message)

    def _warn(self, at: Position, code: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(at, code, message, hint, "warning"))

    def problems_of(self, net: Net) -> list[Problem]:
        """What the definition needs of the book and does not find there."""
        return [] if self.book is None else needs_of(net, self.book, self._directory)


def needs_of(net: Net, book: Book, directory: PassportDirectory | None) -> list[Problem]:
    """What a definition needs of a book, and of its directory where that was read, and does not
    find there."""
    needs = _Needs(book, directory)
    return [problem for step in net.steps.values() for problem in needs.of_step(step)]


class _Needs:
    def __init__(self, book: Book, directory: PassportDirectory | None) -> None:
        self._book = book
        self._directory = directory

    def of_step(self, step: Step) -> Iterator[Problem]:
        source = step.decision.source if step.decision is not None else None
        if source is not None and source.kind == "capability":
            name = str(_facts(source).get("capability_id") or "")
            if self._book.capability(name) is None:
                yield Problem(
                    _place(step), "unknown-capability", self._book.missing_capability(name)
                )
        if step.fan is None:
            return
        search = _facts(step.fan.targets)
        named = getattr(step.fan.over, "participants", ()) or search.get("participants") or ()
        if named:
            yield from self._of_names(step, named)
        elif search.get("resolve") == "capability":
            yield from self._of_capability(step, search)
        elif search and search.get("resolve") != "offer":  # whose offer it is, a run finds out
            yield from self._of_service(step, search)

    def _of_names(self, step: Step, names: Iterable[str]) -> Iterator[Problem]:
        plain = [name for name in names if "{{" not in name]
        missing = [name for name in plain if not self._is_known(name)]
        nobody = bool(missing) and len(missing) == len(list(names))
        for name in missing:
            hint = did_you_mean(name, self._book.listings) or "add it to `participants` of the book"
            message = f"step {step.name!r} asks {name!r}, who is not in the book"
            severity: Severity = "error" if nobody else "warning"
            yield Problem(_place(step), "unknown-participant", message, hint, severity)

    def _is_known(self, name: str) -> bool:
        if self._book.participant(name) is not None:
            return True
        return self._directory is not None and not isinstance(self._directory.elsewhere(name), str)

    def _of_capability(self, step: Step, search: Mapping[str, Any]) -> Iterator[Problem]:
        wanted = f"step {step.name!r} asks who holds {search.get('capability_id')!r}"
        if not self._book.directory:
            message = f"{wanted}, and the book has no directory of passports"
            hint = "add `directory: {passports: …}`"
            yield Problem(_place(step), "nobody-to-ask", message, hint)
        if self._directory is None:
            return
        query = ParticipantQuery(
            resolve="capability", capability_id=str(search.get("capability_id"))
        )
        holders = self._directory.find(query)
        if not holders:
            message = f"{wanted}: {self._directory.why_nobody(query)}"
            yield Problem(_place(step), "nobody-to-ask", message, severity="warning")
        yield from self._of_names(step, holders)

    def _of_service(self, step: Step, search: Mapping[str, Any]) -> Iterator[Problem]:
        wanted = str(search.get("service_type") or search.get("task_type") or "")
        if any(wanted in one.service_types for one in self._book.listings.values()):
            return
        known = sorted({each for one in self._book.listings.values() for each in one.service_types})
        message = f"step {step.name!r} needs {wanted!r}, which no participant in the book offers"
        hint = did_you_mean(wanted, known) or "add it to the `service_types` of a participant"
        yield Problem(_place(step), "nobody-to-ask", message, hint)


def _place(step: Step) -> Position:
    return step.position or Position(1, 1)


def _facts(work: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(getattr(work, "inputs", None), "facts", None) or {}
    return found
