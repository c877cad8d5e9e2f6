"""The `tool` of a step: its tasks in order, each of a kind, with rules for what follows it.

One task that says nothing about what follows is plain work of its kind. Anything else becomes a
program for the `pipeline` performer. A task with a `loop` of its own goes through its items inside
the pipeline; what it does with each is its own kind of work, or a `tool` inside it. A `decision`
(ours) has no work at all: the step waits until somebody named says yes or no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.defaults import Defaults
from anabranch.dialects.noetl.keywords import MEANT
from anabranch.dialects.noetl.loops import read_inner_loop
from anabranch.dialects.noetl.patches import Around, Writes, read_writes
from anabranch.dialects.noetl.respell.shape import merged
from anabranch.dialects.noetl.tasks.assertions import Assertions
from anabranch.dialects.noetl.tasks.code_reads import with_code_reads
from anabranch.dialects.noetl.tasks.credentials import AuthReader
from anabranch.dialects.noetl.tasks.durations import duration
from anabranch.dialects.noetl.tasks.inputs import TaskInputs
from anabranch.dialects.noetl.tasks.keys import COMMON, KINDS
from anabranch.dialects.noetl.tasks.outputs import read_output
from anabranch.dialects.noetl.tasks.retries import read_retry
from anabranch.dialects.noetl.tasks.rules import Rules
from anabranch.dialects.noetl.tasks.transfers import SNOWFLAKE
from anabranch.dialects.noetl.tasks.waits import KIND as WAIT
from anabranch.dialects.noetl.tasks.waits import WaitReader
from anabranch.dialects.noetl.tasks.workbook import Workbook
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.dialects.port import Options
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Constant, Expression
from anabranch.literals import AWAIT_CHILD
from anabranch.net.net import Decision, Retry, WaitRule, Work
from anabranch.net.problems import closest
from anabranch.net.program import InnerLoop, Program, TaskSpec, Write

#: Kinds that NoETL has and Anabranch does not; each needs a service or a runtime of its own.
ELSEWHERE = frozenset(
    {"gateway", "agent", "mcp", "rhai"}
    | {"result_fetch", "subscription", "wasm", "task_sequence", "iterator"}
    | {"ducklake"}
)
PIPELINE = "pipeline"  # the kind of a task that is nothing but the tasks inside it
TIME_PARTS = ("connect", "read", "total")  # of the timeout of an HTTP task
TimeLimit = int | Expression | dict[str, float | Expression]  # in milliseconds, or its parts
OnReject = Literal["fail", "pause"]
ON_REJECT: tuple[OnReject, ...] = ("fail", "pause")


class CompiledTool(msgspec.Struct, frozen=True):
    """What the tasks of a step compiled to: a program, or a decision in its place."""

    program: Program | None = None
    decision: Decision | None = None

    @property
    def is_one_task(self) -> bool:
        """It needs no program: nothing is said about what follows its only task."""
        if self.program is None or len(self.program.tasks) != 1:
            return False
        (task,) = self.program.tasks
        alone = task.on_unmatched_error == "fail" and not _asks_where_it_is(task)
        bare = task.simple and not task.output and not task.loop and task.timeout is None
        return alone and bare and self.program.variables is None

    def work(self, retry: Retry, timeout_ms: int | None) -> Work | None:
        """The program as work; without rules and writes, as work of the one task's own kind."""
        program = self.program
        if program is None:
            return None
        if self.is_one_task:
            task = program.tasks[0]
            times = [time for time in (task.timeout_ms, timeout_ms) if time is not None]
            soonest = min(times, default=None)
            return Work(
                task.kind,
                task.inputs,
                timeout_ms=soonest,
                retry=retry,
                label=task.label,
                wait=task.wait,
            )
        return Work("pipeline", program=program, timeout_ms=timeout_ms, retry=retry)


class Tasks(msgspec.Struct, frozen=True):
    """Reads the tasks of one playbook."""

    options: Options
    templates: TemplateCompiler
    findings: Findings
    credentials: AuthReader
    workbook: Workbook

    def tool(self, step: Section, defaults: Defaults, around: Around) -> CompiledTool | None:
        """The step's tasks. None when there is no `tool` or it could not be read."""
        node = step.ask("tool")
        if node is None:
            return None
        tasks = self._sections(step.what, node)
        kinds = [self._kind(task) for task in tasks]
        if not tasks or None in kinds:
            return None
        if "decision" in kinds:
            return self._only_decision(tasks, kinds, around)
        name = step.node.get("step")
        alone = f"{name.value}_task" if isinstance(name, Scalar) else "task_0"
        return CompiledTool(self._program(step.what, node, alone, tasks, defaults, around))

    def of_others(self) -> Tasks:
        """The same for steps that workers elsewhere do: they may have tools of their own."""
        return replace(self, options=replace(self.options, any_tool=True))

    def _inner(
        self, node: Node, what: str, alone: str, defaults: Defaults, around: Around
    ) -> Program | None:
        """The tasks of a hook or of an inner loop. Rules of outer specs are not theirs."""
        tasks = self._sections(what, node)
        kinds = [self._kind(task) for task in tasks]
        if not tasks or None in kinds:
            return None
        if "decision" in kinds:
            task = tasks[kinds.index("decision")]
            self._misplaced(task, f"is a decision inside {around.inside}", "give it its own step")
            return None
        own = replace(defaults, policy=None, result=None)
        return self._program(what, node, alone, tasks, own, around)

    def _program(
        self,
        what: str,
        node: Node,
        alone: str,
        tasks: list[Section],
        defaults: Defaults,
        around: Around,
    ) -> Program:
        labels = self._labels(what, tasks, "" if isinstance(node, Items) else alone)

        def hook(hooked: Node, called: str) -> Program | None:
            inside = replace(around, inside="a hook")
            return self._inner(hooked, called, "hook", defaults, inside)

        rules = Rules(self.templates, self.findings, labels, around, hook)
        found = [self._task(task, labels, n, defaults, rules) for n, task in enumerate(tasks)]
        return Program(tuple(found))

    # -- which tasks -------------------------------------------------------------------------

    def _sections(self, what: str, node: Node) -> list[Section]:
        """The tasks; none where one of them could not be read."""
        nodes = list(node.items) if isinstance(node, Items) else [node]
        if not nodes:
            message, hint = f"the task of {what} is missing", "give the step a task"
            self.findings.add(node.position, "missing-key", message, f"{hint}, or remove `tool`")
        single = len(nodes) == 1
        found = [
            self._section(each, f"the task of {what}" if single else f"task {n} of {what}")
            for n, each in enumerate(nodes, 1)
        ]
        tasks = [section for section in found if section is not None]
        return tasks if len(tasks) == len(nodes) else []

    def _section(self, node: Node, what: str) -> Section | None:
        """One task, with the task of the workbook that it names put in its place."""
        task = self.findings.section(node, what)
        kind = None if task is None else task.node.get("kind")
        if task is not None and isinstance(kind, Scalar) and kind.value == "workbook":
            inlined = self.workbook.inlined(task)
            return None if inlined is None else Section(inlined, what, self.findings)
        return task

    def _labels(self, what: str, tasks: list[Section], alone: str) -> list[str]:
        labels: set[str] = set()
        found: list[str] = []
        for number, task in enumerate(tasks):
            label = task.string("name") or alone or f"task_{number}"
            if label in labels:
                message, hint = f"the label {label!r} stands here again", "give it another name"
                at = task.key_position("name") if "name" in task else task.position
                self.findings.add(at, "duplicate-label", message, hint)
            if len(tasks) > 1:
                task.what = f"task {label!r} of {what}"
            labels.add(label)
            found.append(label)
        return found

    def _kind(self, task: Section) -> str | None:
        node = task.text("kind")
        if node is None:
            if "kind" not in task and "loop" in task and "tool" in task:
                return PIPELINE
            task.require("kind", "choose one of " + ", ".join(KINDS))
            return None
        kind = str(node.value)
        if kind in KINDS or kind in self.options.tools:
            return kind
        if kind == "snowflake":
            self.findings.not_yet(node.position, "the task kind 'snowflake'", SNOWFLAKE)
            return None
        if kind in ELSEWHERE:
            message = f"Anabranch has no task kind {kind!r}; it is one of those only NoETL runs"
            hint = "use `http`, `python` or `shell`, or register a tool under that name"
            self.findings.add(node.position, "unknown-kind", message, hint)
            return None
        if self.options.any_tool:
            return kind
        known = [*KINDS, *self.options.tools]
        hint = closest(kind, known) or "choose one of " + ", ".join(KINDS)
        message = f"there is no task kind {kind!r}, and no tool is registered under that name"
        self.findings.add(node.position, "unknown-kind", message, hint)
        return None

    # -- one task ----------------------------------------------------------------------------

    def _task(
        self, task: Section, labels: list[str], number: int, defaults: Defaults, rules: Rules
    ) -> TaskSpec:
        kind = task.string("kind") or PIPELINE
        spec = task.section("spec")
        elsewhere = self.options.any_tool
        inputs = TaskInputs(task, spec, self.templates, self.credentials, elsewhere=elsewhere)
        wait: WaitRule | None = None
        if kind == WAIT:  # a wait holds no worker: a time limit that is inherited is not its own
            limit = self._timeout(task, spec, inputs, Defaults(), http=False)
            assert not isinstance(limit, dict), "only HTTP has parts"
            structure, wait = WaitReader(task, self.templates).read(labels[number], limit)
            timeout = None
        else:
            structure = self._inputs(inputs, kind)
            timeout = self._timeout(task, spec, inputs, defaults, http=kind == "http")
        if isinstance(timeout, dict):
            structure["timeout"] = timeout
            total = timeout.get("total")
            timeout = int(total * 1000) if isinstance(total, float) else total
        policy_node = merged(defaults.policy, None if spec is None else spec.ask("policy"))
        policy = rules.policy(policy_node, task.what, number)
        ours = kind in KINDS or kind == PIPELINE  # of a tool these are arguments
        retries = read_retry(task, self.templates) if ours else ()
        asserted = Assertions(task, self.templates).rules() if ours else ()
        if kind == "playbook":
            _note_unawaited_child(task)
        result = merged(defaults.result, None if spec is None else spec.ask("result"))
        writes = read_writes(task, self.templates, rules.around)
        output = read_output(result, f"`result` of {task.what}", self.findings)
        writes = self._named(writes, output, rules.around)
        made = TaskSpec(
            label=labels[number],
            kind=kind,
            inputs=self._composed(kind, structure),
            rules=(*retries, *asserted, *policy.rules),
            timeout_ms=timeout if isinstance(timeout, int) else None,
            timeout=None if isinstance(timeout, int) else timeout,
            on_unmatched_error=policy.on_unmatched,
            set_ctx=writes.ctx,
            set_iter=writes.iteration,
            output=output,
            position=task.position,
            set_shared=writes.shared,
            set_prev=writes.prev,
            hooks=policy.hooks,
            waits=kind == WAIT or (kind == "playbook" and _awaits_child(task)),
            wait=wait,
            inclusive=policy.inclusive,
        )
        made = self._looped(task, made, defaults, rules.around)
        self._check_waiting(task, made, rules.around)
        task.finish(also=COMMON)
        if spec is not None:
            spec.finish(free=MEANT)
        return made

    def _composed(self, kind: str, structure: dict[str, Any]) -> Expression | None:
        if not structure:
            return None
        inputs = self.templates.compose(structure)
        if kind != "python":
            return inputs
        code = structure.get("code")
        written = code if isinstance(code, str) else getattr(code, "text", None)
        return with_code_reads(inputs, code.value if isinstance(code, Constant) else written)

    def _named(self, writes: Writes, output: Mapping[str, Any] | None, around: Around) -> Writes:
        """`as` of a result policy: the result under that name, in the context; of an item of a loop
        in the item."""
        name = (output or {}).get("as")
        if not isinstance(name, str):
            return writes
        write = Write(name, self.templates.whole_result())
        if around.loops or around.inside:
            return replace(writes, iteration=(*writes.iteration, write))
        return replace(writes, ctx=(*writes.ctx, write))

    def _inputs(self, inputs: TaskInputs, kind: str) -> dict[str, Any]:
        if kind == PIPELINE:
            return {}
        if kind in KINDS:
            return inputs.of_kind(kind)
        return inputs.of_tool(None if self.options.any_tool else self.options.tools.get(kind))

    def _looped(
        self, task: Section, made: TaskSpec, defaults: Defaults, around: Around
    ) -> TaskSpec:
        """The task as a loop of its own, where it has one."""
        section, node = task.section("loop"), task.ask("tool")
        if section is None:
            if node is not None:
                message = f"{task.what} has a `tool` of its own, but no `loop` to use it in"
                task.report("tool", "conflicting-keys", message, "add a `loop`, or remove it")
            return made
        loop = read_inner_loop(section, self.templates, self.findings)
        inside = replace(
            around, inside="a loop of a task", together=around.together or loop.window is not None
        )
        program: Program | None = Program((TaskSpec(made.label, made.kind, made.inputs),))
        if node is not None and made.kind != PIPELINE:
            task.conflict("kind", "tool")
        elif node is not None:
            program = self._inner(node, task.what, made.label, defaults, inside)
        if made.waits:
            self._waits_inside(task, inside)
        inner: InnerLoop = replace(loop, program=program or Program(()))
        return replace(made, kind=PIPELINE, inputs=None, loop=inner, waits=False)

    def _timeout(
        self,
        task: Section,
        spec: Section | None,
        inputs: TaskInputs,
        defaults: Defaults,
        *,
        http: bool,
    ) -> TimeLimit | None:
        """Time for one attempt, from any of the places it may stand."""
        found: list[tuple[str, TimeLimit | None]] = []
        for holder, key in ((task, "timeout"), (task, "timeout_seconds"), (spec, "timeout")):
            node = None if holder is None else holder.ask(key)
            if holder is None or node is None:
                continue
            if found:
                inputs.conflict(holder, key, found[0][0])
            found.append((key, self._time(node, holder, key, parts=http)))
        if found:
            return found[0][1]
        inherited = defaults.http_timeout if http and defaults.http_timeout else defaults.timeout
        return None if inherited is None else self._time(inherited, task, "timeout", parts=http)

    def _time(self, node: Node, holder: Section, key: str, *, parts: bool) -> TimeLimit | None:
        if parts and isinstance(node, Fields):
            return self._time_parts(Section(node, f"`{key}` of {holder.what}", self.findings))
        return duration(holder, key, node, self.templates)

    def _time_parts(self, parts: Section) -> dict[str, float | Expression]:
        """Seconds to connect, to read and in all, as HTTP work takes them."""
        found: dict[str, float | Expression] = {}
        for name in TIME_PARTS:
            node = parts.ask(name)
            time = None if node is None else duration(parts, name, node, self.templates)
            if time is not None:
                found[name] = time / 1000 if isinstance(time, int) else time
        parts.finish()
        return found

    # -- tasks that wait ---------------------------------------------------------------------

    def _check_waiting(self, task: Section, made: TaskSpec, around: Around) -> None:
        """What waits holds no worker, and only a pipeline itself can go on then."""
        if made.waits and around.inside:
            self._waits_inside(task, around)

    def _waits_inside(self, task: Section, around: Around) -> None:
        hint = "put it into the pipeline itself, or loop over a step"
        whom = "" if task.string("kind") == WAIT else " for its child"
        self._misplaced(task, f"waits{whom} inside {around.inside}", hint)

    def _misplaced(self, task: Section, what: str, hint: str) -> None:
        self.findings.add(task.position, "misplaced-task", f"{task.what} {what}", hint)

    def _only_decision(
        self, tasks: list[Section], kinds: list[str | None], around: Around
    ) -> CompiledTool | None:
        number = kinds.index("decision")
        decision = self._decision(tasks[number])
        if len(tasks) > 1 or around.loops:
            where = "inside a loop" if around.loops else "beside other tasks"
            hint = "give it a step of its own"
            self._misplaced(tasks[number], f"is a decision {where}", hint)
        return CompiledTool(decision=decision)

    def _decision(self, task: Section) -> Decision:
        ask = task.text("ask")
        task.require("ask", "write the question that a person or program outside answers")
        actors = self._actors(task)
        on_reject = task.choice("on_reject", ON_REJECT, "fail")
        task.finish(also=("name", "kind", "desc"))
        question = self._question(task, ask) if ask is not None else None
        return Decision(str(ask.value) if ask else "", actors, on_reject, question=question)

    def _question(self, task: Section, ask: Scalar) -> Expression | None:
        """The text as a template, where it is one."""
        if not has_template(str(ask.value)):
            return None
        compiled = self.templates.tree(ask)
        if any(path[0] == "keychain" for path in getattr(compiled, "reads", None) or ()):
            message = f"`ask` of {task.what} reads the keychain, which only work can"
            task.report("ask", "misplaced-task", message, "ask without the secret")
        return compiled

    def _actors(self, task: Section) -> tuple[str, ...]:
        node = task.ask("actors")
        if node is None:
            return ()
        names: list[str] = []
        for each in node if isinstance(node, Items) else (node,):
            if isinstance(each, Scalar) and isinstance(each.value, str) and each.value:
                names.append(each.value)
            else:
                self.findings.wrong_type(each, f"an actor of {task.what}", "a name")
        return tuple(names)


def _asks_where_it_is(task: TaskSpec) -> bool:
    """It reads its label or its attempt, which only a pipeline knows."""
    reads = getattr(task.inputs, "reads", None) or ()
    return any(path[0] in ("_task", "_attempt") for path in reads)


def _awaits_child(task: Section) -> bool:
    values: Mapping[str, Any] = task.node.fields
    return any(
        key in task and not (isinstance(values[key], Scalar) and values[key].value is False)
        for key in AWAIT_CHILD
    )


def _note_unawaited_child(task: Section) -> None:
    """Where nothing is said others may expect that the step waits."""
    if not any(key in task for key in AWAIT_CHILD):
        message = f"{task.what} only starts its child, and does not wait for it"
        hint = "to wait, name the step of the child whose result it wants: `return_step`"
        task.report("kind", "begun-only", message, hint, "note")
