"""Definitions by path: registered in versions, run and found as children, at a store, at a server
and in a folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch import Engine
from anabranch.errors import NotFound
from anabranch.operations.definitions.catalog import Draft
from anabranch.store.access_ports import AuditFilter
from anabranch.store.sqlite.store import SqliteStore

from ..server_in_thread import served
from ..support import Here


def child(says: str, path: str = "etl/child", version: str = "") -> str:
    more = f", version: {version}" if version else ""
    return f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: child, path: {path}{more}}}
workflow:
  - step: say
    tool: {{kind: noop, result: {says}}}
"""


def parent(how: str, path: str = "etl/parent") -> str:
    return f"""apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: parent, path: {path}}}
workflow:
  - step: begin
    tool: {{kind: playbook, {how}, return_step: say}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {{kind: noop, result: "{{{{ begin.result }}}}"}}
"""


def lone(how: str, path: str = "etl/parent") -> str:
    """The same without what comes after the child."""
    return parent(how, path).partition("    next:")[0].replace(", return_step: say", "")


def result(here: Here, *words: object) -> object:
    done = here.run("run", *words, "--json")
    shown = json.loads(done.out)
    assert done.code == 0, (shown, done.err)
    return shown["result"]


def register(here: Here, name: str, text: str, *more: str) -> dict[str, object]:
    here.write(name, text)
    done = here.run("register", name, "--json", *more)
    assert done.code == 0, done
    (row,) = json.loads(done.out)
    return dict(row)


def test_a_changed_text_is_a_new_version_and_the_same_text_is_the_same_one(here: Here) -> None:
    first = register(here, "child.yaml", child("one"), "--actor", "ann")
    again = register(here, "other.yaml", child("one"))
    second = register(here, "child.yaml", child("two"))
    back = register(here, "child.yaml", child("one"))
    assert [one["version"] for one in (first, again, second, back)] == [1, 1, 2, 3]
    assert [one["new"] for one in (first, again, second, back)] == [True, False, True, True]
    assert again["catalog_id"] == first["catalog_id"] != second["catalog_id"]
    listed = here.run("catalog", "list").out
    assert "etl/child  3" in listed
    versions = json.loads(here.run("catalog", "versions", "etl/child", "--json").out)
    assert [(one["version"], one["created_by"]) for one in versions][-1] == (1, "ann")
    assert here.run("catalog", "show", "etl/child@2").out == child("two")
    assert json.loads(here.run("catalog", "show", "etl/child", "--json").out)["version"] == 3
    assert here.run("catalog", "list", "--prefix", "ops/").out == "the catalog is empty\n"
    store = SqliteStore(here.store, read_only=True)
    try:
        (entry, *_) = store.audit(AuditFilter(action="catalog.create", actor="ann"))
        assert (entry.subject, entry.outcome) == ("child.yaml", "done")
    finally:
        store.close()


def test_a_run_and_a_child_find_a_definition_by_path_version_and_number(here: Here) -> None:
    first = register(here, "child.yaml", child("one"))
    register(here, "child.yaml", child("two"))
    assert result(here, "etl/child") == "two"
    assert result(here, "etl/child@1") == "one"
    assert result(here, "catalog://etl/child@latest") == "two"
    for how, says in (
        ("path: etl/child", "two"),
        ("path: etl/child, version: 1", "one"),
        ('path: etl/child, version: "latest"', "two"),
        ("path: etl/child, version: '{{ workload.n | default(1) }}'", "one"),
        (f"catalog_id: {first['catalog_id']}", "one"),
    ):
        here.write("parent.yaml", parent(how))
        assert result(here, "parent.yaml") == says, how


def test_a_folder_is_a_catalog(here: Here) -> None:
    (here.folder / "flows" / "deep").mkdir(parents=True)
    here.write("flows/one.yaml", child("one", version="1"))
    here.write("flows/two.yaml", child("two", version="2"))
    here.write("flows/deep/lies.yaml", child("lies").replace(", path: etl/child", ""))
    here.write("flows/notes.json", '["no definition"]')
    here.write("parent.yaml", parent("path: etl/child"))
    at = ("--catalog", "flows")
    assert result(here, "parent.yaml", *at) == "two"
    assert result(here, "etl/child@1", *at) == "one"
    assert result(here, "deep/lies", *at) == "lies"
    here.write("flows/two.yaml", child("changed", version="2"))
    assert result(here, "etl/child", *at) == "changed"


def test_a_path_with_two_definitions_is_refused_and_both_are_named(here: Here) -> None:
    (here.folder / "flows").mkdir()
    here.write("flows/a.yaml", child("a"))
    here.write("flows/b.yaml", child("b"))
    refused = here.run("register", "flows/a.yaml", "flows/b.yaml")
    assert refused.code == 2
    assert "the path 'etl/child' has two definitions, flows/a.yaml and flows/b.yaml" in refused.err
    assert here.run("catalog", "list").out == "the catalog is empty\n"
    ambiguous = here.run("run", "etl/child", "--catalog", "flows")
    assert ambiguous.code == 2
    assert "flows/a.yaml and flows/b.yaml" in ambiguous.err
    here.write("parent.yaml", lone("path: etl/child"))
    failed = here.run("run", "parent.yaml", "--catalog", "flows", "--json")
    assert "has two definitions" in json.loads(failed.out)["problem"]["message"]


def test_a_cycle_of_children_is_warned_of_and_ends_at_the_limit_by_name(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("a.yaml", lone("path: etl/b", "etl/a"))
    here.write("b.yaml", lone("path: etl/a", "etl/b"))
    assert here.run("register", "a.yaml").code == 0
    said = here.run("register", "b.yaml")
    assert "child-cycle: warning: it starts itself through its children" in said.err
    assert "etl/b → etl/a → etl/b" in said.err
    assert "etl/a → etl/b → etl/a" in here.run("check", "a.yaml").out
    monkeypatch.setenv("ANABRANCH_CHILD_DEPTH_MAX", "3")
    here.write("a.yaml", lone("path: etl/a, return_result: true", "etl/a"))
    assert here.run("register", "a.yaml").code == 0
    failed = here.run("run", "etl/a", "--json")
    assert "child_depth_max" in json.loads(failed.out)["problem"]["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (child("x").replace(", path: etl/child", ""), "does not say its path"),
        (child("x", path="../up"), "cannot be a path of the catalog"),
        (child("x", path="'a b'"), "cannot be a path of the catalog"),
        (child("x").replace("step: say", "stepp: say"), "missing-key"),
    ],
)
def test_what_cannot_be_registered_says_why_and_nothing_is_kept(
    here: Here, text: str, words: str
) -> None:
    here.write("good.yaml", child("good", path="etl/good"))
    here.write("bad.yaml", text)
    refused = here.run("register", "good.yaml", "bad.yaml")
    assert (refused.code, words in refused.err) == (2, True), refused.err
    assert here.run("catalog", "list").out == "the catalog is empty\n"


def test_a_path_that_nobody_registered_is_named_with_what_to_do(here: Here) -> None:
    register(here, "child.yaml", child("one"))
    for target, words in (
        ("etl/chidl", "did you mean 'etl/child'?"),
        ("etl/child@7", "there are the versions 1 to 1"),
        ("nowhere", "anabranch register FILE"),
        ("catalog-id:99", "the catalog has no definition"),
    ):
        missing = here.run("run", target)
        assert (missing.code, words in missing.err) == (2, True), (target, missing.err)
    assert here.run("catalog", "show", "nope").code == 2
    here.write("parent.yaml", parent("path: nope/child"))
    assert "missing-child" in here.run("check", "parent.yaml").out
    here.write("parent.yaml", parent("path: etl/child"))
    assert "missing-child" not in here.run("check", "parent.yaml").out


def test_the_same_verbs_ask_a_server(here: Here) -> None:
    here.write("child.yaml", child("one"))
    here.write("next.yaml", child("two"))
    here.write("parent.yaml", parent("path: etl/child, version: 1"))
    with served(here.store) as server:
        at = ("--server", server.url)
        for name, version in (("child.yaml", 1), ("child.yaml", 1), ("next.yaml", 2)):
            (row,) = json.loads(here.run("register", name, "--json", *at).out)
            assert (row["path"], row["version"]) == ("etl/child", version)
        assert "etl/child  2" in here.run("catalog", "list", *at).out
        assert here.run("catalog", "show", "etl/child@1", *at).out == child("one")
        assert "2" in here.run("catalog", "versions", "etl/child", *at).out
        assert result(here, "etl/child", *at) == "two"
        assert result(here, "etl/child@1", *at) == "one"
        assert result(here, f"catalog-id:{row['catalog_id']}", *at) == "two"
        assert result(here, "parent.yaml", *at) == "one"
        missing = here.run("run", "etl/nope", *at)
        assert (missing.code, "the catalog has no definition" in missing.err) == (2, True)
        assert "missing-child" not in here.run("check", "parent.yaml", *at).out
        here.write("parent.yaml", parent("path: etl/nope"))
        assert "missing-child" in here.run("check", "parent.yaml", *at).out
        (here.folder / "secret.txt").write_text("not yours")
        outside = here.run("run", str(Path("secret.txt").resolve()), *at)
        assert outside.code == 2


def test_a_program_registers_a_definition_and_starts_it_by_path(tmp_path: Path) -> None:
    async def scenario() -> list[Any]:
        async with Engine(tmp_path / "a.db") as engine:
            for says in ("one", "two"):
                engine.catalog.register([Draft(child(says), "child.yaml")], now=1, actor="ann")
            runs = [await engine.start(target) for target in ("etl/child", "etl/child@1")]
            with pytest.raises(NotFound, match="did you mean 'etl/child'"):
                await engine.start("etl/chidl")
            return [(await engine.wait(run)).result for run in runs]

    assert asyncio.run(scenario()) == ["two", "one"]
