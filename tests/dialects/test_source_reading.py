"""YAML and JSON as values: what each word means, and each mistake at its place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from anabranch.dialects.nodes import Fields, Items, Scalar, kind_of, plain
from anabranch.dialects.reading import Reading, SourceLimits
from anabranch.dialects.yaml_reader import read_yaml

from .support import places, read, value_of


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x", "x"),
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("yes", True),
        ("On", True),
        ("off", False),
        ("No", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!float 5", 5.0),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z"),
        ("0777", "0777"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("1.2.3", "1.2.3"),
        ("0b101", "0b101"),
        ("y", "y"),
    ],
)
def test_yaml_words(word: str, value: Any) -> None:
    found = value_of(f"a: {word}")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize("key", ["on", "yes", "off", "NO", "true", "2024-05-01", "0777", "12:30"])
def test_keys_stay_the_word_that_was_written(key: str) -> None:
    assert value_of(f"{key}: 1") == {key: 1}


def test_keys_that_are_not_text_are_problems() -> None:
    document = read("1: a\n2.5: b\n~: c\n? [x]\n: d\n'3': e\n")
    assert places(document.problems) == [
        (1, 1, "bad-key"),
        (2, 1, "bad-key"),
        (3, 1, "bad-key"),
        (4, 3, "bad-key"),
    ]
    assert document.root is not None
    assert plain(document.root) == {"3": "e"}


def test_a_template_without_quotes_gets_a_hint() -> None:
    document = read("when: {{ ctx.ready }}\n")
    assert "put it in quotes" in str(document.problems[0])


def test_all_problems_are_collected() -> None:
    document = read("a: 1\na: 2\nb: .nan\nc: *nope\nd: !!set {x}\n9: 1\n")
    assert places(document.problems) == [
        (2, 1, "duplicate-key"),
        (3, 4, "bad-value"),
        (4, 4, "bad-alias"),
        (5, 4, "unknown-tag"),
        (6, 1, "bad-key"),
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n\t- b", (2, 1, "syntax")),
        ("a: b: c", (1, 5, "syntax")),
        ("a: [1, 2", (1, 9, "syntax")),
        ("a: 'x", (1, 6, "syntax")),
        ("- a\nb: c", (2, 1, "syntax")),
        ("a: @b", (1, 4, "syntax")),
        ("a: \x00", (1, 4, "bad-character")),
        ("a: 1\nb: \x07", (2, 4, "bad-character")),
        ("a: 1\n---\nb: 2\n", (2, 1, "several-documents")),
        ("a: &x [*x]", (1, 8, "bad-alias")),
        ("a: &x 1\nb: {<<: *x}", (2, 5, "bad-merge")),
        ("a: !!python/object/apply:os.system [ls]", (1, 4, "unknown-tag")),
        ("a: !local 1", (1, 4, "unknown-tag")),
        ("a: 99999999999999999999", (1, 4, "bad-value")),
        ("a: 1e999", (1, 4, "bad-value")),
        ("a: !!int x", (1, 4, "bad-value")),
        ("", (1, 1, "empty")),
        ("# nothing\n", (1, 1, "empty")),
        ("---\n...\n", (1, 1, "empty")),
    ],
)
def test_yaml_mistakes_have_their_place(text: str, place: tuple[int, int, str]) -> None:
    assert places(read(text).problems) == [place]


def test_tabs_get_the_hint_about_spaces() -> None:
    assert "spaces, not tabs" in read("a:\n\t- b").problems[0].hint


def test_aliases_and_merges() -> None:
    text = "base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\nmany: {<<: [*b, {z: 4}]}\nlist: [*b]\n"
    assert value_of(text) == {
        "base": {"x": 1, "y": 2},
        "use": {"x": 1, "y": 3},
        "many": {"x": 1, "y": 2, "z": 4},
        "list": [{"x": 1, "y": 2}],
    }


# -- JSON ------------------------------------------------------------------------------------


def test_json_values() -> None:
    text = '{"a": [1, -2.5, 1e2, true, false, null, "x\\n\\u00e9\\ud83d\\ude00"], "b": {}}'
    assert value_of(text) == {"a": [1, -2.5, 100.0, True, False, None, "x\né😀"], "b": {}}


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ('{"a": 1, "a": 2}', (1, 10, "duplicate-key"), "remove one"),
        ('{"a": 1,}', (1, 8, "syntax"), "remove the comma"),
        ("[1, 2,\n]", (1, 6, "syntax"), "remove the comma"),
        ("{'a': 1}", (1, 2, "syntax"), "double quotes"),
        ('{"a": 1 // no\n}', (1, 9, "syntax"), "no comments"),
        ('{"a": 1', (1, 8, "syntax"), "ends too early"),
        ('{"a" 1}', (1, 6, "syntax"), "`:`"),
        ('{"a": tru}', (1, 7, "syntax"), ""),
        ("[01]", (1, 3, "syntax"), ""),
        ('["\\x"]', (1, 3, "syntax"), ""),
        ('["a\nb"]', (1, 4, "syntax"), ""),
        ("[1] [2]", (1, 5, "syntax"), "remove it"),
        ("[1e999]", (1, 2, "bad-value"), ""),
        ('{"a": 1\u0661}', (1, 8, "syntax"), ""),
        ('{"a": \u0661}', (1, 7, "syntax"), ""),
        ("[1.\u0661]", (1, 3, "syntax"), ""),
        ("[1e\u0661]", (1, 3, "syntax"), ""),
        ("hello", (1, 1, "syntax"), ""),
        ("name: x", (1, 1, "syntax"), ""),
        ("- 1", (1, 1, "syntax"), ""),
        ("[99999999999999999999]", (1, 2, "bad-value"), ""),
        ('[\n  "\\ud800"]', (2, 3, "bad-value"), ""),
    ],
)
def test_json_mistakes_have_their_place(text: str, place: tuple[int, int, str], hint: str) -> None:
    problems = read(text, "x.json").problems
    assert places(problems) == [place]
    assert hint in problems[0].hint


def test_flow_yaml_is_read_although_it_looks_like_json() -> None:
    assert value_of("{a: 1, b: [x]}") == {"a": 1, "b": ["x"]}
    assert read("{a: 1}", "strict.json").root is None


def test_a_json_file_is_json_whatever_it_begins_with() -> None:
    assert value_of('"text"', "x.json") == "text"
    assert value_of(" 12", "X.JSON") == 12
    assert value_of("true", "x.json") is True
    assert places(read("yes", "X.JSON").problems) == [(1, 1, "syntax")]
    assert places(read(" \n", "x.json").problems) == [(1, 1, "empty")]


def test_what_is_neither_is_reported_as_json() -> None:
    assert places(read('{"a": [1, 2}').problems) == [(1, 12, "syntax")]


# -- bytes and places ------------------------------------------------------------------------


def test_bytes_must_be_utf8() -> None:
    assert places(read(b"ok: 1\nbad: \xff\xfe\n").problems) == [(2, 6, "not-utf8")]
    assert value_of("\ufeffa: 1") == {"a": 1}


def test_lines_inside_a_block_have_their_own_place() -> None:
    document = read("a:\n  b: |\n    one\n      two\n  c: 'x'\n")
    assert isinstance(document.root, Fields)
    inner = document.root.fields["a"]
    assert isinstance(inner, Fields)
    block, quoted = inner.fields["b"], inner.fields["c"]
    assert isinstance(block, Scalar)
    assert isinstance(quoted, Scalar)
    assert str(document.inside(block, 1)) == "<text>:3:5"
    assert str(document.inside(block, 2)) == "<text>:4:7"
    assert str(document.inside(quoted, 3)) == "<text>:5:6"


def test_both_yaml_parsers_give_the_same() -> None:
    text = "a: [1, {b: x}]\nc: |\n  t\nd: &z 'q'\ne: *z\nf: 1\nf: 2\n"
    results = []
    for loader in (yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        reading = Reading("f", SourceLimits())
        results.append((read_yaml(text, reading, loader), reading.problems))
    assert results[0] == results[1]


def test_nodes_describe_themselves() -> None:
    root = read("[a, 1, true, ~, [x], {y: 1}]").root
    assert isinstance(root, Items)
    words = [kind_of(node) for node in root]
    assert words == ["the text 'a'", "the number 1", "true", "empty", "a list", "a mapping"]
