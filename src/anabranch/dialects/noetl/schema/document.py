"""The whole playbook: its head, its executor, its keychain and its workbook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from anabranch.dialects.noetl.concurrency import KEYS as CONCURRENCY
from anabranch.dialects.noetl.concurrency import LIMIT_MAX, LIMITS_MAX
from anabranch.dialects.noetl.inputs import KEYS as INPUT
from anabranch.dialects.noetl.playbook import (
    EXECUTOR_KINDS,
    FINAL_FAILURE,
    HELD,
    ON_FAILURE,
    PROFILES,
    ROOT,
    UNDEFINED,
)
from anabranch.dialects.noetl.schema import loops, results, steps, tasks
from anabranch.dialects.noetl.steps import JOINS
from anabranch.dialects.noetl.tasks.credentials import (
    ELSEWHERE,
    ENTRIES,
    ENTRY_NAME,
    MANAGED,
    PROVIDERS,
    SCOPES,
)
from anabranch.dialects.noetl.tasks.rules import UNMATCHED
from anabranch.dialects.port import ToolSignature
from anabranch.dialects.schedule import INSTANTS_MAX, KEYS, Overlap
from anabranch.dialects.schema import (
    ANYTHING,
    TEMPLATE,
    Docs,
    Schema,
    choice,
    duration,
    either,
    flag,
    has,
    is_word,
    listed,
    mapping,
    no_slips,
    ref,
    section,
    string,
    template,
    text,
    when,
    whole,
)
from anabranch.literals import PRIORITY_MAX
from anabranch.net.inputs import TYPES
from anabranch.net.net import WhenFull

API = "noetl.io/"


def schema(tools: Iterable[ToolSignature] | None = None) -> Schema:
    """The schema of playbooks."""
    docs = Docs("noetl")
    scalar = {"type": ["string", "number", "boolean", "null"]}
    metadata = section(
        "What the playbook is called",
        {
            "name": text(),
            "description": text(),
            "labels": mapping(scalar),
            "path": ANYTHING,
            "schedule": _schedule(docs),
        },
        free=True,
        docs=docs("metadata"),
    )
    fields = {
        "apiVersion": string(f"^{API}"),
        "kind": choice(("Playbook",)),
        "metadata": metadata,
        "executor": _executor(docs),
        "inputs": mapping(either(choice(TYPES), _input(docs))),
        "workload": mapping(),
        "keychain": either(listed(ref("keychain_entry")), _empty()),
        "workbook": either(_workbook(docs), listed(ref("workbook_entry"))),
        "workflow": listed(ref("step"), least=1),
        "vars": {"type": "null"},
        "schedule": _schedule(docs),
        "concurrency": _concurrency(docs),
        "priority": whole(least=-PRIORITY_MAX, most=PRIORITY_MAX),
    }
    assert set(fields) == set(ROOT), "every key of the root"
    made = section(
        "NoETL playbook",
        fields,
        required=("workflow",),
        old={"name": {"type": ["string", "number"]}, "path": text()},
        free=mapping(),  # a section of the author's, read under its name
        propertyNames=no_slips(ROOT, ("name", "path", "spec")),
        docs=docs("playbook"),
        description="A playbook in the language of NoETL, as Anabranch reads it.",
    )
    return {**made, "$defs": _definitions(docs, tools)}


def _definitions(docs: Docs, tools: Iterable[ToolSignature] | None) -> Schema:
    named = {"name": text()}
    return {
        "keychain_entry": _entry(docs),
        "workbook_entry": section("A task of the workbook", named, required=("name",), free=True),
        **steps.definitions(docs),
        **loops.definitions(docs),
        **tasks.definitions(docs, tools),
        **results.definitions(docs),
    }


def _input(docs: Docs) -> Schema:
    fields = {
        "type": choice(TYPES),
        "enum": listed(ANYTHING, least=1),
        "required": flag(),
        "secret": flag(),
        "default": ANYTHING,
        "description": text(),
    }
    assert set(fields) == set(INPUT), "every key of an input"
    return section("What a run is given under one name", fields, docs=docs("input"))


def _empty() -> Schema:
    return {"type": "object", "maxProperties": 0}


def _schedule(docs: Docs) -> Schema:
    """One of three says when; the readers say which of them is missing or too much."""
    fields = {
        "cron": string(),
        "every": duration(),
        "at": either(text(), listed(text(), least=1, most=INSTANTS_MAX)),
        "timezone": string(),
        "begin": text(),
        "overlap": choice(get_args(Overlap)),
        "catch_up": duration(),
        "jitter": duration(),
        "input": mapping(),
        "labels": mapping({"type": ["string", "number", "boolean", "null"]}),
        "paused": flag(),
    }
    assert set(fields) == set(KEYS), "every key of a schedule"
    return section("When runs begin by the clock", fields, docs=docs("schedule"))


def _concurrency(docs: Docs) -> Schema:
    fields = {
        "key": text(),
        "limit": whole(least=1, most=LIMIT_MAX),
        "when_full": choice(get_args(WhenFull)),
        "shared": flag(),
    }
    assert set(fields) == set(CONCURRENCY), "every key of a limit"
    one = section(
        "How many runs at once", fields, required=("limit",), docs=docs("concurrency"),
        allOf=[when(is_word("shared", True), has("key"))],
    )  # fmt: skip
    return either(one, listed(one, least=1, most=LIMITS_MAX))


def _workbook(docs: Docs) -> Schema:
    book = section(
        "Named tasks",
        {"tasks": mapping(ref("task"))},
        required=("tasks",),
        docs=docs("workbook"),
    )
    return either(_empty(), book)


# -- the executor ----------------------------------------------------------------------------


def _executor(docs: Docs) -> Schema:
    fields = {
        "profile": choice(PROFILES),
        "kind": choice(EXECUTOR_KINDS),
        "version": text(),
        "requires": ANYTHING,
        "spec": _spec(docs),
    }
    return section("The policies of a run", fields, docs=docs("executor"))


def _spec(docs: Docs) -> Schema:
    timeout = either(duration(), template(), ref("time_parts"))
    http = section("Defaults of HTTP tasks", {"timeout": timeout}, docs=docs("executor.spec.http"))
    defaults = section(
        "Defaults of all tasks",
        {"timeout": timeout, "timeout_s": timeout, "resources": ANYTHING},
        docs=docs("executor.spec.policy.defaults"),
    )
    policy = section(
        "Policies for all tasks",
        {
            "defaults": defaults,
            "rules": ref("rules"),
            "on_unmatched": choice(UNMATCHED),
            "results": ANYTHING,
            "limits": ANYTHING,
        },
        docs=docs("executor.spec.policy"),
    )
    fields = {
        "entry_step": text(),
        "final_step": text(),
        "no_next_is_error": flag(),
        "on_failure": choice(ON_FAILURE),
        "fail_fast": flag(),
        "held": choice(HELD),
        "final_failure": choice(FINAL_FAILURE),
        "undefined": choice(UNDEFINED),
        "deadline": duration(),
        "join": choice(JOINS),
        "policy": policy,
        "result": ref("result"),
        "http": http,
        "pool": ref("pool"),
        **loops.layered(),
    }
    return section(
        "How a run begins and ends, and defaults",
        fields,
        docs=docs("executor.spec"),
        patternProperties=loops.dotted_fanout(),
    )


# -- the keychain ----------------------------------------------------------------------------


def _entry(docs: Docs) -> Schema:
    """Other keys than these are the entry's own."""
    known = rf"^(?:{'|'.join((*PROVIDERS, *ELSEWHERE))})$|{TEMPLATE}"
    fields = {
        "name": string(f"^{ENTRY_NAME.pattern}$"),
        "kind": choice(ENTRIES),
        "scope": choice(SCOPES),
    }
    needs = [when(is_word("kind", kind), has(*keys)) for kind, keys in ENTRIES.items() if keys]
    managed = when(is_word("kind", *MANAGED), {"properties": {"provider": {"pattern": known}}})
    return section(
        "A secret",
        fields,
        required=("name", "kind"),
        free=True,
        docs=docs("keychain entry"),
        allOf=[*needs, managed],
    )
