"""Rules over several fields that more than one kind of document has."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.shapes import Object, Rule, instant_of


def exactly_one(*keys: str) -> Rule:
    def rule(document: Object, path: str, found: Found) -> None:
        given = [key for key in keys if key in document]
        named = " and ".join(f"`{key}`" for key in keys)
        if len(given) != 1:
            code = "conflicting-fields"
            wrong = "none of them is here" if not given else f"{len(given)} of them are here"
            found.add(path, code, f"exactly one of {named} must be there; {wrong}")

    return rule


def needs(document: Object, path: str, found: Found, keys: Sequence[str], because: str) -> None:
    """Fields that must be there because of another one."""
    for key in keys:
        if document.get(key) is None:
            message = f"{because} needs `{key}`; add it"
            found.add(below(path, key), "missing-field", message)


def forbids(document: Object, path: str, found: Found, keys: Sequence[str], because: str) -> None:
    for key in keys:
        if key in document:
            message = f"{because} rules out `{key}`; remove it"
            found.add(below(path, key), "forbidden-field", message)


def follows(earlier: str, later: str, *, same_is_fine: bool = False) -> Rule:
    """`later` is a time after `earlier`, where both are there."""

    def rule(document: Object, path: str, found: Found) -> None:
        first, second = instant_of(document, earlier), instant_of(document, later)
        if first is None or second is None or second > first or (same_is_fine and second == first):
            return
        wanted = "not before" if same_is_fine else "after"
        message = f"{shown(document[later])} must be {wanted} `{earlier}` {document[earlier]}"
        found.add(below(path, later), "times-out-of-order", message)

    return rule


def valid_from(key: str) -> Rule:
    """With an instant: a time that has not come yet."""

    def rule(document: Object, path: str, found: Found) -> None:
        begins = instant_of(document, key)
        if found.at is not None and begins is not None and begins > found.at:
            message = f"it is valid from {document[key]} on, which is later than the given instant"
            found.add(below(path, key), "not-yet-valid", message)

    return rule


def valid_until(key: str) -> Rule:
    """With an instant: a time that has come."""

    def rule(document: Object, path: str, found: Found) -> None:
        ends = instant_of(document, key)
        if found.at is not None and ends is not None and ends <= found.at:
            message = f"it was valid until {document[key]}; ask for a new one"
            found.add(below(path, key), "expired", message)

    return rule


def when(key: str, value: object, *rules: Rule) -> Rule:
    """The rules hold only where a field has this value."""

    def rule(document: Object, path: str, found: Found) -> None:
        if document.get(key) == value and type(document.get(key)) is type(value):
            for each in rules:
                each(document, path, found)

    return rule


def agrees(path_of_other: str, key: str, other_key: str) -> Rule:
    """A field equals one of an embedded document, where both are there."""

    def rule(document: Object, path: str, found: Found) -> None:
        other = document.get(path_of_other)
        if not isinstance(other, dict) or key not in document or other_key not in other:
            return
        if document[key] != other[other_key]:
            message = (
                f"{shown(document[key])} is here, and `{other_key}` of `{path_of_other}` "
                f"is {shown(other[other_key])}; they must be equal"
            )
            found.add(below(path, key), "conflicting-values", message)

    return rule
