"""Acceptance playbooks do what stands beside them: in the engine, in a play, and after `fmt`.

They run one after another in one engine, and in another one that keeps every value outside the log;
a playbook with secrets, or with an environment of its own, has an engine to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import anabranch
from anabranch.dialects.noetl.checks.error_guards import task_kinds_of
from anabranch.dialects.noetl.error_kinds import KNOWN_TASKS, error_kinds_of
from anabranch.dialects.port import Compiled
from anabranch.kernel.summary import loops_of
from anabranch.operations.definitions.prepare import canonical_text, check
from anabranch.surfaces.cli.output.exit_codes import EXIT
from anabranch.testing import error, ok, play
from hangs import HANG_SECONDS

from .cases import FOLDER, YAML, Act, Case, Expectation, all_cases, fits
from .clinic import Clinic, open_clinic

CASES = all_cases()


@anabranch.tool("acceptance_price")
def price(item: str, amount: int = 1) -> dict[str, Any]:
    return {"item": item, "total": 3 * amount}


INSIDE = frozenset({"noop", "python", "decision", "workbook"})
OUTSIDE = {"ANABRANCH_INLINE_BYTES_MAX": "1"}


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
    failures: list[dict[str, Any]] = field(default_factory=list)


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


@dataclass
class Workplace:
    """An engine that is open, the loop it runs in, and what was set when it was opened."""

    runner: asyncio.Runner
    engine: anabranch.Engine
    settings: dict[str, str]

    def carry_out(self, path: Path, expected: Expectation) -> Outcome:
        return self.runner.run(self._carry_out(path, expected))

    async def _carry_out(self, path: Path, expected: Expectation) -> Outcome:
        engine = self.engine
        async with asyncio.timeout(HANG_SECONDS):
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
            shown["failures"],
        )


@contextmanager
def opened(store: Path, settings: dict[str, str]) -> Iterator[Workplace]:
    with asyncio.Runner() as runner:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            engine = runner.run(anabranch.Engine(store).__aenter__())
        try:
            yield Workplace(runner, engine, settings)
        finally:
            runner.run(engine.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with opened(tmp_path_factory.mktemp("usual") / "runs.db", {}) as workplace:
        yield workplace


@pytest.fixture(scope="module")
def thrifty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """One that keeps every value outside the log."""
    with opened(tmp_path_factory.mktemp("thrifty") / "runs.db", OUTSIDE) as workplace:
        yield workplace


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


def run_here(path: Path, case: Case, stage: Stage, workplace: Workplace) -> None:
    """Run it and compare everything that can be seen afterwards."""
    expected, folder = stage.expectation(case)
    outcome = (
        carry_out_alone(path, expected, stage.root / f"store-{stage.made}", workplace.settings)
        if expected.environment or expected.secrets or "keychain" in case.document
        else workplace.carry_out(path, expected)
    )
    compare(outcome, expected)
    assert [one for one in outcome.failures if not is_foreseen(one, path)] == []
    assert (expected.waits_for or "") in outcome.waited_for, outcome.waited_for
    for name, text in expected.written.items():
        assert (folder / name).read_text(encoding="utf-8") == text


def is_foreseen(failure: dict[str, Any], path: Path) -> bool:
    """Whether guards may ask for the kind of this error without a warning of `check`."""
    net = checked(path).net
    assert net is not None
    tasks = task_kinds_of(net.steps[failure["step"]]) | ({"http"} if net.keychain else set())
    return not tasks <= KNOWN_TASKS or failure["kind"] in error_kinds_of(tasks)


def carry_out_alone(
    path: Path, expected: Expectation, store: Path, settings: dict[str, str]
) -> Outcome:
    """On a fresh store, in which no secret is found afterwards."""
    store.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in expected.environment.items():
            patch.setenv(name, value)
        with opened(store / "runs.db", settings) as workplace:
            outcome = workplace.carry_out(path, expected)
    for secret in expected.secrets:
        for file in store.iterdir():
            assert secret.encode() not in file.read_bytes(), f"{secret} is in {file.name}"
    return outcome


def test_it_does_what_stands_beside_it(case: Case, stage: Stage, usual: Workplace) -> None:
    run_here(case.path, case, stage, usual)


def test_it_does_the_same_when_every_value_is_kept_outside_the_log(
    case: Case, stage: Stage, thrifty: Workplace
) -> None:
    run_here(case.path, case, stage, thrifty)


# -- what is said about the text -------------------------------------------------------------


@cache
def checked(path: Path) -> Compiled:
    return check(path, ["acceptance_price"])


def codes(path: Path, severity: str) -> list[str]:
    compiled = checked(path)
    assert compiled.errors == ()
    return sorted(problem.code for problem in compiled.problems if problem.severity == severity)


def test_check_gives_exactly_the_expected_warnings(stage: Stage) -> None:
    found, wanted = {}, {}
    for case in CASES:
        expected, _ = stage.expectation(case)
        found[case.name] = (codes(case.path, "warning"), codes(case.path, "note"))
        wanted[case.name] = (sorted(expected.warnings), sorted(expected.notes))
    assert found == wanted


def test_fmt_gives_a_canonical_text_that_means_the_same(
    case: Case, stage: Stage, usual: Workplace
) -> None:
    expected, _ = stage.expectation(case)
    _, written = canonical_text(case.path)
    copy = stage.root / case.path.name
    copy.write_text(written, encoding="utf-8")
    assert canonical_text(copy)[1] == written, "formatting it again changes it"
    left = [code for code in expected.warnings if code != "old-spelling"]
    assert codes(copy, "warning") == sorted(left)
    if yaml.load(written, YAML) != case.document:  # else it is the same document once more
        run_here(copy, case, stage, usual)


def test_they_begin_with_the_promise_they_show() -> None:
    first = {case.name: case.text.partition("\n")[0] for case in CASES}
    wrong = {name for name, line in first.items() if not line.startswith("# ") or len(line) <= 20}
    assert wrong == set()


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


@cache
def playable() -> list[Case]:
    found = []
    for case in CASES:
        expected = yaml.load(case.path.with_suffix(".expect.yaml").read_text(), YAML)
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
