"""The comments of a YAML text, by line: whole lines, and what stands behind a value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml
from yaml.tokens import ScalarToken

from anabranch.dialects.yaml_reader import LOADER

_HEADER = re.compile(r"[|>][-+0-9]*\s+(#.*)")


class Comments(msgspec.Struct, frozen=True):
    """Comments by the line (from 1) of the entry they belong to."""

    above: dict[int, list[str]] = {}
    behind: dict[int, str] = {}
    last: list[str] = []  # after the last entry

    def at(self, line: int) -> bool:
        return line in self.above or line in self.behind


def read_comments(text: str, entries: Iterable[int]) -> Comments:
    """Every comment, given to the entry in its line or to the first one after it."""
    whole, behind = _found(text)
    lines = sorted(set(entries))
    comments = Comments()
    for number, comment in sorted({**behind, **whole}.items()):
        if number in behind and number in lines:
            comments.behind[number] = comment
            continue
        owner = next((line for line in lines if line >= number), None)
        if owner is None:
            comments.last.append(comment)
        else:
            comments.above.setdefault(owner, []).append(comment)
    return comments


def _found(text: str) -> tuple[dict[int, str], dict[int, str]]:
    lines = text.splitlines()
    inside: set[int] = set()
    ends: dict[int, int] = {}  # line → column behind its last token
    behind: dict[int, str] = {}
    for token in yaml.scan(text, Loader=LOADER):
        start, end = token.start_mark, token.end_mark
        if isinstance(token, ScalarToken) and _is_block(token):
            stop = end.line if end.column == 0 else end.line + 1
            inside |= set(range(start.line + 1, stop))
            header = _HEADER.match(lines[start.line][start.column :])
            if header is not None:
                behind[start.line + 1] = header.group(1).rstrip()
            ends[start.line] = len(lines[start.line])
        else:
            inside |= set(range(start.line + 1, end.line + 1))
            ends[end.line] = max(ends.get(end.line, 0), end.column)
    whole: dict[int, str] = {}
    for number, line in enumerate(lines):
        stripped = line.strip()
        if number in inside and number not in ends:
            continue
        rest = line[ends[number] :].strip() if number in ends else ""
        if rest.startswith("#"):
            behind[number + 1] = rest
        elif stripped.startswith("#") and number not in inside:
            whole[number + 1] = stripped
    return whole, behind


def _is_block(token: Any) -> bool:
    return token.style in ("|", ">")
