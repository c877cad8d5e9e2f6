"""What a drawing of a net shows, before it is known how: boxes, arrows and frames.

Mermaid, DOT and SVG draw the same picture. A step is a box; a join is a small box of its own that
says `2 of 3`; the steps that can deliver to a join stand in a frame, because they belong to one
scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from anabranch.net.net import Arc, Branch, Join, Net, Step
from anabranch.net.reach import reachability

Look = Literal["plain", "active", "waiting", "done", "failed", "quiet"]

#: How a step's last status looks. What is not listed is drawn plain.
LOOKS: Mapping[str, Look] = {
    "new": "active",
    "ready": "active",
    "running": "active",
    "sleeping": "active",
    "held": "waiting",
    "joining": "waiting",
    "queued": "waiting",
    "retrying": "waiting",
    "parked": "waiting",
    "deciding": "waiting",
    "done": "done",
    "valid": "done",
    "invalid": "waiting",
    "invalid by error": "failed",
    "failed": "failed",
    "aborted": "failed",
    "skipped": "quiet",
    "discarded": "quiet",
}

LABEL_MAX = 40
NAME_MAX = 32


class Box(msgspec.Struct, frozen=True):
    id: str
    title: str
    detail: str = ""
    kind: Literal["step", "join"] = "step"
    look: Look = "plain"
    status: str = ""
    count: int = 0
    entry: bool = False
    final: bool = False
    frame: int | None = None  # the innermost frame it stands in
    hint: str = ""  # the whole name, the description


class Arrow(msgspec.Struct, frozen=True):
    source: str
    target: str
    label: str = ""
    dashed: bool = False
    hint: str = ""
    when: str = ""  # the outcome for which it is taken; "" is any


class Frame(msgspec.Struct, frozen=True):
    title: str
    members: frozenset[str]  # box ids
    parent: int | None = None


class Picture(msgspec.Struct):
    title: str
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    frames: list[Frame] = []


def picture(
    net: Net,
    statuses: Mapping[str, str] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Picture:
    """The picture of a net; with `statuses` and `counts` that of a run."""
    return _Painter(net, statuses or {}, counts or {}).paint()


class _Painter:
    def __init__(self, net: Net, statuses: Mapping[str, str], counts: Mapping[str, int]) -> None:
        self._net = net
        self._statuses = statuses
        self._counts = counts
        self._ids = {name: f"n{index}" for index, name in enumerate(net.steps)}
        self._picture = Picture(net.name)

    def paint(self) -> Picture:
        joins = [
            (step, branch.join, branch)
            for step in self._net.steps.values()
            for branch in step.branches
            if branch.join is not None
        ]
        self._picture.frames = self._frames(joins)
        inside = self._innermost()
        for step in self._net.steps.values():
            self._picture.boxes.append(self._box(step, inside.get(self._ids[step.name])))
        for step in self._net.steps.values():
            for branch in step.branches:
                self._arcs(step, branch)
        for index, (_, join, _) in enumerate(joins):
            self._join(f"j{index}", join, inside)
        return self._picture

    # -- steps -------------------------------------------------------------------------------

    def _box(self, step: Step, frame: int | None) -> Box:
        status = self._statuses.get(step.name, "")
        words = [step.name, step.description, status]
        return Box(
            id=self._ids[step.name],
            title=shortened(step.name, NAME_MAX),
            # The word as well as the colour: not everybody sees colours.
            detail=" · ".join(word for word in (status, detail(step)) if word),
            look=LOOKS.get(status, "plain"),
            status=status,
            count=self._counts.get(step.name, 0),
            entry=step.name == self._net.entry,
            final=step.name == self._net.final,
            frame=frame,
            hint="\n".join(word for word in words if word),
        )

    def _arcs(self, step: Step, branch: Branch) -> None:
        guarded = False
        for arc in branch.arcs:
            if arc.target not in self._ids:
                continue
            label = _label(arc, branch, after_guard=guarded)
            guarded = guarded or arc.guard is not None
            ends = self._ids[step.name], self._ids[arc.target]
            hint = arc.guard.text if arc.guard is not None else ""
            self._picture.arrows.append(Arrow(*ends, label, hint=hint, when=branch.outcome or ""))

    # -- joins -------------------------------------------------------------------------------

    def _join(self, box: str, join: Join, inside: Mapping[str, int]) -> None:
        target = self._ids.get(join.target)
        frame = inside.get(target) if target is not None else None
        hint = f"{rule_text(join)} → {join.target}"
        self._picture.boxes.append(Box(box, rule_text(join), kind="join", frame=frame, hint=hint))
        for slot in join.slots:
            if slot.node in self._ids:
                label = "" if slot.when == "any" else slot.when
                arrow = Arrow(self._ids[slot.node], box, label, dashed=True, when=label)
                self._picture.arrows.append(arrow)
        if target is not None:
            self._picture.arrows.append(Arrow(box, target))

    def _frames(self, joins: list[tuple[Step, Join, Branch]]) -> list[Frame]:
        if not joins:
            return []
        in_scope = reachability(self._net).in_scope
        members: list[set[str]] = []
        for _, _, branch in joins:
            reached = [in_scope[arc.target] for arc in branch.arcs if arc.target in in_scope]
            members.append(set().union(*reached))
        _include_inner(members, [step.name for step, _, _ in joins])
        ids = [frozenset(self._ids[name] for name in names) for names in members]
        return [
            Frame(shortened(_scope_text(step, join), LABEL_MAX), ids[n], _parent(n, ids))
            for n, (step, join, _) in enumerate(joins)
        ]

    def _innermost(self) -> dict[str, int]:
        smallest_first = sorted(
            range(len(self._picture.frames)),
            key=lambda index: len(self._picture.frames[index].members),
            reverse=True,
        )
        return {
            box: index for index in smallest_first for box in self._picture.frames[index].members
        }


def _include_inner(members: list[set[str]], openers: list[str]) -> None:
    """A scope opened by a member is drawn inside; in the net it is a scope of its own."""
    changed = True
    while changed:
        changed = False
        for scope in members:
            for inner, opener in zip(members, openers, strict=True):
                if opener in scope and not inner <= scope:
                    scope |= inner
                    changed = True


def _parent(index: int, scopes: list[frozenset[str]]) -> int | None:
    """The smallest scope that wholly contains this one."""
    around = [other for other, ids in enumerate(scopes) if ids > scopes[index]]
    return min(around, key=lambda other: len(scopes[other]), default=None)


# -- words -----------------------------------------------------------------------------------


def rule_text(join: Join) -> str:
    slots = len(join.slots)
    match join.rule.mode:
        case "any":
            return f"1 of {slots}"
        case "quorum":
            return f"{join.rule.k} of {slots}"
        case "best_of":
            return f"best of {slots}"
        case "all":
            return f"all {slots}"


def _scope_text(step: Step, join: Join) -> str:
    """Who opens the scope, what its join needs, and whether it ends the rest."""
    return f"{step.name}: {rule_text(join)}" + (" · kill" if join.rule.losers == "kill" else "")


def detail(step: Step) -> str:
    """The second line of a step's box: what it does, and what may hold it up."""
    words: list[str] = []
    if step.work is not None:
        words.append("loop" if step.loop is not None else step.work.kind)
        if step.work.retry.attempts > 1:
            words.append(f"≤ {step.work.retry.attempts} tries")
    if step.decision is not None:
        words.append("decision")
    if step.fan is not None:
        words.append("fan-out")
    if step.admission is not None:
        words.append("gate")
    if step.barrier is not None:
        words.append("joins all")
    if step.timeout_ms is not None:
        words.append(f"≤ {seconds_text(step.timeout_ms)}")
    return " · ".join(words)


def seconds_text(milliseconds: int) -> str:
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds} ms"


def _label(arc: Arc, branch: Branch, *, after_guard: bool) -> str:
    words = [branch.outcome] if branch.outcome else []
    if arc.guard is not None:
        words.append(guard_text(arc.guard.text))
    elif branch.mode == "exclusive" and after_guard:
        words.append("else")
    return shortened(": ".join(words), LABEL_MAX)


def guard_text(text: str) -> str:
    """A guard without the braces around it."""
    line = " ".join(text.split())
    inner = line[2:-2].strip() if line.startswith("{{") and line.endswith("}}") else line
    return line if "{{" in inner or "}}" in inner else inner


def shortened(text: str, most: int) -> str:
    """On one line, and no longer than that."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
