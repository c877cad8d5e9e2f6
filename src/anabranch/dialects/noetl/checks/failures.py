"""Failures that go on: steps that can fail, and that nothing looks at when they have.

The language looks at the arcs of a step whether it failed or not, so an arc without `when` leads on
after a failure as well, and the steps behind it work with what is not there. That is seldom meant,
and the author who means it has said so somewhere: a guard, a rule or a final step looks at how the
step ended, a template says what to take where its result is missing, a loop may lose items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from anabranch.dialects.findings import Findings
from anabranch.dialects.noetl.exports import expressions_of
from anabranch.dialects.noetl.templates import TemplateCompiler, keys_of, lookups_in
from anabranch.expressions.jinja.template import TemplateLookup
from anabranch.expressions.port import Expression
from anabranch.net.net import Arc, Branch, Loop, Net, Step
from anabranch.net.program import Rule, TaskSpec, program_of
from anabranch.net.reach import predecessors

HINT = (
    "write `executor: {spec: {on_failure: stop}}`, "
    "or give the arc a guard: `when: \"{{ event.name == 'step.done' }}\"`"
)
#: Kinds that do nothing which could fail.
_SAFE = ("noop", "pipeline")
#: Names for how something ended, and under which keys of theirs it stands.
_ENDINGS = ("error", "fanin")
_ENVELOPES = ("outcome", "output", "event")
_OF_ENDINGS = ("status", "error", "name", "payload")
#: Names for the result of what has just ended.
_RESULTS = (
    *(("outcome", "result"), ("outcome", "data"), ("output", "result"), ("output", "data")),
    *(("event", "payload", "result"), ("result",), ("response",)),
)
#: What the summary that a final step is given says of failures.
_SUMMARY = ("failures", "counts", "steps")


def warn_of_failures_that_go_on(net: Net, templates: TemplateCompiler, findings: Findings) -> None:
    """One warning for each such step, at its first arc."""
    if net.policy.fail_fast or _sums_up_failures(net, templates):  # also `on_failure: stop`
        return
    looked_at = _steps_looked_at(net, templates)
    leading = _leading_to_work(net)
    for name, step in net.steps.items():
        arc = _first_arc(step, leading, lenient=templates.lenient)
        if arc is None or name in looked_at or name == net.final or _looks_at_itself(step):
            continue
        at = arc.position or step.position
        if at is not None and _can_fail(step):
            message = (
                f"when the step {name!r} fails the run goes on to {arc.target!r} all the same: "
                "its arcs have no `when`, and nothing looks at how it ended"
            )
            findings.warn(at, "failure-goes-on", message, HINT)


# -- where it leads ------------------------------------------------------------------------------


def _first_arc(step: Step, leading: Collection[str], *, lenient: bool) -> Arc | None:
    """The first arc that leads to work after a failure, where none of its arcs has a guard."""
    if any(arc.guard is not None for branch in step.branches for arc in branch.arcs):
        return None
    for branch in step.branches:
        arcs = branch.arcs[:1] if branch.mode == "exclusive" else branch.arcs
        if lenient or not any(_hands_on_result(arc, step.name) for arc in arcs):
            return next((arc for arc in arcs if arc.target in leading), None)
    return None


def _hands_on_result(arc: Arc, name: str) -> bool:
    """Whether it hands on what is not there after a failure: then no arc can be taken."""
    for expression in expressions_of([Branch(arcs=(arc,))], ()):
        for one in lookups_in(expression):
            path = one.path
            if path[0] == name or path[:2] == ("steps", name):
                return True
            if any(path[:-1][: len(result)] == result for result in _RESULTS):
                return True
    return False


def _leading_to_work(net: Net) -> set[str]:
    """The steps that do something, or that such steps come after. An arc to the final step leads
    nowhere: its branch ends there."""
    before = predecessors(net)
    found = {name for name, step in net.steps.items() if not _is_marker(step)}
    found.discard(net.final or "")
    waiting = list(found)
    while waiting:
        for name in before[waiting.pop()]:
            if name not in found and name != net.final:
                found.add(name)
                waiting.append(name)
    return found


def _is_marker(step: Step) -> bool:
    """It does nothing, whatever came before: `end`, `done`."""
    work = step.work
    if work is None or work.kind != "noop" or step.loop or step.patches:
        return False
    return work.inputs is None or _reads_nothing(work.inputs)


def _reads_nothing(expression: Expression) -> bool:
    reads = getattr(expression, "reads", None)
    return reads is not None and not reads


# -- whether it fails ----------------------------------------------------------------------------


def _can_fail(step: Step) -> bool:
    if step.work is None or (step.loop is not None and _may_lose_items(step.loop)):
        return False
    program = program_of(step)
    if program is None:
        return _kind_can_fail(step.work.kind, step.work.inputs, step)
    return any(_task_can_fail(task, step) for task in program.tasks)


def _may_lose_items(loop: Loop) -> bool:
    return bool(loop.allow_partial or loop.tolerate or loop.tolerate_percent)


def _task_can_fail(task: TaskSpec, step: Step) -> bool:
    """Whether it can fail without a rule that was written for that."""
    if any(_fails_a_success(rule) for rule in task.rules):
        return True
    if task.on_unmatched_error == "continue" or any(_handles_errors(rule) for rule in task.rules):
        return False
    if task.loop is not None:
        inner = task.loop.program.tasks
        return not task.loop.best_effort and any(_task_can_fail(each, step) for each in inner)
    return _kind_can_fail(task.kind, task.inputs, step)


def _fails_a_success(rule: Rule) -> bool:
    if rule.do != "fail" or rule.when is None:
        return False
    return bool(rule.asserts) or not _handles_errors(rule)


def _handles_errors(rule: Rule) -> bool:
    """Whether it says what an error comes to; another try may fail like the first."""
    if rule.do == "retry" or rule.asserts:
        return False
    return rule.do != "fail" if rule.when is None else _looks_at_endings(rule.when)


def _kind_can_fail(kind: str, inputs: Expression | None, step: Step) -> bool:
    if kind == "wait":  # it fails when its time is up
        in_time = step.timeout_ms is None or step.on_timeout != "fail"
        return not in_time or "timeout_ms" in keys_of(inputs)
    return kind not in _SAFE


# -- whether anything looks at it ----------------------------------------------------------------


def _looks_at_itself(step: Step) -> bool:
    """Whether what stands after the step looks at how it ended."""
    after = expressions_of(step.branches, (*step.patches, *step.locals))
    return any(_looks_at_endings(each) for each in after)


def _looks_at_endings(expression: Expression) -> bool:
    reads: Iterable[tuple[str, ...]] | None = getattr(expression, "reads", None)
    return reads is None or any(map(_is_ending, reads))


def _is_ending(path: tuple[str, ...]) -> bool:
    root, *keys = path
    if root in _ENVELOPES:
        return keys[0] in _OF_ENDINGS if keys else root != "output"  # `output` is the result
    return root in _ENDINGS


def _steps_looked_at(net: Net, templates: TemplateCompiler) -> set[str]:
    """The steps whose end is asked for by their name: by a guard, which takes what is missing for
    false, by a template that says what to take then, or under a key that says how they ended."""
    found: set[str] = set()
    for condition in templates.conditions:
        found |= {_step_in(one)[0] for one, _ in condition.readings}
    for one, _ in templates.readings:
        if one.path == ("steps",):
            return set(net.steps)
        name, *keys = _step_in(one)
        if one.allowed_missing or (keys and keys[0] in _OF_ENDINGS):
            found.add(name)
    return found


def _step_in(one: TemplateLookup) -> tuple[str, ...]:
    """The step that it may look up, and the keys that follow."""
    path = one.path[1:] if one.root == "steps" else one.path
    return tuple(map(str, path or one.path))


def _sums_up_failures(net: Net, templates: TemplateCompiler) -> bool:
    """Whether the final step looks at what failed."""
    if net.final is None:
        return False
    paths = [one.path for one, _ in templates.readings]
    if any(path == ("args",) or path[0] in _SUMMARY[:2] for path in paths):
        return True
    if any(path[0] == "args" and path[1] in _SUMMARY for path in paths):
        return True
    return any(word in code for code in templates.python for word in _SUMMARY[:2])
