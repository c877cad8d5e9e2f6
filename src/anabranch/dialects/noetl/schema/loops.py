"""Loops: what they go through, how many items at once, and the policies of a fan-out."""

from __future__ import annotations

from anabranch.dialects.noetl.loops import (
    EXECUTIONS,
    FAILURES,
    IN_FLIGHT_MAX,
    LOOP_MODES,
    MODES,
    OF_EVERY_ITEM,
)
from anabranch.dialects.noetl.names import RESERVED
from anabranch.dialects.noetl.patches import REDUCERS
from anabranch.dialects.noetl.respell.cursor import MEANT, UNUSED
from anabranch.dialects.noetl.respell.playbook import FANOUT_ALIASES, LOOP_ALIASES
from anabranch.dialects.noetl.sources import DESCRIPTORS, NEEDED
from anabranch.dialects.noetl.tasks.rules import UNMATCHED
from anabranch.dialects.schema import (
    ANYTHING,
    Docs,
    Properties,
    Schema,
    choice,
    described,
    duration,
    either,
    flag,
    has,
    listed,
    mapping,
    number,
    ref,
    section,
    string,
    template,
    whole,
)

_OLD_MODES = ("async", "cursor")
_COUNT = either(whole(1, IN_FLIGHT_MAX), {"type": "string", "pattern": r"^[0-9]+$"}, template())
_ITERATOR = {
    **string(r"^[^\s\d{}\[\]().,:;'\"-][^\s{}\[\]().,:;'\"-]*$"),
    "not": {"enum": sorted({*RESERVED, *OF_EVERY_ITEM})},
}
_NUMBER = either({"type": "number"}, template())


def definitions(docs: Docs) -> Schema:
    """Every shape of this module, by name."""
    return {
        "loop": _loop(docs),
        "loop_spec": _loop_spec(docs),
        "task_loop": _task_loop(docs),
        "collection": _collection(docs),
        "fanout": _fanout(docs),
        "failure": section(
            "What a failed item means",
            {"mode": choice(FAILURES)},
            docs=docs("step.spec.policy.failure"),
        ),
    }


def _loop(docs: Docs) -> Schema:
    fields = {"in": ref("collection"), "iterator": _ITERATOR, "spec": ref("loop_spec")}
    old = {
        **{alias: fields[name] for alias, name in LOOP_ALIASES.items()},
        "mode": choice((*MODES, *_OLD_MODES)),
        "concurrency": _COUNT,
        "max_in_flight": _COUNT,
        "distribution": ANYTHING,
        "cursor": mapping(),
    }
    needed = [alias for alias, name in LOOP_ALIASES.items() if name == "in"]
    some = has("in", *needed, "cursor")
    return section("A loop", fields, old=old, docs=docs("loop"), **some)


def _loop_spec(docs: Docs) -> Schema:
    policy = section(
        "Policies of a loop",
        {
            "exec": choice(EXECUTIONS),
            "failure": ref("failure"),
            "rules": ref("rules"),
            "on_unmatched": choice(UNMATCHED),
        },
        docs=docs("loop.spec.policy"),
    )
    fields = {
        "mode": choice((*MODES, *_OLD_MODES)),
        "max_in_flight": _COUNT,
        "policy": policy,
        "result": ref("result"),
        **layered(),
        "frame": section("A frame of rows", dict.fromkeys((*MEANT, *UNUSED), ANYTHING)),
    }
    said = docs("loop.spec")
    return section("How a loop runs", fields, docs=said, patternProperties=dotted_fanout())


def layered() -> dict[str, Schema]:
    """What the specs of the executor, a step and a loop say about fan-outs."""
    return {"loop_mode": choice(LOOP_MODES), "fanout": ref("fanout")}


def dotted_fanout() -> Schema:
    """`fanout.fail_fast: …` is an older way to write `fanout: {fail_fast: …}`."""
    return {r"^fanout\.": ANYTHING}


def _task_loop(docs: Docs) -> Schema:
    """The loop of a task knows less than that of a step."""
    policy = section("Policies of a loop", {"failure": ref("failure")})
    spec = section(
        "How a loop runs",
        {"mode": choice(MODES), "max_in_flight": _COUNT, "policy": policy},
        docs=docs("loop.spec"),
    )
    fields = {"in": ref("collection"), "iterator": _ITERATOR, "spec": spec}
    return section("A loop of a task", fields, required=("in",), docs=docs("loop"))


def _collection(docs: Docs) -> Schema:
    """A list, a template that gives one, or a description of what is read lazily."""
    needs: Properties = {
        name: {"type": "object", "required": list(keys)} for name, keys in NEEDED.items()
    }
    said = docs("collections")
    described_ = {
        name: described(needs.get(name, ANYTHING), said.get(name)) for name in DESCRIPTORS
    }
    described_["range"] = described(
        either(_NUMBER, listed(_NUMBER, least=1, most=3), mapping()), said.get("range")
    )
    pairs = {"title": "A mapping, or a collection", "type": "object", "properties": described_}
    return either({"type": "array"}, template(), pairs)


def _fanout(docs: Docs) -> Schema:
    fields = {
        "fail_fast": flag(),
        "allow_partial": flag(),
        "tolerated_failures": whole(0, 10**12),
        "tolerated_failure_percentage": number(0, 100),
        "max_job_retries": whole(0, 1000),
        "max_shards": whole(1, 10**12),
        "max_concurrent": _COUNT,
        "shard_size": either(choice(("auto",)), whole(1, 1_000_000)),
        "queue_ttl_s": duration(),
        "lease_s": duration(),
        "iter_key": template(),
        "keep_results": flag(),
        "reducers": mapping(choice(REDUCERS[1:])),
    }
    old = {alias: fields[name] for alias, name in FANOUT_ALIASES.items()}
    return section("Policies of a fan-out", fields, old=old, docs=docs("fanout"))
