"""What an orchestration is refused for, where, and what is only worth a look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.port import Compiled
from anabranch.dialects.registry import compile_source
from anabranch.net.net import Join

from .orchestrations import RULE, join, orchestration, step, then


def compiled(document: Any, file: str = "o.json") -> Compiled:
    text = document if isinstance(document, str) else json.dumps(document, indent=1)
    return compile_source(text, file=file)


def errors(document: Any) -> list[tuple[int, str]]:
    return [(p.position.line, p.code) for p in compiled(document).errors]


def others(document: Any) -> list[str]:
    return [p.code for p in compiled(document).problems if p.severity != "error"]


def forked(**join_keys: Any) -> dict[str, Any]:
    """A1 spawns G1 and H1 and joins them at J1; keys of the join may be replaced (None: gone)."""
    declared = {**join("J1", "any", "G1", "H1"), **join_keys}
    declared = {key: value for key, value in declared.items() if value is not None}
    return orchestration(A1=step(then("G1", "H1", join=declared)), G1=step(), H1=step(), J1=step())


def join_of(document: Any) -> Join:
    net = compiled(document).net
    assert net is not None, compiled(document).problems
    found = net.steps["A1"].branches[0].join
    assert found is not None
    return found


# -- spellings and defaults ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "k", "means"),
    [
        (None, None, ("any", 1)),
        ("any", None, ("any", 1)),
        ("all", None, ("all", 2)),
        ("kofn", 2, ("quorum", 2)),
        ({"kofn": 2}, None, ("quorum", 2)),
        ({"k": 1}, None, ("quorum", 1)),
    ],
)
def test_modes_in_all_their_spellings(mode: Any, k: Any, means: tuple[str, int]) -> None:
    rule = join_of(forked(mode=mode, k=k)).rule
    assert (rule.mode, rule.k) == means


@pytest.mark.parametrize(
    ("written", "means"), [(None, "drain"), ("drain", "drain"), ("kill", "kill")]
)
def test_waitonjoin_and_its_default(written: str | None, means: str) -> None:
    assert join_of(forked(waitonjoin=written)).rule.losers == means


@pytest.mark.parametrize("when", [None, "any", "both", ""])
def test_when_any_in_all_its_spellings(when: str | None) -> None:
    entry = {"node": "G1"} if when is None else {"node": "G1", "when": when}
    assert join_of(forked(**{"from": [entry]})).slots[0].when == "any"


@pytest.mark.parametrize("when", ["valid", "invalid"])
def test_when_valid_and_invalid(when: str) -> None:
    entries = [{"node": "G1", "when": when}]
    assert join_of(forked(**{"from": entries})).slots[0].when == when


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "codes"),
    [
        ({"id": "x", "structure": {}}, ["no-steps"]),
        ({"id": "x", "structure": []}, ["wrong-type"]),
        ({"id": "x", "structure": {"A1": {}}}, ["missing-key"]),
        ({"id": "x", "structure": {"A1": {"rule": "  "}}}, ["missing-key"]),
        ({"id": "x", "structure": {"A1": {"rule": 7}}}, ["wrong-type"]),
        ({"id": "x", "structure": {"A1": 7}}, ["wrong-type"]),
        (
            {"id": "x", "structure": {"A1": {"rule": RULE, "onValid": {"spawns": ["B"]}}, "B": 7}},
            ["wrong-type"],
        ),
        ({"id": "x", "structure": {"1A": {"rule": RULE}}}, ["bad-name"]),
        ({"id": "x", "structure": {"A" * 65: {"rule": RULE}}}, ["bad-name"]),
        ({"id": "x", "structure": {"A1": {"rule": RULE}}, "strukture": 1}, ["unknown-key"]),
        (orchestration(A1={**step(), "label": "x"}), ["unknown-key"]),
        (orchestration(A1=step({"spawn": "A1"})), ["unknown-key"]),
        (orchestration(A1=step({"continue": "A1"})), ["unknown-key"]),
        (orchestration(A1=step({"spawns": "A1"})), ["wrong-type"]),
        (orchestration(A1=step(then("B1"))), ["unknown-step"]),
        (orchestration(A1=step(then("B1", "C1"))), ["unknown-step", "unknown-step"]),
        (orchestration(A1=step({"spawns": [7]})), ["wrong-type"]),
        (forked(joinid="J9"), ["unknown-step"]),
        (forked(joinid=None), ["missing-key"]),
        (forked(**{"from": None}), ["missing-key"]),
        (forked(**{"from": []}), ["empty-list"]),
        (forked(**{"from": [{"node": "X1"}]}), ["unknown-step"]),
        (forked(**{"from": [{"when": "valid"}]}), ["missing-key"]),
        (forked(**{"from": [{"node": "G1", "when": "maybe"}]}), ["bad-choice"]),
        (forked(**{"from": [{"node": "G1", "weight": 2}]}), ["unknown-key"]),
        (forked(mode="most"), ["bad-choice"]),
        (forked(mode="kofn"), ["missing-key"]),
        (forked(mode="kofn", k=0), ["bad-number"]),
        (forked(mode="kofn", k=3), ["bad-number"]),
        (forked(mode="kofn", k="2"), ["wrong-type"]),
        (forked(mode="kofn", k=True), ["wrong-type"]),
        (forked(mode={"kofn": 3}), ["bad-number"]),
        (forked(mode={"kofn": 1, "k": 2}), ["conflicting-keys"]),
        (forked(mode={"kofn": 1}, k=1), ["conflicting-keys"]),
        (forked(mode={}), ["missing-key"]),
        (forked(mode={"most": 1}), ["unknown-key", "missing-key"]),
        (forked(mode=None, k=2), ["conflicting-keys"]),
        (forked(waitonjoin="wait"), ["bad-choice"]),
        (forked(waitOnJoin="kill"), ["unknown-key"]),
        (orchestration(A1=step({"spawns": ["A1"] * 33})), ["too-many"]),
        (forked(**{"from": [{"node": "G1"}] * 33}), ["too-many"]),
        ({"id": "x", "structure": {f"S{n}": step() for n in range(129)}}, ["too-many"]),
    ],
)
def test_what_is_refused(document: Any, codes: list[str]) -> None:
    assert sorted(code for _, code in errors(document)) == sorted(codes)
    assert compiled(document).net is None


def test_a_document_over_256_kib_is_refused() -> None:
    document = {**orchestration(A1=step()), "meta": "x" * 262_144}
    assert [code for _, code in errors(document)] == ["too-large"]


def test_yaml_is_refused_with_what_to_do() -> None:
    found = compiled("id: x\nstructure:\n  A1: {rule: '0x1'}\n", "o.yaml").errors
    assert [p.code for p in found] == ["syntax"]
    assert "JSON" in found[0].hint


def test_a_key_that_stands_twice_is_refused() -> None:
    text = f'{{"id": "x", "structure": {{"A1": {{"rule": "{RULE}"}}, "A1": {{"rule": "{RULE}"}}}}}}'
    assert errors(text) == [(1, "duplicate-key")]


def test_every_problem_is_told_at_once_with_its_place_and_a_hint() -> None:
    document = forked(joinid="J9", mode="most", waitonjoin="wait")
    found = compiled(document).errors
    assert [p.code for p in found] == ["unknown-step", "bad-choice", "bad-choice"]
    lines = json.dumps(document, indent=1).splitlines()
    for problem in found:
        word = lines[problem.position.line - 1]
        assert any(value in word for value in ("J9", "most", "wait")), str(problem)
        assert problem.hint
    assert "J1" in found[0].hint


# -- what is worth a look --------------------------------------------------------------------


def test_a_join_target_that_is_also_spawned_is_worth_a_look() -> None:
    document = orchestration(
        A1=step(then("G1", "J1", join=join("J1", "any", "G1"))), G1=step(), J1=step()
    )
    assert "join-target-spawned" in others(document)


def test_twins_in_from_are_worth_a_look() -> None:
    assert "duplicate-slot" in others(forked(**{"from": [{"node": "G1"}, {"node": "G1"}]}))
    assert "duplicate-slot" not in others(
        forked(**{"from": [{"node": "G1", "when": "valid"}, {"node": "G1", "when": "invalid"}]})
    )


def test_a_step_that_spawns_itself_is_noted_and_runs() -> None:
    document = orchestration(A1=step(then("A1")))
    assert "self-spawn" in others(document)
    assert compiled(document).net is not None


def test_k_without_effect_is_worth_a_look() -> None:
    assert "ignored-key" in others(forked(mode="all", k=1))


def test_a_join_that_cannot_close_is_an_error_that_still_has_a_meaning_at_run_time() -> None:
    document = orchestration(
        A1=step(then("G1", join=join("J1", "all", "X1"))), G1=step(), X1=step(), J1=step()
    )
    assert [problem.code for problem in compiled(document).errors] == ["join-impossible"]
    assert compiled(document).net is not None


def test_a_document_without_an_id_is_called_after_its_file() -> None:
    found = compiled({"structure": {"A1": step()}}, "polling.json")
    assert "no-name" in [p.code for p in found.problems]
    assert found.net is not None
    assert found.net.name == "polling"


# -- the start step --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "entry", "noted"),
    [
        (orchestration(B1=step(), A1=step(then("B1"))), "A1", False),
        (orchestration(A1=step(then("A1"))), "A1", False),
        (orchestration(A1=step(), B1=step()), "A1", True),
        (orchestration(A1=step(then("B1")), B1=step(then("A1"))), "A1", True),
    ],
)
def test_the_start_step_is_the_one_nothing_leads_to(document: Any, entry: str, noted: bool) -> None:
    net = compiled(document).net
    assert net is not None
    assert net.entry == entry
    assert ("several-starts" in others(document)) is noted
