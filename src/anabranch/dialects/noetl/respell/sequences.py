"""Several steps in `then` of a `case`: one after the other, as in the runner that had `case`.

    case:
      - when: "{{ workload.deploy }} == true"
        then: [{step: roll_out}, {step: verify}]

There `verify` began when `roll_out` was done, and not at all if that failed. It is the same where
nothing else leads to `roll_out` and it leads nowhere itself: `verify` becomes what follows it.
Where it is not so simple the steps begin at once, which is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields, items
from anabranch.dialects.noetl.respell.tasks import RespellReport

_ENDED_WELL = "{{ outcome.status == 'ok' }}"
_ROUTING = ("then", "else", "next", "arcs")


def put_in_sequence(workflow: Items, seen: RespellReport) -> Items:
    if not any(isinstance(step, Fields) and "case" in step for step in workflow):
        return workflow
    sequences = _Sequences(workflow, seen)
    steps = [sequences.cut_lists(step) for step in workflow]
    return items([sequences.go_on(step) for step in steps], workflow.position)


class _Sequences:
    def __init__(self, workflow: Items, seen: RespellReport) -> None:
        self._seen = seen
        named = [(step, _name(step)) for step in workflow]
        ways = Counter(target for step, _ in named for target in _targets(step))
        #: Steps that lead nowhere, and to which one way leads.
        self._simple = {
            name
            for step, name in named[1:]  # the run begins with the first
            if isinstance(step, Fields) and not {"next", "case"} & step.fields.keys()
            if name and ways[name] == 1
        }
        self._follows: dict[str, Scalar] = {}

    def cut_lists(self, step: Node) -> Node:
        """Each list of steps as its first one; the others follow."""
        case = step.get("case") if isinstance(step, Fields) else None
        if not isinstance(step, Fields) or not isinstance(case, Items):
            return step
        shape = Shape(step)
        entries = [self._cut(entry) for entry in case]
        shape.fields["case"] = items(entries, case.position)
        return shape.node()

    def _cut(self, entry: Node) -> Node:
        if not isinstance(entry, Fields):
            return entry
        shape = Shape(entry)
        for key in ("then", "else"):
            node = entry.get(key)
            steps = _steps_of(node)
            if len(steps) > 1 and isinstance(node, Items):
                shape.fields[key] = self._chain(node, steps)
        return shape.node()

    def _chain(self, node: Items, steps: list[Scalar]) -> Items:
        names = [str(step.value) for step in steps]
        if not self._simple.issuperset(names[:-1]):
            message = f"{', '.join(names[:-1])} and {names[-1]} begin at once"
            hint = "to run them one after the other, write the next one into `next` of each"
            self._seen.findings.warn(node.position, "at-once", message, hint)
            return node
        self._follows |= dict(zip(names, steps[1:], strict=False))
        return items([node.items[0]], node.position)

    def go_on(self, step: Node) -> Node:
        follows = self._follows.get(_name(step))
        if follows is None or not isinstance(step, Fields):
            return step
        at = follows.position
        arc = fields({"step": follows, "when": Scalar(_ENDED_WELL, at)}, at)
        shape = Shape(step)
        shape.put("next", fields({"arcs": items([arc], at)}, at), at)
        return shape.node()


def _name(step: Node) -> str:
    name = step.get("step") if isinstance(step, Fields) else None
    return str(name.value) if isinstance(name, Scalar) else ""


def _steps_of(node: Node | None) -> list[Scalar]:
    """The names in a list of nothing but steps."""
    found: list[Scalar] = []
    for each in node if isinstance(node, Items) else ():
        name = each.get("step") if isinstance(each, Fields) and len(each.fields) == 1 else each
        if not isinstance(name, Scalar):
            return []
        found.append(name)
    return found


def _targets(step: Node) -> Iterator[str]:
    """The steps that it leads to, each as often as it is named."""
    ways = step.fields if isinstance(step, Fields) else {}
    left = [ways[key] for key in ("next", "case") if key in ways]
    while left:
        node = left.pop()
        if isinstance(node, Scalar):
            yield str(node.value)
        elif isinstance(node, Items):
            left += node.items
        elif isinstance(node, Fields):
            left += [node.fields[key] for key in ("step", *_ROUTING) if key in node]
