"""Reads YAML and JSON, keeping line and column of every key and value.

Nothing here knows a dialect. Whatever is wrong with the text becomes a problem; all that can be
found are reported together. The limits stop a document before it costs anything: its size is
checked before it is parsed, its depth and the number of its values (with aliases written out)
while it is read.

YAML is read with the scalars of JSON in mind: dates, times, `0777` and `1_000` stay text, keys are
always text (`on:` is the key "on"), and only values follow YAML 1.1 in reading yes, no, on and off
as true and false.
"""

from __future__ import annotations

import msgspec

from anabranch.dialects.json_reader import read_json
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.reading import Reading, SourceLimits
from anabranch.dialects.yaml_reader import read_yaml
from anabranch.net.problems import Position, Problem

__all__ = ["Document", "SourceLimits", "read_source", "too_large"]


class Document(msgspec.Struct, frozen=True):
    """What was read. `root` is None when there is nothing to go on with."""

    file: str
    text: str
    root: Node | None
    problems: tuple[Problem, ...] = ()
    _lines: list[str] = []

    def inside(self, scalar: Scalar, line: int) -> Position:
        """The place of a line (from 1) within a text value."""
        if scalar.style != "literal":
            return scalar.position  # folding moves lines; the start is the honest answer
        if not self._lines:
            self._lines.extend(self.text.split("\n"))
        number = scalar.position.line + line
        source = self._lines[number - 1] if number <= len(self._lines) else ""
        column = len(source) - len(source.lstrip()) + 1
        return Position(number, column, self.file)


def read_source(
    data: str | bytes, *, file: str = "<text>", limits: SourceLimits | None = None
) -> Document:
    reading = Reading(file, limits or SourceLimits())
    text = _decoded(data, reading)
    root = None if text is None else _parsed(text, reading)
    if text is not None and root is None and not reading.problems:
        reading.problem(1, 1, "empty", "the document is empty", "write a definition into it")
    return Document(file, text or "", root, tuple(reading.problems))


def too_large(file: str, size: int, limits: SourceLimits) -> Problem:
    message = f"the document is {size:,} bytes long; the limit bytes_max is {limits.bytes_max:,}"
    hint = "move data out of the definition, or raise the limit"
    return Problem(Position(1, 1, file), "too-large", message, hint)


def _decoded(data: str | bytes, reading: Reading) -> str | None:
    if len(data) > reading.limits.bytes_max:
        reading.problems.append(too_large(reading.file, len(data), reading.limits))
        return None
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        reading.problem(line, column, "not-utf8", "this is not UTF-8", "save the file as UTF-8")
        return None


def _parsed(text: str, reading: Reading) -> Node | None:
    """A file named `.json` is JSON. Other text is tried as JSON where it looks like it; what is
    not JSON may still be YAML."""
    only_json = reading.file.lower().endswith(".json")
    if only_json and not text.strip():
        return None
    if not only_json and text.lstrip()[:1] not in ("{", "["):
        return read_yaml(text, reading)
    as_json = Reading(reading.file, reading.limits)
    root = read_json(text, as_json)
    if root is None and as_json.syntax_error and not only_json:
        as_yaml = Reading(reading.file, reading.limits)
        root = read_yaml(text, as_yaml)
        if not as_yaml.syntax_error:
            reading.problems.extend(as_yaml.problems)
            return root
        root = None
    reading.problems.extend(as_json.problems)
    return root
