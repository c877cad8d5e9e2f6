"""Sessions are numbered by owner: whoever is named by an address gets 1, 2, 3 … for theirs.

A number is taken just before the run begins and given back if it does not. It stands in the label
`session` of the run; the store remembers which run has it, also when the run is long gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from anabranch.dialects.xrc729.bundle import ADDRESS
from anabranch.dialects.xrc729.words import DIALECT, OWNER, SESSION
from anabranch.errors import AnabranchError, InputError, Refused
from anabranch.net.net import Net
from anabranch.store.ports import SessionNumbers


def session_owner(net: Net, labels: Mapping[str, str]) -> str:
    """Whose numbers count for this run; "" where nobody's do."""
    owner = labels.get(OWNER, "")
    return owner.lower() if net.dialect == DIALECT and ADDRESS.fullmatch(owner) else ""


def number_in(labels: Mapping[str, str]) -> int | None:
    """The number that somebody wants for a session, as the label `session`."""
    text = labels.get(SESSION)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text)):
        raise InputError(
            f"the label {SESSION!r} of a session is its number, not {text[:40]!r}", code="usage"
        )
    return int(text)


@asynccontextmanager
async def numbered(
    store: SessionNumbers, owner: str, run: str, labels: Mapping[str, str]
) -> AsyncIterator[dict[str, str]]:
    """The labels that the session begins with; its number is free again if it does not."""
    wanted = number_in(labels)
    number = store.take_session_number(owner, run, wanted)
    if number is None:
        raise Refused(
            f"the next session of {owner} is number {store.next_session_number(owner)}, "
            f"not {wanted}",
            code="session_number",
        )
    try:
        yield {**labels, OWNER: owner, SESSION: str(number)}
    except AnabranchError:
        store.give_back_session_number(owner, number, run)
        raise
