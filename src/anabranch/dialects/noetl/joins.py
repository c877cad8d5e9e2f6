"""Steps where branches meet: do they wait for all of them, or run once for each token?

The documents of the language say once for each. The runtime of its later form joins. Which of the
two a playbook means is read from how it is written, unless it says so itself (`executor.spec.join`,
`spec.join` of a step): it joins when some word in it is only of the later form and none is a word
that the later form does not have. Where that makes a difference, `check` says what was read.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings
from anabranch.net.forks import meetings
from anabranch.net.net import Barrier, Net
from anabranch.net.problems import Position
from anabranch.net.reach import following_of, predecessors

Join = Literal["each", "all"]
Evidence = tuple[str, Position]  # a word, and where it stands
SHOWN = 3  # steps that a message names


class JoinReading(msgspec.Struct, frozen=True):
    """Whether steps where branches meet wait for all of them, and what that was read from."""

    said: bool  # by the author, so that nothing is read from anything
    later: Evidence | None  # a word that only the later form has
    earlier: Evidence | None  # a word that it does not have

    @property
    def waits(self) -> bool:
        return self.later is not None and self.earlier is None

    @property
    def why(self) -> str:
        if self.later is None:
            return "nothing in it is of the later form of playbooks, where steps join by themselves"
        word, at = self.later if self.earlier is None else self.earlier
        if self.earlier is None:
            return f"`{word}` (line {at.line}) is of the later form, whose runtime joins"
        return f"`{word}` (line {at.line}) is not of the later form, whose runtime joins"


def say_reading(net: Net, join: Join, reading: JoinReading, findings: Findings) -> None:
    """Note which reading was taken and why. `net` has the joins that its steps ask for."""
    if reading.said:
        return
    met = [
        step
        for name in meetings(net, following_of(net)).forks
        if (step := net.steps[name]).barrier is None and step.position is not None
        if name != net.final  # which runs once, whatever is read
    ]
    if not met or met[0].position is None:
        return
    names = ", ".join(repr(step.name) for step in met[:SHOWN])
    more = " …" if len(met) > SHOWN else ""
    what = "waits for all of them and runs once" if join == "all" else "runs once for each"
    message = f"where tokens of a fork meet ({names}{more}), a step {what}: {reading.why}"
    hint = "write `executor: {spec: {join: all}}` or `{join: each}` to set it explicitly"
    findings.add(met[0].position, "join-reading", message, hint, "note")


def joined(net: Net) -> Net:
    """`executor.spec.join: all` makes a barrier of every step with several predecessors."""
    before = predecessors(net)
    steps = {
        name: replace(step, barrier=Barrier())
        if len(before[name]) > 1 and name != net.final
        else step
        for name, step in net.steps.items()
    }
    return replace(net, steps=steps)
