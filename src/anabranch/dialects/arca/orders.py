"""`offer_ref`, `request_units`, `max_amount` and `currency`: what an ordinary step orders.

`offer_ref` orders exactly one offer, such as the one that an earlier step chose. The others say how
much is ordered and what it may cost; each may be a reference. All of them belong to steps that ask
one provider: with `fan_in` they are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import plain
from anabranch.errors import ExpressionError
from anabranch.expressions.port import NOTHING, Paths
from anabranch.expressions.references import (
    Reference,
    References,
    compile_references,
    document_of,
    is_reference,
)
from anabranch.net.problems import Position

OFFER = "offer_ref"
TERMS = ("request_units", "max_amount", "currency")
KEYS = (OFFER, *TERMS)
WHOLE_MAX = 2**53 - 1  # as amounts of the market
#: What every request says where the step does not.
DEFAULTS: Mapping[str, Any] = {"request_units": 1, "max_amount": None, "currency": ""}
#: An offer has at least these, as texts.
_OF_AN_OFFER = ("provider/participant-id", "offer/id")


class OfferRef(msgspec.Struct, frozen=True):
    """Where the offer stands that a step orders."""

    given: References
    position: Position

    @property
    def reads(self) -> Paths:
        return self.given.reads

    def offer(self, names: Mapping[str, Any]) -> Any:
        """The offer. Whatever else is there fails the step before anybody is asked."""
        found = self.given.render(document_of(names))
        named = found if isinstance(found, Mapping) else {}
        missing = [key for key in _OF_AN_OFFER if not _is_text(named.get(key))]
        if missing:
            (reference,) = self.given.references()
            message = f"`{OFFER}` reads {reference.text}, which is no offer: "
            message += f"an offer has {' and '.join(_OF_AN_OFFER)}"
            raise ExpressionError(message, code="unresolved_reference")
        return found


class OrderTerms(msgspec.Struct, frozen=True):
    """What the request of an ordinary step says about the order."""

    offer: OfferRef | None = None
    given: References | None = None  # a mapping of those of `TERMS` that the step has
    position: Position | None = None

    @property
    def reads(self) -> Paths:
        parts = (self.offer, self.given)
        return NOTHING.union(*(part.reads for part in parts if part is not None))

    def references(self) -> Iterator[tuple[Reference, Position]]:
        """Each with where it stands."""
        if self.offer is not None:
            for reference in self.offer.given.references():
                yield reference, self.offer.position
        if self.given is not None and self.position is not None:
            for reference in self.given.references():
                yield reference, self.position

    def evaluate(self, names: Mapping[str, Any]) -> dict[str, Any]:
        given = {} if self.given is None else self.given.render(document_of(names))
        for key, value in given.items():
            if not _FITS[key](value):
                raise ExpressionError(f"`{key}` comes to {value!r:.40}, which is no {_WORDS[key]}")
        offer = None if self.offer is None else self.offer.offer(names)
        return {"offer": offer, **DEFAULTS, **given}


def read_terms(section: Section) -> OrderTerms:
    """Those of a step, as far as they can be read."""
    given = {key: _term(section, key) for key in TERMS}
    written = {key: value for key, value in given.items() if value is not None}
    first = next((section.key_position(key) for key in written), None)
    return OrderTerms(_offer_ref(section), compile_references(written) if written else None, first)


def check_terms(section: Section) -> None:
    """Say what these keys cannot stand beside."""
    named = [key for key in KEYS if key in section]
    if named and "fan_in" in section:
        key = named[0]
        message = f"`{key}` is for a step that orders from one provider, and `fan_in` asks many"
        hint = "order in a step of its own, after this one"
        section.report(key, "conflicting-keys", message, hint)
    elif OFFER in named and "target" in section:
        message = f"`{OFFER}` names the offer and so its provider, and `target` says whom to ask"
        section.report(OFFER, "conflicting-keys", message, "keep one of them")


def _offer_ref(section: Section) -> OfferRef | None:
    node = section.ask(OFFER)
    if node is None:
        return None
    value = plain(node)
    if not is_reference(value):
        expected = 'a reference such as {"from": "/steps/solicit/output/offer"}'
        section.findings.wrong_type(node, f"`{OFFER}` of {section.what}", expected)
        return None
    return OfferRef(compile_references(value), section.key_position(OFFER))


def _term(section: Section, key: str) -> Any:
    node = section.ask(key)
    if node is None:
        return None
    value = plain(node)
    if is_reference(value) or _FITS[key](value):
        return value
    what = f"`{key}` of {section.what}"
    if type(value) is int and key != "currency":
        hint = f"write a {_WORDS[key]}"
        section.findings.add(node.position, "bad-number", f"{what} is {value}", hint)
    else:
        expected = f"a {_WORDS[key]} or a reference such as {_EXAMPLES[key]}"
        section.findings.wrong_type(node, what, expected)
    return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= WHOLE_MAX


def _is_currency(value: Any) -> bool:
    return isinstance(value, str) and 2 <= len(value) <= 16 and "{{" not in value


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "request_units": _is_whole(1),
    "max_amount": _is_whole(0),
    "currency": _is_currency,
}
_WORDS = {
    "request_units": "whole number from 1 to 2^53 - 1",
    "max_amount": "whole number from 0 to 2^53 - 1",
    "currency": "name of 2 to 16 characters",
}
_EXAMPLES = {
    "request_units": '"{{input.units}}"',
    "max_amount": '"{{input.budget}}"',
    "currency": '"{{input.currency}}"',
}
