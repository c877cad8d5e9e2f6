"""Documents that are too much are refused early, with the limit named; places are right."""

from __future__ import annotations

import json
import time
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain

from .support import places, read


def billion_laughs(levels: int = 12) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    return "\n".join(lines)


def test_fifty_megabytes_are_refused_before_parsing() -> None:
    text = "a: " + "x" * 50_000_000
    began = time.thread_time()
    document = read(text)
    assert time.thread_time() - began < 1
    assert places(document.problems) == [(1, 1, "too-large")]
    assert "50,000,003" in document.problems[0].message
    assert "bytes_max is 8,388,608" in document.problems[0].message


def test_exploding_aliases_are_refused_early() -> None:
    began = time.thread_time()
    document = read(billion_laughs())
    assert time.thread_time() - began < 1
    assert [problem.code for problem in document.problems] == ["too-many-values"]
    assert "values_max" in document.problems[0].message
    assert document.root is None


def test_aliases_that_nest_deeper_than_they_look_are_refused() -> None:
    lines = ["a0: &a0 x"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150)]
    assert [p.code for p in read("\n".join(lines)).problems] == ["too-deep"]


def test_deep_nesting_is_refused_in_both_languages() -> None:
    assert places(read("[" * 10_000).problems) == [(1, 102, "too-deep")]
    assert [p.code for p in read("- " * 10_000 + "x").problems] == ["too-deep"]
    assert [p.code for p in read('{"a":' * 10_000, "x.json").problems] == ["too-deep"]
    assert [p.code for p in read("{a: " * 10_000, "x.yaml").problems] == ["too-deep"]


def test_just_within_the_limits_is_fine() -> None:
    assert read("[" * 100 + "]" * 100).problems == ()
    assert read("[1, 2, 3]", values_max=4).problems == ()
    assert [p.code for p in read("[1, 2, 3]", values_max=3).problems] == ["too-many-values"]
    assert read("abc: 1", bytes_max=6).problems == ()
    assert [p.code for p in read("abc: 12", bytes_max=6).problems] == ["too-large"]


# -- places, for any document ----------------------------------------------------------------

words = st.text("abcxyz_é😀-", min_size=1, max_size=6).filter(lambda word: word[0] not in "-_")
scalars = words | st.integers(-999, 999) | st.booleans() | st.none()
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)
roots = st.dictionaries(words, documents, min_size=1, max_size=5)


def scalars_in(node: Node) -> list[Scalar]:
    match node:
        case Scalar():
            return [node]
        case Items():
            return [leaf for item in node for leaf in scalars_in(item)]
        case Fields():
            return [leaf for item in node.fields.values() for leaf in scalars_in(item)]


def keys_in(node: Node) -> list[tuple[str, int, int]]:
    match node:
        case Scalar():
            return []
        case Items():
            return [key for item in node for key in keys_in(item)]
        case Fields():
            own = [(key, at.line, at.column) for key, at in node.keys.items()]
            return own + [key for item in node.fields.values() for key in keys_in(item)]


def check_places(text: str, root: Node) -> None:
    """Whatever stands at a place is what was read there."""
    lines = text.split("\n")
    for key, line, column in keys_in(root):
        here = lines[line - 1][column - 1 :]
        assert here.startswith((key, f'"{key}"', f"'{key}'", json.dumps(key)))
    for leaf in scalars_in(root):
        here = lines[leaf.position.line - 1][leaf.position.column - 1 :].lstrip("'\"")
        if isinstance(leaf.value, str):
            assert here.startswith(leaf.value)
        elif isinstance(leaf.value, bool) or leaf.value is None:
            assert here[:4] in ("true", "fals", "null", "")
        else:
            assert here.startswith(str(leaf.value))


@settings(max_examples=60, deadline=None)
@given(roots, st.sampled_from([None, False, True]))
def test_yaml_places_are_right(value: dict[str, Any], flow: bool | None) -> None:
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=flow, width=10_000)
    document = read("# comment\n" + text)
    assert document.problems == ()
    assert document.root is not None
    assert plain(document.root) == value
    check_places("# comment\n" + text, document.root)


@settings(max_examples=60, deadline=None)
@given(roots, st.sampled_from([None, 0, 2, "\t"]))
def test_json_places_are_right(value: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    document = read(text, "x.json")
    assert document.problems == ()
    assert document.root is not None
    assert plain(document.root) == value
    check_places(text, document.root)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text("{}[]:,\"'-&*!|>#%@ \n\tab01", max_size=60))
def test_any_text_is_a_document_or_a_problem(text: str) -> None:
    document = read(text)
    assert document.root is not None or document.problems
    for problem in document.problems:
        assert problem.position.line >= 1
        assert problem.position.column >= 1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_a_problem(data: bytes) -> None:
    document = read(data)
    assert document.root is not None or document.problems
