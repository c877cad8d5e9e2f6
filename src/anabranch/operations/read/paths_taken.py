"""Which ways the tokens of a run took through its net, from events alone.

A way is told by its ends, two steps or a step and a join, and by the outcome with which it was
taken: two arrows may lead the same way, for different outcomes. A join is named `→ TARGET`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from anabranch.kernel import events as e

TOKENS_KEPT = 10_000  # a token that is older has long handed on what it had
Way = tuple[str, str, str]  # from, to, the outcome


def join_name(target: str) -> str:
    return f"→ {target}"


class Paths:
    """`taken` counts them."""

    def __init__(self) -> None:
        self.taken: Counter[Way] = Counter()
        self._steps: OrderedDict[int, str] = OrderedDict()  # token → its step
        self._gathers: dict[str, tuple[str, str]] = {}  # gather → kind, the step that waits
        self._leaving: dict[int, list[str]] = {}  # token → where it leads; its outcome follows
        self._to_final: Counter[tuple[str, str]] = Counter()  # steps that end there, and how

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
                    self.taken[join_name(target), target, ""] += 1
            case e.TokenFinished():
                self._left(event)
            case _:
                pass

    def _created(self, event: e.TokenCreated) -> None:
        self._steps[event.token] = event.step
        if len(self._steps) > TOKENS_KEPT:
            self._steps.popitem(last=False)
        # Who waits at a join or a barrier is there before anybody has come to it.
        if event.via == "arc" and event.parent in self._steps:
            self._leaving.setdefault(event.parent, []).append(event.step)
        elif event.via == "final":
            for (step, outcome), count in self._to_final.items():
                self.taken[step, event.step, outcome] += count
            self._to_final.clear()

    def _left(self, event: e.TokenFinished) -> None:
        step = self._steps.get(event.token, "")
        for target in self._leaving.pop(event.token, ()):
            self.taken[step, target, event.outcome] += 1
        if event.handed is not None and step:
            self._to_final[step, event.outcome] += 1

    def _delivered(self, event: e.Delivered) -> None:
        kind, target = self._gathers.get(event.gather, ("", ""))
        source = self._steps.get(int(event.producer)) if event.producer.isdecimal() else None
        if kind and source is not None:
            to = join_name(target) if kind == "join" else target
            self.taken[source, to, event.outcome] += 1
