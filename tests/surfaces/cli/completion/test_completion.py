"""The scripts offer what the grammar takes, in real shells and, for all shells, by their text."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.surfaces.cli import parser
from anabranch.surfaces.cli.completion import bash as bash_script
from anabranch.surfaces.cli.completion import fish as fish_script
from anabranch.surfaces.cli.completion import grammar
from anabranch.surfaces.cli.completion import zsh as zsh_script
from anabranch.surfaces.cli.completion.values import values
from anabranch.surfaces.cli.main import command
from anabranch.surfaces.cli.parser import VERBS

from ..support import HELLO, Here
from .shells import Typed, bash, environment, fish, zsh

WORDS = {"examples name": ("hello", "arca/best_of"), "settings names": ("store", "jobs_max")}
ROOT = grammar.read(parser.build(), WORDS)
SCRIPTS = {"bash": bash_script.script, "zsh": zsh_script.script, "fish": fish_script.script}
Shell = Callable[[Path, str, Path], list[str]]
ASK: dict[str, Shell] = {"bash": bash, "zsh": zsh, "fish": fish}


# -- the grammar -----------------------------------------------------------------------------


def parsers() -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Every parser there is, found in another way than the grammar finds them."""
    waiting: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = [((), parser.build())]
    while waiting:
        path, one = waiting.pop()
        yield path, one
        for group in one._subparsers._group_actions if one._subparsers is not None else ():
            assert isinstance(group.choices, dict)
            waiting += [((*path, name), each) for name, each in group.choices.items()]


def test_the_grammar_has_every_verb_action_and_option() -> None:
    known = {each.path: each for each in ROOT.every()}
    assert [child.path for child in ROOT.children] == [(verb,) for verb in VERBS]
    seen = 0
    for path, one in parsers():
        shown = re.findall(r"(?<![\w-])--?[a-z][\w-]*", one.format_usage())
        assert {option.name for option in known[path].options} >= set(shown), path
        seen += len(shown)
    assert len(known) > 150
    assert seen > 1000


def test_choices_and_values_are_told_apart_from_switches() -> None:
    known = {each.words: {option.name: option for option in each.options} for each in ROOT.every()}
    assert known["runs"]["--json"].slot is None
    assert known["runs"]["--status"].slot is not None
    assert "waiting" in known["runs"]["--status"].slot.words
    assert known["runs"]["--status"].repeats
    assert known["run"]["--no-watch"].slot is None
    assert known["run"]["--rules"].slot == grammar.Slot("DIR|BUNDLE", kinds=("folders", "files"))
    assert known["runs"]["--name"].slot == grammar.Slot("name", kinds=("names",))
    assert "--values" not in known["completion"]


def test_runs_are_offered_wherever_a_run_of_the_store_is_wanted() -> None:
    wanting = [each for each in ROOT.every() if any("RUN" in slot.label for slot in each.places)]
    of_store = [each for each in wanting if each.path[0] != "arca"]
    assert len(of_store) > 10
    for each in of_store:
        assert any("runs" in slot.kinds for slot in each.places), each.words
    assert not any("runs" in slot.kinds for each in wanting if each not in of_store
                   for slot in each.places)  # fmt: skip


def test_every_place_for_a_file_or_a_folder_offers_them() -> None:
    for each in ROOT.every():
        slots = [*each.places, *(one.slot for one in each.options if one.slot is not None)]
        for slot in slots:
            if re.search(r"\b(FILE|DIR|FOLDER|F)\b", slot.label):
                assert {"files", "folders"} & set(slot.kinds), (each.words, slot)


# -- the scripts, by their text --------------------------------------------------------------


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_names_every_command_every_option_and_every_choice(shell: str) -> None:
    text = SCRIPTS[shell](ROOT)
    for each in ROOT.every():
        begin = text.index(beginning(shell, each))
        part = text[begin : begin + 20_000]
        for option in each.options:
            assert option.name in part, (each.words, option.name)
            for word in option.slot.words if option.slot is not None else ():
                assert word in text
        for child in each.children:
            assert child.path[-1] in part


def beginning(shell: str, each: grammar.Command) -> str:
    """What a command begins with in the script."""
    if shell == "zsh":
        parts = (word.replace("-", "_") for word in each.path)
        return "__".join(("_anabranch", *parts)) + "() {"
    words = f"' {each.words}'" if each.path else "''"
    return f"        {words})\n" if shell == "bash" else f"        case {words}\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_no_word_or_help_of_ours_ends_a_quote_of_the_script(shell: str) -> None:
    """Marks of the shells in helps and words are quoted: what is generated can always be read."""
    odd = grammar.Command(
        (),
        "",
        (
            grammar.Option("--a", 'it\'s [a] "b": $(c) `d` \\ %s %', None),
            grammar.Option("--b", "", grammar.Slot("it's:[x]", ("one", "two"))),
        ),
        (grammar.Slot("$HOME|'x'", kinds=("files", "runs")),),
        children=(grammar.Command(("v",), "what's $(this)?"),),
    )
    text = SCRIPTS[shell](odd)
    quotes = text.replace("\\\\", "").replace("'\\''", "").replace("\\'", "")
    for line in quotes.splitlines():
        if not line.lstrip().startswith("#") and '"' not in line and "$'" not in line:
            assert line.count("'") % 2 == 0, line


# -- the scripts, in real shells -------------------------------------------------------------


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scripts")
    for name, script in SCRIPTS.items():
        (folder / name).write_text(script(ROOT), encoding="utf-8")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "flows").mkdir(parents=True)
    (folder / "a flow.yaml").write_text(HELLO)
    (folder / "book.json").write_text("{}")
    return folder


def offers(shell: str, scripts: Path, line: str, place: Path) -> list[str]:
    if shutil.which(shell) is None:
        assert shell != "bash", "bash is needed: it is what most people have"
        pytest.skip(f"{shell} is not installed; its script is tested by its text")
    return ASK[shell](scripts / shell, line, place)


EVERY_SHELL = pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])


OFFERED: list[tuple[str, set[str]]] = [
    ("anabranch resu", {"resume"}),
    ("anabranch run", {"run", "runs"}),
    ("anabranch token cr", {"create"}),
    ("anabranch node orders pl", {"place"}),
    ("anabranch run --input-", {"--input-file"}),
    ("anabranch token create --scope ad", {"admin"}),
    ("anabranch token --json create --scope ad", {"admin"}),
    ("anabranch runs --status wai", {"waiting"}),
    ("anabranch runs --limit 5 --status wai", {"waiting"}),
    ("anabranch runs --label token --status wai", {"waiting"}),
    ("anabranch completion f", {"fish"}),
    ("anabranch settings jobs", {"jobs_max"}),
    ("anabranch settings store jobs", {"jobs_max"}),
    ("anabranch examples hel", {"hello"}),
]


@pytest.mark.slow
@EVERY_SHELL
def test_verbs_options_and_choices_are_offered(shell: str, scripts: Path, place: Path) -> None:
    found = [(line, set(offers(shell, scripts, line, place))) for line, _ in OFFERED]
    assert found == OFFERED


@pytest.mark.slow
@EVERY_SHELL
def test_a_choice_is_offered_behind_an_equals_sign(shell: str, scripts: Path, place: Path) -> None:
    (found,) = offers(shell, scripts, "anabranch runs --status=wai", place)
    assert found.removeprefix("--status=") == "waiting"


@pytest.mark.slow
@EVERY_SHELL
def test_nothing_is_offered_for_free_text_and_unknown_verbs(
    shell: str, scripts: Path, place: Path
) -> None:
    assert offers(shell, scripts, "anabranch runs --limit ", place) == []
    assert offers(shell, scripts, "anabranch bogus x", place) == []


@pytest.mark.slow
@EVERY_SHELL
def test_files_and_folders_are_offered(shell: str, scripts: Path, place: Path) -> None:
    found = offers(shell, scripts, "anabranch check boo", place)
    assert [each.strip() for each in found] == ["book.json"]
    folders = offers(shell, scripts, "anabranch run x --catalog f", place)
    assert [each.rstrip("/") for each in folders] == ["flows"]
    if shell == "bash":
        assert bash(scripts / shell, "anabranch check a", place) == ["a flow.yaml"]


@pytest.mark.slow
@EVERY_SHELL
def test_runs_and_names_of_the_store_are_offered(
    shell: str, scripts: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert command(["run", "a flow.yaml", "--run-id", "r7", "--store", "other.db"]) == 0
    line = "anabranch show --store other.db "
    assert set(offers(shell, scripts, line + "r", place)) == {"r7"}
    assert set(offers(shell, scripts, line + "l", place)) == {"last"}
    names = offers(shell, scripts, "anabranch runs --store other.db --name h", place)
    assert set(names) == {"hello"}
    assert offers(shell, scripts, "anabranch show r", place) == []
    assert not (place / "anabranch.db").exists()


@pytest.mark.slow
def test_a_person_presses_tab_in_bash(scripts: Path, place: Path) -> None:
    env = {**environment(place), "PS1": "", "INPUTRC": "/dev/null"}
    with Typed(["bash", "--norc", "--noprofile", "-i"], place, env) as shell:
        shell.write(f'source "{scripts / "bash"}"; echo sourced-$((1+1))\n')
        shell.until(lambda: "sourced-2" in shell.shown)
        shell.write("anabranch completi\t")
        shell.until(lambda: "anabranch completion " in shell.shown)
        shell.write("zs\t")
        shell.until(lambda: "anabranch completion zsh " in shell.shown)


# -- the verb --------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_verb_prints_the_script(here: Here, shell: str) -> None:
    done = here.ok("completion", shell)
    assert f"made by `anabranch completion {shell}`" in done.out
    assert "arca/best_of" in done.out
    assert "retention_days" in done.out
    told = here.ok("completion", shell, "--json").json
    assert (told["shell"], told["script"] + "\n") == (shell, done.out)


def test_the_verb_reads_no_settings_and_asks_for_the_shell(here: Here) -> None:
    here.write("anabranch.toml", "nonsense = 1")
    here.ok("completion", "bash")
    done = here.run("completion")
    assert (done.code, done.out) == (2, "")
    assert "which shell? bash, zsh or fish" in done.err
    assert "invalid choice: 'tcsh'" in here.run("completion", "tcsh").err


# -- values ----------------------------------------------------------------------------------


def test_values_come_with_a_word_about_them(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml", "--run-id", "r1")
    here.write("kept.yaml", HELLO.replace("{name: hello}", "{name: kept, path: etl/kept}"))
    here.ok("register", "kept.yaml")
    runs = "last\thello completed\nr1\thello completed\n"
    assert here.ok("completion", "--values", "runs").out == runs
    assert here.ok("completion", "--values", "names").out == "hello\tnoetl\n"
    assert here.ok("completion", "--values", "paths").out == "etl/kept\tkept\n"


def test_values_make_no_store_and_ask_no_server(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here.ok("completion", "--values", "runs").out == ""
    here.write("not a store.db", "hello")
    assert here.ok("completion", "--values", "runs", "--store", "not a store.db").out == ""
    monkeypatch.setenv("ANABRANCH_STORE", "postgresql://nobody.example/x")
    assert here.ok("completion", "--values", "runs").out == ""
    monkeypatch.setenv("ANABRANCH_SERVER", "http://127.0.0.1:9")
    assert here.ok("completion", "--values", "runs").out == ""
    assert [path.name for path in here.folder.iterdir()] == ["not a store.db"]


ODD_NAMES = ("$(touch pwned)", "`touch pwned`", "a b", "x;y", "-v", "é", "*")


def test_a_name_that_a_shell_could_read_otherwise_is_not_offered(here: Here) -> None:
    for number, name in enumerate(ODD_NAMES):
        here.write("odd.yaml", HELLO.replace("{name: hello}", f'{{name: "{name}"}}'))
        here.ok("run", "odd.yaml", "--run-id", f"r{number}")
    assert here.ok("completion", "--values", "names").out == ""
    told = here.ok("completion", "--values", "runs").out
    offered = {line.partition("\t")[0] for line in told.splitlines()}
    assert offered == {"last", *(f"r{number}" for number in range(len(ODD_NAMES)))}


def test_the_kinds_of_values_are_those_of_the_grammar() -> None:
    assert values.__module__.endswith("completion.values")
    (action,) = [one for one in command_actions("completion") if one.dest == "values"]
    assert tuple(action.choices or ()) == grammar.FROM_STORE


def command_actions(verb: str) -> list[argparse.Action]:
    return next(one._actions for path, one in parsers() if path == (verb,))
