"""Which values of a step run its arcs and writes may ask for.

`iter` may hold a lot (the pages fetched so far). What nobody outside the pipeline reads need not
be recorded, so the texts of the templates outside are searched for names. One that is found and not
meant costs a few bytes; what is looked up under a name nobody can foresee takes everything along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.port import Expression
from anabranch.net.net import Branch, Patch, Step
from anabranch.net.problems import Position
from anabranch.net.program import Program

RESULTS = "results"
_WORD = re.compile(r"[A-Za-z_]\w*")
#: `iter` and its other names, followed by something else than `.name` or `['name']`.
_ANY = re.compile(r"\b(?:iter|vars|step)\b(?!\s*(?:\.|\[\s*['\"]))")


def exported(branches: Iterable[Branch], patches: Iterable[Patch]) -> frozenset[str] | None:
    """The names that may be asked for; None where that can be any."""
    found: set[str] = set()
    for expression in expressions_of(branches, patches):
        if _ANY.search(expression.text):
            return None
        found |= set(_WORD.findall(expression.text))
    return frozenset(found)


def expressions_of(branches: Iterable[Branch], patches: Iterable[Patch]) -> Iterator[Expression]:
    """What stands after a step: its writes, and the guards, arguments and writes of its arcs."""
    for patch in patches:
        yield patch.value
    for branch in branches:
        for arc in branch.arcs:
            yield from (each for each in (arc.guard, arc.args) if each is not None)
            for patch in arc.patches:
                yield patch.value


def with_kept_results(
    steps: Mapping[str, Step], readings: Iterable[tuple[TemplateLookup, Position]]
) -> dict[str, Step]:
    """`<step>.results.<label>` asks for the result of one task of a pipeline."""
    wanted: dict[str, set[str]] = {}
    for one, _ in readings:
        path = one.path[1:] if one.root == "steps" else one.path
        if len(path) > 2 and path[1] == RESULTS:
            wanted.setdefault(str(path[0]), set()).add(str(path[2]))
    return {name: _keeping(step, wanted.get(name, set())) for name, step in steps.items()}


def _keeping(step: Step, labels: set[str]) -> Step:
    program = None if step.work is None else step.work.program
    if not isinstance(program, Program) or len(program.tasks) < 2:
        return step
    kept = frozenset(labels & {task.label for task in program.tasks})
    if not kept or step.work is None:
        return step
    return replace(step, work=replace(step.work, program=replace(program, kept=kept)))
