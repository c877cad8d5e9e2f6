"""The one check every value passes on its way into the engine: is it plain JSON?"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.work.values.json_check import MAX_DEPTH, NotJsonError, plain, too_deep

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def require_json(value: Any, what: str, *, root: str = "result") -> Any:
    """A plain copy of `value`, or an `InputError` that names the path to what JSON cannot hold.

    The copy is also a promise: whoever made the value may change it later without changing what
    was recorded. `what` is the subject of the message, `root` the first name of the path.
    """
    if value is None or value is True or value is False:
        return value
    try:
        encoded = _encode(value)
        copy = _decode(encoded)
        # msgspec is generous (sets, dates, NaN, number keys); what it bent does not compare equal.
        if copy == value and (len(encoded) <= MAX_DEPTH or not too_deep(encoded, copy)):
            return copy
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # the slow walk says what is wrong, or that only a tuple was
    try:
        return plain(value, root)
    except NotJsonError as error:
        raise InputError(f"{what} is not JSON: {error}", code="not_json") from None
