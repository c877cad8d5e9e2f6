"""Three spellings of a plan, brought into one: `plan.steps` as a list of mappings with `step_id`.

proposal 033   plan.steps: [{step_id, input, …}]
templates      plan.steps: {<id>: {request_input, input_from: "a", …}}
story 009      steps: [{id, input, input_from_step: "a", retry: {max_attempts, backoff_seconds}}]
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.net.problems import Position

#: What a step called something once, and what it is called here.
STEP_NAMES = {"id": "step_id", "input": "request_input", "input_from_step": "input_from"}


def step_nodes(root: Section, findings: Findings) -> list[Fields]:
    """The steps in the order in which they are declared, each with a `step_id`."""
    plan = root.section("plan")
    at_root = root.ask("steps")
    node = plan.ask("steps") if plan is not None else None
    if node is not None and at_root is not None:
        message = "the definition has `steps` at its root and in its `plan`"
        root.report("steps", "conflicting-keys", message, "keep `plan.steps`")
    node = node if node is not None else at_root
    if plan is not None:
        plan.ask("deadline")
        plan.ask("max_parallel_steps")
        plan.ask("deadline_seconds")
        plan.finish()
    if node is None:
        if plan is not None or "plan" not in root:
            root.missing("plan", 'add `"plan": {"steps": [{"step_id": …}]}`')
        return []
    return [respelled(step, findings) for step in _listed(node, findings)]


def _listed(node: Node, findings: Findings) -> list[Fields]:
    if isinstance(node, Fields):
        return [
            named
            for step_id, step in node.fields.items()
            if (named := _named(step_id, node.keys[step_id], step, findings)) is not None
        ]
    if not isinstance(node, Items):
        findings.wrong_type(node, "`steps`", "a list of steps")
        return []
    steps = []
    for step in node:
        if isinstance(step, Fields):
            steps.append(step)
        else:
            findings.wrong_type(step, "a step", "a mapping")
    return steps


def _named(step_id: str, at: Position, step: Node, findings: Findings) -> Fields | None:
    """A step of a map, with its key for an id."""
    if not isinstance(step, Fields):
        findings.wrong_type(step, f"step {step_id!r}", "a mapping")
        return None
    own = step.get("step_id") or step.get("id")
    if own is not None and plain(own) != step_id:
        message = f"step {step_id!r} calls itself {plain(own)!r}"
        findings.add(own.position, "conflicting-keys", message, "leave its `step_id` out")
    fields = {key: value for key, value in step.fields.items() if key not in ("step_id", "id")}
    keys = {key: step.keys[key] for key in fields}
    return Fields(
        {"step_id": Scalar(step_id, at), **fields}, {"step_id": at, **keys}, step.position
    )


def respelled(step: Fields, findings: Findings) -> Fields:
    """The step with the names of the normal form."""
    fields: dict[str, Node] = {}
    keys: dict[str, Position] = {}
    for key, node in step.fields.items():
        name = STEP_NAMES.get(key, key)
        if name in fields:
            _both(name, key, fields[name], node, step.keys[key], findings)
            continue
        fields[name], keys[name] = node, step.keys[key]
    _story_retry(fields, keys, findings)
    return Fields(fields, keys, step.position)


def _both(name: str, key: str, first: Node, second: Node, at: Position, findings: Findings) -> None:
    """Two names for one thing are fine while they say the same."""
    if plain(first) != plain(second):
        message = f"`{key}` says something else than another key for `{name}`"
        findings.add(at, "conflicting-keys", message, f"keep `{name}` only")


def _story_retry(fields: dict[str, Node], keys: dict[str, Position], findings: Findings) -> None:
    """`retry` beside `timing`, with seconds, is `timing.retry`."""
    retry = fields.get("retry")
    if not isinstance(retry, Fields):
        return
    timing = fields.get("timing")
    if isinstance(timing, Fields) and "retry" in timing:
        message = "`retry` stands beside `timing.retry`"
        findings.add(keys["retry"], "conflicting-keys", message, "keep `timing.retry`")
    else:
        at = keys["retry"]
        inner = dict(timing.fields) if isinstance(timing, Fields) else {}
        inner_keys: Mapping[str, Position] = timing.keys if isinstance(timing, Fields) else {}
        place = timing.position if isinstance(timing, Fields) else retry.position
        fields["timing"] = Fields(
            {**inner, "retry": _with_backoff(retry)}, {**inner_keys, "retry": at}, place
        )
        keys.setdefault("timing", at)
    del fields["retry"], keys["retry"]


def _with_backoff(retry: Fields) -> Fields:
    seconds = retry.get("backoff_seconds")
    if not isinstance(seconds, Scalar) or "backoff" in retry:
        return retry
    fields = {key: node for key, node in retry.fields.items() if key != "backoff_seconds"}
    keys = {key: retry.keys[key] for key in fields}
    at = retry.keys["backoff_seconds"]
    backoff = Scalar(f"PT{seconds.value}S", seconds.position)
    return Fields({**fields, "backoff": backoff}, {**keys, "backoff": at}, retry.position)
