"""What a step with inline code depends on: a redrive must not reuse what its code reads."""

from __future__ import annotations

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net.reads import Reads, access


def reads(tool: str) -> Reads:
    net = compile_source(f"""
    metadata: {{name: t}}
    workflow:
      - {{step: fetch, tool: {{kind: noop}}, next: {{arcs: [{{step: use}}]}}}}
      - step: use
        tool: {tool}
    """).net
    assert net is not None
    return access(net).steps["use"].work


def test_code_that_looks_into_its_context_may_read_everything() -> None:
    found = reads("{kind: python, code: \"result = context.get('fetch')\"}")
    assert (found.ctx, found.results) == (None, None)


def test_a_script_in_a_file_may_read_everything() -> None:
    assert reads("{kind: python, script: a.py}") == Reads(None, None)


@pytest.mark.parametrize("code", ["def main(fetch): return fetch", "def main(a, *, fetch=1): 0"])
def test_a_main_reads_what_its_parameters_are_called(code: str) -> None:
    found = reads(f'{{kind: python, code: "{code}"}}')
    assert found.results is not None
    assert "fetch" in found.results


def test_other_code_reads_its_arguments_only() -> None:
    found = reads("{kind: python, args: {n: \"{{ fetch.n }}\"}, code: 'result = n'}")
    assert found.results == frozenset({"fetch"})
    assert reads("{kind: python, code: 'result = 1'}").results == frozenset()
