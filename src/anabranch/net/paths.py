"""Short paths into JSON: `$.data.items[0].id`, also without the dollar sign."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError

_PART = re.compile(r"""\.?([^.\[\]'"]+)|\[(-?[0-9]+)\]|\[(['"])(.*?)\3\]""")

Path = tuple[str | int, ...]
MISSING: Any = object()


def parse(path: Any, what: str) -> Path:
    """The keys and indexes on the way; `$` alone is the value itself."""
    if not isinstance(path, str) or not path.strip():
        raise InputError(f"{what} must be a path such as $.data.items, not {path!r:.60}")
    text = path.strip()
    rest = text[1:] if text.startswith("$") else text
    parts: list[str | int] = []
    at = 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or (found[1] is not None and found[1].strip() in ("", "*")):
            raise InputError(f"{what}: '{text:.80}' is not a path such as $.data.items[0]")
        if found[1] is not None:
            parts.append(found[1])
        else:
            parts.append(int(found[2]) if found[2] is not None else found[4])
        at = found.end()
    return tuple(parts)


def lookup(value: Any, path: Path) -> Any:
    """What the path leads to, or `MISSING`."""
    for part in path:
        if isinstance(value, Mapping) and not isinstance(part, int):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and _is_index(part):
            index = int(part)
            value = value[index] if -len(value) <= index < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def _is_index(part: str | int) -> bool:
    return isinstance(part, int) or (part.isascii() and part.isdecimal())
