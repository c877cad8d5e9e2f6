"""Steps: their spec, their gate, their routes, and what earlier spellings had on them."""

from __future__ import annotations

from anabranch.dialects.noetl.admission import MODES as ADMISSION_MODES
from anabranch.dialects.noetl.admission import ON_DENY
from anabranch.dialects.noetl.keywords import MEANT
from anabranch.dialects.noetl.respell.kinds import ITERATOR, OTHER_WORDS
from anabranch.dialects.noetl.routing import MODES, NO_MATCH
from anabranch.dialects.noetl.schema.loops import dotted_fanout, layered
from anabranch.dialects.noetl.steps import BACKOFFS, JOINS, LAST, ON_TIMEOUT, POOL
from anabranch.dialects.noetl.tasks.keys import KINDS
from anabranch.dialects.noetl.tasks.rules import UNMATCHED
from anabranch.dialects.schema import (
    ANYTHING,
    Docs,
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
    number,
    ref,
    section,
    string,
    text,
    when,
    whole,
)

#: What makes a step do something or lead on.
_MOVES = ("tool", "next", "case", "type", "return")


def definitions(docs: Docs) -> Schema:
    """Every shape of this module, by name."""
    oldest = either({"required": ["tool"], "properties": {"tool": string()}}, has("type", "return"))
    return {
        "step": when(oldest, _step(docs, oldest=True), _step(docs, oldest=False)),
        "step_spec": _spec(docs),
        "admit": _admit(docs),
        "next": _next(docs),
        "arc": _arc(docs),
        "pool": string(f"^{POOL.pattern}$"),
    }


def _step(docs: Docs, *, oldest: bool) -> Schema:
    """In the oldest form `tool` is a word, and its inputs stand on the step itself."""
    fields = {
        "step": {**text(), "minLength": 1, "maxLength": 200},
        "desc": text(),
        "description": text(),
        "spec": ref("step_spec"),
        "loop": ref("loop"),
        "vars": mapping(),
        "tool": ref("tasks"),
        "set_ctx": ref("context_writes"),
        "set_iter": ref("writes"),
        "next": ref("next"),
    }
    old = {
        "when": condition(),
        "args": mapping(),
        "input": mapping(),
        "set": mapping(),
        "result": ref("result"),
        "output": ref("result"),
        "case": listed(either(text(), mapping())),
        "sink": mapping(),
    }
    if oldest:
        word = choice((*KINDS, ITERATOR, *OTHER_WORDS))
        fields["tool"] = either(word, ref("tasks"))
        old = dict.fromkeys(old, ANYTHING) | {"type": word, "return": ANYTHING}
    moves = either(has(*_MOVES), is_word("step", LAST))
    loops = {"required": ["loop"], "properties": {"loop": {"type": "object"}}}
    rules = [moves, when(loops, has("tool", "type", "return"))]
    return section(
        "A step",
        fields,
        required=("step",),
        old=old,
        refused=("eval",),
        free=oldest,
        docs=docs("step"),
        allOf=rules,
    )


def _spec(docs: Docs) -> Schema:
    """Its keys are free, but for words that mean something elsewhere."""
    retry = section(
        "How a failed job is tried again",
        {
            "attempts": whole(1, 10_000),
            "delay": duration(),
            "backoff": choice(BACKOFFS),
            "multiplier": number(1, 1000),
            "max_delay": duration(),
        },
        docs=docs("step.spec.retry"),
    )
    fields = {
        "timeout": duration(),
        "on_timeout": choice(ON_TIMEOUT),
        "retry": retry,
        "join": choice(JOINS),
        "policy": _policy(docs),
        "result": ref("result"),
        "pool": ref("pool"),
        **layered(),
    }
    others = {"not": {"enum": sorted(MEANT - fields.keys())}}
    return section(
        "The spec of a step",
        fields,
        old={"next_mode": choice(MODES)},
        free=True,
        docs=docs("step.spec"),
        patternProperties=dotted_fanout(),
        propertyNames={"allOf": [others, no_slips(fields, {*MEANT, "next_mode"})]},
    )


def _policy(docs: Docs) -> Schema:
    lifecycle = section(
        "How long a step may take",
        {"timeout_s": duration(), "deadline_s": duration()},
        docs=docs("step.spec.policy.lifecycle"),
    )
    fields = {
        "admit": ref("admit"),
        "failure": ref("failure"),
        "lifecycle": lifecycle,
        "emit": ANYTHING,
        "rules": ref("rules"),
        "on_unmatched": choice(UNMATCHED),
    }
    return section("Policies of a step", fields, docs=docs("step.spec.policy"))


def _admit(docs: Docs) -> Schema:
    said = docs("admit.rule.then")
    allow = section("Whether it may pass", {"allow": flag()}, required=("allow",), docs=said)
    then = section("Otherwise", {"then": allow, "allow": flag()}, **has("then", "allow"))
    rule = section(
        "A rule of a gate",
        {"when": condition(), "unless": condition(), "then": allow, "else": then},
        docs=docs("admit.rule"),
        old={"allow": flag()},
        **either(
            {**has("when", "unless"), **_answered()},
            {"required": ["else"]},
        ),
    )
    fields = {
        "mode": choice(ADMISSION_MODES),
        "on_deny": choice(ON_DENY),
        "rules": listed(rule, least=1),
    }
    return section("Who may pass", fields, required=("rules",), docs=docs("admit"))


def _answered() -> Schema:
    """A rule says what it allows: under `then`."""
    return {"required": ["then"]}


def _next(docs: Docs) -> Schema:
    spec = section(
        "How arcs are chosen",
        {"mode": choice(MODES), "on_no_match": choice(NO_MATCH), "policy": ANYTHING},
        docs=docs("next.spec"),
    )
    router = section(
        "What follows",
        {"spec": spec, "arcs": listed(ref("arc"))},
        required=("arcs",),
        docs=docs("next"),
    )
    case = either(has("then", "else"), {"maxProperties": 0})
    entries = listed(either(text(), {"type": "object", **when(case, mapping(), ref("arc"))}))
    single = when({"required": ["step"]}, ref("arc"), router)
    return either(text(), entries, {"type": "object", **single})


def _arc(docs: Docs) -> Schema:
    fields = {
        "step": text(),
        "when": condition(),
        "args": mapping(),
        "set": mapping(),
        "set_ctx": ref("context_writes"),
        "spec": ANYTHING,
    }
    old = {"with": mapping()}
    return section("An arc", fields, required=("step",), old=old, docs=docs("arc"))
