"""Whatever stands in a playbook, compiling ends in a net or in problems, never in an exception."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.dialects.registry import compile_source
from seeds import examples

from ..support import check_outcome
from .full_playbook import FULL, PATHS, changed, odd


def test_the_full_playbook_compiles_as_it_stands() -> None:
    assert compile_source(json.dumps(FULL)).errors == ()


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(PATHS), odd, st.booleans())
def test_one_odd_value_gives_a_net_or_problems(path: Any, value: Any, rename: bool) -> None:
    compiled = compile_source(json.dumps(changed(path, value, rename=rename)), file="x.json")
    check_outcome(compiled)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from([*FULL, "x"]), odd, max_size=4))
def test_odd_roots_give_a_net_or_problems(document: dict[str, Any]) -> None:
    compiled = compile_source(json.dumps(document), file="x.json")
    assert (compiled.net is None) == bool(compiled.errors)


def test_a_large_playbook_compiles_in_reasonable_time() -> None:
    step = '- {step: sN, tool: {kind: noop, result: "{{ ctx.aN }}"}, next: {arcs: [{step: sM}]}}'
    lines = [step.replace("N", str(n)).replace("M", str((n + 1) % 500)) for n in range(500)]
    began = time.thread_time()
    compiled = compile_source("workflow:\n" + "\n".join(lines))
    assert compiled.net is not None
    assert len(compiled.net.steps) == 500
    assert time.thread_time() - began < 5
