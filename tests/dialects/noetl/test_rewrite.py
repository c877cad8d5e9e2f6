"""`fmt`: the same net in canonical v10, the same text the second time, comments at their place."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.dialects.nodes import Fields
from anabranch.dialects.noetl.respell.rewrite import canonical
from anabranch.dialects.registry import compile_source
from anabranch.dialects.source import read_source
from anabranch.dialects.yaml_comments import Comments
from anabranch.dialects.yaml_writer import YamlWriter
from anabranch.errors import DefinitionError
from anabranch.net.problems import Position
from seeds import examples

from ..support import shape, value_of
from .full_playbook import FULL, PATHS, changed, odd

ROOT = Path(__file__).parents[3]
PLAYBOOKS = sorted(
    file
    for folder in ("examples", "tests/acceptance")
    for file in (ROOT / folder).rglob("*.y*ml")
    if "workflow:" in file.read_text(encoding="utf-8")
)


def check(text: str, file: str = "x.yaml") -> str:
    """Rewrite; the text must be stable and compile to the same net."""
    written = canonical(text, file)
    assert canonical(written, file) == written
    before = compile_source(text, file=file, any_tool=True)
    after = compile_source(written, file=file, any_tool=True)
    assert shape(before.net) == shape(after.net)
    assert len(before.errors) == len(after.errors)
    assert [p for p in after.problems if p.code == "old-spelling"] == []
    return written


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_playbook_here_means_the_same_afterwards(path: Path) -> None:
    check(path.read_text(encoding="utf-8"), path.name)


def test_the_full_playbook_means_the_same_afterwards() -> None:
    check(json.dumps(FULL))


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from(PATHS), odd, st.booleans())
def test_odd_playbooks_mean_the_same_or_are_refused(path: Any, value: Any, rename: bool) -> None:
    text = json.dumps(changed(path, value, rename=rename))
    try:
        canonical(text, "x.yaml")
    except DefinitionError:
        return
    check(text)


A = """
workflow:
  - step: a
    when: "{{ ctx.go }}"
    spec: {next_mode: inclusive}
    tool:
      - get:
          kind: http
          url: u
          eval:
            - {expr: "{{ outcome.status == 'success' }}", do: continue, set_vars: {x: 1}}
            - else: {do: fail}
    next: [{step: b}, {step: c}]
  - {step: b, tool: {kind: noop}}
  - {step: c, tool: {kind: noop}}
"""
C = """
workflow:
  - step: a
    tool:
      - name: get
        kind: http
        url: u
        input: {q: 1}
        set: {ctx.n: "{{ output.data.n }}", iter.i: 1, k: 2}
    set: {ctx.m: 1}
    next:
      spec: {mode: inclusive}
      arcs: [{step: b, set: {ctx.v: 1}}, {step: c}]
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: d}]}}
  - {step: c, tool: {kind: noop}, next: {arcs: [{step: d}]}}
  - {step: d, tool: {kind: noop}}
"""


def test_version_two_becomes_version_ten() -> None:
    written = check(A)
    for gone in ("eval", "expr", "next_mode", "set_vars", "get:\n"):
        assert gone not in written
    for there in ("admit:", "rules:", "set_iter: {x: 1}", "arcs:", "mode: inclusive"):
        assert there in written


def test_the_later_spelling_becomes_version_ten_with_its_join() -> None:
    written = check(C)
    assert "executor: {spec: {join: all}}" in written
    assert "args: {q: 1}" in written
    assert "set_iter: {i: 1, k: 2}" in written
    assert "set_ctx: {v: 1}" in written
    assert "input" not in written


def test_comments_stay_where_they_belong() -> None:
    text = dedent(
        """\
        # about everything
        metadata: {name: x} # the name
        workflow: # steps
          # about a
          - step: a # its name
            # a gate
            when: ctx.go # open?
            tool:
              kind: python # code
              code: |
                # not a comment
                x = "#"
            # where to
            next: [b] # one
          - {step: b, tool: {kind: noop, message: "a # b"}} # the end
        # last words
        """
    )
    written = check(text)
    for comment in (
        *("# about everything\nmetadata", "# the name", "# steps", "# about a\n  - step: a"),
        *("# its name", "# a gate\n    spec: # open?", "kind: python # code"),
        *("        # not a comment\n", "# where to\n    next:", "# one", "# the end"),
    ):
        assert comment in written, comment
    assert written.endswith("\n# last words\n")
    assert written.count("#") == text.count("#")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_what_is_canonical_stays_as_its_author_laid_it_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert canonical(text, path.name) == text


def test_a_json_playbook_stays_json() -> None:
    written = canonical(json.dumps({"workflow": [{"step": "a", "next": "b"}]}), "x.json")
    assert json.loads(written)["workflow"][0]["next"] == {"arcs": [{"step": "b"}]}


@pytest.mark.parametrize(
    "text", ["{", "a: 1", "[1]", "workflow: [{step: a, step: b}]", "", "plan: {steps: []}"]
)
def test_what_is_no_playbook_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError):
        canonical(text)


@pytest.mark.parametrize("ends", ["", "\n", "\n\n", "\n\n\n"])
@pytest.mark.parametrize("place", ["workload", "step", "last"])
def test_a_text_keeps_its_line_ends_wherever_it_stands(ends: str, place: str) -> None:
    texts = dict.fromkeys(("workload", "step", "last"), "x")
    texts[place] = "one\ntwo" + ends
    playbook = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "t"},
        "workload": {"text": texts["workload"]},
        "workflow": [
            {"step": "start", "tool": "noop", "desc": texts["step"], "next": [{"step": "end"}]},
            {"step": "end", "tool": "noop", "desc": texts["last"]},
        ],
    }
    written = check(json.dumps(playbook))
    again = value_of(written)
    assert again["workload"]["text"] == texts["workload"]
    assert [step["desc"] for step in again["workflow"]] == [texts["step"], texts["last"]]


@pytest.mark.parametrize("number", [0.00001, 1e16, -1.5e-9, 1e300, 0.5, 3.0, 123456789.25])
def test_numbers_are_written_as_every_yaml_reader_takes_them(number: float) -> None:
    root = read_source(json.dumps({"n": number, "l": [number]}), file="x.json").root
    assert isinstance(root, Fields)
    written = YamlWriter(Comments()).write(root)
    assert yaml.safe_load(written) == value_of(written) == {"n": number, "l": [number]}


@pytest.mark.parametrize("word", [".5_0", "1e-05", "1_000", "0777", "12:30", "0b1", ".inf", "on"])
def test_texts_that_other_readers_take_for_something_else_are_quoted(word: str) -> None:
    root = read_source(json.dumps({"t": word}), file="x.json").root
    assert isinstance(root, Fields)
    assert yaml.safe_load(YamlWriter(Comments()).write(root)) == {"t": word}


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    # The reader takes no numbers that JSON cannot hold.
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.text(), json_like, min_size=1, max_size=5))
@example({"": "\ufffe"})
@example({"\uffff": ["\ufeff"]})
def test_whatever_is_written_is_read_as_the_same(value: dict[str, Any]) -> None:
    document = read_source(json.dumps(value), file="x.json")
    root: Any = document.root
    if document.problems or root is None:
        return
    written = YamlWriter(Comments()).write(root)
    assert value_of(written) == value_of(json.dumps(value), "x.json")
    assert isinstance(root.position, Position)
