"""Three ways to write a plan, one net; every field with its default."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.arca.requests import Inputs
from anabranch.expressions.port import Constant
from anabranch.net.net import Retry

from ..support import codes, shape
from .definitions import STATIC, definition, fan_out, lowered, net_of, read, step

AS_PROPOSAL_033 = {
    "workflow_id": "blog",
    "deadline": "PT2H",
    "plan": {
        "steps": [
            {"step_id": "draft", "service_type": "text/write", "input": {"topic": "rivers"}},
            {
                "step_id": "check",
                "service_type": "text/review",
                "input_from": ["draft"],
                "timing": {
                    "timeout": "PT10M",
                    "retry": {"max_attempts": 1, "backoff": "PT300S"},
                },
            },
            {"step_id": "post", "service_type": "text/post", "depends_on": ["check", "draft"]},
        ]
    },
}

AS_TEMPLATES_DO = {
    "definition_id": "blog",
    "plan": {
        "deadline": "PT120M",
        "steps": {
            "draft": {"service_type": "text/write", "request_input": {"topic": "rivers"}},
            "check": {
                "service_type": "text/review",
                "input_from": "draft",
                "timing": {
                    "timeout": "PT600S",
                    "retry": {"max_attempts": 1, "backoff": "PT5M"},
                },
            },
            "post": {"service_type": "text/post", "depends_on": ["check", "draft"]},
        },
    },
}

AS_STORY_009 = {
    "workflow_id": "blog",
    "deadline": "P0DT2H",
    "steps": [
        {"id": "draft", "service_type": "text/write", "input": {"topic": "rivers"}},
        {
            "id": "check",
            "service_type": "text/review",
            "input_from_step": "draft",
            "timing": {"timeout": "PT10M"},
            "retry": {"max_attempts": 1, "backoff_seconds": 300},
        },
        {"id": "post", "service_type": "text/post", "depends_on": ["check", "draft"]},
    ],
}


def test_the_three_spellings_give_the_same_net() -> None:
    nets = [read(each).net for each in (AS_PROPOSAL_033, AS_TEMPLATES_DO, AS_STORY_009)]
    assert [net is not None for net in nets] == [True, True, True]
    first, *others = (shape(net) for net in nets)
    assert others == [first, first]
    assert first[1]["policy"][1]["deadline_ms"] == 7_200_000


@pytest.mark.parametrize("document", [AS_PROPOSAL_033, AS_TEMPLATES_DO, AS_STORY_009])
def test_none_of_the_spellings_gets_a_complaint(document: dict[str, Any]) -> None:
    assert codes(read(document)) == []
    assert read(document).dialect == "arca"


def test_two_names_for_one_thing_may_stand_together_while_they_agree() -> None:
    both = step(input={"a": 1}, request_input={"a": 1})
    assert codes(read(definition(both))) == []
    unequal = step(input={"a": 1}, request_input={"a": 2})
    assert codes(read(definition(unequal))) == ["conflicting-keys"]


def test_a_deadline_of_the_plan_counts_and_must_not_contradict_that_of_the_root() -> None:
    plan = {"steps": [step()], "deadline": "PT5M"}
    inside = read({"workflow_id": "w", "plan": plan}).net
    assert inside is not None
    assert inside.policy.deadline_ms == 300_000
    same = read({"workflow_id": "w", "deadline": "PT300S", "plan": plan})
    assert codes(same) == []
    other = read({"workflow_id": "w", "deadline": "PT6M", "plan": plan})
    assert codes(other) == ["conflicting-keys"]


# -- defaults ------------------------------------------------------------------------------------


def test_the_head_of_a_definition_has_its_defaults() -> None:
    net = net_of(step())
    assert (net.name, net.dialect, net.description) == ("test", "arca", "")
    assert net.labels == {"workflow_kind": "service-order-orchestration"}
    assert net.policy.deadline_ms is None
    assert net.workload == {}


def test_the_head_of_a_definition_is_read() -> None:
    net = net_of(
        step(),
        workflow_kind="other",
        label="short",
        description="long",
        deadline="P1DT1S",
        input={"text": "hello"},
        max_parallel_steps=3,
    )
    assert net.labels == {"workflow_kind": "other"}
    assert net.description == "long"
    assert net.policy.deadline_ms == 86_401_000
    assert net.workload == {"text": "hello"}
    assert net.policy.parallel_max == 3
    assert net_of(step(), label="short").description == "short"


def test_a_definition_without_a_name_is_called_after_its_file() -> None:
    compiled = read({"plan": {"steps": [step()]}})
    assert codes(compiled) == ["no-name"]
    assert compiled.net is not None
    assert compiled.net.name == "d"


def test_a_plain_plan_runs_one_step_after_the_other_as_it_always_did() -> None:
    assert net_of(step("a"), step("b")).policy.parallel_max == 1
    assert net_of(step("a"), fan_out("b")).policy.parallel_max == 16
    in_plan = {"workflow_id": "w", "plan": {"steps": [step()], "max_parallel_steps": 4}}
    net = read(in_plan).net
    assert net is not None
    assert net.policy.parallel_max == 4


def test_an_ordinary_step_has_its_defaults() -> None:
    found = lowered()
    assert found.work is not None
    assert found.fan is not None
    assert found.work.kind == "request"
    assert found.fan.keeps_targets
    assert found.fan.targets is not None
    assert found.fan.targets.kind == "targets"
    assert (found.work.retry, found.work.retry_timeouts) == (Retry(), Retry())
    assert (found.work.timeout_ms, found.timeout_ms) == (None, None)
    assert (found.on_timeout, found.on_failure) == ("fail", "abort_run")
    assert found.decision is not None
    assert (found.decision.policy, found.decision.when) == ("auto", Constant(True))
    assert isinstance(found.work.inputs, Inputs)
    assert found.work.inputs.facts == {"step_id": "s", "service_type": "text/summarise"}


def test_a_fan_out_has_its_defaults() -> None:
    found = lowered(target=STATIC, fan_in={})
    assert found.work is not None
    assert found.fan is not None
    assert found.work.kind == "dispatch"
    assert found.fan.over.evaluate({}) == ["p1", "p2", "p3"]
    assert found.fan.rule.mode == "any"
    assert found.fan.targets is None
    assert found.fan.rounds == Retry()
    assert found.fan.rule.exclude_lost
    assert found.timeout_ms is None


@pytest.mark.parametrize(
    ("fan_in", "rule"),
    [
        ({"policy": "any_one", "min_responses": 1}, {"mode": "any", "combine": "one"}),
        ({"policy": "all"}, {"mode": "all", "combine": "list"}),
        ({"policy": "quorum", "min_responses": 2}, {"mode": "quorum", "k": 2, "combine": "list"}),
        (
            {"policy": "best_of", "score_field": "/price"},
            {"mode": "best_of", "select": "score", "order": "desc", "partial_on_expiry": True},
        ),
        (
            {"policy": "best_of", "score_field": "$.price", "score_order": "asc"},
            {"mode": "best_of", "order": "asc"},
        ),
    ],
)
def test_every_fan_in_policy_has_its_rule(fan_in: dict[str, Any], rule: dict[str, Any]) -> None:
    found = lowered(target=STATIC, fan_in=fan_in, timing={"timeout": "PT1S"}).fan
    assert found is not None
    assert {key: getattr(found.rule, key) for key in rule} == rule
    assert found.rule.losers == "kill"


def test_timing_is_read_and_extra_tries_become_tries() -> None:
    retry = {"max_attempts": 3, "backoff": "PT5S", "backoff_multiplier": 2.0}
    timing = {"timeout": "PT30S", "retry": retry, "on_timeout": "skip"}
    found = lowered(target=STATIC, fan_in={}, timing=timing)
    assert found.fan is not None
    assert (found.timeout_ms, found.on_timeout) == (30_000, "skip")
    assert found.fan.rounds == Retry(4, 5_000, "exponential", 2.0)
    assert [found.fan.rounds.delay_before(n) for n in (1, 2, 3)] == [5_000, 10_000, 20_000]
    plain = lowered(timing=timing | {"on_timeout": "abort_workflow"})
    assert plain.work is not None
    assert (plain.work.timeout_ms, plain.on_timeout) == (30_000, "abort_run")
    assert plain.work.retry_timeouts == Retry(4, 5_000, "exponential", 2.0)
    bare = lowered(target=STATIC, fan_in={}, timing={"retry": {"max_attempts": 1}})
    assert bare.fan is not None
    assert bare.fan.rounds == Retry(2, 0, "exponential", 1.0)


def test_the_older_retry_fields_are_for_failures() -> None:
    found = lowered(max_retries=2, retry_delay_ms=250)
    assert found.work is not None
    assert found.work.retry == Retry(3, 250)
    assert found.work.retry_timeouts == Retry()
    fan = lowered(target=STATIC, fan_in={}, max_retries=2, retry_delay_ms=250).fan
    assert fan is not None
    assert fan.rounds == Retry(3, 250)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("abort_workflow", "abort_run"), ("skip", "skip"), ("pause", "pause")],
)
def test_every_fail_policy_is_known(written: str, meant: str) -> None:
    assert lowered(fail_policy=written).on_failure == meant


@pytest.mark.parametrize(
    ("target", "facts"),
    [
        (
            {"resolve": "capability", "capability_id": "offer-catalog", "limit": 8},
            {"resolve": "capability", "capability_id": "offer-catalog", "limit": 8},
        ),
        (
            {"resolve": "capability", "capability_id": "c", "filter": {"region": "eu"}},
            {"resolve": "capability", "capability_id": "c", "filter": {"region": "eu"}},
        ),
        (
            {"resolve": "task_type", "task_type": "role.editor"},
            {"resolve": "task_type", "task_type": "role.editor"},
        ),
    ],
)
def test_targets_that_are_looked_for_are_looked_for_when_the_step_runs(
    target: dict[str, Any], facts: dict[str, Any]
) -> None:
    fan = lowered(target=target, fan_in={}).fan
    assert fan is not None
    assert fan.targets is not None
    assert fan.targets.inputs is not None
    searched = fan.targets.inputs.evaluate({})
    assert searched == {**facts, "service_type": "text/summarise"}
    found = ["a", "b", "a", *"cdefghijk"]
    limit = target.get("limit", 11)
    expected = list(dict.fromkeys(found))[:limit]
    assert fan.over.evaluate({"found": {"targets": found}}) == expected


def test_a_limit_cuts_a_static_list() -> None:
    fan = lowered(target=STATIC | {"limit": 2}, fan_in={}).fan
    assert fan is not None
    assert fan.over.evaluate({}) == ["p1", "p2"]


def test_a_task_type_is_the_service_type_where_none_is_given() -> None:
    target = {"resolve": "task_type", "task_type": "role.editor"}
    net = net_of({"step_id": "s", "target": target})
    work = net.steps["s"].work
    assert work is not None
    assert isinstance(work.inputs, Inputs)
    assert work.inputs.facts["service_type"] == "role.editor"


def test_step_ids_may_hold_dots_colons_and_dashes() -> None:
    names = ["a.b", "x:y", "m-n", "1", "Z" * 128]
    net = net_of(*(step(name) for name in names))
    assert [name for name in net.steps if name in names] == names


def test_several_beginnings_start_from_a_step_that_does_nothing() -> None:
    net = net_of(step("plan"), step("b"))
    assert net.entry == "plan'"
    assert net.steps[net.entry].work is None
    assert net_of(step("a"), step("b", depends_on=["a"])).entry == "a"


def test_a_step_may_have_a_label_beside_its_description() -> None:
    assert lowered(label="short", description="longer").description == "longer"
    assert lowered(label="short").description == "short"
