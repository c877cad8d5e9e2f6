"""`settings`, and what verbs make of an `anabranch.toml`."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from anabranch.settings import Settings

from ..support import HELLO, Here


def origins(here: Here, *words: str) -> dict[str, tuple[object, str, str]]:
    told = here.ok("settings", *words, "--json").json["settings"]
    return {name: (one["value"], one["origin"], one["place"]) for name, one in told.items()}


def test_every_setting_is_shown_with_its_default(here: Here) -> None:
    told = here.ok("settings", "--json").json
    assert told["file"] is None
    assert list(told["settings"]) == [each.name for each in fields(Settings)]
    assert told["settings"]["jobs_max"] == {"value": 10_000, "origin": "default", "place": ""}
    done = here.ok("settings")
    assert done.out.startswith("file: none\nSETTING ")
    assert here.ok("settings", "--changed").out == "file: none\nevery setting has its default\n"


def test_option_goes_before_environment_before_file_before_default(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("anabranch.toml", 'store = "a.db"\njobs_max = 1\nthreads_max = 2\n')
    file = here.folder / "anabranch.toml"
    monkeypatch.setenv("ANABRANCH_JOBS_MAX", "3")
    assert origins(here, "--changed") == {
        "store": (str(here.folder / "a.db"), "file", f"{file}:1"),
        "jobs_max": (3, "environment", "ANABRANCH_JOBS_MAX"),
        "threads_max": (2, "file", f"{file}:3"),
    }
    assert origins(here, "store", "--store", "b.db") == {"store": ("b.db", "option", "--store")}
    found = here.ok("settings", "threads_max").out
    assert found.splitlines()[0] == f"file: {file}"
    assert found.splitlines()[2].split() == ["threads_max", "2", "file", f"{file}:3"]


def test_secrets_are_hidden(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_TOKEN", "hush-hush")
    monkeypatch.setenv("ANABRANCH_STORE", "postgresql://ann:hush-hush@db.example/runs")
    for words in ((), ("--json",)):
        done = here.ok("settings", *words)
        assert "hush-hush" not in done.out + done.err
        assert "(hidden)" in done.out


def test_an_unknown_setting_is_named_with_the_closest(here: Here) -> None:
    done = here.run("settings", "jobs_mx")
    assert (done.code, done.out) == (2, "")
    assert "there is no setting 'jobs_mx'; did you mean 'jobs_max'?" in done.err


def test_verbs_take_the_store_of_the_file_from_any_folder_below(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("anabranch.toml", 'store = "kept/runs.db"')
    here.write("hello.yaml", HELLO)
    for name in ("kept", "flows", ".git"):
        (here.folder / name).mkdir()
    monkeypatch.chdir(here.folder / "flows")
    here.ok("run", "../hello.yaml")
    assert (here.folder / "kept" / "runs.db").exists()
    assert len(here.ok("runs", "--json").json) == 1


def test_a_wrong_file_keeps_every_verb_from_changing_anything(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    file = here.write("anabranch.toml", "jobs_mx = 1")
    done = here.run("run", "hello.yaml", "--json")
    told = f"{here.folder / file}:1: there is no setting 'jobs_mx'; did you mean jobs_max?"
    assert (done.code, done.err) == (2, f"anabranch: {told}\n")
    assert done.json == {"problem": {"code": "settings_file", "message": told}}
    assert not here.store.exists()


def test_verbs_that_need_no_setting_read_no_file(here: Here) -> None:
    here.write("anabranch.toml", "jobs_mx = 1")
    here.ok("examples")
    here.ok("--version")


def test_a_server_in_the_file_is_asked_and_named_where_it_is_in_the_way(here: Here) -> None:
    here.write("anabranch.toml", 'server = "http://127.0.0.1:9"')
    assert "http://127.0.0.1:9" in here.run("runs").err
    done = here.run("store", "check")
    assert done.code == 2
    assert "anabranch.toml" in done.err
    assert "there is no store" in here.run("runs", "--store", "x.db").err


def test_the_version_loads_nothing_of_what_verbs_need() -> None:
    """A person waits for every module that is imported."""
    heavy = {"tomllib", "anabranch.settings_file", "anabranch.operations.settings_view"}
    heavy |= {"anabranch.operations.definitions.examples", "zipfile"}
    code = (
        "import sys; from anabranch.surfaces.cli.main import command; command(['--version']); "
        f"print(sorted(set({sorted(heavy)!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners of files are POSIX's")
def test_a_store_of_another_user_that_is_there_by_chance_has_to_be_named(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("hello.yaml", HELLO)
    store = ("--store", "anabranch.db")
    here.ok("run", "hello.yaml", *store)
    if os.geteuid() == 0:
        os.chown("anabranch.db", 54_321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    done = here.run("resume", "last")
    assert (done.code, done.out) == (2, "")
    assert "anabranch.db in this folder belongs to another user" in done.err
    assert len(here.ok("runs", *store, "--json").json) == 1
