"""The JSON Schema of XRC-729 orchestrations, and of bundles of them with their rules."""

from __future__ import annotations

from anabranch.dialects.schema import (
    ANYTHING,
    IGNORED,
    Docs,
    Schema,
    choice,
    either,
    has,
    is_word,
    listed,
    mapping,
    no_slips,
    ref,
    section,
    string,
    text,
    when,
    whole,
)
from anabranch.dialects.xrc137 import schema as rules
from anabranch.dialects.xrc729.bundle import BESIDE, CHAIN, KIND
from anabranch.dialects.xrc729.multi_bundle import BESIDE_BUNDLES, BESIDE_ITEMS, FORMAT
from anabranch.dialects.xrc729.read import (
    BRANCHES,
    METADATA,
    MODES,
    POLICIES,
    PRODUCERS_MAX,
    SPAWNS_MAX,
    STEP_ID,
    STEPS_MAX,
    WHENS,
)


def schema() -> Schema:
    """The schema of orchestrations; a document with `bundles` or an `orchestration` holds more."""
    docs = Docs("xrc729")
    single = when(has("orchestration"), ref("bundle"), ref("orchestration"))
    return {
        "title": "XRC-729 orchestration",
        "description": "A graph of steps, each with a rule and a branch for each of its outcomes.",
        "type": "object",
        **when(has("bundles", "format"), ref("multi_bundle"), single),
        "$defs": {
            "orchestration": _orchestration(docs),
            "step": _step(docs),
            "branch_of_step": _branch(docs),
            "join": _join(docs),
            "bundle": _bundle(docs),
            "multi_bundle": _multi_bundle(docs),
            **_rules(),
        },
    }


def _rules() -> Schema:
    """Rules inside a bundle."""
    docs = Docs("xrc137")
    return {"rule": rules.rule(docs), **rules.definitions(docs)}


# -- one orchestration -----------------------------------------------------------------------


def _orchestration(docs: Docs) -> Schema:
    structure = {
        **mapping(ref("step")),
        "minProperties": 1,
        "maxProperties": STEPS_MAX,
        "propertyNames": {"pattern": f"^{STEP_ID.pattern}$"},
    }
    known = ("id", "structure")
    return section(
        "XRC-729 orchestration",
        {"id": string(), "structure": structure, **dict.fromkeys(METADATA, IGNORED)},
        required=("structure",),
        free=True,
        docs=docs("orchestration"),
        propertyNames=no_slips(known, METADATA),
    )


def _step(docs: Docs) -> Schema:
    fields = {
        "rule": string(r"\S"),
        **{key: ref("branch_of_step") for key, _ in BRANCHES},
        "id": IGNORED,
    }
    return section("A step", fields, required=("rule",), docs=docs("step"))


def _branch(docs: Docs) -> Schema:
    fields = {"spawns": listed(string(), most=SPAWNS_MAX), "join": ref("join")}
    return section("What follows an outcome", fields, docs=docs("branch"))


def _join(docs: Docs) -> Schema:
    producer = section(
        "A producer",
        {"node": string(), "when": choice(WHENS)},
        required=("node",),
        docs=docs("join.from"),
    )
    count = whole(1, PRODUCERS_MAX)
    counted = section("So many of them", {"kofn": count, "k": count})
    fields = {
        "joinid": string(),
        "mode": either(choice(MODES), counted),
        "k": {"type": "integer"},
        "waitonjoin": choice(POLICIES),
        "from": listed(producer, least=1, most=PRODUCERS_MAX),
    }
    needs = when(is_word("mode", "kofn"), {**has("k"), "properties": {"k": count}})
    required = ("joinid", "from")
    return section("A join", fields, required=required, docs=docs("join"), **needs)


# -- bundles ---------------------------------------------------------------------------------


def _bundle(docs: Docs) -> Schema:
    wrapped = section(
        "A document as its text",
        dict.fromkeys(("text", "file", "address", "origin", "hash"), text()),
        required=("text",),
    )
    chain = section("Where it was read", dict.fromkeys(CHAIN, ANYTHING))

    def document(shape: Schema) -> Schema:
        return either(string(), {"type": "object", **when(has("text"), wrapped, shape)})

    fields = {
        "bundle": choice((KIND,)),
        "orchestration": document(ref("orchestration")),
        "rules": mapping(document(ref("rule"))),
        "chain": chain,
    }
    return section(
        "A bundle",
        {**fields, **dict.fromkeys(BESIDE, IGNORED)},
        required=("orchestration",),
        free=True,
        docs=docs("bundle"),
        propertyNames=no_slips(fields, BESIDE),
    )


def _multi_bundle(docs: Docs) -> Schema:
    item = {
        "type": "object",
        **when(has("structure"), ref("orchestration"), ref("rule")),
    }
    bundle = section(
        "A bundle",
        {"bundleId": text(), "items": listed(item), **dict.fromkeys(BESIDE_ITEMS, IGNORED)},
        free=True,
        docs=docs("builder"),
    )
    fields = {"format": choice((FORMAT,)), "bundles": listed(bundle, least=1)}
    return section(
        "Bundles of the builder",
        {**fields, **dict.fromkeys(BESIDE_BUNDLES, IGNORED)},
        required=("bundles",),
        free=True,
        docs=docs("builder"),
    )
