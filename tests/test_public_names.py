"""What `import anabranch` offers: exactly what is documented, and all of it typed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import anabranch
from anabranch.net.problems import Problem  # named in annotations only, to keep errors light
from anabranch.operations.definitions.aliases import Aliases
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.participants import Participants
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.operations.schedules.schedules import Schedules
from anabranch.operations.sessions.sessions import Sessions
from anabranch.operations.triggers.triggers import Triggers
from hangs import HANG_SECONDS

DOCUMENTED = {
    # docs/python.md
    "run", "tool", "Client", "Engine", "RunResult", "Toolbox",
    # docs/python.md, Errors
    "AnabranchError", "DefinitionError", "InputError", "MissingRequirements",
    "NotFound", "Refused",
    "StoreError", "StoreInUse", "UnusableStore",
    # docs/settings.md
    "Settings", "load_settings",
    "__version__",
}  # fmt: skip

PUBLIC = sorted(DOCUMENTED - {"__version__"})
ENGINE = {
    *(
        "start",
        "wait",
        "decide",
        "patch",
        "pause",
        "resume",
        "cancel",
        "signal",
        "retry",
        "skip",
        "plan_redrive",
        "redrive",
        "events",
    ),
    *("read", "sessions", "credentials", "catalog", "schedules", "triggers", "aliases"),
}


def test_the_names_are_exactly_those_that_are_documented() -> None:
    assert set(anabranch.__all__) == DOCUMENTED
    assert len(anabranch.__all__) == len(DOCUMENTED)
    assert all(hasattr(anabranch, name) for name in anabranch.__all__)


def test_the_engine_offers_exactly_what_is_documented() -> None:
    assert {name for name in dir(anabranch.Engine) if not name.startswith("_")} == ENGINE


def test_every_error_is_an_anabranch_error_with_a_code_and_a_message() -> None:
    errors = [
        thing
        for name in anabranch.__all__
        if inspect.isclass(thing := getattr(anabranch, name)) and issubclass(thing, Exception)
    ]
    assert len(errors) == 9
    for error in errors:
        assert issubclass(error, anabranch.AnabranchError)
        made = error([]) if error is anabranch.DefinitionError else error("what is wrong")
        assert made.code
        assert isinstance(made.message, str)


def functions_of(name: str) -> Iterator[Any]:
    """The public functions behind a public name."""
    thing = getattr(anabranch, name)
    if not inspect.isclass(thing):
        yield thing
        return
    for member, value in vars(thing).items():
        if member.startswith("_") and member not in ("__init__", "__aenter__", "__aexit__"):
            continue
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function):
            yield function


#: Types of signatures whose modules are loaded with their first use (decision 47).
LOADED_LATER = {
    "Aliases": Aliases,
    "Catalog": Catalog,
    "Participants": Participants,
    "Problem": Problem,
    "RedrivePlan": RedrivePlan,
    "Schedules": Schedules,
    "Sessions": Sessions,
    "Triggers": Triggers,
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_is_typed_and_its_types_can_be_resolved(name: str) -> None:
    for function in functions_of(name):
        hints = get_type_hints(function, localns=LOADED_LATER)
        parameters = [p for p in inspect.signature(function).parameters if p != "self"]
        assert [p for p in parameters if p not in hints] == [], function
        assert "return" in hints, function


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name: str) -> None:
    thing = getattr(anabranch, name)
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return  # the module of errors draws them as a tree
    assert inspect.getdoc(thing), name


def test_the_types_are_shipped() -> None:
    assert (Path(anabranch.__file__).parent / "py.typed").exists()


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert anabranch.__version__ == version("anabranch")


PROGRAM = """
import anabranch


@anabranch.tool("price", blocking=False)
def price(item: str, amount: int = 1) -> dict[str, int]:
    return {item: 3 * amount}


async def main() -> None:
    async with anabranch.Engine("orders.db", settings=anabranch.Settings(jobs_max=3)) as engine:
        run: str = await engine.start("approve.yaml", {"order": 7}, labels={"a": "b"})
        async for event in engine.events(run, after=3):
            number: int = event.seq
            if event.kind == "gate.opened":
                await engine.decide(run, event.fields["gate"], "fulfil", evidence={"n": number})
        await engine.patch(run, {"x": 1}, reducer="sum")
        result: anabranch.RunResult = await engine.wait(run, standing=True)
        status: str = result.status
        price("x", 2)["x"] + 1
        engine.read.show(run), status


try:
    anabranch.run({"workflow": []})
except anabranch.DefinitionError as error:
    print([str(problem) for problem in error.problems])
"""

ROOT = Path(__file__).parent.parent

WRONG = {
    'await engine.decide("r", "g", "maybe")': "Literal['fulfil', 'reject', 'ask_again']",
    'await engine.patch("r", {}, reducer="mean")': "Literal",
    'await engine.start(7)': 'expected "str',
    'price(1)': 'expected "str"',
}  # fmt: skip


@pytest.mark.slow
def test_a_program_is_checked_strictly_against_the_public_types(tmp_path: Path) -> None:
    """The decorated function keeps its own type; a wrong word is found before anything runs."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    wrong = tmp_path / "wrong.py"
    calls = "\n".join(f"    {call}" for call in WRONG)
    wrong.write_text(f"{PROGRAM}\nasync def wrong(engine: anabranch.Engine) -> None:\n{calls}\n")
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program, wrong],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        cwd=ROOT,  # where `make lint` has left what it knows of our modules
        check=False,
    ).stdout
    errors = [line for line in told.splitlines() if ": error:" in line]
    assert [line for line in errors if line.startswith(f"{program}:")] == []
    assert len(errors) == len(WRONG), told
    for words, line in zip(WRONG.values(), errors, strict=True):
        assert words in line
