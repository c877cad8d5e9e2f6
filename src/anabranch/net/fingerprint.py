"""The stable id of a definition: the same source in the same dialect has the same fingerprint.

Line endings and a byte order mark do not count, for tools change them behind the author's back;
every other character does.
"""

from __future__ import annotations

import hashlib


def fingerprint(dialect: str, text: str) -> str:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    digest = hashlib.sha256()
    digest.update(dialect.encode())
    digest.update(b"\x00")
    digest.update(lines.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
