"""An orchestration with its rules: folders, bundles and mappings become one text that suffices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc729.bundle import Bundle, BundleDocument, alias_of, bundle_text, hash_of
from anabranch.errors import DefinitionError, InputError
from anabranch.operations.definitions.bundles import read_rules
from anabranch.operations.definitions.prepare import check, prepare
from dialects.xrc729.orchestrations import join, orchestration, step, then
from operations.sessions.support import NOTHING, bundle, engine, rule, run, until_waiting, waits

ADDRESS = "0xAbCdEf0123456789aBcDeF0123456789abcdef01"
ONE = orchestration("one", A1=step(rule="cm:xrc137:A"))


def program_of(net: Any, name: str = "A1") -> RuleProgram:
    program = net.steps[name].work.program
    assert isinstance(program, RuleProgram)
    return program


def folder(place: Path, **rules: Any) -> Path:
    made = place / "rules"
    made.mkdir()
    for name, content in rules.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (made / f"{name}.json").write_text(text)
    return made


@pytest.mark.parametrize("written", ["cm:xrc137:A", "${addr:A}", "{{A}}", "{{ A }}", "A"])
def test_all_spellings_of_an_alias_mean_the_same(written: str) -> None:
    assert alias_of(written) == "A"
    document = orchestration(A1=step(rule=written))
    net = prepare(document, rules={"A": NOTHING}).net
    assert program_of(net).alias == "A"
    assert json.loads(program_of(net).text or "") == NOTHING


def test_addresses_are_found_whatever_their_case() -> None:
    document = orchestration(A1=step(rule=ADDRESS))
    net = prepare(document, rules={ADDRESS.lower(): NOTHING}).net
    assert program_of(net).address == ADDRESS
    assert program_of(net).text is not None
    by_inside = prepare(document, rules={"A": {**NOTHING, "address": ADDRESS}}).net
    assert program_of(by_inside).text is not None


def test_an_alias_gets_the_address_its_rule_is_deployed_at() -> None:
    net = prepare(ONE, rules={"A": {**NOTHING, "address": ADDRESS}}).net
    assert (program_of(net).alias, program_of(net).address) == ("A", ADDRESS)


def test_a_folder_keeps_texts_to_the_letter(tmp_path: Path) -> None:
    text = '{ "payload" : {} }\n'
    net = prepare(ONE, rules=folder(tmp_path, A=text, B=NOTHING)).net
    assert program_of(net).text == text


def test_what_is_wrong_with_a_rule_is_told_at_its_own_line(tmp_path: Path) -> None:
    rules = folder(tmp_path, A='{\n "payload": {},\n "rulez": []\n}')
    file = tmp_path / "one.json"
    file.write_text(json.dumps(ONE))
    (problem,) = check(file, rules=rules).errors
    assert str(problem).startswith(f"{rules / 'A.json'}:3:2: unknown-key")
    (inside,) = check(bundle(ONE, {"A": {"payload": {}, "rulez": []}})).errors
    assert inside.code == "unknown-key"


def test_the_stored_text_says_the_same_again(tmp_path: Path) -> None:
    rules = folder(tmp_path, A=NOTHING)
    file = tmp_path / "one.json"
    file.write_text(json.dumps(ONE))
    prepared = prepare(file, rules=rules)
    again = compile_source(prepared.definition.source, file=prepared.definition.origin).net
    assert again == prepared.net


def test_a_run_needs_neither_file_again(tmp_path: Path) -> None:
    document = orchestration(A1=step(then("W1"), rule="cm:xrc137:A"), W1=step(rule="cm:xrc137:W"))
    file = tmp_path / "sleeper.json"
    file.write_text(json.dumps(document))
    rules = folder(tmp_path, A=waits(1), W=rule(valid={"x": 1}))

    async def begin() -> str:
        async with engine(tmp_path / "store.db") as made:
            session = await made.start(file, rules=rules)
            await until_waiting(made, session, "W1")
            return session

    session = run(begin())
    for each in (*rules.iterdir(), file):
        each.unlink()

    async def go_on() -> Any:
        async with engine(tmp_path / "store.db") as made:
            return (await made.wait(session)).steps["W1"]["result"]

    assert run(go_on()) == {"x": 1}


def test_rules_of_a_bundle_and_rules_beside_it() -> None:
    text = bundle(ONE, {"A": rule(valid={"from": "bundle"})})
    assert '"bundle"' in (program_of(prepare(text).net).text or "")
    beside = prepare(text, rules={"A": rule(valid={"from": "beside"})})
    assert '"beside"' in (program_of(beside.net).text or "")


def test_a_bundle_file_gives_its_rules_to_another_orchestration(tmp_path: Path) -> None:
    other = orchestration("other", X1=step(rule="cm:xrc137:B"))
    file = tmp_path / "bundle.json"
    file.write_text(bundle(ONE, {"A": NOTHING, "B": rule(valid={"b": 1})}))
    assert '"b"' in (program_of(prepare(other, rules=file).net, "X1").text or "")
    only = tmp_path / "rules.json"
    only.write_text(json.dumps({"rules": {"B": NOTHING}}))
    assert set(read_rules(only)) == {"B"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no such folder or bundle"),
        (b"{", "holds no rules"),
        (b'{"a": 1}', "holds no rules"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_rules_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "rules.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=words):
        prepare(ONE, rules=file)


def test_an_empty_folder_and_rules_for_a_playbook_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no rules"):
        prepare(ONE, rules=folder(tmp_path))
    with pytest.raises(InputError, match="not an orchestration"):
        prepare("workflow:\n- step: a\n  tool: {kind: noop}\n", rules={"A": NOTHING})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"orchestration": 7, "rules": {}}', "wrong-type"),
        ('{"orchestration": "{", "rules": {}}', "syntax"),
        ('{"orchestration": "[]", "rules": {}}', "wrong-type"),
        ('{"orchestration": null, "rules": {}}', "missing-key"),
        ('{"orchestration": {"id": "x"}, "rules": {}}', "missing-key"),
        ('{"orchestration": {"id": "x", "structure": {}}, "rules": []}', "no-steps"),
        ('{"bundle": "xrc1", "orchestration": {"id": "x"}}', "bad-choice"),
        ('{"orchestration": {"id": "x"}, "rulez": {}}', "unknown-key"),
    ],
)
def test_a_bundle_that_is_none(text: str, code: str) -> None:
    compiled = compile_source(text, file="b.json")
    assert compiled.net is None
    assert code in [problem.code for problem in compiled.errors]


def codes(source: Any, **more: Any) -> list[str]:
    return [problem.code for problem in check(source, **more).problems]


def test_rules_that_no_step_names_and_names_that_are_not_there_are_told() -> None:
    assert "unused-rule" in codes(ONE, rules={"A": NOTHING, "B": NOTHING})
    assert codes(ONE) == ["unresolved-rule"]
    (problem,) = check(ONE, rules={"AA": NOTHING}).problems[:1]
    assert "did you mean" in problem.hint or problem.code == "unused-rule"


def test_an_input_that_nothing_gives_is_worth_a_look() -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "any", "G1")), rule="cm:xrc137:A"),
        G1=step(rule="cm:xrc137:G"),
        J1=step(rule="cm:xrc137:J"),
    )
    rules = {
        "A": rule({"n": "int64"}),
        "G": rule({"n": "int64"}, valid={"g": 1}),
        "J": rule({"g": "int64", "n": "int64", "h": "int64", "k": "int64=1"}),
    }
    gaps = [p.message for p in check(document, rules=rules).problems if p.code == "payload-gap"]
    assert len(gaps) == 1
    assert "'h'" in gaps[0]
    assert "payload-gap" not in codes(document, rules={**rules, "J": rule({"g": "int64"})})
    assert "payload-gap" not in codes(document, rules={"A": rules["A"], "J": rules["J"]})


# -- what was read from a chain --------------------------------------------------------------


def loaded(**chain: Any) -> str:
    text = json.dumps(ONE)
    known = {"registry": ADDRESS, "ostcId": "one", "ostcHash": hash_of(text), "block": 7}
    return bundle_text(
        Bundle(BundleDocument(text, "chain"), {"A": BundleDocument("{}", "A")}, {**known, **chain})
    )


def test_a_session_knows_where_its_orchestration_came_from() -> None:
    net = prepare(loaded().replace('"{}"', json.dumps(json.dumps(NOTHING)))).net
    assert net.labels == {
        "ostcId": "one",
        "ostcHash": hash_of(json.dumps(ONE)),
        "registry": ADDRESS,
    }


def test_a_text_that_does_not_match_its_hash_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        prepare(loaded(ostcHash="0x" + "1" * 64))
    assert "wrong-hash" in [problem.code for problem in caught.value.problems]
    assert "wrong-hash" not in codes(loaded(ostcHash="0x" + "0" * 64)), "zero is not pinned"


def test_another_id_than_that_of_the_registry_is_worth_a_look() -> None:
    assert "other-id" in codes(loaded(ostcId="two"))
