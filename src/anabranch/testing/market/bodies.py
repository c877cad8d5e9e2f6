"""The body of a request to a node of the world: refused for the same reasons as over HTTP."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from anabranch.market.node.errors import NodeError

DEPTH_MAX = 128  # of lists and objects, as the HTTP surface has it


def read_body(raw: bytes, most: int) -> Any:
    """The JSON value, None where there is nothing. Raises `NodeError`."""
    if len(raw) > most:
        raise NodeError(413, "too_large", f"a body has at most {most:,} bytes")
    if not raw.strip():
        return None
    try:
        value = json.loads(
            raw.decode(),
            object_pairs_hook=_once,
            parse_float=_number,
            parse_constant=_no_number,
        )
        json.dumps(value, ensure_ascii=False).encode()  # no half characters
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise NodeError(400, "not_json", f"the body is not JSON: {error}") from None
    if not _is_shallow(value):
        raise _too_deep()
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise NodeError(400, "duplicate_key", "a key stands twice in one object")
    return made


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _number(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _no_number(text)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return True
        level = [part for one in level for part in (one.values() if type(one) is dict else one)]
    return False


def _too_deep() -> NodeError:
    return NodeError(400, "too_deep", f"the JSON is nested more than {DEPTH_MAX} deep")
