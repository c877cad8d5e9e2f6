"""`init`: the project that it makes is sound, and nothing that was there is touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.operations.definitions import new_files, starter
from anabranch.settings_file import load
from hangs import HANG_SECONDS

from ..support import Here

#: Those of this machine take longer to load than the tests to run.
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
FILES = sorted([*starter.FILES, starter.SCHEMA])


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_the_tests_of_a_new_project_pass(here: Here) -> None:
    told = here.ok("init", "my shop", "--json").json
    project = here.folder / "my shop"
    assert files(project) == FILES
    assert told["made"] == [f"my shop/{name}" for name in (*starter.FILES, starter.SCHEMA)]
    assert told["commands"][0] == "cd 'my shop'"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1", **NO_PLUGINS},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^5 passed", done.stdout, re.MULTILINE)


def test_no_group_may_change_what_a_project_runs(here: Here) -> None:
    before = os.umask(0o002)
    try:
        here.ok("init")
    finally:
        os.umask(before)
    assert [name for name in FILES if (here.folder / name).stat().st_mode & 0o022] == []


def test_its_definition_is_checked_and_runs_in_the_store_of_its_settings(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.ok("init")
    monkeypatch.chdir(here.folder)
    settings = load({}).settings
    assert settings.store == str(here.folder / "runs.db")
    assert settings.catalog == str(here.folder / "flows")
    here.ok("check", "--strict", "flows/order.yaml")
    assert here.ok("run", "flows/order.yaml", "--json").json["result"]["total"] == 25
    store = ("--store", "runs.db")
    assert here.run("run", "flows/order.yaml", "--input", "item=boat", *store).code == 4
    here.ok("decide", "last", "approve", "--fulfil", "--actor", "kim", *store)
    assert here.ok("resume", "last", "--json", *store).json["result"]["bought"] == "boat"


def test_the_line_for_editors_names_the_schema_that_is_there(here: Here) -> None:
    here.ok("init", "a")
    flow = here.folder / "a" / "flows" / "order.yaml"
    first = flow.read_text(encoding="utf-8").splitlines()[0]
    named = first.partition("# yaml-language-server: $schema=")[2]
    assert (flow.parent / named).read_bytes() == (here.folder / "a" / starter.SCHEMA).read_bytes()
    assert (flow.parent / named).is_file()


def test_every_command_of_the_makefile_and_the_page_is_one(here: Here) -> None:
    here.ok("init")
    texts = [(here.folder / name).read_text(encoding="utf-8") for name in ("Makefile", "README.md")]
    commands = re.findall(r"^(?:\t\$\(ANABRANCH\)|anabranch) (.+)$", "\n".join(texts), re.MULTILINE)
    assert len(commands) >= 8
    for command in commands:
        assert here.run(command.split()[0], "--help").code == 0, command
    targets = set(re.findall(r"^(\w+):", texts[0], re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", texts[1])) <= targets


@pytest.mark.parametrize("name", FILES)
def test_what_is_there_already_is_left_and_nothing_is_written(here: Here, name: str) -> None:
    there = here.folder / "p" / name
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    done = here.run("init", "p")
    assert (done.code, done.out) == (2, "")
    assert f"{Path('p', name)} is there already" in done.err
    assert files(here.folder) == [f"p/{name}"]
    assert there.read_text() == "mine"


def test_a_link_to_nowhere_is_something_that_is_there(here: Here) -> None:
    (here.folder / "Makefile").symlink_to("gone")
    assert "Makefile is there already" in here.run("init").err
    assert files(here.folder) == []


def test_other_files_of_the_folder_are_no_obstacle(here: Here) -> None:
    here.write("notes.txt", "mine")
    here.ok("init")
    assert files(here.folder) == sorted([*FILES, "notes.txt"])


def test_a_folder_that_is_a_file_is_told(here: Here) -> None:
    here.write("p", "mine")
    done = here.run("init", "p")
    assert done.code == 2
    assert "p" in done.err
    assert (here.folder / "p").read_text() == "mine"


def test_where_the_disk_refuses_half_way_nothing_stays(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = new_files._write, []

    def full(target: Path, file: new_files.NewFile, made: list[Path]) -> None:
        written.append(target)
        if len(written) == 5:
            raise OSError(28, "No space left on device", str(target))
        real(target, file, made)

    monkeypatch.setattr(new_files, "_write", full)
    done = here.run("init", "deep/p")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert list(here.folder.iterdir()) == []
