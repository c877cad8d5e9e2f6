"""The oldest form of a step: the kind of its work as a word, and its inputs on the step itself.

    - step: load
      tool: http                    # or `type: http`
      url: "{{ workload.url }}"
      data: {…}                     # arguments; of `http` the body

    - step: each_city
      tool: iterator
      collection: "{{ workload.cities }}"
      element: city
      task: {tool: http, url: …}

The first becomes `tool: {kind: http, url: …}`, the second a loop.
"""

from __future__ import annotations

from anabranch.dialects.nodes import Fields, Items, Scalar
from anabranch.dialects.noetl.respell.shape import Shape, fields
from anabranch.dialects.noetl.respell.tasks import RespellReport
from anabranch.dialects.noetl.tasks.keys import ALIASES, KINDS

#: What any task takes besides the inputs of its kind.
COMMON = ("args", "input", "with", "auth", "credential", "retry", "timeout", "assert", "sink")
#: Kinds whose `data` is a mapping of arguments.
CALLED = frozenset({"python", "playbook", "workbook", "noop"})
LOOP = {"collection": "in", "in": "in", "element": "iterator", "iterator": "iterator"}
ITERATOR = "iterator"
OTHER_WORDS = {"playbooks": "playbook"}


def respell_kind(step: Shape, what: str, seen: RespellReport) -> None:
    """`tool: http` with its inputs beside it."""
    key = "tool" if "tool" in step else "type"
    word = step.fields.get(key)
    kind = word.value if isinstance(word, Scalar) else None
    if isinstance(word, Scalar) and isinstance(kind, str) and kind in OTHER_WORDS:
        kind = OTHER_WORDS[kind]
        step.fields[key] = Scalar(kind, word.position)
    if word is None and "return" in step:
        _returned(step, what, seen)
    if kind == ITERATOR:
        _loop(step, key, what, seen)
    elif isinstance(kind, str) and kind in KINDS:
        at = step.keys[key]
        seen.old(at, f"`{key}: {kind}` of {what}", f"tool: {{kind: {kind}, …}}")
        step.put("tool", _task(step, key, kind), at)


def respell_root(root: Shape, seen: RespellReport) -> None:
    """`name` and `path` of the playbook beside its `metadata`, or in its place."""
    for key in ("name", "path"):
        node = root.fields.get(key)
        if isinstance(node, Scalar) and root.find("metadata", key) is None:
            _, at = root.take(key)
            if "metadata" not in root:
                root.put("metadata", fields({}, at), at, before=("workload", "workflow"))
            root.deepen(("metadata", key), node, at)
            seen.old(at, f"`{key}` of the playbook", f"metadata: {{{key}: …}}")


def _returned(step: Shape, what: str, seen: RespellReport) -> None:
    """`return: value`: what the step gives."""
    node, at = step.take("return")
    step.put("tool", fields({"kind": Scalar("noop", at), "result": node}, at), at)
    seen.old(at, f"`return` of {what}", "tool: {kind: noop, result: …}")


def _task(holder: Shape, key: str, kind: str) -> Fields:
    """A task of what belongs to the kind; the rest stays where it is."""
    word, at = holder.take(key)
    task = Shape(fields({"kind": word}, at))
    names = {*KINDS[kind], *ALIASES.get(kind, {}), *COMMON}
    if kind in CALLED:
        names.add("data")
    if kind in ("workbook", "secrets"):
        names.add("name")
    for name in [name for name in holder.fields if name in names]:
        node, place = holder.take(name)
        task.put("args" if name == "data" and kind in CALLED else name, node, place)
    return task.node()


def _loop(step: Shape, key: str, what: str, seen: RespellReport) -> None:
    """`tool: iterator`: a loop, and the task for each of its items."""
    inner = step.mapping("task")
    of_task = inner is not None and next((one for one in ("tool", "type") if one in inner), None)
    if inner is None or not of_task:
        return
    word = inner.get(of_task)
    at = step.keys[key]
    if isinstance(word, Scalar) and word.value in KINDS:
        task = Shape(inner)
        made = Shape(_task(task, of_task, str(word.value)))
        for name, node in task.fields.items():
            if name != "task":
                made.put(name, node, task.keys[name])
        tool: Fields | Items = made.node()
    elif isinstance(word, Fields | Items):
        tool = word
    else:
        return
    step.take(key)
    step.take("task")
    loop = Shape(fields({}, at))
    for old, new in LOOP.items():
        if old in step and new not in loop:
            node, place = step.take(old)
            loop.put(new, node, place)
    for name in ("mode", "concurrency", "max_in_flight"):
        if name in step:
            node, place = step.take(name)
            place_of = "mode" if name == "mode" else "max_in_flight"
            loop.deepen(("spec", place_of), node, place)
    step.put("loop", loop.node(), at)
    step.put("tool", tool, at)
    seen.old(at, f"`{key}: iterator` of {what}", "loop: {in: …, iterator: …}, tool: {kind: …}")
