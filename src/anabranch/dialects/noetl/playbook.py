"""The whole playbook: metadata, executor, workload and workflow, lowered to a net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from msgspec.structs import replace

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.noetl.checks.error_guards import ErrorGuards
from anabranch.dialects.noetl.checks.failures import warn_of_failures_that_go_on
from anabranch.dialects.noetl.checks.lookups import Lookups, reads_of, shape_of
from anabranch.dialects.noetl.concurrency import ConcurrencyReader
from anabranch.dialects.noetl.defaults import Defaults, read_defaults
from anabranch.dialects.noetl.exports import with_kept_results
from anabranch.dialects.noetl.file_names import file_names
from anabranch.dialects.noetl.inputs import Workload
from anabranch.dialects.noetl.joins import Join, joined, say_reading
from anabranch.dialects.noetl.loops import LoopReader
from anabranch.dialects.noetl.names import FALLBACKS, RESERVED
from anabranch.dialects.noetl.respell.playbook import spelling
from anabranch.dialects.noetl.routing import Router, stopping_at_failures
from anabranch.dialects.noetl.steps import JOINS, Steps, name_of
from anabranch.dialects.noetl.tasks.credentials import (
    NAME,
    AuthReader,
    loop_credentials,
    read_keychain,
)
from anabranch.dialects.noetl.tasks.tasks import Tasks
from anabranch.dialects.noetl.tasks.workbook import read_workbook
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.dialects.port import Options
from anabranch.dialects.source import Document
from anabranch.literals import PRIORITY_MAX
from anabranch.net.fingerprint import fingerprint
from anabranch.net.net import CredentialName, Net, RunPolicy, Step
from anabranch.net.problems import Problem, closest, did_you_mean
from anabranch.net.program import Iteration, tasks_of

OnFailure = Literal["fail", "handled", "partial", "stop"]
ON_FAILURE: tuple[OnFailure, ...] = ("fail", "handled", "partial", "stop")
HELD: tuple[Literal["wait", "discard"], ...] = ("wait", "discard")
ROOT = (
    *("apiVersion", "kind", "metadata", "keychain", "executor", "inputs", "workload"),
    *("workflow", "workbook", "vars", "schedule", "concurrency", "priority"),
)
#: Names an item of a loop has besides its own.
ITERATION = ("item", "loop_id", "shard_id", "iter_index", "iter_key", "index")
PROFILES = ("local", "distributed", "auto")
EXECUTOR_KINDS = ("local", "distributed", "hybrid")
FINAL_FAILURE: tuple[Literal["fail", "partial"], ...] = ("fail", "partial")
UNDEFINED: tuple[Literal["fail", "empty"], ...] = ("fail", "empty")
DECLARE = (
    "declare it in `workload` or `inputs` if runs are given it; where it may be missing, "
    "write `| default('')` after it"
)


class Playbook:
    """Compiles one document."""

    def __init__(self, document: Document, root: Fields, options: Options) -> None:
        self.findings = Findings()
        self._document = document
        spelled, self._joins = spelling(root, self.findings)
        self._root = Section(spelled, "the playbook", self.findings)
        self._templates = TemplateCompiler(document, self.findings)
        self._options = options

    def compile(self) -> tuple[Net | None, Sequence[Problem]]:
        root = self._root
        self._check_version()
        name, description, labels = self._metadata()
        executor = root.section("executor")
        spec = None if executor is None else self._executor(executor)
        if spec is not None and spec.choice("undefined", UNDEFINED, "fail") == "empty":
            self._templates.be_lenient()
        workload = Workload(self._root, self._templates, self.findings)
        keychain = self._keychain()
        nodes = self._step_nodes()
        defaults = self._defaults(spec)
        steps = self._steps(nodes, defaults, keychain)
        on_failure = "fail" if spec is None else spec.choice("on_failure", ON_FAILURE, "fail")
        policy, join = self._policy(spec, on_failure)
        if on_failure == "stop":
            steps = {name: stopping_at_failures(step) for name, step in steps.items()}
        self._no_vars()
        schedule = self._schedule()
        concurrency = ConcurrencyReader(self._templates, self.findings)
        limits = concurrency.read(root)
        priority = root.whole("priority", 0, least=-PRIORITY_MAX, most=PRIORITY_MAX)
        self._extensions(workload)
        root.finish()
        handed = self._argument_names()
        self._check_names(steps, workload.names, handed)
        self._check_lookups(steps, workload.names, nodes, handed)
        if not steps:
            return None, self.findings.problems
        asks = self._asks_credentials(keychain, nodes)
        net = Net(
            name=name,
            dialect="noetl",
            fingerprint=fingerprint("noetl", self._document.text),
            steps=steps,
            entry=self._step_name(spec, "entry_step", steps) or next(iter(steps)),
            final=self._step_name(spec, "final_step", steps),
            policy=policy,
            inputs=workload.inputs,
            workload=workload.values,
            computed=workload.computed,
            keychain=keychain,
            credentials=tuple(self._templates.credentials),
            extras=tuple(self._templates.extras),
            asks_credentials=asks,
            reads=reads_of(self._templates.readings, self._templates.python, concurrency.reads),
            children=tuple(self._templates.children),
            files=file_names(self._root.node),
            labels=labels,
            description=description,
            path=self._path(),
            schedule=schedule,
            limits=limits,
            priority=priority,
        )
        if spec is not None:
            spec.finish()
        say_reading(net, join, self._joins, self.findings)
        self._check_failures(net, handed)
        return joined(net) if join == "all" else net, self.findings.problems

    # -- the head ----------------------------------------------------------------------------

    def _check_version(self) -> None:
        version = self._root.text("apiVersion")
        if version is not None and not str(version.value).startswith("noetl.io/"):
            message = f"`apiVersion` is {version.value!r}"
            self.findings.add(version.position, "bad-choice", message, "write `noetl.io/v2`")
        kind = self._root.text("kind")
        if kind is not None and kind.value != "Playbook":
            message = f"`kind` is {kind.value!r}; only playbooks can be run"
            self.findings.add(kind.position, "bad-choice", message, "write `Playbook`")

    def _metadata(self) -> tuple[str, str, Mapping[str, str]]:
        metadata = self._root.section("metadata")
        fallback = PurePath(self._document.file).stem.strip("<>") or "playbook"
        name = None if metadata is None else metadata.text("name")
        if name is None:
            at = self._root.position if metadata is None else metadata.position
            hint = f"add `metadata: {{name: …}}`; until then it is called {fallback!r}"
            self.findings.warn(at, "no-name", "the playbook has no name", hint)
        if metadata is None:
            return fallback, "", {}
        labels = metadata.section("labels")
        return (
            str(name.value) if name is not None else fallback,
            metadata.string("description"),
            {} if labels is None else {key: _label(labels, key) for key in labels.node.fields},
        )

    def _path(self) -> str:
        metadata = self._root.node.get("metadata")
        node = metadata.get("path") if isinstance(metadata, Fields) else None
        return str(node.value) if isinstance(node, Scalar) and node.value is not None else ""

    def _schedule(self) -> Mapping[str, Any]:
        """Of `schedule` at the root, or in the metadata."""
        metadata = self._root.section("metadata")
        inside = metadata if metadata is not None and "schedule" in metadata else None
        if inside is not None and self._root.ask("schedule") is not None:
            message = "`schedule` stands at the root and in the metadata"
            self._root.report("schedule", "conflict", message, "keep one of them")
        section = (inside or self._root).section("schedule")
        if section is None:
            return {}
        from anabranch.dialects.schedule import ScheduleError, read_schedule  # few have one

        given: dict[str, Any] = plain(section.node)
        try:
            read_schedule(given)
        except ScheduleError as error:
            known = error.key in section.node.keys
            at = section.key_position(error.key) if known else section.position
            hint = "see docs/schedules.md"
            self.findings.add(at, "bad-schedule", str(error), hint)
        return given

    def _extensions(self, workload: Workload) -> None:
        """Mappings at the root that the language does not have can be read under their name."""
        for key, node in self._root.node.fields.items():
            if key in ROOT or not isinstance(node, Fields):
                continue
            if closest(key, ROOT) or key in workload.names:
                continue
            self._root.ask(key)
            message = f"the playbook has no section {key!r}; it can be read as `{key}`"
            hint = f"write it as `workload: {{{key}: …}}`"
            self._root.warn(key, "root-extension", message, hint)
            workload.add(key, node)

    def _keychain(self) -> tuple[Mapping[str, Any], ...]:
        before = len(self._templates.names)
        entries = read_keychain(self._root, self._templates, self.findings)
        del self._templates.names[before:]  # names are others there: `env` is one of them
        return entries

    def _no_vars(self) -> None:
        if self._root.ask("vars") is not None:
            message = "a playbook has no `vars`"
            hint = "write constants into `workload`, and what changes into `set_ctx` of a step"
            self._root.report("vars", "unknown-key", message, hint)

    # -- the executor ------------------------------------------------------------------------

    def _executor(self, executor: Section) -> Section | None:
        executor.choice("profile", PROFILES, "local")
        executor.choice("kind", EXECUTOR_KINDS, "local")
        executor.string("version")
        if executor.ask("requires") is not None:
            message = "`requires` is ignored: what a step needs is checked at the step"
            executor.report("requires", "ignored-key", message, severity="note")
        spec = executor.section("spec")
        executor.finish()
        return spec

    def _defaults(self, spec: Section | None) -> Defaults:
        """What `executor.spec` says for all steps and tasks."""
        if spec is None:
            return Defaults()
        policy = spec.section("policy")
        found = read_defaults(spec, policy)
        timeout = None
        if policy is not None:
            times = policy.section("defaults")
            if times is not None:
                timeout = times.ask("timeout")
                seconds = times.ask("timeout_s")
                if timeout is not None and seconds is not None:
                    times.conflict("timeout", "timeout_s")
                timeout = timeout or seconds
                times.ignore("resources", "a job takes what it needs")
                times.finish()
            policy.ignore("results", "large results are references anyway")
            policy.ignore("limits", "limits are settings of the engine")
            policy.finish()
        pool = spec.ask("pool")
        http = spec.section("http")
        http_timeout = None if http is None else http.ask("timeout")
        if http is not None:
            http.finish()
        loops = LoopReader(self._templates, self.findings)
        loops.loop_mode(found)
        loops.fanout(found)
        return replace(found, timeout=timeout, http_timeout=http_timeout, pool=pool)

    def _policy(self, spec: Section | None, on_failure: OnFailure) -> tuple[RunPolicy, Join]:
        # A step that timed out has failed like any other; only `abort_run` gives the run a status
        # of its own, and that the kernel does by itself.
        if spec is None:
            return RunPolicy(timeouts_have_own_status=False), "each"
        policy = RunPolicy(
            timeouts_have_own_status=False,
            deadline_ms=spec.duration_ms("deadline"),
            no_route_is_error=spec.flag("no_next_is_error"),
            on_failure="handled" if on_failure == "stop" else on_failure,
            fail_fast=spec.flag("fail_fast") or on_failure == "stop",
            held=spec.choice("held", HELD, "wait"),
            on_final_failure=spec.choice("final_failure", FINAL_FAILURE, "fail"),
        )
        return policy, spec.choice("join", JOINS, "each")

    def _step_name(self, spec: Section | None, key: str, steps: Mapping[str, Step]) -> str | None:
        node = None if spec is None else spec.text(key)
        if node is None or node.value in steps:
            return None if node is None else str(node.value)
        message = f"`{key}` names the step {node.value!r}, which does not exist"
        hint = did_you_mean(str(node.value), steps) or "name a step of the workflow"
        self.findings.add(node.position, "unknown-step", message, hint)
        return None

    # -- the workflow ------------------------------------------------------------------------

    def _step_nodes(self) -> dict[str, Section]:
        """Every step with a name of its own, in document order."""
        workflow = self._root.items("workflow")
        if "workflow" not in self._root or (workflow is not None and not workflow.items):
            at = self._root.position if workflow is None else workflow.position
            hint = "list the steps under `workflow`"
            self.findings.add(at, "no-steps", "the playbook has no steps", hint)
        found: dict[str, Section] = {}
        for number, node in enumerate(workflow or (), 1):
            self._add_step(found, node, number)
        return found

    def _add_step(self, found: dict[str, Section], node: Node, number: int) -> None:
        section = self.findings.section(node, f"step {number}")
        name = None if section is None else name_of(section)
        if section is None or name is None:
            return
        text = str(name.value)
        if text in found:
            first = found[text].position.line
            message = f"the step {text!r} stands here again (first in line {first})"
            hint = "give one of them another name"
            self.findings.add(name.position, "duplicate-step", message, hint)
            return
        section.what = f"step {text!r}"
        found[text] = section

    def _steps(
        self,
        nodes: Mapping[str, Section],
        defaults: Defaults,
        keychain: tuple[Mapping[str, Any], ...],
    ) -> dict[str, Step]:
        templates, findings = self._templates, self.findings
        router = Router(frozenset(nodes), templates, findings)
        names = frozenset(str(entry["name"]) for entry in keychain)
        credentials = AuthReader(names, templates, findings)
        workbook = read_workbook(self._root, findings)
        tasks = Tasks(self._options, templates, findings, credentials, workbook)
        loops = LoopReader(templates, findings)
        steps = Steps(tasks, loops, router, templates, findings, defaults)
        made = {name: steps.step(name, section) for name, section in nodes.items()}
        return with_kept_results(made, templates.readings)

    def _asks_credentials(
        self, keychain: tuple[Mapping[str, Any], ...], nodes: Mapping[str, Section]
    ) -> bool:
        """Whether its work may look up names that the keychain does not have."""
        entries = {str(entry["name"]) for entry in keychain}
        loops = [one for node in nodes.values() for one in loop_credentials(node.node.get("loop"))]
        named = {str(one.value): one.position for one in loops}
        for name, at in named.items():
            if name not in entries and NAME.fullmatch(name):
                self._templates.credentials.append(CredentialName(name, at))
        asked = [(one, at) for one, at in self._templates.readings if one.root == "keychain"]
        beyond = [(one, at) for one, at in asked if len(one.path) < 2 or one.path[1] not in entries]
        known = {(one.name, one.position) for one in self._templates.credentials}
        for (
            one,
            at,
        ) in beyond:  # by name, in a template: `check` knows better where there is a store
            name = str(one.path[1]) if len(one.path) > 1 and not one.allowed_missing else ""
            if NAME.fullmatch(name) and (name, at) not in known:
                known.add((name, at))
                self._templates.credentials.append(CredentialName(name, at))
        return not named.keys() <= entries or bool(beyond)

    # -- names -------------------------------------------------------------------------------

    def _check_names(
        self, steps: Mapping[str, Step], workload: Mapping[str, Any], handed: set[str]
    ) -> None:
        for name, step in steps.items():
            what = "a name with a meaning of its own" if name in RESERVED else "a workload key"
            if (name in RESERVED or name in workload) and step.position is not None:
                message = f"the step {name!r} has the same name as {what}"
                hint = f"read its result as `steps.{name}`, or rename it"
                self.findings.warn(step.position, "hidden-name", message, hint)
        readings = [one for one, _ in self._templates.readings]
        self._check_labels(steps, workload, {one.root for one in readings})
        known = known_names(steps, workload) | handed
        needed = dict.fromkeys(
            (one.root for one in readings if not (one.allowed_missing or one.called)), DECLARE
        )
        for name, at in dict.fromkeys(self._templates.names):
            if name == "env":
                message = "`env` can be read in the keychain only, and is empty here"
                hint = "add a keychain entry of kind `env`, or give the value as input"
                self.findings.warn(at, "unknown-name", message, hint)
            elif name not in known and (hint := closest(name, known) or needed.get(name, "")):
                message = f"nothing in the playbook is called {name!r}"
                self.findings.warn(at, "unknown-name", message, hint)

    def _check_labels(
        self, steps: Mapping[str, Step], workload: Mapping[str, Any], read: set[str]
    ) -> None:
        for step in steps.values():
            for task in tasks_of(step):
                if task.label in workload and task.label in read and task.position is not None:
                    message = f"the task {task.label!r} has the same name as a workload key"
                    hint = "templates read the workload by it; give the task another name"
                    self.findings.warn(task.position, "hidden-name", message, hint)

    def _check_lookups(
        self,
        steps: Mapping[str, Step],
        workload: Mapping[str, Any],
        nodes: Mapping[str, Section],
        handed: set[str],
    ) -> None:
        """Not of a definition that was checked elsewhere: its templates fail when they are used."""
        if self._options.any_tool:
            return
        shapes = {name: shape for name, node in nodes.items() if (shape := shape_of(node))}
        hidden = known_names(steps, workload, among_steps=False) | handed
        Lookups(steps, workload, shapes, hidden).check(self._templates.readings, self.findings)

    def _check_failures(self, net: Net, handed: set[str]) -> None:
        if self._options.any_tool:
            return
        warn_of_failures_that_go_on(net, self._templates, self.findings)
        declared = {one.name for one in net.inputs} | {*net.workload, *net.computed}
        own = names_set_in(net.steps) | declared | {*net.steps} | handed
        secrets = bool(net.keychain or net.credentials or net.asks_credentials)
        guards = ErrorGuards(self._options.tools, own, secrets=secrets)
        guards.check(net.steps.values(), self._templates.conditions, self.findings)

    def _argument_names(self) -> set[str]:
        """Keys under any `args` of an arc: they are bare names in the step the arc leads to.
        So are the `vars` of a step in itself."""
        found: set[str] = set()
        workflow = self._root.node.get("workflow")
        for step in workflow if isinstance(workflow, Items) else ():
            variables = step.get("vars") if isinstance(step, Fields) else None
            found |= set(variables.fields) if isinstance(variables, Fields) else set()
            router = step.get("next") if isinstance(step, Fields) else None
            arcs = router.get("arcs") if isinstance(router, Fields) else None
            for arc in arcs if isinstance(arcs, Items) else ():
                args = arc.get("args") if isinstance(arc, Fields) else None
                if isinstance(args, Fields):
                    found |= set(args.fields)
                    handed = args.get("iter")
                    found |= set(handed.fields) if isinstance(handed, Fields) else set()
        return found


def _label(labels: Section, key: str) -> str:
    """Text, or what JSON writes for a number, true or false."""
    node = labels.node.fields[key]
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        labels.ask(key)
        return "true" if node.value else "false"
    return labels.string(key)


def known_names(
    steps: Mapping[str, Step], workload: Mapping[str, Any], *, among_steps: bool = True
) -> set[str]:
    """Every name something in the playbook sets, with or without those of its steps."""
    known = {*RESERVED, *FALLBACKS, *workload, "range", "dict", "env", *ITERATION}
    return known | names_set_in(steps) | (set(steps) if among_steps else set())


def names_set_in(steps: Mapping[str, Step]) -> set[str]:
    """What steps, arcs, tasks and rules write, and what tasks and items are called."""
    known: set[str] = set()
    for step in steps.values():
        known |= {patch.key for patch in (*step.patches, *step.locals)}
        for branch in step.branches:
            known |= {patch.key for arc in branch.arcs for patch in arc.patches}
        program = None if step.work is None else step.work.program
        if isinstance(program, Iteration):
            known.add(program.iterator)
        for task in tasks_of(step):
            known.add(task.label)
            if task.loop is not None:
                known.add(task.loop.iterator)
            known |= {write.key for write in (*task.set_ctx, *task.set_iter)}
            for rule in task.rules:
                known |= {write.key for write in (*rule.set_ctx, *rule.set_iter)}
    return known
