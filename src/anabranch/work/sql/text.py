"""Cutting a script into statements.

A semicolon ends a statement unless it stands in a string, a quoted name, a comment, a body between
dollar signs, parentheses, or between BEGIN and END of a routine or trigger.
"""

from __future__ import annotations

import re

import msgspec

from anabranch.errors import InputError

_STRING = r"'[^']*(?:''[^']*)*(?:'|\Z)"
_NAME = r'"[^"]*(?:""[^"]*)*(?:"|\Z)'
_ESCAPED = r"(?<!\w)[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z)"
_SQLITE_NAMES = r"`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"
_COMMENT = r"--[^\n]*|/\*"
_DOLLAR = r"(?<![\w$])\$(?:[^\W\d]\w*)?\$"
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
        script, pieces = self._script, []
        start = at = depth = 0
        code: list[str] = []
        while (found := self._scanner.search(script, at)) is not None:
            code.append(script[at : found.start()])
            token, at = found[0], found.end()
            if token == "(":
                depth += 1
            elif token == ")":
                depth = max(0, depth - 1)
            elif token == ";":
                if depth == 0 and not _inside_routine("".join(code)):
                    pieces.append((script[start : found.start()].strip(), "".join(code)))
                    start, code = at, []
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
        pieces.append((script[start:].strip(), "".join(code)))
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


def _inside_routine(code: str) -> bool:
    """Whether a semicolon after this code belongs to the body of a routine or trigger."""
    start = _LEADING.match(code)
    if start is None or code[start.end() : start.end() + 6].upper() != "CREATE":
        return False
    words = [word.upper() for word in _WORD.findall(code)]
    if _ROUTINES.isdisjoint(words[1:8]):
        return False
    open_blocks = 0
    for word in words:
        if word == "BEGIN" or (word == "CASE" and open_blocks):
            open_blocks += 1
        elif word == "END" and open_blocks:
            open_blocks -= 1
    return open_blocks > 0


def _statement(text: str, code: str) -> Statement:
    first = _WORD.search(code)
    verb = first[0].upper() if first is not None else ""
    if verb in ("WITH", "SELECT"):
        words = {word.upper() for word in _WORD.findall(code)}
        changes = not words.isdisjoint(_CHANGES) if verb == "WITH" else "INTO" in words
        return Statement(text, verb, not changes)
    return Statement(text, verb, verb in _READS)
