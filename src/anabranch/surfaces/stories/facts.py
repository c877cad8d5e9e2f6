"""A store of facts beside a role: what it has made, kept once under the digest of its content.

Outputs of orders point at facts and do not carry them. The store is a file of lines that is only
appended to; the same fact again is the same line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from anabranch.market.documents import digest_of
from anabranch.market.identities import canonical

FILE = "facts.jsonl"


class Facts:
    """Without a path they are kept in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known = {digest_of(line): line for line in self._lines()}

    def keep(self, content: Mapping[str, Any]) -> str:
        """The digest by which it is found again."""
        line = canonical(dict(content))
        fact = digest_of(line)
        if fact not in self._known:
            if self._path is not None:
                with self._path.open("ab") as file:
                    file.write(line + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
            self._known[fact] = line
        return fact

    def content(self, fact: str) -> Any:
        return msgspec.json.decode(self._known[fact]) if fact in self._known else None

    def all(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self._known.values()]

    def _lines(self) -> list[bytes]:
        """A line that a crash has cut off is none: its fact was not answered to anybody."""
        if self._path is None or not self._path.exists():
            return []
        data = self._path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))
        return whole.splitlines()
