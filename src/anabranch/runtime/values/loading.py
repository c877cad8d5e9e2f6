"""Loading large values for expressions: it is work, and paid for before it is done.

A few characters of a template can ask for a payload of any size, any number of times. So the bytes
are charged to the budget that evaluations share before they are read and decoded: where that says
that they take long, nothing was read on the event loop yet. What was loaded for an evaluation is
there for the rest of it, and no longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.errors import ExpressionError
from anabranch.expressions.budget import TooMuch, TurnBudget, charge_shared, shared_budget
from anabranch.work.values.payloads import decode_kept, purged

#: What expressions may read of large values at once.
READ_BYTES_MAX: Final = 256 * 1024 * 1024
_REMEMBERED: Final = 10_000
_PART, _ELEMENT = 64, 8  # what a list or mapping costs, and each of its parts

Fetch = Callable[[str], bytes | None]  # the content of a payload by its hash
#: Its value, by its hash and the size that its stand-in says.
Load = Callable[[str, int], Any]

#: Whoever writes a stand-in can say too little: that helps once for each payload. By its hash.
_understated: dict[str, int] = {}


class Loader:
    """Reads payloads for the work of one task; one that is gone is an error that says so."""

    def __init__(self, fetch: Fetch, bytes_max: int = READ_BYTES_MAX) -> None:
        self._fetch = fetch
        self._bytes_max = bytes_max

    def __call__(self, sha256: str, said: int) -> Any:
        budget = shared_budget()
        if budget is None:  # somebody who looks, and evaluates nothing
            return read_payload(self._fetch, sha256, said)[1]
        loaded = budget.loaded
        if loaded is None:
            loaded = budget.loaded = {}
        key = (self, sha256)  # by loader: it knows what may be read
        if key not in loaded:
            loaded[key] = self._read(budget, sha256, said)
        return loaded[key]

    def _read(self, budget: TurnBudget, sha256: str, said: int) -> Any:
        def charge(size: int) -> None:
            charge_load(budget, size)
            require_readable(budget.bytes_read, self._bytes_max)

        return read_payload(self._fetch, sha256, said, charge)[1]


def read_payload(
    fetch: Fetch, sha256: str, said: int, charge: Callable[[int], None] | None = None
) -> tuple[int, Any]:
    """The size of a payload and its value. `charge` is told of bytes before they are read, as far
    as somebody knows of them, and of all others before they are decoded."""
    paid = 0

    def pay(size: int) -> None:
        nonlocal paid
        more, paid = max(0, size - paid), max(size, paid)
        if paid > said:
            _remember(sha256, paid)
        if charge is not None and more:
            charge(more)

    pay(max(said, _understated.get(sha256, 0)))
    content = fetch(sha256)
    if content is None:
        raise purged(sha256)
    value = decode_kept(sha256, content, pay)
    return paid, value


def charge_load(budget: TurnBudget, size: int) -> None:
    """Also for what is read before or after an evaluation, where nobody knows of `TooMuch`."""
    try:
        budget.charge_load(size)
    except TooMuch as error:
        raise ExpressionError(str(error)) from None


def charge_read(size: int) -> None:
    """For what is read in another way, if somebody counts."""
    budget = shared_budget()
    if budget is not None:
        charge_load(budget, size)


def charge_parts(count: int) -> None:
    """For looking at the parts of one value for stand-ins, or copying them."""
    try:
        charge_shared(_PART + _ELEMENT * count)
    except TooMuch as error:
        raise ExpressionError(str(error)) from None


def require_readable(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise ExpressionError(
            f"expressions read {size:,} bytes of large values at once, over the limit of "
            f"{bytes_max:,} (setting ANABRANCH_EXPRESSION_BYTES_MAX): let a step select what is "
            "needed",
            code="expression_bytes_max",
        )


def _remember(sha256: str, size: int) -> None:
    if len(_understated) >= _REMEMBERED:
        _understated.clear()  # it is soon found out again
    _understated[sha256] = size
