"""The documentation says what the program does, and the README's examples run."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import msgspec
import pytest
from tools.map import rooms, table

import anabranch
from anabranch.kernel import events
from anabranch.settings import PREFIX, Settings
from anabranch.surfaces.cli.parser import VERBS
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.openapi import document
from syntax import nodes_in

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def test_every_verb_has_its_heading() -> None:
    text = (DOCS / "cli.md").read_text()
    assert [verb for verb in VERBS if f"\n## anabranch {verb}\n" not in text] == []


def test_every_setting_is_listed_with_its_variable() -> None:
    text = (DOCS / "settings.md").read_text()
    for field in dataclasses.fields(Settings):
        assert f"| `{field.name}` | `{PREFIX}{field.name.upper()}` |" in text


def test_every_kind_of_event_is_listed() -> None:
    text = (DOCS / "events.md").read_text()
    kinds = [kind.__struct_config__.tag for kind in events.Event.__args__]
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []


def test_every_public_name_is_in_the_python_page() -> None:
    text = (DOCS / "python.md").read_text() + (DOCS / "settings.md").read_text()
    hidden = {"__version__", "RunResult", "Toolbox"}
    assert [name for name in set(anabranch.__all__) - hidden if name not in text] == []


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def without_fences(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_fences(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in pages():
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", without_fences(page)):
            if "://" in target:
                continue
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(found), f"{page.name}: {target}#{anchor}"


#: The caller, the worker, the operator, the engine; not somebody.
VAGUE = re.compile(r"\b(?:whoever|(?:some|any|every|no)body)\b(?!-)", re.I)
#: Texts and names that are recorded in logs, by the file that writes them: old logs have them too.
RECORDED = {
    "kernel/fans.py": {"there is nobody to ask: ", "there is nobody to ask"},
    "kernel/fulfilment.py": {"somebody"},
    "kernel/gates.py": {"somebody"},
    "kernel/timing.py": {
        "nobody waits for what is still out at the deadline",
        "nobody decided within ",
    },
    "operations/workers/claims.py": {"nobody waits for it"},
    "runtime/jobs/executor.py": {"nobody waits for it", "nobody waits for it any more"},
    "surfaces/cli/backend/identity.py": {"somebody"},
    "testing/virtual/world.py": {"nobody waits"},
}


def test_pages_say_who_acts() -> None:
    for page in pages():
        prose = re.sub(r"`[^`]*`", "", without_fences(page))
        assert VAGUE.findall(prose) == [], page.name


def texts(module: Path) -> set[str]:
    """The string constants of a module, without its docstrings."""
    nodes = nodes_in(module.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in bare)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_messages_say_who_acts() -> None:
    source = ROOT / "src" / "anabranch"
    vague = {
        str(module.relative_to(source)): found
        for module in source.rglob("*.py")
        if VAGUE.search(module.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        and (found := {text for text in texts(module) if VAGUE.search(text)})
    }
    assert vague == RECORDED


def test_templates_scripts_and_scenes_say_who_acts() -> None:
    files = [
        file
        for file in (ROOT / "src" / "anabranch" / "surfaces").rglob("*")
        if file.suffix in (".html", ".js", ".yaml")
    ]
    assert len(files) > 40
    assert [file.name for file in files if VAGUE.search(file.read_text(encoding="utf-8"))] == []


def test_the_description_of_the_api_says_who_acts() -> None:
    """Docstrings of what is sent and answered are its texts."""
    described = msgspec.json.encode(document(ALL_ROUTES)).decode()
    assert '"summary"' in described
    assert VAGUE.findall(described) == []


def test_every_promise_of_the_security_page_names_a_test_that_exists() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 30
    for reference in re.findall(r"`(tests/[^`]+)`", page):
        file, _, name = reference.partition("::")
        assert f"def {name}" in (DOCS.parent / file).read_text(encoding="utf-8"), reference


def test_the_first_playbook_of_the_readme_runs() -> None:
    (playbook,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    result = anabranch.run(playbook, {"item": "anchor"})
    assert (result.status, result.result) == ("completed", {"shop": "south", "price": 11})
    assert result.joins == [
        {"target": "choose", "verdict": "closed", "selected": ["north", "south"], "late": 0}
    ]


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_example_compiles_without_a_warning(file: Path) -> None:
    from anabranch.operations.definitions.prepare import check

    compiled = check(file)
    assert compiled.net is not None
    assert [p for p in compiled.problems if p.severity != "note"] == []


def test_contributing_names_only_files_that_exist_and_what_is_in_them() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "anabranch"
    named = re.findall(r"`((?:\w+/)*[\w.]+\.(?:py|md|toml)|(?:\w+/)+)(?:::(\w+))?`", page)
    assert len(named) > 40
    for file, name in named:
        places = [source / file, ROOT / file, *source.glob(f"*/{file}")]
        found = next((place for place in places if place.exists()), None)
        assert found is not None, file
        if name:
            text = found.read_text(encoding="utf-8")
            assert re.search(rf"^(?:async def|def|class) {name}\b", text, re.M), f"{file}::{name}"


def test_contributing_shows_the_rooms_that_make_map_prints() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\n(room .*?)^```$", page, re.M | re.S)
    printed = table(rooms())
    names = re.compile(r"^ *\w+/(?=  )", re.M)
    assert len(names.findall(printed)) > 40
    assert names.findall(shown) == names.findall(printed)
