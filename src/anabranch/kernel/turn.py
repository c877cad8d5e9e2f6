"""A turn: the working memory of one call of `step`.

Deciding and recording alternate: every decision is emitted as an event, which evolves the state at
once, and what follows from it is put on the agenda instead of being called, so that a chain of a
thousand routers needs no deep stack and the modules of the kernel do not call in circles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.kernel.events import Event, TokenCreated
from anabranch.kernel.evolve import evolve
from anabranch.kernel.state import State, Token
from anabranch.kernel.value_access import INLINE, ValueAccess
from anabranch.kernel.values import Fault
from anabranch.net.net import Net, Step


@dataclass(frozen=True, slots=True)
class Activate:
    """The token may go on: admission, wake time, work."""

    token: int


@dataclass(frozen=True, slots=True)
class Conclude:
    """The work of the token is over; its answer (or `fault`) stands in the state."""

    token: int
    fault: Fault | None = None
    given_up: bool = False  # somebody decided that it is not tried again


@dataclass(frozen=True, slots=True)
class FillWindow:
    """A fan has room for more jobs."""

    token: int


@dataclass(frozen=True, slots=True)
class SlotOver:
    """The job of a fan's slot is over, with an answer in the state or with a fault."""

    job: str
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class EndRun:
    """The work of a slot asked for the end of the whole run."""

    reason: str


@dataclass(frozen=True, slots=True)
class FillLoop:
    """A loop may have room for more shards, or be over."""

    token: int


Item = Activate | Conclude | FillWindow | SlotOver | FillLoop | EndRun


@dataclass(slots=True)
class Turn:
    net: Net
    state: State
    at: int
    events: list[Event] = field(default_factory=list)
    agenda: deque[Item] = field(default_factory=deque)
    #: Scopes in which something ended: their joins and barriers are looked at again.
    dirty: dict[int, bool] = field(default_factory=dict)
    #: The context changed: held tokens are looked at again.
    readmit: bool = False
    first_token: int = 0  # tokens from here on came into being in this turn
    tokens_before: int = 0  # how many there were when it began
    values: ValueAccess = INLINE

    def emit(self, event: Event) -> None:
        evolve(self.state, event, self.at)
        self.events.append(event)

    def later(self, item: Item) -> None:
        self.agenda.append(item)

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
        token = self.state.next_token
        self.emit(TokenCreated(token, step, parent, scope, via, args or {}, payload or {}, wake))
        self.later(Activate(token))

    def step_of(self, token: Token) -> Step:
        return self.net.steps[token.step]
