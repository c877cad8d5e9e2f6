"""Cutting a script into statements.

A semicolon ends a statement unless it stands in a string, a quoted name, a comment, a body between
dollar signs, parentheses, or between BEGIN and END of a routine or trigger.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from anabranch.errors import InputError
from anabranch.work.sql.rows import length_of
from anabranch.work.values.served_json import do_aside

T = TypeVar("T")

_STRING = r"'[^']*(?:''[^']*)*(?:'|\Z)"
_NAME = r'"[^"]*(?:""[^"]*)*(?:"|\Z)'
_ESCAPED = r"(?<!\w)[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z)"
_SQLITE_NAMES = r"`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"
_COMMENT = r"--[^\n]*|/\*"
_DOLLAR = r"(?<![\w$])\$(?:[^\W\d]\w*)?\$"
STATEMENTS_MAX = 100_000
_WORK_OF_LETTER = 16  # bytes of JSON that are read in the time of a letter
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_LEADING = re.compile(r"[\s(]*")
_WORD = re.compile(r"[A-Za-z_]+")
_ROUTINES = frozenset({"FUNCTION", "PROCEDURE", "TRIGGER"})
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"})
_READS = frozenset({"SELECT", "VALUES", "TABLE", "SHOW", "EXPLAIN", "PRAGMA", "DESCRIBE", "FROM"})
_TRANSACTION = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})
_PLAIN_BEGIN = re.compile(
    r"(BEGIN|START)(\s+(TRANSACTION|WORK|DEFERRED|IMMEDIATE|EXCLUSIVE))*", re.IGNORECASE
)
_PLAIN_COMMIT = re.compile(r"(COMMIT|END)(\s+(TRANSACTION|WORK))?", re.IGNORECASE)


class Flavour(msgspec.Struct, frozen=True):
    """In what the databases differ here."""

    name: str
    dollars: bool  # bodies between $$, strings with E'\\n', comments inside comments


SQLITE = Flavour("sqlite", dollars=False)
POSTGRES = Flavour("postgres", dollars=True)
DUCKDB = Flavour("duckdb", dollars=True)
FLAVOURS = {flavour.name: flavour for flavour in (SQLITE, POSTGRES, DUCKDB)}

_SCANNERS = {
    True: re.compile("|".join((_ESCAPED, _STRING, _NAME, _COMMENT, _DOLLAR, "[;()]")), re.DOTALL),
    False: re.compile("|".join((_STRING, _NAME, _SQLITE_NAMES, _COMMENT, "[;()]")), re.DOTALL),
}


class Statement(msgspec.Struct, frozen=True):
    text: str
    verb: str  # its first word in capitals
    reads: bool  # gives rows and changes nothing, as far as the text says

    @property
    def controls_transaction(self) -> bool:
        if self.verb == "ROLLBACK":  # to a savepoint is fine
            return not re.search(r"\bTO\b", self.text, re.IGNORECASE)
        return self.verb in _TRANSACTION


async def take_apart(text: Any, work: Callable[..., T], *given: Any) -> T:
    """What is made of the statements in a text, or in texts in lists: beside the event loop where
    there may be many words."""
    return await do_aside(_WORK_OF_LETTER * length_of([text]), work, *given)


def split(script: str, flavour: Flavour) -> list[Statement]:
    """The statements of a script, without those that are empty."""
    cutter = _Cutter(script, flavour)
    return [
        _statement(text, code) for text, code in cutter.pieces() if _LEADING.sub("", code, count=1)
    ]


def within_one_transaction(statements: list[Statement]) -> list[Statement]:
    """The statements without a BEGIN and COMMIT around them, since that is how they run anyway."""
    if statements and _PLAIN_BEGIN.fullmatch(statements[0].text.strip()):
        statements = statements[1:]
        if statements and _PLAIN_COMMIT.fullmatch(statements[-1].text.strip()):
            statements = statements[:-1]
    for statement in statements:
        if statement.controls_transaction:
            raise InputError(
                f"{statement.verb} does not fit: the commands of a task are one transaction; "
                "set autocommit: true to run each as it is written"
            )
    return statements


class _Cutter:
    def __init__(self, script: str, flavour: Flavour) -> None:
        self._script = script
        self._dollars = flavour.dollars
        self._scanner = _SCANNERS[flavour.dollars]

    def pieces(self) -> list[tuple[str, str]]:
        """Each statement twice: as written, and with only its code (no strings, no comments)."""
        script, pieces = self._script, list[tuple[str, str]]()
        start = at = depth = 0
        code = _Code()
        while (found := self._scanner.search(script, at)) is not None:
            code.append(script[at : found.start()])
            token, at = found[0], found.end()
            if token == "(":
                depth += 1
            elif token == ")":
                depth = max(0, depth - 1)
            elif token == ";":
                if depth == 0 and not code.is_inside_routine:
                    if len(pieces) >= STATEMENTS_MAX:
                        raise InputError(f"a script has at most {STATEMENTS_MAX:,} statements")
                    pieces.append((script[start : found.start()].strip(), str(code)))
                    start, code = at, _Code()
                    continue
            elif token == "/*":
                at, token = self._after_comment(at), " "
            elif token.startswith("--"):
                token = " "
            else:
                at = self._after_body(token, at)
                token = "''"
            code.append(token)
        code.append(script[at:])
        pieces.append((script[start:].strip(), str(code)))
        return pieces

    def _after_comment(self, at: int) -> int:
        """Where the comment ends that is open at this place; some databases let them nest."""
        depth = 1
        for found in _COMMENT_MARKS.finditer(self._script, at):
            if found[0] == "*/":
                depth -= 1
            elif self._dollars:
                depth += 1
            if depth == 0:
                return found.end()
        return len(self._script)

    def _after_body(self, token: str, at: int) -> int:
        if not (self._dollars and token[0] == "$"):
            return at
        end = self._script.find(token, at)
        return len(self._script) if end < 0 else end + len(token)


class _Code:
    """The code of a statement as it is found. Each part of it is looked at once, however many
    semicolons stand in it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._begins = ""  # with something else than brackets and blanks
        self._words = 0
        self._has_routine = False
        self._open_blocks = 0

    def __str__(self) -> str:
        return "".join(self._parts)

    def append(self, part: str) -> None:
        """Words end where parts do."""
        self._parts.append(part)
        self._begins = self._begins or _LEADING.sub("", part, count=1)[:6].upper()
        for word in map(str.upper, _WORD.findall(part)) if self._begins == "CREATE" else ():
            self._has_routine |= 1 <= self._words < 8 and word in _ROUTINES
            self._words += 1
            if word == "BEGIN" or (word == "CASE" and self._open_blocks):
                self._open_blocks += 1
            elif word == "END" and self._open_blocks:
                self._open_blocks -= 1

    @property
    def is_inside_routine(self) -> bool:
        """Whether a semicolon after this code belongs to the body of a routine or trigger."""
        return self._has_routine and self._open_blocks > 0


def _statement(text: str, code: str) -> Statement:
    first = _WORD.search(code)
    verb = first[0].upper() if first is not None else ""
    if verb in ("WITH", "SELECT"):
        words = {word.upper() for word in _WORD.findall(code)}
        changes = not words.isdisjoint(_CHANGES) if verb == "WITH" else "INTO" in words
        return Statement(text, verb, not changes)
    return Statement(text, verb, verb in _READS)
