"""Test plans and scenarios are played in virtual time, and say what did not hold and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.dialects.xrc729.multi_bundle import hashes_of
from anabranch.errors import DefinitionError, InputError
from anabranch.surfaces.cli.main import command
from anabranch.testing.plan.documents import address_of
from anabranch.testing.plan.stage import Mocks, mocks_from
from anabranch.testing.plans import Report, play_tests

ORDER = {
    "id": "order",
    "meta": {"type": "XRC-729", "alias": "Order"},
    "structure": {
        "CHECK": {
            "rule": "cm:xrc137:Check",
            "onValid": {"spawns": ["GATE"]},
            "onInvalid": {"spawns": ["REFUSE"]},
        },
        "GATE": {"rule": "cm:xrc137:Gate"},
        "REFUSE": {"rule": "cm:xrc137:Done"},
    },
}
CHECK = {
    "meta": {"type": "XRC-137", "alias": "Check"},
    "payload": {"amount": {"type": "int64"}, "limit": {"type": "int64", "default": 100}},
    "apiCalls": [{
        "name": "rate", "method": "GET", "urlTemplate": "https://rates.example/[amount]",
        "contentType": "json",
        "extractMap": {"rate": {"type": "double", "value": "resp.rate", "default": 1}},
    }],
    "contractReads": [{
        "to": "${addr:vault}", "function": "balance()(uint256)",
        "saveAs": {"0": {"key": "balance", "type": "uint256", "default": 0}},
    }],
    "rules": ["[amount] > 0", "[amount] <= [limit]"],
    "onValid": {"waitSec": 3600, "payload": {"worth": "double([amount]) * [rate]"}},
}  # fmt: skip
GATE = {"meta": {"type": "XRC-137", "alias": "Gate"}, "payload": {"worth": {"type": "double"}}}
DONE = {"meta": {"type": "XRC-137", "alias": "Done"}, "payload": {}}
BUNDLE = {"bundleId": "b1", "items": [ORDER, CHECK, GATE, DONE]}
FILE = {"format": "xgr-multi-bundle@1", "createdAt": "2026-06-01T00:00:00Z", "bundles": [BUNDLE]}


def entry(step: str, *, mode: str = "allOf", label: str = "", **more: Any) -> dict[str, Any]:
    one = {"id": "a", "stepId": step, "occurrence": 1, "exist": True, "valid": None, "status": ""}
    for key in ("inputAssertions", "apiAssertions", "contractReadAssertions"):
        one[key] = []
    return {"id": "e", "mode": mode, "label": label or step, "alternatives": [{**one, **more}]}


def plan(*timeline: dict[str, Any], **more: Any) -> dict[str, Any]:
    runtime = {"stepId": "CHECK", "maxTotalGas": 0, "payload": {"amount": 5}}
    made: dict[str, Any] = {
        "id": "p",
        "title": more.pop("title", "a plan"),
        "source": {"bundleId": "b1", "rawBundleJson": json.dumps(FILE), **more.pop("source", {})},
        "runtime": {**runtime, **more.pop("runtime", {})},
        "expectations": {
            "timeline": list(timeline),
            "finalStatuses": more.pop("final", ["done"]),
            "finalStep": more.pop("last", "Any"),
        },
        "execution": {"ownerAlias": "ann", "starterAlias": "ann", **more.pop("execution", {})},
        "testSetup": {"contracts": [{"key": "vault", "mode": "deployIfMissing"}]},
    }
    return {**made, **more}


def played(*plans: dict[str, Any], mocks: Mocks | None = None) -> Report:
    whole = {"kind": "xgr.multi-test-plan", "version": 1, "plans": list(plans)}
    return play_tests({"plans.json": json.dumps(whole)}, mocks)


def test_a_plan_that_holds_passes_however_long_it_waits() -> None:
    good = plan(
        entry("CHECK", valid=True, status="done"),
        entry("GATE", status="done"),
        entry("REFUSE", exist=False),
        last="GATE",
    )
    report = played(good)
    assert report.ok, str(report)
    (result,) = report.results
    assert result.seconds == 3600, "virtual ones"
    assert result.missing == (
        f"balance of {address_of('vault')}",
        "GET https://rates.example/5",
    ), "nothing was reached, and that is said"


def test_assertions_look_at_inputs_calls_and_reads() -> None:
    def check(kind: str, field: str, op: str, value: Any, value_type: str = "") -> dict[str, Any]:
        one = {"id": "x", "field": field, "op": op, "valueType": value_type, "value": value}
        asserted: dict[str, Any] = {kind: [one]}
        return entry("CHECK", **asserted)

    mocks = mocks_from(
        {"api": {"https://rates.example/": {"rate": 2.5}}, "reads": {"balance": [42]}}, "mocks"
    )
    good = [
        check("inputAssertions", "amount", "eq", 5),
        check("inputAssertions", "limit", "eq", "100", "int64"),
        check("inputAssertions", "nothing", "missing", None),
        check("apiAssertions", "rate", "gt", 2),
        check("apiAssertions", "rate", "exists", None),
        check("contractReadAssertions", "balance", "eq", "42", "uint256"),
        check("contractReadAssertions", "balance", "regex", "^4"),
        check("contractReadAssertions", "balance", "ne", 41),
    ]
    report = played(plan(*good), mocks=mocks)
    assert report.ok, str(report)
    assert report.results[0].missing == ()
    wrong = played(plan(check("apiAssertions", "rate", "lte", 2)), mocks=mocks)
    assert "expected: step CHECK runs, its call gives rate lte 2; instead: rate is 2.5" in str(
        wrong
    )


@pytest.mark.parametrize(
    ("timeline", "more", "said"),
    [
        ([entry("REFUSE", label="is refused", status="done")], {},
         "is refused: expected: step REFUSE is done; instead: it did not run; CHECK, GATE did"),
        ([entry("CHECK", valid=False)], {},
         "expected: step CHECK is invalid; instead: it is done, valid"),
        ([entry("GATE", exist=False)], {}, "step GATE does not run; instead: it ran once"),
        ([entry("CHECK", occurrence=2)], {}, "step CHECK #2 runs; instead: it ran once"),
        ([], {"final": ["aborted"]}, "the session ends aborted; instead: it is done"),
        ([], {"last": "REFUSE"}, "the last step is REFUSE; instead: it is GATE"),
        ([], {"execution": {"starterAlias": "bob"}},
         "start: expected: bob may start it; instead: bob is neither the owner (ann)"),
    ],
)  # fmt: skip
def test_a_plan_that_fails_says_which_expectation_and_what_came(
    timeline: list[Any], more: dict[str, Any], said: str
) -> None:
    report = played(plan(*timeline, **more), plan(title="another"))
    assert not report.ok
    assert said in str(report)
    assert str(report).endswith("1 of 2 passed")


def test_any_of_needs_one_alternative_and_all_of_every_one() -> None:
    either = entry("REFUSE", mode="anyOf")
    either["alternatives"].append({**entry("GATE")["alternatives"][0], "status": "done"})
    assert played(plan(either)).ok
    assert not played(plan({**either, "mode": "allOf"})).ok
    either["alternatives"][1]["valid"] = False
    told = str(played(plan(either)))
    assert "step REFUSE runs or step GATE is done, invalid; instead: REFUSE: it did not" in told
    assert "; GATE: it is done, valid" in told


def test_an_executor_may_start_as_well() -> None:
    assert played(plan(execution={"starterAlias": "bob", "xrc729Executors": ["bob"]})).ok


def test_a_session_that_is_expected_to_wait_is_looked_at_while_it_waits() -> None:
    waits = plan(entry("GATE", status="waiting"), entry("REFUSE", exist=False), final=["waiting"])
    report = played(waits)
    assert report.ok, str(report)
    assert report.results[0].seconds == 0


def test_plans_stand_in_a_bundle_beside_what_they_test() -> None:
    inside = plan(entry("GATE"), source={"rawBundleJson": ""})
    assert play_tests({"b.json": json.dumps({**FILE, "plans": [inside]})}).ok
    beside = {"kind": "xgr.test-plan", "version": 1, **inside}
    assert play_tests({"p.json": json.dumps(beside), "b.json": json.dumps(FILE)}).ok
    with pytest.raises(InputError, match="no bundle is there for b1"):
        play_tests({"p.json": json.dumps(beside)})


def test_a_plan_for_another_text_of_the_bundle_is_refused() -> None:
    right = min(hashes_of(ORDER))
    assert played(plan(source={"ostcHash": right}, runtime={"ostcHash": "0x" + "0" * 64})).ok
    with pytest.raises(
        InputError, match=r"ostcHash is 0x7777.*and the bundle hashes to 0x"
    ) as caught:
        played(plan(source={"ostcHash": "0x" + "7" * 64}))
    assert caught.value.code == "wrong_hash"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("[]", "it is no mapping"),
        ("{", "is not JSON"),
        ({"kind": "xgr.other"}, "`kind` is 'xgr.other'"),
        ({**FILE}, "no plans and no scenarios"),
        (plan({**entry("CHECK"), "mode": "someOf"}), "mode is 'someOf': choose one of allOf"),
        (plan(entry("CHECK", status="asleep")), "status is 'asleep'"),
        (plan(entry("CHECK", inputAssertions=[{"field": "a", "op": "like"}])), "op is 'like'"),
        (plan(entry("CHECK", inputAssertions=[{"field": "a", "op": "regex", "value": "("}])),
         "is no regular expression"),
        (plan(runtime={"maxTotalGas": "١"}), "must be a whole number"),
        (plan(entry("")), "names no step"),
        (plan(runtime={"stepId": "NOWHERE"}), "no step 'NOWHERE' to start with: CHECK"),
        (plan(runtime={"maxTotalGas": "much"}), "must be a whole number"),
        (plan(testSetup={}), "nothing says what ${addr:vault} is"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_before_anything_is_played(document: Any, said: str) -> None:
    if isinstance(document, dict) and "kind" not in document and "bundles" not in document:
        document = {"kind": "xgr.test-plan", "version": 1, **document}
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(InputError) as caught:
        play_tests({"p.json": text})
    assert said in caught.value.message


def test_a_rule_that_is_nowhere_is_told() -> None:
    file = {**FILE, "bundles": [{"bundleId": "b1", "items": [ORDER, CHECK, GATE]}]}
    with pytest.raises(DefinitionError, match="Done"):
        played(plan(source={"rawBundleJson": json.dumps(file)}))


# -- scenarios -----------------------------------------------------------------------------------

WAITER = {
    "id": "waiter",
    "structure": {
        "ASK": {"rule": "cm:xrc137:Ask", "onValid": {"spawns": ["HOLD"]}},
        "HOLD": {"rule": "cm:xrc137:Hold"},
    },
}
BELL = {"id": "bell", "structure": {"RING": {"rule": "cm:xrc137:Ring"}}}


def named(alias: str, **document: Any) -> dict[str, Any]:
    return {"meta": {"type": "XRC-137", "alias": alias}, "payload": {}, **document}


ASK = named("Ask", onValid={"waitSec": 600})
HOLD = named("Hold", payload={"word": {"type": "string", "default": "none"}},
             rules=["[word] == 'now'"])  # fmt: skip
RING = named(
    "Ring",
    payload={"whom": {"type": "address"}, "session": {"type": "uint64"}},
    rules=["[session] > 0"],
    onValid={"wakeUps": [{"runner": "[whom]", "sessionId": "[session]", "stepId": "HOLD",
                          "payload": {"word": "now"}}]},
)  # fmt: skip


def small(ostc: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    raw = {"format": "xgr-multi-bundle@1", "createdAt": "2026-06-01T00:00:00Z",
           "bundles": [{"bundleId": ostc["id"], "items": [ostc, *rules]}]}  # fmt: skip
    return {
        "title": ostc["id"],
        "source": {"bundleId": ostc["id"], "rawBundleJson": json.dumps(raw)},
        "runtime": {"payload": {}, "maxTotalGas": 0},
        "expectations": {"timeline": [], "finalStatuses": [], "finalStep": "Any"},
        "execution": {"ownerAlias": "seller", "xrc729Executors": ["buyer"]},
    }


def scenario(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "kind": "xgr.test-scenario",
        "version": 1,
        "id": "s",
        "title": "two meet",
        "plans": [{"key": "w", "plan": small(WAITER, ASK, HOLD)},
                  {"key": "b", "plan": small(BELL, RING)}],
        "actors": {"Seller": {"alias": "seller", "signerKind": "alias"},
                   "Buyer": {"alias": "buyer", "signerKind": "alias"}},
        "steps": list(steps),
        **more,
    }  # fmt: skip


def begin(key: str, name: str, starter: str = "Buyer", **payload: Any) -> dict[str, Any]:
    allowed = {
        "default": {"internal": {"allow": ["*"], "fromXRC137": ["$contract.address:b:Ring"]}}
    }
    runtime = {"wakeUp": allowed} if key == "w" else {}
    return {"id": f"start {name}", "type": "startSession", "bundleKey": key, "starter": starter,
            "saveAs": name, "payload": {**payload, **({"__wakeUp": allowed} if key == "w" else {})},
            "runtime": runtime if key != "w" else {}}  # fmt: skip


def held(step: str, status: str, session: str = "W", **more: Any) -> dict[str, Any]:
    return {"id": f"wait {step}", "type": "waitForStep", "session": session, "stepId": step,
            "status": status, "timeoutMs": 60000, "pollMs": 2000, **more}  # fmt: skip


def looks(*timeline: dict[str, Any], session: str = "W", **more: Any) -> dict[str, Any]:
    expect = {"timeline": list(timeline), "finalStatuses": ["done"], "finalStep": "Any", **more}
    return {
        "id": f"look at {session}",
        "type": "assertSession",
        "session": session,
        "expect": expect,
    }


RINGS = {"whom": "$session.owner:W", "session": "$session.id:W"}
MEETING = (
    begin("w", "W"),
    held("HOLD", "waiting"),
    begin("b", "B", starter="Seller", **RINGS),
    looks({"stepId": "RING", "occurrence": 1, "exist": True, "valid": True}, session="B"),
    looks({"stepId": "HOLD", "valid": True, "status": "done"}),
)


def acted(*steps: dict[str, Any], **more: Any) -> Report:
    return play_tests({"s.json": json.dumps(scenario(*steps, **more))})


def test_a_scenario_of_two_sessions_that_meet() -> None:
    report = acted(*MEETING)
    assert report.ok, str(report)
    assert report.results[0].seconds == 0, "it was woken, and did not wait its ten minutes"


def test_without_the_bell_it_waits_and_comes_to_something_else() -> None:
    report = acted(begin("w", "W"), MEETING[-1])
    assert (
        "look at W, HOLD: expected: step HOLD is done, valid; instead: it is done, invalid"
        in str(report)
    )
    assert report.results[0].seconds == 600


def test_a_wait_that_takes_too_long_ends_the_scenario() -> None:
    report = acted(begin("w", "W"), held("HOLD", "done"), looks())
    assert "wait HOLD: expected: step HOLD is done in time; instead: waiting" in str(report)
    assert len(report.results[0].judged) == 2, "what follows is not played"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"id": "x", "type": "wakeSession"}], "there is no step 'wakeSession'"),
        ([held("HOLD", "done")], "there is no session 'W' (none was started yet)"),
        ([begin("z", "Z")], "there is no plan 'z': w, b"),
        ([begin("b", "B", **RINGS)], "no session 'W' was started before"),
        ([begin("b", "B", whom="$actor.address:Nobody")], "there is no actor 'Nobody'"),
        ([begin("b", "B", whom="$contract.address:b:Gone")], "there is no such contract"),
    ],
)  # fmt: skip
def test_what_a_scenario_cannot_mean_is_refused(steps: list[Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        acted(*steps)
    assert said in caught.value.message


# -- the verb ------------------------------------------------------------------------------------


def test_the_verb_ends_with_one_when_a_plan_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bundle.json"
    inside = plan(entry("GATE"), source={"rawBundleJson": ""})
    file.write_text(json.dumps({**FILE, "plans": [inside]}))
    assert command(["test", str(file)]) == 0
    assert "1 of 1 passed" in capsys.readouterr().out
    file.write_text(json.dumps({**FILE, "plans": [{**inside, "expectations": {
        "timeline": [entry("REFUSE")]}}]}))  # fmt: skip
    assert command(["test", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    (failed,) = told["results"][0]["failed"]
    assert (failed["expectation"], failed["came"]) == ("REFUSE", "it did not run; CHECK, GATE did")
    mocks = tmp_path / "mocks.json"
    mocks.write_text('{"api": {"https://rates.example/": {"rate": 2}}, "other": {}}')
    assert command(["test", str(file), "--mocks", str(mocks)]) == 2
    assert "has `api` and `reads`" in capsys.readouterr().err
    assert command(["test", str(tmp_path / "gone.json")]) == 2
