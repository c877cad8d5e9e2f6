"""The builder's bundle `xgr-multi-bundle@1`, and a rule by itself, run as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc729.bundle import hash_of
from anabranch.dialects.xrc729.multi_bundle import canonical_text, hashes_of
from anabranch.errors import InputError
from anabranch.operations.definitions.bundles import chosen
from anabranch.operations.definitions.prepare import check, prepare

CHECK = {"payload": {"amount": {"type": "int64"}}, "rules": ["[amount] > 0"]}
SHIP = {"payload": {}, "onValid": {"payload": {"shipped": True}}}
STRUCTURE = {
    "CHECK": {"rule": "cm:xrc137:Check", "onValid": {"spawns": ["SHIP"]}, "onInvalid": {}},
    "SHIP": {"rule": "cm:xrc137:Ship"},
}


def rule(alias: str, document: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = {"type": "XRC-137", "alias": alias, "bundleId": "b1"}
    return {"id": alias, "bundleId": "b1", "meta": meta, **document, **more}


def graph(ostc: str = "orders", structure: Any = None, **more: Any) -> dict[str, Any]:
    meta = {"type": "XRC-729", "alias": ostc.title(), "bundleId": "b1"}
    return {"id": ostc, "bundleId": "b1", "meta": meta, "structure": structure or STRUCTURE, **more}


def bundle(*items: dict[str, Any], name: str = "b1") -> dict[str, Any]:
    listed = items or (graph(), rule("Check", CHECK), rule("Ship", SHIP))
    return {"bundleId": name, "items": list(listed)}


def multi(*bundles: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "format": "xgr-multi-bundle@1",
        "createdAt": "2026-06-01T12:00:00Z",
        "bundles": list(bundles or (bundle(),)),
        **more,
    }


def codes(document: dict[str, Any], severity: str = "") -> list[str]:
    found = check(document).problems
    return [one.code for one in found if not severity or one.severity == severity]


def test_the_builders_bundle_runs_as_it_is() -> None:
    assert codes(multi()) == []
    done = anabranch.run(multi(), {"amount": 3})
    assert done.steps["SHIP"]["result"] == {"shipped": True}
    assert anabranch.run(multi(), {"amount": 0}).steps.keys() == {"CHECK"}


def test_its_orchestration_has_the_hash_that_a_registry_would_keep() -> None:
    net = prepare(multi()).net
    stored = {"id": "orders", "structure": {
        "CHECK": {"rule": "cm:xrc137:Check", "onValid": {"spawns": ["SHIP"]}},
        "SHIP": {"rule": "cm:xrc137:Ship"},
    }}  # fmt: skip
    text = json.dumps(stored, separators=(",", ":"))
    assert net.labels["ostcHash"] == hash_of(text)


def test_what_is_said_by_default_is_not_part_of_the_hash() -> None:
    join = {"waitonjoin": "drain", "from": [{"node": "B", "when": "any"}], "mode": "all",
            "joinid": "J"}  # fmt: skip
    steps = {"A": {"onValid": {"join": join, "spawns": ["B"]}, "rule": "0x1", "id": "a"}}
    text = canonical_text({"structure": steps, "id": "x", "meta": {}})
    assert text == (
        '{"id":"x","structure":{"A":{"rule":"0x1","onValid":{"spawns":["B"],'
        '"join":{"joinid":"J","mode":"all","from":[{"node":"B"}]}}}}}'
    )
    assert hash_of(text) in hashes_of({"id": "x", "structure": steps})


def test_a_rule_at_an_address_is_found_by_it() -> None:
    address = "0x" + "Ab" * 20
    structure = {"A": {"rule": address.lower()}}
    deployed = rule("Check", CHECK)
    deployed["meta"]["deployedAddress"] = address
    net = prepare(multi(bundle(graph(structure=structure), deployed))).net
    assert net.steps["A"].work is not None
    program = net.steps["A"].work.program
    assert isinstance(program, RuleProgram)
    assert json.loads(program.text or "") == CHECK, "without what the builder keeps beside it"


def test_a_bundle_with_a_wrong_hash_is_refused() -> None:
    wrong = "0x" + "7" * 64
    (problem,) = check(
        multi(bundle(graph(ostcHash=wrong), rule("Check", CHECK), rule("Ship", SHIP)))
    ).errors
    assert problem.code == "wrong-hash"
    assert wrong in problem.message
    assert "the text hashes to 0x" in problem.message
    beside = bundle(graph(), rule("Check", CHECK, ruleHash=wrong), rule("Ship", SHIP))
    assert codes(multi(beside), "error") == ["wrong-hash"]
    right = hash_of(json.dumps(CHECK, separators=(",", ":")))
    kept = bundle(graph(), rule("Check", CHECK, ruleHash=right), rule("Ship", SHIP))
    assert codes(multi(kept)) == []


def test_a_rule_of_our_own_bundle_with_a_wrong_hash_is_refused() -> None:
    text = json.dumps(CHECK)
    one = {"id": "one", "structure": {"A": {"rule": "cm:xrc137:A"}}}

    def kept(said: str) -> list[str]:
        return codes({"orchestration": one, "rules": {"A": {"text": text, "hash": said}}}, "error")

    assert kept("0x" + "7" * 64) == ["wrong-hash"]
    assert kept(hash_of(text)) == []
    assert kept("0x" + "0" * 64) == [], "zeros pin nothing"


def test_what_strict_importers_ask_for_is_a_warning() -> None:
    loose = multi({"items": [{"id": "orders", "structure": {"A": {"rule": "cm:xrc137:Check"}}},
                             {"name": "Check", **CHECK}]})  # fmt: skip
    del loose["createdAt"]
    found = check(loose)
    assert found.net is not None
    assert {one.code for one in found.problems} == {"incomplete-bundle"}


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (multi(bundle(rule("Check", CHECK))), "one-orchestration", "not 0"),
        (multi(bundle(graph(), graph("again"))), "one-orchestration", "not 2"),
        (multi(bundle(graph(), rule("Check", CHECK), rule("Check", SHIP))),
         "duplicate-label", "'Check'"),
        ({"format": "xgr-multi-bundle@2", "bundles": [bundle()]},
         "bad-choice", "xgr-multi-bundle@2"),
        ({"format": "xgr-multi-bundle@1"}, "missing-key", "`bundles`"),
        (multi(bundle(graph(), rule("Check", {**CHECK, "rulez": []}))),
         "unknown-key", "did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_an_error(document: Any, code: str, words: str) -> None:
    found = [one for one in check(document).errors if one.code == code]
    assert found
    assert words in str(found[0])


def test_a_rule_inside_a_bundle_may_not_be_larger_than_one_by_itself() -> None:
    large = {**CHECK, "onValid": {"payload": {f"k{n}": "x" * 8000 for n in range(17)}}}
    (problem,) = [one for one in check(multi(bundle(
        graph(), rule("Check", large), rule("Ship", SHIP)
    ))).errors if one.code == "too-large"]  # fmt: skip
    assert "131,072" in problem.message
    own = {"orchestration": {"id": "o", "structure": {"A": {"rule": "A"}}}, "rules": {"A": large}}
    assert "too-large" in codes(own, "error")


def test_of_several_orchestrations_one_is_chosen_by_name(tmp_path: Path) -> None:
    other = bundle(
        graph("returns", {"BACK": {"rule": "cm:xrc137:Ship"}}), rule("Ship", SHIP), name="b2"
    )
    text = json.dumps(multi(bundle(), other))
    assert "several-orchestrations" in [one.code for one in check(text + "\n").problems]
    with pytest.raises(InputError, match=r"orders.*returns.*--ostc"):
        prepare(text + "\n")
    for name in ("returns", "b2"):
        net = prepare(chosen(text, "two.json", name), file="two.json").net
        assert (net.name, list(net.steps)) == ("returns", ["BACK"])
    with pytest.raises(InputError, match="no orchestration 'nothing', only orders, returns"):
        chosen(text, "two.json", "nothing")


def test_rules_of_a_bundle_serve_an_orchestration_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(multi()))
    document = {"id": "o", "structure": {"A": {"rule": "cm:xrc137:Ship"}}}
    assert anabranch.run(document, rules=file).steps["A"]["result"] == {"shipped": True}


# -- a rule by itself -----------------------------------------------------------------------------


def test_a_rule_by_itself_is_checked_and_run(tmp_path: Path) -> None:
    file = tmp_path / "check.json"
    file.write_text(json.dumps(CHECK))
    assert check(file).problems == ()
    done = anabranch.run(file, {"amount": 1})
    assert done.steps["RULE"]["status"] == "done"
    file.write_text('{\n "payload": {},\n "rules": ["1 +"]\n}')
    (problem,) = check(file).errors
    assert str(problem).startswith(f"{file}:3:")
    assert problem.code == "bad-expression"


def test_keys_that_tools_put_at_the_top_are_noted_and_misspelt_ones_refused() -> None:
    noted = check({**CHECK, "editor": {"x": 3}, "version": 2})
    assert [(one.code, one.severity) for one in noted.problems] == [("ignored-key", "note")] * 2
    assert codes({**CHECK, "onvalid": {}}, "error") == ["unknown-key"]
    top = {"id": "o", "structure": {"A": {"rule": "0x" + "1" * 40}}, "layout": [], "owner": "x"}
    assert codes(top) == ["ignored-key", "ignored-key"]
    assert codes({**top, "structur": {}}, "error") == ["unknown-key"]


def test_an_address_that_a_plan_fills_in_is_a_warning() -> None:
    read = {"to": "${addr:token}", "function": "get()(uint256)", "saveAs": {}}
    call = {"execution": {"to": "${addr:token}", "function": "set()"}}
    assert codes({"payload": {}, "contractReads": [read], "onValid": call}) == [
        "unresolved-address",
        "unresolved-address",
    ]
