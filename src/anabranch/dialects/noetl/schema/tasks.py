"""Tasks: one shape for each kind, what follows them, and what becomes of their results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from anabranch.dialects.noetl.keywords import MEANT
from anabranch.dialects.noetl.patches import NAME, REDUCERS
from anabranch.dialects.noetl.tasks.clusters import BESIDE, MOUNTS
from anabranch.dialects.noetl.tasks.inputs import ACTIONS, TEXT_LISTS, TEXTS
from anabranch.dialects.noetl.tasks.keys import (
    ALIASES,
    COMMON,
    EXCLUSIVE,
    KINDS,
    LATER,
    NATS_OPERATIONS,
    NEEDED,
)
from anabranch.dialects.noetl.tasks.outputs import POLICY_KEYS
from anabranch.dialects.noetl.tasks.retries import OTHER_NAMES, PAGES
from anabranch.dialects.noetl.tasks.rules import (
    ATTEMPTS_MAX,
    BACKOFFS,
    CONTROLS,
    HOOKS,
    MODES,
    UNMATCHED,
)
from anabranch.dialects.noetl.tasks.tasks import ON_REJECT, TIME_PARTS
from anabranch.dialects.noetl.tasks.transfers import (
    DATABASE_KEYS,
    HTTP_KEYS,
    NAMES,
    TARGET_KEYS,
)
from anabranch.dialects.noetl.tasks.transfers import MODES as TRANSFER_MODES
from anabranch.dialects.port import ToolSignature
from anabranch.dialects.schema import (
    ANYTHING,
    TEMPLATE,
    Docs,
    Properties,
    Schema,
    choice,
    condition,
    duration,
    either,
    flag,
    has,
    is_word,
    listed,
    mapping,
    no_slips,
    nullable,
    number,
    one_of_them,
    ref,
    section,
    string,
    template,
    text,
    when,
    whole,
)


def _written_out(words: Iterable[str]) -> Schema:
    """One of these words, where a word stands there and no template."""
    return either(choice(words), template(), {"not": string()})


_AUTH = either(string(), mapping())
#: Keys that hold something else than any value with templates: by kind, and for every kind.
_VALUES: Mapping[tuple[str, str], Schema] = {
    ("python", "libs"): either(mapping(), listed(ANYTHING), template()),
    ("artifact", "action"): choice(ACTIONS),
    ("nats", "operation"): _written_out(NATS_OPERATIONS),
    ("transfer", "mode"): _written_out(TRANSFER_MODES),
    ("transfer", "source"): ref("transfer_source"),
    ("transfer", "target"): ref("transfer_target"),
    ("gcs", "destination"): {"pattern": f"^gs://|{TEMPLATE}"},
    ("container", "runtime"): ref("container_runtime"),
    ("playbook", "version"): {
        "type": ["string", "integer"],
        "minimum": 0,
        "pattern": rf"^(?:[0-9]{{1,9}}|latest)$|{TEMPLATE}",
    },
    ("decision", "ask"): text(),
    ("decision", "actors"): either(string(), listed(string())),
    ("decision", "on_reject"): choice(ON_REJECT),
    ("", "auth"): _AUTH,
    **{("", key): string() for key in ("code", "code_b64", "command_b64", "query_b64")},
    ("", "commands_b64"): string(),
}
_LONG = 120  # letters; what is shorter is easier to read where it stands
#: What a task is without a kind: tasks inside a task.
PIPELINE = "pipeline"


def definitions(docs: Docs, tools: Iterable[ToolSignature] | None) -> Schema:
    """Every shape of this module, by name. Without `tools` any kind may be that of one."""
    known = None if tools is None else [tool.name for tool in tools]
    return {
        "tasks": either(ref("task"), listed(ref("task"), least=1)),
        "task": _task(known),
        "labelled_task": {
            "title": "A task under its label",
            "type": "object",
            "additionalProperties": ref("task"),
        },
        "tool_task": section(
            "A call of a registered tool",
            _common(PIPELINE, docs),
            required=("kind",),
            free=True,
            docs=docs("task"),
        ),
        **_once({f"{kind}_task": _of_kind(kind, docs) for kind in (PIPELINE, *KINDS)}),
        **_following(docs),
        **_parts(),
        "free_key": _free_key(),
        "writes": mapping() | {"propertyNames": {"pattern": f"^{NAME.pattern}$"}},
        "context_writes": {
            **mapping(_context_write()),
            "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        },
    }


def _once(shapes: Schema) -> Schema:
    """The same, with every property that several kinds have alike standing by itself, once."""

    def written(key: str, value: Schema) -> str:
        return f"{key} {json.dumps(value)}"

    every = [item for shape in shapes.values() for item in shape["properties"].items()]
    counts = Counter(written(key, value) for key, value in every)
    names: dict[str, str] = {}
    apart: Schema = {}
    for shape in shapes.values():
        for key, value in list(shape["properties"].items()):
            said = written(key, value)
            if counts[said] > 1 and len(said) > _LONG:
                again = f"any_{key}" in apart and said not in names
                place = names.setdefault(said, f"any_{key}_{len(names)}" if again else f"any_{key}")
                apart[place] = value
                shape["properties"][key] = ref(place)
    return {**shapes, **apart}


def _context_write() -> Schema:
    """A value, or `{reduce, value}`."""
    reduced = {"type": "object", "required": ["reduce", "value"], "maxProperties": 2}
    return when(reduced, {"properties": {"reduce": choice(REDUCERS)}})


# -- tasks -----------------------------------------------------------------------------------


def _task(tools: list[str] | None) -> Schema:
    """Its kind says which of the shapes it has; without one it is a loop, or under a label."""
    kinds = [when(is_word("kind", kind), ref(f"{kind}_task")) for kind in KINDS]
    every = {"enum": [*KINDS, *(tools or ())]}
    tool = when({"properties": {"kind": {"enum": list(KINDS)}}}, ANYTHING, ref("tool_task"))
    label = when({"maxProperties": 1}, ref("labelled_task"), {"required": ["kind"]})
    inside = when({"required": ["loop", "tool"]}, ref("pipeline_task"), label)
    named = {"required": ["kind"], "properties": {"kind": {"not": {"type": "null"}}}}
    return {
        "title": "A task",
        "type": "object",
        "properties": {"kind": {"examples": list(KINDS)} if tools is None else nullable(every)},
        **when(named, {"allOf": [*kinds, tool]}, inside),
    }


def _of_kind(kind: str, docs: Docs) -> Schema:
    said = docs(f"kind {kind}", "task") if kind in KINDS else docs("task")
    own = {key: _value(kind, key) for key in KINDS.get(kind, ())}
    fields = {**_common(kind, docs), "retry": ref("retry"), "assert": _assertion(), **own}
    if kind == "decision":
        fields = {key: fields[key] for key in ("name", "kind", "desc", *KINDS[kind])}
    old = {key: value for key, value in _old(kind).items() if key not in fields}
    rules = [*_needs(kind), *_conflicts(kind)]
    more: Schema = {"allOf": rules} if rules else {}
    required = {"decision": ("kind", "ask"), PIPELINE: ("loop", "tool")}
    return section(
        f"A task of the kind {kind}" if kind in KINDS else "Tasks inside a task",
        fields,
        required=required.get(kind, ("kind",)),
        old={} if kind == "decision" else old,
        free=kind == "workbook",  # it has the keys of the task that it names
        docs=said,
        **more,
    )


def _common(kind: str, docs: Docs) -> dict[str, Schema]:
    """Keys that every task may have."""
    given = ANYTHING if kind == "wait" else either(mapping(), template())  # a wait takes none
    found = {
        "name": text(),
        "kind": {"const": kind} if kind in KINDS else text(),
        "desc": ANYTHING,
        "args": either(mapping(), template(), {"type": "array"}) if kind == "container" else given,
        "input": given,
        "spec": _spec(kind, docs),
        "timeout": _timeout(kind),
        "timeout_seconds": either(duration(), template()),
        "set_ctx": ref("context_writes"),
        "set_iter": ref("writes"),
        "set_shared": ref("writes"),
        "set_prev": ANYTHING,
        "loop": ref("task_loop"),
        "tool": ref("tasks"),
    }
    assert set(found) == set(COMMON), "every key that all tasks have"
    return found


def _value(kind: str, key: str) -> Schema:
    canonical = ALIASES.get(kind, {}).get(key, key)
    for name in ((kind, key), ("", key)):
        if name in _VALUES:
            return _VALUES[name]
    if canonical in TEXT_LISTS:
        return either(string(), listed(string()))
    return string() if canonical in TEXTS else ANYTHING


def _old(kind: str) -> dict[str, Schema]:
    """Keys of earlier and later spellings."""
    rules = listed(ref("task_rule"))
    found: dict[str, Schema] = {key: _value(kind, key) for key in ALIASES.get(kind, {})}
    found |= {"set": mapping(), "set_vars": ref("writes"), "sink": mapping(), "eval": rules}
    found |= {"policy": either(ref("task_policy"), rules), "output_select": ref("selection")}
    found |= {"output": ref("result"), "result": ref("result")}
    assert set(LATER) <= set(found), "what is read only where it can be respelled"
    if kind in KINDS:
        found |= {"credential": _AUTH, "with": mapping()}
    if kind == "container":
        found |= {key: ANYTHING for key in BESIDE if key not in MOUNTS}
    return found


def _needs(kind: str) -> Iterator[Schema]:
    """One of these keys must be there: under any of its names, or in `spec`."""
    needed = NEEDED.get(kind, ())
    aliases = [alias for alias, key in ALIASES.get(kind, {}).items() if key in needed]
    names = [*needed, *aliases, *(["image"] if kind == "container" else [])]
    if names:
        yield _here_or_in_spec(*names)
    if kind == "transfer":
        yield from (_here_or_in_spec(side) for side in ("source", "target"))
    if kind == "gcs":
        yield _here_or_in_spec("source", "data")
        yield one_of_them(("source", "data"))
    if kind == "artifact":
        yield _here_or_in_spec("result_ref", "uri", "data", "args", "input")
    if kind == "nats":
        for operation, keys in NATS_OPERATIONS.items():
            all_of = {"required": list(keys)}
            yield when(is_word("operation", operation), either(all_of, has("spec")))


def _here_or_in_spec(*names: str) -> Schema:
    """One of these keys, on the task or, in an older spelling, in its `spec`."""
    return either(has(*names), {"required": ["spec"], "properties": {"spec": has(*names)}})


def _conflicts(kind: str) -> Iterator[Schema]:
    for group in EXCLUSIVE:
        both = [key for key in group if key in KINDS.get(kind, ())]
        if len(both) > 1:
            yield one_of_them(both)


def _timeout(kind: str) -> Schema:
    parts = [ref("time_parts")] if kind == "http" else []
    return either(duration(), template(), *parts)


def _spec(kind: str, docs: Docs) -> Schema:
    """`spec` of a task: its keys are free, but for words that mean something elsewhere."""
    fields = {
        "policy": either(ref("task_policy"), listed(ref("task_rule"))),
        "result": _result_or_policy() if kind == "noop" else ref("result"),
        "timeout": _timeout(kind),
    }
    more: Schema = {} if kind == "workbook" else {"propertyNames": ref("free_key")}
    return section("The spec of a task", fields, free=True, docs=docs("task.spec"), **more)


def _result_or_policy() -> Schema:
    """Under `spec` of a `noop`: a policy, where it reads as one; else its result, in an older
    place."""
    policy = {"type": "object", "minProperties": 1, "propertyNames": {"enum": sorted(POLICY_KEYS)}}
    return when(policy, ref("result"))


def _free_key() -> Schema:
    """A key that means nothing anywhere else, or is an input of some kind: an older place of it."""
    own = {"policy", "result", "timeout"}
    moved = {"args", "input", "retry", "assert", "output_select"}
    inputs = {key for table in (KINDS, ALIASES) for keys in table.values() for key in keys}
    others = {"not": {"enum": sorted(MEANT - own - moved - inputs)}}
    return {"allOf": [others, no_slips(sorted(own), MEANT)]}


def _assertion() -> Schema:
    return {"type": ["string", "boolean", "array", "object"]}


# -- what follows a task ---------------------------------------------------------------------


def _following(docs: Docs) -> Schema:
    otherwise = section("Otherwise", {"then": ref("then")}, required=("then",))
    shapes = has("then", "else")
    return {
        "task_policy": section(
            "What follows the outcome of a task",
            {
                "mode": choice(MODES),
                "on_unmatched": choice(UNMATCHED),
                "rules": listed(ref("task_rule")),
                **{hook: ref("tasks") for hook in HOOKS},
            },
            docs=docs("task.policy"),
        ),
        "rules": listed(ref("rule")),
        "rule": _rule(docs, otherwise, old=False),
        "task_rule": when(shapes, ref("spelled_rule"), ref("flat_rule")),
        "spelled_rule": _rule(docs, either(otherwise, ref("then")), old=True),
        "flat_rule": _then(docs, {"when": condition(), "expr": condition()}),
        "then": _then(docs, {}),
        "retry": _retry(docs),
        "time_parts": section(
            "Times of an HTTP call",
            {part: either(duration(), template()) for part in TIME_PARTS},
            docs=docs("task.timeout"),
        ),
    }


def _rule(docs: Docs, otherwise: Schema, *, old: bool) -> Schema:
    """`when` and `then`, or `else`."""
    fields = {"when": condition(), "then": ref("then"), "else": otherwise}
    words = ("when", "expr") if old else ("when",)
    shapes = [{"required": [word, "then"]} for word in words]
    return section(
        "A rule",
        fields,
        old={"expr": condition()} if old else {},
        docs=docs("rule"),
        **either(*shapes, {"required": ["else"]}),
    )


def _then(docs: Docs, more: Properties) -> Schema:
    fields = {
        "do": choice(CONTROLS),
        "attempts": either(whole(1, ATTEMPTS_MAX), template()),
        "delay": either(duration(), template()),
        "backoff": choice(BACKOFFS),
        "to": text(),
        "set_ctx": ref("context_writes"),
        "set_iter": ref("writes"),
        "set_shared": ref("writes"),
        "set_prev": ANYTHING,
        **more,
    }
    old = {"target": text(), "set": mapping(), "set_vars": ref("writes")}
    jumps = when(is_word("do", "jump"), has("to", "target"))
    said = docs("then")
    return section("What to do then", fields, required=("do",), old=old, docs=said, **jumps)


def _retry(docs: Docs) -> Schema:
    counted = {
        "max_attempts": whole(1, ATTEMPTS_MAX),
        "initial_delay": either(duration(), template()),
        "backoff_multiplier": number(1, 1000),
        "max_delay": either(duration(), template()),
        "backoff": choice(BACKOFFS),
        "retry_when": condition(),
        "stop_when": condition(),
        "jitter": ANYTHING,
    }
    counted |= {other: counted[name] for name, other in OTHER_NAMES.items()}
    title = "How often a task is tried"
    budget = section(title, counted, refused=PAGES, docs=docs("task.retry"))
    entry = section(
        "A case in which a task is tried again",
        {"when": condition(), "then": budget},
        required=("when", "then"),
        docs=docs("task.retry.entry"),
    )
    return either(flag(), whole(1, ATTEMPTS_MAX), budget, listed(entry))


# -- parts of some kinds ---------------------------------------------------------------------


def _parts() -> Schema:
    return {
        "transfer_source": _side({*DATABASE_KEYS, *HTTP_KEYS}),
        "transfer_target": _side({*DATABASE_KEYS, *TARGET_KEYS}),
        "container_runtime": when(
            {"type": "object"},
            section(
                "Where a script runs",
                {"image": ANYTHING},
                required=("image",),
                refused=MOUNTS,
                free=True,
            ),
        ),
    }


def _side(keys: set[str]) -> Schema:
    """Its keys are those of its kind, where that is written out."""
    fields = dict.fromkeys((*NAMES, *sorted(keys)), ANYTHING)
    fields |= {"query": string(), "auth": _AUTH, "credential": _AUTH}
    templated = either(*({"required": [key], "properties": {key: template()}} for key in NAMES))
    known = section(
        "A side of a transfer", {key: fields[key] for key in fields if key in (*keys, *NAMES)}
    )
    return when(templated, mapping(), {**known, **has(*NAMES)})
