"""Whatever stands in a playbook, compiling ends in a net or in problems, never in an exception."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dialects.registry import compile_source
from anabranch.net.draw import svg
from anabranch.net.problems import CODES

FULL: dict[str, Any] = {
    "apiVersion": "noetl.io/v2",
    "kind": "Playbook",
    "metadata": {"name": "full", "description": "d", "labels": {"a": "b"}},
    "keychain": [],
    "executor": {
        "profile": "local",
        "spec": {"entry_step": "a", "final_step": "z", "deadline": "1h", "on_failure": "handled"},
    },
    "workload": {"n": 1, "list": [1, 2]},
    "workflow": [
        {
            "step": "a",
            "desc": "first",
            "when": "{{ true }}",
            "spec": {
                "timeout": "30s",
                "on_timeout": "skip",
                "join": "all",
                "retry": {"attempts": 3, "delay": 1, "backoff": "linear", "max_delay": "5s"},
                "policy": {
                    "admit": {
                        "rules": [
                            {"when": "{{ ctx.x }}", "then": {"allow": True}},
                            {"else": {"then": {"allow": False}}},
                        ]
                    }
                },
            },
            "tool": {"kind": "python", "code": "x = {{ n }}", "args": {"n": "{{ workload.n }}"}},
            "set_ctx": {"total": {"reduce": "sum", "value": "{{ a.n }}"}},
            "set": {"ctx.y": 1},
            "next": {
                "spec": {"mode": "inclusive"},
                "arcs": [
                    {"step": "b", "when": "{{ event.name == 'step.done' }}", "args": {"k": [1]}},
                    {"step": "c"},
                ],
            },
        },
        {"step": "b", "tool": [{"kind": "http", "url": "http://x", "timeout": {"connect": 1}}]},
        {"step": "c", "tool": {"label": {"kind": "shell", "cmds": ["a"]}}, "next": ["b", "z"]},
        {"step": "z", "tool": {"kind": "decision", "ask": "ok?", "actors": ["kim"]}},
    ],
    "workbook": {},
}

odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["{{ a", "{{ a b }}", "{{ x.__class__ }}", "5x", "", "a", "zz", "noop"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in pairs:
        found += paths(item, (*here, key))
    return found


PATHS = paths(FULL)


def changed(path: tuple[Any, ...], value: Any, *, rename: bool) -> Any:
    document = copy.deepcopy(FULL)
    holder: Any = document
    for key in path[:-1]:
        holder = holder[key]
    if rename and isinstance(holder, dict):
        holder[str(value)[:20]] = holder.pop(path[-1])
    else:
        holder[path[-1]] = value
    return document


def test_the_full_playbook_compiles_as_it_stands() -> None:
    assert compile_source(json.dumps(FULL)).errors == ()


@settings(max_examples=30000, deadline=None)
@given(st.sampled_from(PATHS), odd, st.booleans())
def test_one_odd_value_gives_a_net_or_problems(path: Any, value: Any, rename: bool) -> None:
    text = json.dumps(changed(path, value, rename=rename))
    try:
        compiled = compile_source(text, file="x.json")
        if compiled.net is not None:
            svg(compiled.net)
        assert (compiled.net is None) == bool(compiled.errors)
        for p in compiled.problems:
            assert p.code in CODES and p.message and p.position.line == 1
    except BaseException as e:
        with open("/tmp/zz.log", "a") as f:
            f.write(f"{e!r:.300} {path} {value!r:.200} {rename}\n")
        raise
    assert (compiled.net is None) == bool(compiled.errors)
    for problem in compiled.problems:
        assert problem.code in CODES
        assert problem.message
        assert problem.position.line == 1
    if compiled.net is not None:
        assert "<svg" in svg(compiled.net)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*FULL, "x"]), odd, max_size=4))
def test_odd_roots_give_a_net_or_problems(document: dict[str, Any]) -> None:
    compiled = compile_source(json.dumps(document), file="x.json")
    assert (compiled.net is None) == bool(compiled.errors)


def test_a_large_playbook_compiles_in_reasonable_time() -> None:
    step = '- {step: sN, tool: {kind: noop, result: "{{ ctx.aN }}"}, next: {arcs: [{step: sM}]}}'
    lines = [step.replace("N", str(n)).replace("M", str((n + 1) % 500)) for n in range(500)]
    began = time.perf_counter()
    compiled = compile_source("workflow:\n" + "\n".join(lines))
    assert compiled.net is not None
    assert len(compiled.net.steps) == 500
    assert time.perf_counter() - began < 5
