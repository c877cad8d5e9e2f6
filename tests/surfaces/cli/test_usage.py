"""Bad usage: every verb has its help, and whatever is wrong is said in a line, with exit code 2."""

from __future__ import annotations

import argparse
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from anabranch.surfaces.cli import parser
from anabranch.surfaces.cli.parser import VERBS

from ..tables import wrong_rows
from .support import GATE, HELLO, Here, Terminal


def test_every_verb_explains_itself(here: Here) -> None:
    def check(verb: str) -> None:
        done = here.run(verb, "--help")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"usage: anabranch {verb} ")
        assert re.search(rf"^examples?:\n  anabranch {verb}\b", done.out, re.MULTILINE)
        assert "\nexit codes:\n  0    " in done.out
        named = re.findall(r"^    ([a-z]+) ", done.out, re.MULTILINE)
        for action in (named if "ACTION" in done.out else []) or [""]:
            assert "--json" in here.run(*filter(None, (verb, action)), "--help").out, action

    assert wrong_rows(VERBS, check) == []


def test_the_overview_names_every_verb(here: Here) -> None:
    overview = here.run("--help").out
    assert [verb for verb in VERBS if f"\n    {verb}" not in overview] == []


def test_only_verbs_that_end_with_a_run_have_the_exit_codes_of_runs(here: Here) -> None:
    ending = {verb for verb in VERBS if "left waiting or paused" in here.run(verb, "--help").out}
    assert ending == {"run", "resume", "redrive"}
    assert "with --check: something would change" in here.run("fmt", "--help").out


def test_no_verb_shows_the_help(here: Here) -> None:
    done = here.run()
    assert done.code == 2
    assert "usage: anabranch" in done.out


def test_the_version(here: Here) -> None:
    assert here.run("--version").out == f"anabranch {anabranch.__version__}\n"


def test_the_version_is_told_without_loading_the_command_line() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--version']; from anabranch.__main__ import main; main();"
        "print(any(name.startswith('anabranch.surfaces') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"anabranch {anabranch.__version__}\nFalse\n"


def parsers(grammar: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (verbs,) = (a for a in grammar._actions if isinstance(a, argparse._SubParsersAction))
    return dict(verbs.choices)


def test_one_verb_is_read_as_it_is_among_all_of_them() -> None:
    whole = parsers(parser.build())
    assert list(whole) == list(VERBS)
    for verb, found in whole.items():
        (alone,) = parsers(parser.build(verb)).items()
        assert alone[0] == verb
        assert alone[1].format_help() == found.format_help()
    assert list(parsers(parser.build("nothing"))) == list(VERBS)


NOT_IN_THE_GRAMMAR: list[tuple[tuple[str, ...], str]] = [
    (("rum", "x"), "invalid choice: 'rum'"),
    (("rn", "x"), "did you mean run?"),
    (("token", "creat"), "did you mean create?"),
    (
        ("run", "x", "--inputs", "a=1"),
        "unrecognized arguments: --inputs a=1; did you mean --input?",
    ),
    (("run", "x", "--inputs", "a=1"), "usage: anabranch run "),
    (("token", "list", "--jsn"), "usage: anabranch token list "),
    (("run",), "name a definition"),
    (("session",), "the following arguments are required: ACTION"),
    (("show",), "the following arguments are required: RUN"),
    (("decide", "r", "g"), "one of the arguments --fulfil --reject --ask-again is required"),
    (("decide", "r", "g", "--fulfil", "--reject"), "not allowed with argument"),
    (("patch", "r"), "the following arguments are required: K=V"),
    (("graph", "x", "--format", "png"), "invalid choice: 'png'"),
    (("runs", "--status", "happy"), "invalid choice: 'happy'"),
    (("runs", "--limit", "-1"), "invalid number value: '-1'"),
    (("runs", "--limit", "١"), "invalid number value"),
    (("session", "executed", "run:١"), "is no process id"),
    (("events", "r", "--after", "x"), "invalid number value: 'x'"),
    (("run", "x", "--grace", "soon"), "invalid float value: 'soon'"),
    (("run", "x", "--surprise"), "unrecognized arguments: --surprise"),
]


def test_what_is_not_in_the_grammar_is_refused(here: Here) -> None:
    def check(words: tuple[str, ...], told: str) -> None:
        done = here.run(*words)
        assert (done.code, done.out) == (2, "")
        assert told in done.err

    assert wrong_rows(NOT_IN_THE_GRAMMAR, check) == []


@pytest.mark.parametrize("words", [("run",), ("check",), ("simulate",), ("graph",)])
def test_a_file_that_is_not_there_is_named(here: Here, words: tuple[str, ...]) -> None:
    done = here.run(*words, "nowhere.yaml")
    assert done.code == 2
    assert "nowhere.yaml" in done.out + done.err
    assert "there is no such file" in done.out + done.err


LOOKING: list[tuple[str, ...]] = [
        ("runs",), ("show", "last"), ("events", "last"), ("explain", "last"), ("graph", "last"),
        ("resume",), ("resume", "last"), ("redrive", "last"), ("pause", "last"),
        ("cancel", "last"), ("patch", "last", "a=1"), ("decide", "last", "g", "--fulfil"),
    ]  # fmt: skip


def test_verbs_that_look_for_a_run_make_no_store(here: Here) -> None:
    def check(words: tuple[str, ...], more: tuple[str, ...]) -> None:
        done = here.run(*words, *more)
        assert done.code == 2
        told = "there is no store anabranch.db; --store PATH names another"
        assert done.err == f"anabranch: {told}\n"
        if more:
            assert done.json == {"problem": {"code": "not_found", "message": told}}
        else:
            assert done.out == ""
        assert list(here.folder.iterdir()) == []

    rows = [(words, more) for words in LOOKING for more in ((), ("--json",))]
    assert wrong_rows(rows, check) == []


# -- stores that cannot be used --------------------------------------------------------------


def foreign(path: Path) -> None:
    path.write_text("this is a shopping list\n" * 100)


def other_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE songs (name TEXT)")
    db.commit()
    db.close()


def newer(path: Path) -> None:
    anabranch.run(HELLO, store=path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.commit()
    db.close()


def folder(path: Path) -> None:
    path.mkdir()


USING: list[tuple[str, ...]] = [
    ("run", "hello.yaml"), ("runs",), ("resume",), ("show", "last"), ("cancel", "last"),
]  # fmt: skip


@pytest.mark.parametrize("make", [foreign, other_database, newer, folder])
def test_a_store_that_cannot_be_used_is_named_and_left_untouched(here: Here, make: object) -> None:
    here.write("hello.yaml", HELLO)
    path = here.folder / "odd.db"
    make(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else None

    def check(words: tuple[str, ...]) -> None:
        done = here.run(*words, "--store", str(path))
        assert (done.code, done.out) == (2, "")
        assert "odd.db" in done.err
        assert done.err.startswith("anabranch: ")
        assert (path.read_bytes() if path.is_file() else None) == before
        assert [p.name for p in here.folder.iterdir() if p.name.endswith(".lock")] == []

    assert wrong_rows([(words,) for words in USING], check) == []


def test_an_empty_store_name_is_no_name(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    assert here.run("run", "hello.yaml", "--store", "").code == 2
    assert not here.store.exists()


def test_the_store_may_come_from_the_environment(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("hello.yaml", HELLO)
    monkeypatch.setenv("ANABRANCH_STORE", "other.db")
    here.ok("run", "hello.yaml")
    assert (here.folder / "other.db").exists()
    here.ok("run", "hello.yaml", "--store", "third.db")
    assert len(here.ok("runs", "--store", "third.db", "--json").json) == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("JOBS_MAX", "many", "ANABRANCH_JOBS_MAX must be a whole number, not 'many'"),
        ("JOBS_MAX", "0", "ANABRANCH_JOBS_MAX must be above zero, not '0'"),
        ("GRACE_SECONDS", "-1", "ANABRANCH_GRACE_SECONDS must be zero or more, not '-1'"),
        ("GRACE_SECONDS", "nan", "ANABRANCH_GRACE_SECONDS must be zero or more, not 'nan'"),
        ("POLL_SECONDS", "inf", "ANABRANCH_POLL_SECONDS must be zero or more, not 'inf'"),
        ("SYNCHRONOUS", "OFF", "ANABRANCH_SYNCHRONOUS must be FULL or NORMAL, not 'OFF'"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    here.write("hello.yaml", HELLO)
    monkeypatch.setenv(f"ANABRANCH_{name}", value)
    done = here.run("run", "hello.yaml")
    assert (done.code, done.err) == (2, f"anabranch: {told}\n")


def test_a_memory_store_keeps_nothing(here: Here) -> None:
    here.write("gate.yaml", GATE)
    assert here.run("run", "gate.yaml", "--store", ":memory:").code == 4
    assert here.ok("runs", "--store", ":memory:").out == "no runs\n"


def test_a_tool_module_that_breaks_is_told_in_a_line(here: Here) -> None:
    here.write("broken_tools_here.py", "1 / 0\n")
    here.write("hello.yaml", HELLO)
    done = here.run("run", "hello.yaml", "--tools", "broken_tools_here")
    assert done.code == 2
    assert done.err.startswith("anabranch: --tools broken_tools_here: ZeroDivisionError")


@pytest.mark.slow
def test_both_ways_to_call_it_are_the_same(terminal: Terminal) -> None:
    assert terminal.ok("--version").out == f"anabranch {anabranch.__version__}\n"
    terminal.write("hello.yaml", HELLO)
    assert terminal.ok("run", "hello.yaml", "--json").json["result"] == "hello you"
