"""How a dialect takes a document apart: typed access to keys, and every problem collected.

A `Section` is one mapping of the document. Asking it for a key checks the value and makes the key
known; what nobody asked for is reported by `finish`, with the known keys to choose from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from anabranch.cancel import poll
from anabranch.dialects.durations import parse_duration
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, kind_of
from anabranch.net.problems import Position, Problem, Severity, closest, did_you_mean

Word = TypeVar("Word", bound=str)
SLIP = 0.8  # how much alike two words are when one is a slip of the pen for the other


class Findings:
    """The problems found so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(
        self, at: Position, code: str, message: str, hint: str = "", severity: Severity = "error"
    ) -> None:
        self.problems.append(Problem(at, code, message, hint, severity))

    def warn(self, at: Position, code: str, message: str, hint: str = "") -> None:
        self.add(at, code, message, hint, "warning")

    def not_yet(self, at: Position, what: str, hint: str = "") -> None:
        self.add(at, "not-yet", f"{what} cannot be run yet", hint or "leave it out for now")

    def section(self, node: Node, what: str) -> Section | None:
        """The node as a section, or a problem when it is no mapping."""
        if isinstance(node, Fields):
            return Section(node, what, self)
        self.wrong_type(node, what, "a mapping")
        return None

    def wrong_type(self, node: Node, what: str, expected: str) -> None:
        message = f"{what} must be {expected}, but it is {kind_of(node)}"
        self.add(node.position, "wrong-type", message, f"write {expected}")


class Section:
    def __init__(self, node: Fields, what: str, findings: Findings) -> None:
        poll()
        self.node = node
        self.what = what
        self.findings = findings
        self._fields = node.fields
        self._asked: list[str] = []
        self._first = len(findings.problems)

    @property
    def sound(self) -> bool:
        """Nothing was found in it, or in what is inside it, that cannot be read.

        What follows from several keys together is worth saying only then: it may be wrong once the
        one mistake is mended.
        """
        found = self.findings.problems[self._first :]
        return not any(problem.severity == "error" for problem in found)

    @property
    def position(self) -> Position:
        return self.node.position

    def key_position(self, key: str) -> Position:
        return self.node.keys[key]

    def __contains__(self, key: str) -> bool:
        """Whether the key is there with a value; an empty one (`key:`) counts as absent."""
        node = self._fields.get(key)
        return node is not None and (type(node) is not Scalar or node.value is not None)

    # -- asking ------------------------------------------------------------------------------

    def ask(self, key: str) -> Node | None:
        self._asked.append(key)
        node = self._fields.get(key)
        return None if type(node) is Scalar and node.value is None else node

    def needed(self, key: str, hint: str) -> Node | None:
        """The same for a key that must not be absent."""
        self.require(key, hint)
        return self.ask(key)

    def section(self, key: str) -> Section | None:
        node = self.ask(key)
        return None if node is None else self.findings.section(node, f"`{key}` of {self.what}")

    def items(self, key: str) -> Items | None:
        node = self.ask(key)
        if node is None or isinstance(node, Items):
            return node
        self._wrong(key, node, "a list")
        return None

    def text(self, key: str) -> Scalar | None:
        """A text value. Numbers are taken as text: `version: 1` is seldom worth a complaint."""
        node = self.ask(key)
        if node is None:
            return None
        if isinstance(node, Scalar) and not isinstance(node.value, bool):
            return Scalar(str(node.value), node.position, node.style)
        self._wrong(key, node, "text")
        return None

    def string(self, key: str, default: str = "") -> str:
        node = self.text(key)
        return default if node is None else str(node.value)

    def flag(self, key: str, default: bool = False) -> bool:
        node = self.ask(key)
        if node is None:
            return default
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self._wrong(key, node, "true or false")
        return default

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        node = self.ask(key)
        if node is None:
            return default
        if not isinstance(node, Scalar) or type(node.value) is not int:
            self._wrong(key, node, "a whole number")
            return default
        if not least <= node.value <= most:
            message = f"`{key}` of {self.what} is {node.value}"
            hint = f"write a number from {least} to {most}"
            self.findings.add(node.position, "bad-number", message, hint)
            return default
        return node.value

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        node = self.ask(key)
        if node is None:
            return default
        if not isinstance(node, Scalar) or type(node.value) not in (int, float):
            self._wrong(key, node, "a number")
            return default
        value = float(node.value)  # type: ignore[arg-type]
        if not least <= value <= most:
            message = f"`{key}` of {self.what} is {node.value}"
            hint = f"write a number from {least:g} to {most:g}"
            self.findings.add(node.position, "bad-number", message, hint)
            return default
        return value

    def choice(self, key: str, words: Sequence[Word], default: Word) -> Word:
        node = self.ask(key)
        if node is None:
            return default
        for word in words:
            if isinstance(node, Scalar) and node.value == word:
                return word
        message = f"`{key}` of {self.what} is {kind_of(node)}"
        close = closest(str(node.value), words) if isinstance(node, Scalar) else ""
        hint = close or "choose one of " + ", ".join(words)
        self.findings.add(node.position, "bad-choice", message, hint)
        return default

    def duration_ms(self, key: str, *, zero: bool = False) -> int | None:
        node = self.ask(key)
        return None if node is None else self.duration_of(key, node, zero=zero)

    def duration_of(self, key: str, node: Node, *, zero: bool = False) -> int | None:
        if not isinstance(node, Scalar):
            self._wrong(key, node, "a duration")
            return None
        if isinstance(node.value, str) and "{{" in node.value:
            message = "it is a template, and has to be known before a run begins"
            self._bad_duration(key, node, message, "write a duration, such as 30s")
            return None
        try:
            milliseconds = parse_duration(node.value)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            self._bad_duration(key, node, message, hint)
            return None
        if milliseconds == 0 and not zero:
            self._bad_duration(key, node, "it is zero", "write a duration of at least 1ms")
            return None
        return milliseconds

    def _bad_duration(self, key: str, node: Node, message: str, hint: str) -> None:
        text = f"`{key}` of {self.what}: {message}"
        self.findings.add(node.position, "bad-duration", text, hint)

    # -- reporting ---------------------------------------------------------------------------

    def report(
        self, key: str, code: str, message: str, hint: str = "", severity: Severity = "error"
    ) -> None:
        """A problem with a key that is there, at its place."""
        self.findings.add(self.key_position(key), code, message, hint, severity)

    def warn(self, key: str, code: str, message: str, hint: str = "") -> None:
        self.report(key, code, message, hint, "warning")

    def conflict(self, key: str, other: str, hint: str = "keep one of them") -> None:
        """Both are there, and the other is one too many."""
        message = f"{self.what} has both `{key}` and `{other}`"
        self.report(other, "conflicting-keys", message, hint)

    def require(self, key: str, hint: str) -> None:
        """Report a key that is absent."""
        if key not in self:
            self.missing(key, hint)

    def missing(self, key: str, hint: str) -> None:
        """Report a key that is absent, or of no use as it is."""
        message = f"{self.what} has no `{key}`"
        self.findings.add(self.position, "missing-key", message, hint)

    def not_yet(self, *keys: str, hint: str = "") -> None:
        """Keys whose meaning is known but which cannot be run so far."""
        self._asked += keys
        for key in keys:
            if key in self:
                self.findings.not_yet(self.key_position(key), f"`{key}` of {self.what}", hint)

    def ignored(self, key: str, why: str = "") -> None:
        """Note a key that is read and has no effect."""
        message = f"`{key}` of {self.what} is ignored" + (f": {why}" if why else "")
        self.report(key, "ignored-key", message, severity="note")

    def ignore(self, key: str, why: str = "") -> None:
        """Ask for a key only to say that it has no effect."""
        if self.ask(key) is not None:
            self.ignored(key, why)

    def finish(self, also: Iterable[str] = (), *, free: Collection[str] | None = None) -> None:
        """Report every key nobody asked for.

        Where keys are `free`, one that nobody knows has no effect, which is noted. Still an error
        are slips of the pen, and the words given: they mean something elsewhere, and nothing
        here."""
        asked = {*self._asked, *also}
        unknown = [key for key in self._fields if key not in asked]
        if not unknown:
            return
        known = list(dict.fromkeys([*self._asked, *also]))
        for key in unknown:
            lower = [word.lower() for word in known]
            hint = did_you_mean(key, known) or "remove it"
            slip = get_close_matches(key.lower(), lower, n=1, cutoff=SLIP)
            if free is not None and key not in free and not slip:
                self.ignored(key)
                continue
            message = f"{self.what} has no key {key!r}"
            self.report(key, "unknown-key", message, hint)

    def _wrong(self, key: str, node: Node, expected: str) -> None:
        self.findings.wrong_type(node, f"`{key}` of {self.what}", expected)
