"""What a body of JSON may hold beyond what its type says: how deep, and how much."""

from __future__ import annotations

from typing import Any

from anabranch.errors import InputError
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.work.values import json_size


def scan(body: bytes, depth: int) -> json_size.JsonSize:
    """Look over a body before anything is built of it; refuses what is too deep or too much."""
    try:
        return json_size.scan(body, json_size.BODY, depth)
    except InputError as error:
        if error.code == "too_deep":
            raise too_deep(depth) from None
        hint = "send less at once, or put the data where the work can fetch it"
        raise ApiError(413, error.code, error.message, hint) from None


def too_deep(depth: int) -> ApiError:
    return ApiError(400, "too_deep", f"the JSON has more than {depth} levels", "flatten it")


def keys_in(value: Any) -> int:
    """How many keys all objects in it have together."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        if type(each) is dict:
            count += len(each)
            left.extend(each.values())
        elif type(each) is list:
            left.extend(each)
    return count
