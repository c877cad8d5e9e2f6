"""A turn: the working memory of one call of `step`.

Deciding and recording alternate: every decision is emitted as an event, which evolves the state at
once, and what follows from it is put on the agenda instead of being called, so that a chain of a
thousand routers needs no deep stack and the modules of the kernel do not call in circles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.expressions.budget import TurnBudget
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.events import Event, TokenCreated
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State
from anabranch.kernel.value_access import INLINE, ValueAccess
from anabranch.kernel.values import Fault
from anabranch.net.net import Net


class Activate(msgspec.Struct, frozen=True, gc=False):
    """The token may go on: admission, wake time, work."""

    token: int


class Conclude(msgspec.Struct, frozen=True, gc=False):
    """The work of the token is over; its answer (or `fault`) stands in the state."""

    token: int
    fault: Fault | None = None
    given_up: bool = False  # somebody decided that it is not tried again


class FillWindow(msgspec.Struct, frozen=True, gc=False):
    """A fan has room for more jobs."""

    token: int


class SlotOver(msgspec.Struct, frozen=True, gc=False):
    """The job of a fan's slot is over, with an answer in the state or with a fault."""

    job: str
    fault: Fault | None = None


class EndRun(msgspec.Struct, frozen=True, gc=False):
    """The work of a slot asked for the end of the whole run."""

    reason: str


class FillLoop(msgspec.Struct, frozen=True, gc=False):
    """A loop may have room for more shards, or be over."""

    token: int


Item = Activate | Conclude | FillWindow | SlotOver | FillLoop | EndRun


class Turn(msgspec.Struct, gc=False):
    net: Net
    state: State
    at: int
    events: list[Event] = []
    agenda: list[Item] = []
    #: Scopes in which something ended: their joins and barriers are looked at again.
    dirty: dict[int, bool] = {}
    #: The context changed: held tokens are looked at again.
    readmit: bool = False
    first_token: int = 0  # tokens from here on came into being in this turn
    tokens_before: int = 0  # how many there were when it began
    values: ValueAccess = INLINE
    budget: TurnBudget = msgspec.field(default_factory=TurnBudget)  # of all that it evaluates
    #: In a redriven run: (place in the origin, token, slot) of the answers that are taken over.
    to_take_over: list[tuple[int, int, int]] = []
    slots_to_take_over: dict[int, int] = {}  # how many of them each token has in its fan
    places: dict[str, int] = {}  # of what there was to reuse when the first of them came

    def emit(self, event: Event) -> None:
        evolve(self.state, event, self.at)
        self.events.append(event)

    def create(
        self,
        step: str,
        *,
        parent: int = 0,
        scope: int = 0,
        via: Literal["entry", "arc", "final"] = "arc",
        args: Mapping[str, Any] | None = None,
        payload: Mapping[str, Any] | None = None,
        wake: int = 0,
    ) -> None:
        """A token at this step, which goes as far as it can."""
        token, given, carried = self.state.next_token, args or EMPTY, payload or EMPTY
        self.emit(TokenCreated(token, step, parent, scope, via, given, carried, wake))
        self.agenda.append(Activate(token))
