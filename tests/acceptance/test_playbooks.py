"""Acceptance playbooks do what stands beside them: in the engine, in a play, and after `fmt`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import anabranch
from anabranch.kernel.summary import loops_of
from anabranch.operations.definitions.prepare import canonical_text, check
from anabranch.surfaces.cli.output.exit_codes import EXIT
from anabranch.testing import error, ok, play
from hangs import HANG_SECONDS

from .cases import FOLDER, Act, Case, Expectation, all_cases, fits
from .clinic import Clinic, open_clinic

CASES = all_cases()


@anabranch.tool("acceptance_price")
def price(item: str, amount: int = 1) -> dict[str, Any]:
    return {"item": item, "total": 3 * amount}


INSIDE = frozenset({"noop", "python", "decision", "workbook"})


@pytest.fixture(scope="session")
def clinic() -> Iterator[Clinic]:
    with open_clinic() as made:
        yield made


@dataclass
class Stage:
    """Where a case is run: fresh folders, a fresh prefix of the clinic, a database."""

    request: pytest.FixtureRequest
    root: Path
    made: int = 0

    def expectation(self, case: Case) -> tuple[Expectation, Path]:
        self.made += 1
        folder = self.root / str(self.made)
        folder.mkdir()
        places = {
            "$TMP": lambda: str(folder),
            "$HERE": lambda: str(case.path.parent),
            "$HTTP": lambda: str(self.request.getfixturevalue("clinic").address()),
            "$POSTGRES": lambda: str(self.request.getfixturevalue("postgres")),
        }
        found = case.expectation(places)
        for name, text in found.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return found, folder


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return Stage(request, tmp_path)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


# -- in the engine ---------------------------------------------------------------------------


@dataclass
class Outcome:
    """A run, in the engine or in a play, reduced to what is compared."""

    status: str
    result: Any
    steps: dict[str, Any]
    context: dict[str, Any]
    loops: list[dict[str, Any]]
    joins: list[dict[str, Any]]
    problem: str
    waited_for: str


async def act(engine: anabranch.Engine, run: str, one: Act) -> None:
    if one.patch is not None:
        await engine.patch(run, one.patch, actor=one.actor)
    elif one.cancel is not None:
        await engine.cancel(run, reason=one.cancel)
    elif one.signal is not None:
        await engine.signal(run, one.signal, one.payload, actor=one.actor)
    else:
        assert one.decide is not None
        assert one.verdict in ("fulfil", "reject")
        await engine.decide(
            run,
            one.decide,
            "fulfil" if one.verdict == "fulfil" else "reject",
            actor=one.actor,
            reason=one.reason,
            evidence=one.evidence,
        )


def carry_out(path: Path, expected: Expectation, store: Path) -> Outcome:
    async def whole() -> Outcome:
        async with asyncio.timeout(HANG_SECONDS), anabranch.Engine(store) as engine:
            run = await engine.start(path, expected.input)
            await engine.wait(run, standing=True)
            waiting = engine.read.explain(run)["waiting"]
            for one in expected.people:
                await act(engine, run, one)
                await engine.wait(run, standing=True)
            shown = engine.read.show(run)
        return Outcome(
            shown["status"],
            shown["result"],
            shown["steps"],
            shown["context"],
            shown["loops"],
            shown["joins"],
            (shown["problem"] or {}).get("message", ""),
            "; ".join(one["waits_for"] for one in waiting),
        )

    return asyncio.run(whole())


def compare(outcome: Outcome, expected: Expectation) -> None:
    runs = {name: step["runs"] for name, step in outcome.steps.items()}
    told = f"{outcome.status}, {runs}: {outcome.result} {outcome.problem}"
    assert (outcome.status, runs) == (expected.status, expected.runs), told
    assert EXIT.get(outcome.status, 1) == expected.exit
    assert fits(outcome.result, expected.result), told
    for name, step in outcome.steps.items():
        assert step["status"] == expected.statuses.get(name, "done"), name
        if name in expected.results:
            assert fits(step["result"], expected.results[name]), f"{name}: {step['result']}"
    assert expected.results.keys() <= outcome.steps.keys()
    assert expected.statuses.keys() <= outcome.steps.keys()
    if expected.context is not None:
        assert fits(outcome.context, expected.context), outcome.context
    last = {loop["step"]: loop for loop in outcome.loops}
    assert last.keys() == expected.fanin.keys(), outcome.loops
    for name, counts in expected.fanin.items():
        assert {key: last[name][key] for key in counts} == counts, f"{name}: {last[name]}"
    assert fits(outcome.joins, expected.joins), outcome.joins
    assert (expected.problem or "") in outcome.problem, outcome.problem
    assert bool(outcome.problem) == (expected.problem is not None), outcome.problem


def run_here(
    path: Path, case: Case, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> tuple[Outcome, Expectation]:
    """Run it on a fresh store and compare everything that can be seen afterwards."""
    expected, folder = stage.expectation(case)
    for name, value in expected.environment.items():
        monkeypatch.setenv(name, value)
    store = stage.root / f"store-{stage.made}"
    store.mkdir()
    outcome = carry_out(path, expected, store / "runs.db")
    compare(outcome, expected)
    assert (expected.waits_for or "") in outcome.waited_for, outcome.waited_for
    for name, text in expected.written.items():
        assert (folder / name).read_text(encoding="utf-8") == text
    for secret in expected.secrets:
        for file in store.iterdir():
            assert secret.encode() not in file.read_bytes(), f"{secret} is in {file.name}"
    return outcome, expected


def test_it_does_what_stands_beside_it(
    case: Case, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(case.path, case, stage, monkeypatch)


def test_it_does_the_same_when_every_value_is_kept_outside_the_log(
    case: Case, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_INLINE_BYTES_MAX", "1")
    run_here(case.path, case, stage, monkeypatch)


# -- what is said about the text -------------------------------------------------------------


def codes(path: Path, severity: str) -> list[str]:
    compiled = check(path, ["acceptance_price"])
    assert compiled.errors == ()
    return sorted(problem.code for problem in compiled.problems if problem.severity == severity)


def test_check_gives_exactly_the_expected_warnings(case: Case, stage: Stage) -> None:
    expected, _ = stage.expectation(case)
    assert codes(case.path, "warning") == sorted(expected.warnings)
    assert codes(case.path, "note") == sorted(expected.notes)


def test_fmt_gives_a_canonical_text_that_means_the_same(
    case: Case, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = stage.expectation(case)
    _, written = canonical_text(case.path)
    copy = stage.root / case.path.name
    copy.write_text(written, encoding="utf-8")
    assert canonical_text(copy)[1] == written, "formatting it again changes it"
    left = [code for code in expected.warnings if code != "old-spelling"]
    assert codes(copy, "warning") == sorted(left)
    if yaml.safe_load(written) != case.document:  # else it is the same document once more
        run_here(copy, case, stage, monkeypatch)


def test_it_begins_with_the_promise_it_shows(case: Case) -> None:
    first = case.text.partition("\n")[0]
    assert first.startswith("# ")
    assert len(first) > 20


# -- in a play -------------------------------------------------------------------------------


def kinds(node: Any) -> Iterator[str]:
    """Every kind of task, wherever it stands, and what reaches outside besides."""
    if isinstance(node, dict):
        if isinstance(node.get("kind"), str):
            yield node["kind"]
        for key, value in node.items():
            if key in ("sql", "pages", "claim", "cursor") and isinstance(value, dict):
                yield key
            yield from kinds(value)
    elif isinstance(node, list):
        for value in node:
            yield from kinds(value)


def stays_inside(case: Case) -> bool:
    if "keychain" in case.document:
        return False
    return set(kinds(case.document.get("workflow"))) <= INSIDE


def playable() -> list[Case]:
    found = []
    for case in CASES:
        expected = yaml.safe_load(case.path.with_suffix(".expect.yaml").read_text())
        wanted = expected.get("play")
        if (stays_inside(case) or "script" in expected) if wanted is None else wanted:
            found.append(case)
    return found


@pytest.mark.parametrize("case", playable(), ids=lambda case: case.name)
def test_it_does_the_same_in_a_play(case: Case, stage: Stage) -> None:
    expected, _ = stage.expectation(case)
    patches: dict[float, dict[str, Any]] = {}
    signals: dict[float, dict[str, Any]] = {}
    decisions: dict[str, Any] = {}
    cancel_at = None
    for number, one in enumerate(expected.people, 1):
        if one.patch is not None:
            patches[3600.0 * number] = one.patch
        elif one.cancel is not None:
            cancel_at = 3600.0 * number
        elif one.signal is not None:
            signals[3600.0 * number] = {one.signal: one.payload}
        elif one.decide is not None:
            answer = ok(one.evidence) if one.verdict == "fulfil" else error("no", one.reason)
            decisions[one.decide] = answer
    played = play(
        case.path,
        expected.input,
        script={name: scripted(answer) for name, answer in (expected.script or {}).items()},
        decisions=decisions,
        patches=patches,
        signals=signals,
        cancel_at=cancel_at,
        tools=["acceptance_price"],
    )
    outcome = Outcome(
        played.status,
        played.result,
        played.steps,
        played.state.ctx,
        loops_of(played.state, 0),
        played.joins,
        (played.problem or {}).get("message", ""),
        "; ".join(one.waits_for for one in played.waiting),
    )
    compare(outcome, expected)
    assert played.unscripted == []
    if expected.seconds is not None:
        assert played.seconds == expected.seconds


def scripted(answer: Any) -> Any:
    """`{error: kind}` fails; a list is a list of answers; anything else is a result."""
    if isinstance(answer, list):
        return [scripted(each) for each in answer]
    if isinstance(answer, dict) and set(answer) == {"error"}:
        return error(answer["error"])
    return ok(answer)


def test_the_suite_is_as_large_as_it_claims() -> None:
    assert len(CASES) >= 48
    assert len(playable()) >= 24
    books = list(FOLDER.rglob("*.yaml"))
    alone = {path for path in books if ".expect" not in path.name} - {c.path for c in CASES}
    assert {path.parent.name for path in alone} <= {"parts"}, alone
