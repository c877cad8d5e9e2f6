"""One step of the workflow: its spec, its task, its context writes and its routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.admission import read_admission
from anabranch.dialects.noetl.patches import read_patches
from anabranch.dialects.noetl.routing import MODES, Mode, Router
from anabranch.dialects.noetl.tasks import Tasks, Tool
from anabranch.dialects.noetl.templates import Templates
from anabranch.net.net import Admission, Barrier, Retry, Step, Work

OnTimeout = Literal["fail", "skip", "abort_run"]
Backoff = Literal["constant", "linear", "exponential"]
Join = Literal["each", "all"]

ON_TIMEOUT: tuple[OnTimeout, ...] = ("fail", "skip", "abort_run")
JOINS: tuple[Join, ...] = ("each", "all")
#: Left what may be written, right what it means.
BACKOFFS: dict[str, Backoff] = {
    "constant": "constant",
    "linear": "linear",
    "exponential": "exponential",
    "none": "constant",
    "fixed": "constant",
}


@dataclass(slots=True)
class Spec:
    """What `spec` of a step said."""

    timeout_ms: int | None = None
    on_timeout: OnTimeout = "fail"
    retry: Retry = field(default_factory=Retry)
    join: Join | None = None
    next_mode: Mode | None = None
    admission: Admission | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Reads the steps of one playbook."""

    tasks: Tasks
    router: Router
    templates: Templates
    findings: Findings

    def step(self, name: str, section: Section) -> Step:
        spec = self._spec(section)
        tool = self.tasks.tool(section, spec.retry)
        branches = self.router.branches(section, spec.next_mode)
        patches = read_patches(section, self.templates)
        description = section.string("desc") or section.string("description")
        section.not_yet("loop", "result", "output", "eval", "vars", "case")
        section.finish()
        tool = tool or self._without_tool(section)
        return Step(
            name=name,
            work=tool.work,
            decision=tool.decision,
            admission=spec.admission,
            barrier=Barrier() if spec.join == "all" else None,
            patches=patches,
            branches=branches,
            timeout_ms=spec.timeout_ms,
            on_timeout=spec.on_timeout,
            description=description,
            position=section.key_position("step"),
        )

    def _without_tool(self, section: Section) -> Tool:
        """A step with routes only does nothing and goes on. One with neither is a mistake."""
        if "tool" not in section and "next" not in section:
            hint = "give it a `tool`, or remove the step"
            message = f"{section.what} has neither `tool` nor `next`"
            self.findings.add(section.position, "empty-step", message, hint)
        return Tool(Work("noop"))

    def _spec(self, section: Section) -> Spec:
        spec = Spec()
        read = section.section("spec")
        policy = None
        if read is not None:
            spec.timeout_ms = read.duration_ms("timeout")
            spec.on_timeout = read.choice("on_timeout", ON_TIMEOUT, "fail")
            spec.retry = self._retry(read)
            spec.join = read.choice("join", JOINS, "each") if "join" in read else None
            spec.next_mode = self._next_mode(read)
            policy = read.section("policy")
            hint = "run the items one by one in a `python` task"
            read.not_yet("loop_mode", "fanout", hint=hint)
            read.not_yet("result")
            read.finish()
        spec.admission = read_admission(section, policy, self.templates)
        if policy is not None:
            policy.not_yet("rules", "lifecycle", "failure", "emit")
            policy.finish()
        return spec

    def _next_mode(self, spec: Section) -> Mode | None:
        if "next_mode" not in spec:
            return None
        message = f"`next_mode` of {spec.what} is an old spelling"
        hint = "write `next: {spec: {mode: …}, arcs: […]}`"
        self.findings.warn(spec.key_position("next_mode"), "old-spelling", message, hint)
        return spec.choice("next_mode", MODES, "exclusive")

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
        if "step" not in section:
            section.require("step", "give the step a name")
        return None
    name = str(node.value)
    if not name.strip() or len(name) > 200 or not name.isprintable():
        message = f"{name[:40]!r} is not a name for a step"
        hint = "use a short printable text"
        section.findings.add(node.position, "bad-name", message, hint)
        return None
    return node
