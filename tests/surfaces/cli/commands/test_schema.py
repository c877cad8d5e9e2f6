"""`schema`: printed, written, and the same as the dialects have it."""

from __future__ import annotations

import json

import pytest

from anabranch.dialects.schema import LANGUAGES, schema_of
from anabranch.surfaces.cli.commands.project import arguments
from anabranch.work.kinds.callables import default_toolbox

from ..support import Here


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_schema_of_a_language_is_printed_and_written(here: Here, language: str) -> None:
    printed = here.ok("schema", language)
    assert printed.json == schema_of(language)
    assert here.ok("schema", language, "--json").out.count("\n") == 1
    assert here.ok("schema", language, "--out", "x.json").out == ""
    assert json.loads((here.folder / "x.json").read_text()) == schema_of(language)
    here.ok("schema", language, "--out", "x.json")


def test_without_a_language_they_are_listed(here: Here) -> None:
    assert arguments.LANGUAGES == LANGUAGES
    assert list(here.ok("schema", "--json").json) == list(LANGUAGES)
    assert all(language in here.ok("schema").out for language in LANGUAGES)


def test_tools_of_a_module_are_kinds_and_others_are_not(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(default_toolbox, "_tools", dict(default_toolbox._tools))
    here.write(
        "schema_tools_here.py",
        "import anabranch\n\n\n@anabranch.tool('schema_price')\ndef price(item):\n    return 1\n",
    )
    made = here.ok("schema", "noetl", "--tools", "schema_tools_here").json
    kinds = made["$defs"]["task"]["properties"]["kind"]["enum"]
    assert {"http", "schema_price"} <= set(kinds)
    assert "enum" not in here.ok("schema", "noetl").json["$defs"]["task"]["properties"]["kind"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("yaml",), "invalid choice: 'yaml'"),
        (("noetel",), "did you mean noetl?"),
        (("--out", "x.json"), "which language? noetl, xrc729, xrc137, arca"),
        (("arca", "--tools", "json"), "--tools is for noetl"),
        (("arca", "--out", "no/such/folder.json"), "no/such/folder.json cannot be written"),
    ],
)
def test_bad_usage_is_told(here: Here, words: tuple[str, ...], told: str) -> None:
    done = here.run("schema", *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert list(here.folder.iterdir()) == []
