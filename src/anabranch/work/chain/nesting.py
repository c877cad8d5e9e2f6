"""How deep a JSON text nests, told without parsing it.

Parsers recurse. Python guards against a text of a hundred thousand brackets with its recursion
limit, but any library may raise that limit, and then such a text ends the process.
"""

from __future__ import annotations

import re

#: Where nothing closes a string, nothing closes one behind it: the rest stays, and is read once.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"|(".*+)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def nests_deeper(text: bytes, limit: int) -> bool:
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(rb"\1", text)):
        depth += 1 if bracket in b"[{" else -1
        if depth > limit:
            return True
    return False
