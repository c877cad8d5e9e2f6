"""One step of the workflow: its spec, its loop, its tasks, its context writes and its routes."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.admission import read_admission
from anabranch.dialects.noetl.defaults import Defaults, read_defaults
from anabranch.dialects.noetl.exports import exported
from anabranch.dialects.noetl.joins import Join
from anabranch.dialects.noetl.keywords import MEANT
from anabranch.dialects.noetl.loops import Looping, LoopReader, read_failure
from anabranch.dialects.noetl.patches import Around, read_locals, read_patches, refuse_scopes
from anabranch.dialects.noetl.routing import Router
from anabranch.dialects.noetl.tasks.tasks import CompiledTool, Tasks
from anabranch.dialects.noetl.tasks.waits import KIND as WAIT
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.net.net import Admission, Barrier, Retry, Step, Work
from anabranch.net.program import Program, TaskSpec

OnTimeout = Literal["fail", "skip", "abort_run"]
Backoff = Literal["constant", "linear", "exponential"]

ON_TIMEOUT: tuple[OnTimeout, ...] = ("fail", "skip", "abort_run")
JOINS: tuple[Join, ...] = ("each", "all")
#: In the path of a claim, in messages and on command lines it needs no quotes.
POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
LAST = "end"  # a step of this name may be empty: it is where branches end
OWN_POOL = "default"  # the engine itself
#: Left what may be written, right what it means.
BACKOFFS: dict[str, Backoff] = {
    "constant": "constant",
    "linear": "linear",
    "exponential": "exponential",
    "none": "constant",
    "fixed": "constant",
}


class Spec(msgspec.Struct):
    """What `spec` of a step said."""

    timeout_ms: int | None = None
    on_timeout: OnTimeout = "fail"
    retry: Retry = msgspec.field(default_factory=Retry)
    join: Join | None = None
    admission: Admission | None = None
    job_timeout_ms: int | None = None
    failure: str | None = None
    defaults: Defaults = msgspec.field(default_factory=Defaults)
    only_loops: tuple[str, ...] = ()  # keys that mean nothing without a loop


class Steps(msgspec.Struct, frozen=True):
    """Reads the steps of one playbook."""

    tasks: Tasks
    loops: LoopReader
    router: Router
    templates: TemplateCompiler
    findings: Findings
    defaults: Defaults = msgspec.field(default_factory=Defaults)

    def step(self, name: str, section: Section) -> Step:
        spec = self._spec(section)
        handed = self.defaults.under(spec.defaults)
        looping = self.loops.looping(section, handed, spec.failure, spec.retry)
        around = Around() if looping is None else looping.around
        inner = handed if looping is None else looping.defaults
        pool = self._pool(handed)
        tasks = self.tasks.of_others() if pool else self.tasks
        tool = tasks.tool(section, inner, around)
        branches = self.router.branches(section)
        patches = read_patches(section, self.templates)
        locals_ = read_locals(section, self.templates)
        refuse_scopes(section)
        desc, description = section.string("desc"), section.string("description")
        section.not_yet("case", "eval", "sink")
        self._leftovers(section)
        section.finish(also=("when", "result", "output", "vars"))
        tool = self._with_variables(tool or self._without_tool(section), section, name)
        if tool.decision is not None:
            branches = self.router.after_decision(branches, section)
        if looping is None:
            self._without_loop(section, spec)
        elif tool.program is not None and tool.program.waits:
            looping = looping.one_at_a_time()
        if tool.program is not None and (looping is not None or not tool.is_one_task):
            exports = exported(branches, (*patches, *locals_))
            tool = CompiledTool(replace(tool.program, exports=exports))
        return Step(
            name=name,
            work=self._work(tool, looping, spec, pool if "tool" in section else ""),
            loop=None if looping is None else looping.loop,
            decision=tool.decision,
            admission=spec.admission,
            barrier=Barrier() if spec.join == "all" else None,
            patches=patches,
            locals=locals_,
            branches=branches,
            timeout_ms=spec.timeout_ms,
            on_timeout=spec.on_timeout,
            description=desc or description,
            position=section.key_position("step"),
        )

    def _with_variables(self, tool: CompiledTool, section: Section, name: str) -> CompiledTool:
        """`vars`: what `iter` of the step run holds from the start."""
        variables = section.section("vars")
        if variables is None:
            return tool
        if tool.decision is not None:
            message = f"{section.what} is a decision, and nothing of it runs that could have `vars`"
            section.report("vars", "conflicting-keys", message, "write `set_iter` instead")
            return tool
        program = tool.program or Program((TaskSpec(f"{name}_task", "noop"),))
        return CompiledTool(replace(program, variables=self.templates.tree(variables.node)))

    def _work(
        self, tool: CompiledTool, looping: Looping | None, spec: Spec, pool: str = ""
    ) -> Work | None:
        if tool.program is None:
            return Work("noop") if tool.decision is None else None
        if looping is not None:
            work = looping.work(tool.program, spec.retry, spec.job_timeout_ms)
        else:
            work = tool.work(spec.retry, spec.job_timeout_ms) or Work("noop")
        return replace(work, pool="" if work.kind == WAIT else pool)  # nobody has to do it

    def _pool(self, defaults: Defaults) -> str:
        """Whose workers do it; "" is the engine itself."""
        node = defaults.pool
        if node is None:
            return ""
        name = node.value if isinstance(node, Scalar) else None
        if not isinstance(name, str):
            self.findings.wrong_type(node, "`pool`", "the name of a pool")
            return ""
        if not POOL.fullmatch(name):
            message = f"{name[:40]!r} cannot be the name of a pool"
            hint = "use up to 100 letters, digits, `_`, `.` and `-`"
            self.findings.add(node.position, "bad-name", message, hint)
            return ""
        return "" if name == OWN_POOL else name

    def _leftovers(self, section: Section) -> None:
        """Older keys whose value had no shape that could be moved to its place."""
        for key, expected in (("result", "a mapping"), ("output", "a mapping")):
            if key in section:
                node = section.node.fields[key]
                self.findings.wrong_type(node, f"`{key}` of {section.what}", expected)
        for key in ("args", "input"):
            left = section.ask(key)
            if left is not None:
                expected = "a mapping, and stand on the task"
                self.findings.wrong_type(left, f"`{key}` of {section.what}", expected)

    def _without_tool(self, section: Section) -> CompiledTool:
        """A step with routes only does nothing and goes on. One with neither is a mistake, unless
        it is called what everybody calls the last step."""
        bare = set(section.node.fields) <= {"step", "desc", "description"}
        last = bare and str(section.string("step")) == LAST
        if "tool" not in section and "next" not in section and not last:
            hint = "give it a `tool`, or remove the step"
            message = f"{section.what} has neither `tool` nor `next`"
            self.findings.add(section.position, "empty-step", message, hint)
        if "loop" in section:
            section.require("tool", "say what to do with each item")
        return CompiledTool()

    def _without_loop(self, section: Section, spec: Spec) -> None:
        holder = section.node.fields.get("spec")
        for key in spec.only_loops:
            at = section.position
            if holder is not None and key in getattr(holder, "keys", {}):
                at = holder.keys[key]  # type: ignore[union-attr]
            message = f"`{key}` of {section.what} has no effect without a loop"
            self.findings.add(at, "ignored-key", message, severity="note")

    # -- spec --------------------------------------------------------------------------------

    def _spec(self, section: Section) -> Spec:
        spec = Spec()
        read = section.section("spec")
        if read is None:
            return spec
        spec.timeout_ms = read.duration_ms("timeout")
        spec.on_timeout = read.choice("on_timeout", ON_TIMEOUT, "fail")
        spec.retry = self._retry(read)
        spec.join = read.choice("join", JOINS, "each") if "join" in read else None
        policy = read.section("policy")
        spec.defaults = replace(read_defaults(read, policy), pool=read.ask("pool"))
        found = [key for key in ("loop_mode", "fanout") if key in read]
        read.finish(also=("join",), free=MEANT)
        if policy is not None:
            self._policy(spec, policy)
            found += ["failure"] if spec.failure else []
        spec.only_loops = tuple(found)
        return spec

    def _policy(self, spec: Spec, policy: Section) -> None:
        spec.admission = read_admission(policy, self.templates)
        spec.failure = read_failure(policy)
        lifecycle = policy.section("lifecycle")
        if lifecycle is not None:
            spec.job_timeout_ms = lifecycle.duration_ms("timeout_s")
            deadline = lifecycle.duration_ms("deadline_s")
            lifecycle.finish()
            if deadline is not None:
                spec.timeout_ms = min(deadline, spec.timeout_ms or deadline)
        policy.ignore("emit", "every event is recorded")
        policy.finish()

    def _retry(self, spec: Section) -> Retry:
        retry = spec.section("retry")
        if retry is None:
            return Retry()
        backoff = retry.choice("backoff", tuple(BACKOFFS), "constant")
        made = Retry(
            attempts=retry.whole("attempts", 3, least=1, most=10_000),
            delay_ms=_or(retry.duration_ms("delay", zero=True), 1_000),
            backoff=BACKOFFS[backoff],
            multiplier=retry.number("multiplier", 2.0, least=1.0, most=1_000.0),
            delay_ms_max=retry.duration_ms("max_delay"),
        )
        retry.finish()
        return made


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def name_of(section: Section) -> Scalar | None:
    """The step's name, if it has a usable one."""
    node = section.text("step")
    if node is None:
        section.require("step", "give the step a name")
        return None
    name = str(node.value)
    if not name.strip() or len(name) > 200 or not name.isprintable():
        message = f"{name[:40]!r} is not a name for a step"
        hint = "use a short printable text"
        section.findings.add(node.position, "bad-name", message, hint)
        return None
    return node
