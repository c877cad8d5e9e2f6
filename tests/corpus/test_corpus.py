"""Definitions in the style of what people bring: each is checked, run on SQLite and played."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch
from acceptance.cases import Act, fits
from acceptance.clinic import Clinic, open_clinic
from anabranch.net.problems import Problem
from anabranch.operations.definitions.catalog import Draft
from anabranch.operations.definitions.prepare import canonical_text, check
from anabranch.testing import error, ok, play

from .cases import EXPECTED, FOLDER, Case, Expectation, all_cases, definitions, playbooks_that_run

pytestmark = pytest.mark.slow

CASES = all_cases()
SECONDS = 180  # of a very busy machine

# -- where they are run ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    with open_clinic() as made:
        yield made


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One engine for all cases that need nothing of their own."""
    with asyncio.Runner() as runner:
        engine = anabranch.Engine(tmp_path_factory.mktemp("corpus") / "runs.db")
        runner.run(engine.__aenter__())
        yield Stage(runner, engine)
        runner.run(engine.__aexit__())


@dataclass
class Stage:
    """An engine, and the loop that it lives in."""

    runner: asyncio.Runner
    engine: anabranch.Engine


@dataclass
class Outcome:
    """What came of a run, in the engine or in a play."""

    status: str
    result: Any
    steps: dict[str, Any]
    context: Any
    problem: str


@dataclass
class Places:
    """What the names in an expectation stand for."""

    request: pytest.FixtureRequest
    folder: Path

    def expectation(self, case: Case) -> Expectation:
        expected = case.expectation(
            {
                "$TMP": lambda: str(self.folder),
                "$HERE": lambda: str(case.path.parent),
                "$HTTP": lambda: str(self.request.getfixturevalue("clinic").address()),
                "$POSTGRES": lambda: str(self.request.getfixturevalue("postgres")),
            }
        )
        for name, text in expected.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text, encoding="utf-8")
        return expected


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    return Places(request, tmp_path)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


# -- what `check` says -----------------------------------------------------------------------


def test_check_says_what_stands_beside_it(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    wrong: list[str] = []
    for number, case in enumerate(CASES):
        expected = Places(request, tmp_path / str(number)).expectation(case)
        wrong += [f"{case.name}: {told}" for told in differences(case, expected)]
    assert wrong == []


def differences(case: Case, expected: Expectation) -> Iterator[str]:
    """Between what `check` says of it and what it should say."""
    problems = check(case.path, rules=rules_of(case, expected)).problems
    told = "\n".join(str(problem) for problem in problems)
    for severity in ("error", "warning", "note"):
        found = sorted(problem.code for problem in problems if problem.severity == severity)
        wanted = sorted(getattr(expected, f"{severity}s"))
        if found != wanted:
            yield f"{severity}s are {found}, not {wanted}\n{told}"
    for text in expected.says:
        if not any(text in said(problem) for problem in problems):
            yield f"nobody says {text!r}\n{told}"


def said(problem: Problem) -> str:
    return f"{problem.message}; {problem.hint}"


def rules_of(case: Case, expected: Expectation) -> Path | None:
    return None if expected.rules is None else case.path.parent / expected.rules


# -- what comes of it ------------------------------------------------------------------------


def test_it_does_what_stands_beside_it(
    case: Case, places: Places, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = places.expectation(case)
    for name, value in expected.environment.items():
        monkeypatch.setenv(name, value)
    if expected.alone:
        store = places.folder / "store"
        store.mkdir()
        outcome = asyncio.run(by_itself(case, expected, store / "runs.db"))
    else:
        stage: Stage = request.getfixturevalue("together")
        outcome = stage.runner.run(carried_out(stage.engine, case, expected))
    if outcome is None:
        return
    compare(outcome, expected)
    for name, text in expected.written.items():
        assert (places.folder / name).read_text(encoding="utf-8") == text


async def by_itself(case: Case, expected: Expectation, store: Path) -> Outcome | None:
    async with anabranch.Engine(store, participants=expected.participants) as engine:
        drafts = [Draft((case.path.parent / name).read_text(), name) for name in expected.register]
        engine.catalog.register(drafts, now=0)
        return await carried_out(engine, case, expected)


async def carried_out(
    engine: anabranch.Engine, case: Case, expected: Expectation
) -> Outcome | None:
    """None where it was refused, as it should be."""
    async with asyncio.timeout(SECONDS):
        begun = engine.start(
            case.path,
            expected.input,
            step=expected.start,
            labels=expected.labels,
            rules=rules_of(case, expected),
            allow_extra_input=True,
        )
        if expected.errors:
            with pytest.raises(anabranch.DefinitionError):
                await begun
            return None
        run = await begun
        await engine.wait(run, standing=True)
        for one in expected.people:
            await act(engine, run, one)
            await engine.wait(run, standing=True)
        shown = engine.read.show(run)
    problem = (shown["problem"] or {}).get("message", "")
    return Outcome(shown["status"], shown["result"], shown["steps"], shown["context"], problem)


async def act(engine: anabranch.Engine, run: str, one: Act) -> None:
    if one.patch is not None:
        await engine.patch(run, one.patch, actor=one.actor)
    elif one.cancel is not None:
        await engine.cancel(run, reason=one.cancel)
    elif one.decide is not None:
        await engine.decide(
            run,
            one.decide,
            "fulfil" if one.verdict == "fulfil" else "reject",
            actor=one.actor,
            reason=one.reason,
            evidence=one.evidence,
        )


def compare(outcome: Outcome, expected: Expectation) -> None:
    told = f"{outcome.status}: {outcome.result} {outcome.problem}"
    assert outcome.status == expected.status, told
    assert fits(outcome.result, expected.result), told
    for name, result in expected.results.items():
        found = outcome.steps[name]["result"]
        assert fits(found, result), f"{name}: {found}"
    for name, runs in expected.runs.items():
        assert outcome.steps.get(name, {"runs": 0})["runs"] == runs, f"{name}: {outcome.steps}"
    for name, status in expected.statuses.items():
        assert outcome.steps[name]["status"] == status, f"{name}: {outcome.steps[name]}"
    assert fits(outcome.context, expected.context), outcome.context
    assert (expected.problem or "") in outcome.problem, told
    assert bool(outcome.problem) == (expected.problem is not None), told


# -- in virtual time -------------------------------------------------------------------------

PLAYABLE = [case for case in CASES if case.playable]


@pytest.mark.parametrize("case", PLAYABLE, ids=lambda case: case.name)
def test_it_does_the_same_in_a_play(case: Case, places: Places) -> None:
    expected = places.expectation(case)
    expected = msgspec.structs.replace(expected, **expected.played)
    patches: dict[float, dict[str, Any]] = {}
    decisions: dict[str, Any] = {}
    cancel_at = None
    for number, one in enumerate(expected.people, 1):
        if one.patch is not None:
            patches[3600.0 * number] = one.patch
        elif one.cancel is not None:
            cancel_at = 3600.0 * number
        elif one.decide is not None:
            fulfils = one.verdict == "fulfil"
            decisions[one.decide] = ok(one.evidence) if fulfils else error("no", one.reason)
    played = play(
        case.path,
        expected.input,
        expected.start,
        {name: scripted(answer) for name, answer in expected.script.items()},
        decisions=decisions,
        patches=patches,
        cancel_at=cancel_at,
        rules=rules_of(case, expected),
        labels=expected.labels,
    )
    problem = (played.problem or {}).get("message", "")
    compare(
        Outcome(played.status, played.result, played.steps, dict(played.state.ctx), problem),
        expected,
    )


def scripted(answer: Any) -> Any:
    """`{error: kind}` fails; a list is a list of answers; anything else is a result."""
    if isinstance(answer, list):
        return [scripted(each) for each in answer]
    if isinstance(answer, dict) and set(answer) == {"error"}:
        return error(answer["error"])
    return ok(answer)


# -- written again ---------------------------------------------------------------------------

PLAYBOOKS = playbooks_that_run()


def test_fmt_gives_a_text_that_says_the_same_and_stays(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    wrong: list[str] = []
    for number, case in enumerate(PLAYBOOKS):
        folder = tmp_path / str(number)
        folder.mkdir()
        expected = Places(request, folder).expectation(case)
        wrong += [f"{case.name}: {told}" for told in changes(case, expected, folder)]
    assert wrong == []


def changes(case: Case, expected: Expectation, folder: Path) -> Iterator[str]:
    """What formatting it changes, and should not."""
    _, written = canonical_text(case.path)
    copy = folder / case.path.name
    copy.write_text(written, encoding="utf-8")
    if canonical_text(copy)[1] != written:
        yield "formatting it again changes it"
    compiled = check(copy)
    if compiled.errors:
        yield f"errors: {compiled.errors}"
    left = sorted(code for code in expected.warnings if code != "old-spelling")
    found = sorted(one.code for one in compiled.problems if one.severity == "warning")
    if found != left:
        yield f"warnings are {found}, not {left}"
    before, after = check(case.path).net, compiled.net
    if before is None or after is None:
        yield "it has no net"
    elif [one.barrier for one in after.steps.values()] != [
        one.barrier for one in before.steps.values()
    ]:
        yield "its steps wait for something else"


# -- the corpus itself -----------------------------------------------------------------------


def test_every_definition_says_what_is_expected_of_it_or_is_a_part_of_another() -> None:
    alone = set(definitions()) - {case.path for case in CASES}
    assert {path.parent.name for path in alone} <= {"parts"}, alone
    said_of = {path.name.removesuffix(EXPECTED) for path in FOLDER.rglob(f"*{EXPECTED}")}
    assert said_of == {case.path.stem for case in CASES}


def test_every_expectation_begins_with_the_usage_it_stands_for() -> None:
    assert [case.name for case in CASES if len(case.expectation().about) < 20] == []


def test_something_is_expected_of_every_run() -> None:
    idle = Expectation(about="")
    fields = ("status", "result", "results", "runs", "statuses", "context", "problem", "written")
    for each in CASES:
        expected = each.expectation()
        said_so = any(getattr(expected, name) != getattr(idle, name) for name in fields)
        assert expected.errors or said_so, f"{each.name} would pass whatever came of it"
