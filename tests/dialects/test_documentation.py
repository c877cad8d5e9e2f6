"""Examples compile without a complaint; every keyword and every code is documented."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from anabranch.dialects.noetl.credentials import ENTRIES
from anabranch.dialects.noetl.inputs import KINDS
from anabranch.dialects.noetl.loops import DESCRIPTORS, FANOUT
from anabranch.dialects.noetl.names import RESERVED
from anabranch.dialects.noetl.patches import REDUCERS
from anabranch.dialects.registry import compile_source, load
from anabranch.net.draw import dot, mermaid, svg
from anabranch.net.problems import CODES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PAGE = (ROOT / "docs" / "playbooks.md").read_text(encoding="utf-8")

KEYWORDS = [
    *("apiVersion", "metadata", "keychain", "executor", "workload", "workflow", "workbook"),
    *("entry_step", "final_step", "no_next_is_error", "on_failure", "fail_fast", "held"),
    *("final_failure", "deadline", "step", "desc", "timeout", "on_timeout", "retry", "admit"),
    *("tool", "next", "set_ctx", "join", "lifecycle", "failure", "rules", "on_unmatched", "result"),
    *("spec", "loop", "in", "iterator", "mode", "max_in_flight", "loop_mode", "fanout", "reducers"),
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_compile_without_any_problem(path: Path) -> None:
    compiled = load(path)
    assert compiled.problems == ()
    assert compiled.net is not None
    assert compiled.net.name == path.stem
    for draw in (mermaid, dot, svg):
        assert compiled.net.entry in draw(compiled.net)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6
    assert all(path.read_text().startswith("#") for path in EXAMPLES)


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_every_keyword_has_its_heading(keyword: str) -> None:
    headings = [line for line in PAGE.splitlines() if line.startswith("#")]
    assert any(f"`{keyword}`" in heading for heading in headings), keyword


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_heading_with_all_its_keys(kind: str) -> None:
    section = re.search(rf"^#+ `{kind}`.*?\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert [key for key in KINDS[kind] if f"`{key}`" not in section.group(1)] == []


def test_every_policy_collection_and_secret_is_mentioned() -> None:
    words = [f"`{word}`" for word in (*FANOUT, *ENTRIES)] + [f"`{{{word}: " for word in DESCRIPTORS]
    assert [word for word in words if word not in PAGE] == []


def test_every_problem_code_is_in_the_table() -> None:
    table = PAGE.partition("## Problem codes")[2]
    assert [code for code in CODES if f"| `{code}` |" not in table] == []


def test_every_reducer_and_name_is_mentioned() -> None:
    assert [word for word in (*REDUCERS, *RESERVED) if f"`{word}`" not in PAGE] == []


def test_the_playbooks_of_the_page_compile() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    whole = [block for block in blocks if "workflow:" in block]
    assert whole
    for block in whole:
        assert compile_source(block).errors == (), block


def test_the_steps_of_the_page_compile_without_a_problem() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    parts = [block for block in blocks if "workflow:" not in block]
    assert len(parts) >= 6
    for block in parts:
        step = "- step: s\n" + indent(block, "  ")
        step += "" if "tool:" in block else "  tool: {kind: noop}\n"
        others = "- {step: ship, next: {arcs: []}}\n- {step: tell_somebody, next: {arcs: []}}\n"
        text = f"metadata: {{name: x}}\nworkflow:\n{step}{others if 'ship' in block else ''}"
        assert compile_source(text).problems == (), block
