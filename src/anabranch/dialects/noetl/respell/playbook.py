"""Older and later spellings of a playbook, turned into canonical v10 before it is read.

Four ways to write a playbook are in use:

    A   `when` on steps, `eval` on tasks, `next` as a list, `set_vars`
    B   canonical v10: `admit`, `policy.rules`, `next.arcs`, `args`, `set_ctx`, `set_iter`
    C   the form after it: `input`, `output`, one `set` with scoped keys, `set` on arcs
    L   leftovers of all of them

The document is changed as a tree whose nodes keep their places, so problems found later still
point into the file. A and L give a warning each; C is read as it is. What has an unexpected shape
is left alone for the reader to report. `rewrite.py` writes the same tree back as text.
"""

from __future__ import annotations

import re

from anabranch.dialects.findings import Findings
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.joins import JoinReading
from anabranch.dialects.noetl.respell.case_lists import CaseSpelling, condition
from anabranch.dialects.noetl.respell.cursor import respell_cursor
from anabranch.dialects.noetl.respell.kinds import respell_kind, respell_root
from anabranch.dialects.noetl.respell.sequences import put_in_sequence
from anabranch.dialects.noetl.respell.shape import Shape, fields, find, items
from anabranch.dialects.noetl.respell.sinks import sink_task, with_sinks
from anabranch.dialects.noetl.respell.tasks import RespellReport, TaskSpelling
from anabranch.expressions.jinja.jinja import has_template
from anabranch.net.problems import Position

ROUTER = "next: {spec: {mode: exclusive}, arcs: [{step: …}]}"
#: Other names for the keys of `fanout`.
FANOUT_ALIASES = {
    "max_shard_retries": "max_job_retries",
    "max_shards_per_loop": "max_shards",
    "max_in_flight": "max_concurrent",
    "batch_size": "shard_size",
}
LOOP_ALIASES = {"collection": "in", "element": "iterator"}


def respelled(root: Fields, findings: Findings) -> Fields:
    """The playbook in canonical v10."""
    return spelling(root, findings)[0]


def spelling(root: Fields, findings: Findings) -> tuple[Fields, JoinReading]:
    """The same, and how it is read where branches meet."""
    made = _Spelling(findings)
    said = find(root, "executor", "spec", "join") is not None
    playbook = made.playbook(root)
    return playbook, JoinReading(said, made.seen.later, made.seen.earlier)


class _Spelling:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen = self.seen = RespellReport(findings)
        self._tasks = TaskSpelling(self._seen)
        self._cases = CaseSpelling(self._seen)

    def playbook(self, root: Fields) -> Fields:
        shape = Shape(root)
        respell_root(shape, self._seen)
        self._executor(shape)
        self._workbook(shape)
        workflow = shape.fields.get("workflow")
        if isinstance(workflow, Items):
            ordered = put_in_sequence(workflow, self._seen)
            steps = [self._step(node, number) for number, node in enumerate(ordered, 1)]
            shape.fields["workflow"] = items(steps, workflow.position)
        self._join(shape)
        return shape.node()

    def _executor(self, root: Shape) -> None:
        executor = root.mapping("executor")
        spec = None if executor is None else executor.get("spec")
        if executor is not None and isinstance(spec, Fields):
            shape = Shape(executor)
            shape.fields["spec"] = self._fanout_keys(spec)
            root.fields["executor"] = shape.node()

    def _workbook(self, root: Shape) -> None:
        """A list of `{name, tool}` becomes `{tasks: {name: task}}`."""
        node = root.fields.get("workbook")
        if isinstance(node, Items):
            named = {str(name.value): each for each in node if (name := _name(each)) is not None}
            if len(named) != len(node.items):
                return  # nameless or doubled: the reader says so
            at = node.position
            tasks = Fields(
                {name: _workbook_task(each) for name, each in named.items()},
                {name: each.position for name, each in named.items()},
                at,
            )
            root.fields["workbook"] = node = fields({"tasks": tasks}, at)
        tasks_node = find(node, "tasks")
        if isinstance(node, Fields) and isinstance(tasks_node, Fields):
            shape = Shape(tasks_node)
            for label, each in tasks_node.fields.items():
                shape.fields[label] = self._tasks.task(each, f"workbook task {label!r}")
            book = Shape(node)
            book.fields["tasks"] = shape.node()
            root.fields["workbook"] = book.node()

    def _join(self, root: Shape) -> None:
        """Documents in spelling C mean a barrier where branches meet."""
        if not self._seen.later or self._seen.earlier:
            return
        if root.find("executor", "spec", "join") is None:
            if "executor" not in root:
                empty = fields({}, root.position)
                root.put("executor", empty, root.position, before=("workload", "workflow"))
            root.deepen(("executor", "spec", "join"), Scalar("all", root.position), root.position)

    # -- a step ------------------------------------------------------------------------------

    def _step(self, node: Node, number: int) -> Node:
        if not isinstance(node, Fields):
            return node
        name = node.get("step")
        what = f"step {name.value!r}" if isinstance(name, Scalar) else f"step {number}"
        shape = Shape(node)
        respell_kind(shape, what, self._seen)
        spec, had_spec = shape.mapping("spec"), "spec" in shape.fields
        if spec is not None:
            shape.fields["spec"] = self._fanout_keys(spec)
        self._gate(shape, what)
        self._cases.step(shape, what)
        self._next(shape, what)
        self._variables(shape, what)
        self._tasks.writes(shape, what, bare="set_ctx")
        self._result(shape, what)
        self._loop(shape, what)
        self._tool(shape, what)
        if not had_spec:
            shape.advance("spec", before=("loop", "tool", "next"))
        return shape.node()

    def _gate(self, step: Shape, what: str) -> None:
        if "when" not in step:
            return
        self._compared(step, what)
        rules = step.find("spec", "policy", "admit", "rules")
        has_gate = step.find("spec", "policy", "admit") is not None
        if has_gate and not (isinstance(rules, Items) and rules.items):
            return
        guard, at = step.fields["when"], step.keys["when"]
        if isinstance(rules, Items):
            # Both must agree: the older key denies first, then the rules decide.
            first = fields({"unless": guard, "then": _allow(False, at)}, at)
            gate: list[Node] = [first, *rules.items]
        else:
            otherwise = fields({"then": _allow(False, at)}, at)
            gate = [
                fields({"when": guard, "then": _allow(True, at)}, at),
                fields({"else": otherwise}, at),
            ]
        if step.deepen(("spec", "policy", "admit", "rules"), items(gate, at), at):
            step.take("when")
            rule = "spec: {policy: {admit: {rules: [{when: …, then: {allow: true}}]}}}"
            self._seen.old(at, f"`when` of {what}", rule)

    def _variables(self, step: Shape, what: str) -> None:
        """`vars` that read the result of their own step are of the oldest kind: they are worked out
        when it has ended, and later steps read them."""
        held, name = step.mapping("vars"), step.fields.get("step")
        if held is None or not isinstance(name, Scalar) or not _reads_itself(held, str(name.value)):
            return
        at = step.keys["vars"]
        if all(
            step.deepen(("set_ctx", key), held.fields[key], held.keys[key]) for key in held.fields
        ):
            step.take("vars")
            self._seen.old(at, f"`vars` of {what} that read its own result", "set_ctx: {…}")

    def _next(self, step: Shape, what: str) -> None:
        mode = self._next_mode(step, what)
        if "next" not in step:
            return
        node, at = step.fields["next"], step.keys["next"]
        if isinstance(node, Fields) and "step" not in node:
            router = Shape(node)
            if mode is not None and router.find("spec", "mode") is None:
                router.deepen(("spec", "mode"), mode, at)
        else:
            self._seen.old(at, f"`next` of {what} as {_spelling(node)}", ROUTER)
            router = Shape(fields({}, node.position))
            nodes: list[Node] = list(node) if isinstance(node, Items) else [node]
            names_only = all(isinstance(each, Scalar) for each in nodes)
            if mode is None and isinstance(node, Items) and names_only:
                mode = Scalar("inclusive", at)
            if mode is not None:
                router.deepen(("spec", "mode"), mode, at)
            router.put("arcs", items([_as_arc(each) for each in nodes], node.position), at)
        arcs = router.fields.get("arcs")
        if isinstance(arcs, Items):
            router.fields["arcs"] = items([self._arc(arc) for arc in arcs], arcs.position)
        step.fields["next"] = router.node()

    def _next_mode(self, step: Shape, what: str) -> Node | None:
        spec = step.mapping("spec")
        if spec is None or "next_mode" not in spec:
            return None
        inner = Shape(spec)
        mode, at = inner.take("next_mode")
        step.fields["spec"] = inner.node()
        self._seen.old(at, f"`next_mode` of `spec` of {what}", "next: {spec: {mode: …}, arcs: […]}")
        return mode

    def _arc(self, node: Node) -> Node:
        if not isinstance(node, Fields):
            return node
        shape = Shape(node)
        if "args" not in shape and shape.mapping("with") is not None:
            self._seen.old(shape.keys["with"], "`with` of an arc", "args: {…}")
            shape.rename("with", "args")
        if "args" in shape:
            self._seen.saw_earlier("args", shape.keys["args"])
        if shape.mapping("set") is not None:
            self._seen.saw_later("set", node.keys["set"])
            # A step run that is over has no `iter`: what is set on the way is the next one's.
            handed = ("args", "iter")
            places = {"ctx": ("set_ctx",), "": ("set_ctx",), "iter": handed, "step": handed}
            self._seen.split(shape, "set", places)
        self._compared(shape, "an arc")
        return shape.node()

    def _compared(self, holder: Shape, what: str) -> None:
        """`when: "{{ a }} == b"` compares text with text."""
        if (
            "when" in holder
            and (made := condition(holder.fields["when"])) is not (holder.fields["when"])
        ):
            assert isinstance(made, Scalar), "it was text before"
            holder.fields["when"] = made
            self._seen.old(holder.keys["when"], f"`when` of {what} as two texts", str(made.value))

    def _result(self, step: Shape, what: str) -> None:
        for key in ("result", "output"):
            if step.mapping(key) is None or step.find("spec", "result") is not None:
                continue
            node, at = step.fields[key], step.keys[key]
            if not step.deepen(("spec", "result"), node, at):
                continue
            step.take(key)
            if key == "result":
                self._seen.old(at, f"`result` of {what}", "spec: {result: {…}}")
            else:
                self._seen.saw_later("output", at)

    def _fanout_keys(self, spec: Fields) -> Fields:
        """`fanout.fail_fast: …` means `fanout: {fail_fast: …}`, and some keys have other names."""
        shape = Shape(spec)
        for key in [key for key in spec.fields if key.startswith("fanout.")]:
            node, at = shape.fields[key], shape.keys[key]
            if shape.deepen(("fanout", key.removeprefix("fanout.")), node, at):
                shape.take(key)
        fanout = shape.mapping("fanout")
        if fanout is not None:
            inner = Shape(fanout)
            for alias, name in FANOUT_ALIASES.items():
                if alias in inner.fields and name not in inner.fields:
                    inner.rename(alias, name)
            shape.fields["fanout"] = inner.node()
        return shape.node()

    # -- its loop ----------------------------------------------------------------------------

    def _loop(self, step: Shape, what: str) -> None:
        node = step.mapping("loop")
        if node is None:
            return
        shape = Shape(node)
        for alias, name in LOOP_ALIASES.items():
            if alias in shape and name not in shape.fields:
                self._seen.old(shape.keys[alias], f"`{alias}` of `loop` of {what}", f"{name}: …")
                shape.rename(alias, name)
        for key, place in (
            ("mode", "mode"),
            ("concurrency", "max_in_flight"),
            ("max_in_flight", "max_in_flight"),
        ):
            if key not in shape or shape.find("spec", place) is not None:
                continue
            value, at = shape.fields[key], shape.keys[key]
            if shape.deepen(("spec", place), value, at):
                shape.take(key)
                self._seen.old(at, f"`{key}` of `loop` of {what}", f"spec: {{{place}: …}}")
        if "distribution" in shape:
            _, at = shape.take("distribution")
            message = f"`distribution` of `loop` of {what} is ignored"
            hint = "`spec: {pool: …}` of the step says whose workers do the items"
            self._findings.add(at, "ignored-key", message, hint, "note")
        self._async(shape, what)
        respell_cursor(shape, what, self._seen)
        spec = shape.mapping("spec")
        if spec is not None:
            shape.fields["spec"] = self._fanout_keys(spec)
        step.fields["loop"] = shape.node()

    def _async(self, loop: Shape, what: str) -> None:
        mode = loop.find("spec", "mode")
        if isinstance(mode, Scalar) and mode.value == "async":
            loop.deepen(("spec", "mode"), Scalar("parallel", mode.position), mode.position)
            self._seen.old(mode.position, f"the mode `async` of {what}", "mode: parallel")

    # -- its tasks ---------------------------------------------------------------------------

    def _tool(self, step: Shape, what: str) -> None:
        inherited = self._step_args(step, what)
        node = step.fields.get("tool")
        if isinstance(node, Fields) and "sink" not in node and sink_task(step.fields.get("sink")):
            own = Shape(node)
            own.put("sink", *step.take("sink"))
            node = own.node()
        if isinstance(node, Items | Fields):
            node = with_sinks(node, what, self._seen)
            step.fields["tool"] = self._tasks.tasks(node, what, inherited)

    def _step_args(self, step: Shape, what: str) -> Fields | None:
        """Arguments on the step instead of the task: an older place."""
        found: Shape | None = None
        for key in ("args", "input"):
            if step.mapping(key) is None or "tool" not in step:
                continue
            node, at = step.take(key)
            assert isinstance(node, Fields), "just looked at"
            found = found or Shape(fields({}, at))
            for name, value in node.fields.items():
                found.put(name, value, node.keys[name])
            if key == "args":
                self._seen.saw_earlier(key, at)
            else:
                self._seen.saw_later(key, at)
            self._seen.old(at, f"`{key}` of {what}", "args: {…}", where="on the task")
        return None if found is None else found.node()


def _reads_itself(held: Fields, step: str) -> bool:
    """Whether a value is made of what the step gave, with nothing to stand in for it before."""
    word = re.compile(rf"\b(?:{re.escape(step)}|result|response|outcome|output)\b")
    texts = [str(node.value) for node in held.fields.values() if isinstance(node, Scalar)]
    return any(has_template(t) and word.search(t) and "default" not in t for t in texts)


def _allow(value: bool, at: Position) -> Fields:
    return fields({"allow": Scalar(value, at)}, at)


def _as_arc(node: Node) -> Node:
    return fields({"step": node}, node.position) if isinstance(node, Scalar) else node


def _spelling(node: Node) -> str:
    return {Scalar: "a name", Items: "a list", Fields: "a single arc"}[type(node)]


def _name(node: Node) -> Scalar | None:
    name = node.get("name") if isinstance(node, Fields) else None
    return name if isinstance(name, Scalar) and isinstance(name.value, str) else None


def _workbook_task(node: Node) -> Node:
    """`{name, tool: {kind, …}}` or `{name, kind, …}`, without the name."""
    assert isinstance(node, Fields), "it has a name"
    shape = Shape(node)
    shape.take("name")
    for key in ("tool", "type"):
        if "kind" not in shape and isinstance(shape.fields.get(key), Scalar):
            shape.rename(key, "kind")
    tool = shape.mapping("tool")
    if tool is None:
        return shape.node()
    shape.take("tool")
    inner = Shape(tool)
    for key, value in shape.fields.items():
        if key not in inner.fields:
            inner.put(key, value, shape.keys[key])
    return inner.node()
