"""Configuration layers: later ones over earlier ones, and every bad file by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.market.node.modules.layers import merged, read_layers


def test_objects_are_merged_and_all_else_is_replaced() -> None:
    base = {"a": {"x": 1, "y": [1, 2], "z": {"q": 1}}, "b": 1, "c": {"d": 1}}
    layer = {"a": {"y": [3], "z": {"r": 2}}, "b": None, "c": 5, "n": {"e": 1}}
    assert merged(base, layer) == {
        "a": {"x": 1, "y": [3], "z": {"q": 1, "r": 2}},
        "b": None,
        "c": 5,
        "n": {"e": 1},
    }
    assert base["a"] == {"x": 1, "y": [1, 2], "z": {"q": 1}}


def test_folders_come_in_order_and_their_files_by_name(tmp_path: Path) -> None:
    factory, operator = tmp_path / "module", tmp_path / "node"
    factory.mkdir()
    operator.mkdir()
    (factory / "00-arca.json").write_text('{"port": 1, "sync": {"every": 1, "from": "a"}}')
    (factory / "10-more.json").write_text('{"sync": {"every": 2}}')
    (factory / "notes.txt").write_text("not JSON")
    (operator / "00-arca.json").write_text('{"port": 3}')
    assert read_layers((factory, operator, tmp_path / "missing")) == {
        "port": 3,
        "sync": {"every": 2, "from": "a"},
    }


@pytest.mark.parametrize("text", ["[1]", "{", '"a"', "", "\xff", '{"a":' * 70 + "1" + "}" * 70])
def test_a_file_that_is_no_object_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"bad\.json"):
        read_layers((tmp_path,))


def test_a_file_of_any_depth_is_refused_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(InputError, match=r"deep\.json"):
        read_layers((tmp_path,))


def test_a_layer_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(InputError, match=r"dir\.json"):
        read_layers((tmp_path,))
