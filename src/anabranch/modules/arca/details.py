"""What performers know of a step that the log of its run does not say: its order, its delivery.

It is for people who look at a run (the host's snapshot shows it), and never decides anything: the
host has the truth about orders. It is lost with the process; a step that is done again says it
again, and the host's snapshot keeps what was said before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: What may be noted: ids of the order, refs of the delivery, and where in its work the step is.
FIELDS = frozenset(
    {"order_id", "execution_id", "contract_id", "receipt_id", "delivery", "attempt", "status",
     "offer_id", "provider"}
)  # fmt: skip


class StepDetails:
    def __init__(self) -> None:
        self._known: dict[str, dict[str, dict[str, Any]]] = {}
        self._listener: Callable[[str], None] | None = None

    def listen(self, listener: Callable[[str], None]) -> None:
        """Told the run of which something new is known."""
        self._listener = listener

    def note(self, run: str, step: str, **fields: Any) -> None:
        """Later values replace earlier ones; those that are None are forgotten."""
        unknown = fields.keys() - FIELDS
        if unknown:
            raise TypeError(f"steps have no {', '.join(sorted(unknown))}")
        known = self._known.setdefault(run, {}).setdefault(step, {})
        before = dict(known)
        known.update(fields)
        for name in [name for name, value in known.items() if value is None]:
            del known[name]
        if known != before and self._listener is not None:
            self._listener(run)

    def of(self, run: str, step: str) -> Mapping[str, Any]:
        return self._known.get(run, {}).get(step, {})

    def forget(self, run: str) -> None:
        """The run has ended, and its last snapshot is written."""
        self._known.pop(run, None)
