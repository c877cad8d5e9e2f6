"""A definition that is known is not compiled again."""

from __future__ import annotations

from typing import Any

import pytest

import anabranch
from anabranch.dialects.registry import compile_source
from anabranch.operations.definitions import compile_cache
from anabranch.operations.definitions.compile_cache import CompileCache

TEXT = "metadata: {name: NAME}\nworkflow: [{step: a, tool: {kind: noop}}]\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was compiled."""
    seen: list[str] = []
    really = compile_source

    def counting(text: Any, **how: Any) -> Any:
        seen.append(text if isinstance(text, str) else text.decode())
        return really(text, **how)

    monkeypatch.setattr(compile_cache, "compile_source", counting)
    monkeypatch.setattr(compile_cache, "CACHE", CompileCache())
    monkeypatch.setattr("anabranch.operations.definitions.prepare.CACHE", compile_cache.CACHE)
    return seen


def test_starting_a_text_again_compiles_nothing(compiled: list[str]) -> None:
    text = TEXT.replace("NAME", "often")
    for _ in range(3):
        assert anabranch.run(text).status == "completed"
    assert compiled == [text]


def test_another_text_name_or_tool_is_another_definition() -> None:
    cache = CompileCache()
    one = cache.compile(TEXT, file="a.yaml", tools=())
    assert cache.compile(TEXT, file="a.yaml", tools=()) is one
    assert cache.compile(TEXT + "\n", file="a.yaml", tools=()) is not one
    assert cache.compile(TEXT, file="b.yaml", tools=()) is not one
    assert cache.compile(TEXT, file="a.yaml", tools=("price",)) is not one


def test_what_does_not_compile_is_looked_at_every_time() -> None:
    cache = CompileCache()
    wrong = TEXT.replace("noop", "nop")
    assert cache.compile(wrong, file="a", tools=()).net is None
    assert cache.compile(wrong, file="a", tools=()) is not cache.compile(wrong, file="a", tools=())


def test_it_keeps_so_many_and_those_used_last(compiled: list[str]) -> None:
    cache = CompileCache(definitions_max=2)
    texts = [TEXT.replace("NAME", name) for name in "abc"]
    for text in (texts[0], texts[1], texts[0], texts[2], texts[0], texts[1]):
        cache.compile(text, file="x", tools=())
    assert compiled == [texts[0], texts[1], texts[2], texts[1]]


def test_it_keeps_no_more_than_so_much_text(compiled: list[str]) -> None:
    cache = CompileCache(text_bytes_max=len(TEXT) + 10)
    for name in ("a", "b", "a"):
        cache.compile(TEXT.replace("NAME", name), file="x", tools=())
    assert len(compiled) == 3
