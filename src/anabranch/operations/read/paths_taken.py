"""Which ways the tokens of a run took through its net, from events alone.

A way is told by its ends: two steps, or a step and a join. A join is named `→ TARGET`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from anabranch.kernel import events as e
from anabranch.kernel.state import State

TOKENS_KEPT = 10_000  # a token that is older has long handed on what it had
Way = tuple[str, str]


def join_name(target: str) -> str:
    return f"→ {target}"


class Paths:
    """`taken` counts; whoever tells of it bit by bit clears it."""

    def __init__(self) -> None:
        self.taken: Counter[Way] = Counter()
        self._steps: OrderedDict[int, str] = OrderedDict()  # token → its step
        self._gathers: dict[str, tuple[str, str]] = {}  # gather → kind, the step that waits

    def start_from(self, state: State) -> None:
        """Begin in the middle: what lives now can be the parent of what comes."""
        for token in state.tokens.values():
            self._steps[token.id] = token.step
        for gather in state.gathers.values():
            if gather.kind != "fan":
                self._gathers[gather.id] = gather.kind, self._steps.get(gather.token, "")

    def see(self, event: e.Event) -> None:
        match event:
            case e.TokenCreated():
                self._created(event)
            case e.GatherOpened() if event.kind != "fan":
                self._gathers[event.gather] = event.kind, self._steps.get(event.token, "")
            case e.Delivered():
                self._delivered(event)
            case e.GatherSettled():
                kind, target = self._gathers.pop(event.gather, ("", ""))
                if kind == "join" and event.verdict == "closed":
                    self.taken[join_name(target), target] += 1
            case _:
                pass

    def _created(self, event: e.TokenCreated) -> None:
        self._steps[event.token] = event.step
        if len(self._steps) > TOKENS_KEPT:
            self._steps.popitem(last=False)
        # Who waits at a join or a barrier is there before anybody has come to it.
        if event.via == "arc" and event.parent in self._steps:
            self.taken[self._steps[event.parent], event.step] += 1

    def _delivered(self, event: e.Delivered) -> None:
        kind, target = self._gathers.get(event.gather, ("", ""))
        source = self._steps.get(int(event.producer)) if event.producer.isdecimal() else None
        if kind and source is not None:
            self.taken[source, join_name(target) if kind == "join" else target] += 1
