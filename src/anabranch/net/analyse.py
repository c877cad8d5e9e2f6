"""What can be told from a net alone: steps never reached, forks that meet, joins that cannot close.

The dialect has reported what does not exist; here are the nets that exist and do something their
author hardly meant. All positions come from the net, so no dialect is needed to print them.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.net.analyse_joins import JoinReach, analyse_joins, join_slots_reachable
from anabranch.net.cycles import Following, rings
from anabranch.net.forks import meetings
from anabranch.net.net import Net, Step
from anabranch.net.problems import Position, Problem, Severity
from anabranch.net.reach import following_of, reached_from

__all__ = ["JoinReach", "analyse", "join_slots_reachable"]


def analyse(net: Net) -> list[Problem]:
    """Everything found, in no particular order."""
    following = following_of(net)
    return [
        *_unreachable(net, following),
        *_shared_by_forks(net, following),
        *_final_step(net, following),
        *_dead_arcs(net),
        *_cycles(net, following),
        *analyse_joins(net),
    ]


def _problem(
    at: Position | None, code: str, message: str, hint: str, severity: Severity
) -> Problem:
    return Problem(at or Position(1, 1), code, message, hint, severity)


# -- reaching --------------------------------------------------------------------------------


def _unreachable(net: Net, following: Following) -> Iterator[Problem]:
    reached = reached_from(net.entry, following)
    for name, step in net.steps.items():
        if name not in reached and name != net.final:
            yield _problem(
                step.position,
                "unreachable-step",
                f"no route leads from the entry step {net.entry!r} to the step {name!r}",
                "add an arc to it, or remove it",
                "warning",
            )


def _final_step(net: Net, following: Following) -> Iterator[Problem]:
    if net.final is None:
        return
    final = net.steps[net.final]
    if net.final == net.entry:
        yield _problem(
            final.position,
            "final-step-routed",
            f"the final step {net.final!r} is also the entry step, so nothing else runs",
            "start with another step (`entry_step`): the final one is run by itself at the end",
            "note",
        )
    elif net.final in reached_from(net.entry, following):
        yield _problem(
            final.position,
            "final-step-routed",
            f"arcs lead to the final step {net.final!r}: branches that take one end there, and it "
            "runs once for all of them, when nothing else is left to do",
            "keep it out of the routes, unless you mean that",
            "note",
        )
    if final.branches:
        yield _problem(
            final.position,
            "final-step-routes",
            f"the run ends after its final step {net.final!r}, so its arcs are never followed",
            "remove them",
            "warning",
        )


# -- forks that meet -------------------------------------------------------------------------


def _shared_by_forks(net: Net, following: Following) -> Iterator[Problem]:
    """Steps that more than one token of a fork can come to. Only where the ways first meet: what
    lies behind follows from it."""
    found = meetings(net, following)
    for name, forks in found.forks.items():
        if net.steps[name].barrier is None and name != net.final:
            yield _shared(net.steps[name], forks, processes=net.carries_payload)
    if found.partly:
        yield _problem(
            net.steps[net.entry].position,
            "forks-partly-examined",
            f"the net is large: for {found.partly:,} of its inclusive forks only the steps near by "
            "were analysed for tokens that meet",
            "split the definition, or let parts of it meet in one step (`spec: {join: all}`)",
            "note",
        )


def _for_forks(processes: bool) -> tuple[str, Severity]:
    """What mends it; where tokens are processes of their own, it is the rule rather than a slip."""
    if processes:
        return "spawn it from the target of a join to run it once for all of them", "note"
    return (
        "write `spec: {join: all}` on it to run it once for all of them, or let the arcs exclude "
        "each other",
        "warning",
    )


def _shared(step: Step, forks: list[Step], *, processes: bool) -> Problem:
    fork = forks[0]
    where = f" (line {fork.position.line})" if fork.position else ""
    others = f" and {len(forks) - 1} more" if len(forks) > 1 else ""
    return _problem(
        step.position,
        "several-tokens",
        f"several tokens of the inclusive fork at {fork.name!r}{where}{others} can reach the step "
        f"{step.name!r}, which then runs once for each",
        *_for_forks(processes),
    )


# -- arcs and cycles -------------------------------------------------------------------------


def _dead_arcs(net: Net) -> Iterator[Problem]:
    for step in net.steps.values():
        for branch in step.branches:
            if branch.mode != "exclusive":
                continue
            always = next((n for n, arc in enumerate(branch.arcs) if arc.guard is None), None)
            if always is None:
                continue
            earlier = branch.arcs[always]
            for arc in branch.arcs[always + 1 :]:
                if arc.after_failure and not earlier.after_failure:
                    continue  # the earlier one is for a step that ended well
                yield _problem(
                    arc.position or step.position,
                    "dead-arc",
                    f"an earlier arc of the step {step.name!r} is always taken, so the arc to "
                    f"{arc.target!r} never is",
                    "give the earlier arc a `when`, move it to the end, or use mode inclusive",
                    "warning",
                )


def _cycles(net: Net, following: Following) -> Iterator[Problem]:
    place = {name: index for index, name in enumerate(net.steps)}
    for members in rings(following):
        ordered = sorted(members, key=place.__getitem__)
        first = ordered[0]
        names = " → ".join(map(repr, ordered))
        at = net.steps[first].position
        if not any(_may_leave(net.steps[name], members) for name in members):
            yield _problem(
                at,
                "endless-cycle",
                f"nothing leads out of the cycle {names}",
                "let one of its outcomes lead elsewhere"
                if net.carries_payload
                else "give one of its arcs a `when`",
                "warning",
            )
        elif not any(_takes_time(net.steps[name]) for name in members):
            yield _problem(
                at,
                "idle-cycle",
                f"no step of the cycle {names} works or waits, so it turns as fast as it can",
                "let one of its steps do something",
                "note",
            )


def _may_leave(step: Step, members: set[str]) -> bool:
    if not step.branches or step.admission is not None or not _every_outcome_leads_on(step):
        return True
    for branch in step.branches:
        if branch.join is not None or not branch.arcs:
            return True
        for arc in branch.arcs:
            if arc.guard is not None or arc.target not in members:
                return True
            if branch.mode == "exclusive":
                break
    return False


def _every_outcome_leads_on(step: Step) -> bool:
    """Whether a branch is taken however the step ends."""
    taken = {branch.outcome for branch in step.branches}
    known = step.work.outcomes if step.work is not None else ()
    return None in taken or (bool(known) and taken.issuperset(known))


def _takes_time(step: Step) -> bool:
    works = step.work is not None and step.work.kind != "noop"
    return works or step.decision is not None or step.admission is not None or step.fan is not None
