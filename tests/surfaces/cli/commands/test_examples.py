"""`examples`: what comes with Anabranch is listed, printed and copied."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from anabranch.operations.definitions import examples

from ..support import Here

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_every_example_is_listed_with_what_to_look_at(here: Here) -> None:
    done = here.ok("examples")
    rows = here.ok("examples", "--json").json
    assert len(rows) >= 15
    for row in rows:
        assert (EXAMPLES / row["file"]).is_file()
        assert row["about"] in done.out
        assert row["commands"]
    names = [row["name"] for row in rows]
    assert {"hello", "arca/best_of", "orchestration/nested", "market/offer"} <= set(names)
    assert len(set(names)) == len(names)


def test_an_example_is_printed_so_that_it_can_be_written_to_a_file(here: Here) -> None:
    done = here.ok("examples", "hello")
    assert done.out == (EXAMPLES / "hello.yaml").read_text()
    assert "anabranch run examples/hello.yaml --input name=Ada" in done.err
    told = here.ok("examples", "hello", "--json").json
    assert (told["name"], told["text"]) == ("hello", done.out)


@pytest.mark.parametrize(
    "name", ["best_of", "best_of.json", "arca/best_of", "arca/best_of.json", "examples/arca/quorum"]
)
def test_an_example_has_short_and_long_names(here: Here, name: str) -> None:
    stem = name.rpartition("/")[2].partition(".")[0]
    assert here.ok("examples", name).out == (EXAMPLES / "arca" / f"{stem}.json").read_text()


@pytest.mark.parametrize("name", ["hello", "arca/best_of", "orchestration/second_opinion"])
def test_a_copy_runs_with_the_commands_that_are_told(here: Here, name: str) -> None:
    told = here.ok("examples", name, "--copy", "my place", "--json").json
    for each in told["copied"]:
        file = here.folder / each
        text = file.read_text(encoding="utf-8")  # a busy machine may need more than five seconds
        file.write_text(text.replace('"PT5S"', '"PT1H"').replace('"PT1M"', '"PT2H"'), "utf-8")
    for command in told["commands"]:
        program, *words = shlex.split(command)
        assert program == "anabranch"
        assert here.run(*words).code == 0, command


def test_what_an_example_needs_is_copied_with_it(here: Here) -> None:
    here.ok("examples", "pages", "--copy", "a")
    assert sorted(path.name for path in (here.folder / "a").iterdir()) == [
        "pages.yaml",
        "pages_server.py",
    ]
    here.ok("examples", "second_opinion", "--copy", "b")
    assert (here.folder / "b" / "orchestration" / "rules" / "ORDER.json").is_file()


def test_all_examples_are_copied_with_their_modes_and_without_leftovers(here: Here) -> None:
    done = here.ok("examples", "--copy", "all")
    copied = [Path(line) for line in done.out.splitlines()]
    assert [each.relative_to("all").as_posix() for each in copied] == examples.every_file()
    assert not any("__pycache__" in each.parts for each in copied)
    for each in copied:
        source = EXAMPLES / each.relative_to("all")
        assert (here.folder / each).read_bytes() == source.read_bytes()
        assert os.access(here.folder / each, os.X_OK) == os.access(source, os.X_OK)
    assert "README.md lists them" in done.err


def test_a_file_that_is_there_is_kept_and_nothing_is_copied(here: Here) -> None:
    (here.folder / "a" / "arca").mkdir(parents=True)
    (here.folder / "a" / "arca" / "quorum.json").write_text("mine")
    done = here.run("examples", "best_of", "--copy", "a")
    assert (done.code, done.out) == (2, "")
    assert "quorum.json is there already: nothing was written" in done.err
    kept = [path for path in (here.folder / "a").rglob("*") if path.is_file()]
    assert [path.read_text() for path in kept] == ["mine"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("helo", "did you mean 'hello'?"), ("quorun", "did you mean 'quorum'?"), ("../x", "lists")],
)
def test_an_unknown_example_is_named_with_the_closest(here: Here, name: str, hint: str) -> None:
    done = here.run("examples", name, "--copy", "a")
    assert (done.code, done.out) == (2, "")
    assert f"there is no example {name!r}" in done.err
    assert hint in done.err
    assert list(here.folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(here: Here) -> None:
    here.write("taken", "a file")
    done = here.run("examples", "hello", "--copy", "taken")
    assert (done.code, done.out) == (2, "")
    assert "taken" in done.err
