"""The size of a value never changes what a definition means: wherever an expression reads a value
it gets the value, and what an expression makes too large is kept beside the log.

Each definition runs twice, with everything inline and with everything kept outside.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import RunResult, Settings
from anabranch.store.sqlite.store import SqliteStore

from ..support import file_of

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: sizes}\n"
MAKE = """
  - step: make
    tool: {kind: python, code: "result = {'rows': [{'n': n, 'text': 'x' * 20} for n in range(300)], 'count': 300}"}
"""  # noqa: E501

DEFINITIONS = {
    "a loop over a field": MAKE
    + """
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ make.rows }}", iterator: row}
    tool: {kind: noop, result: "{{ iter.row.n }}"}
    next: {arcs: [{step: sum}]}
  - step: sum
    tool: {kind: noop, result: "{{ each.results | sum }}"}
""",
    "a guard on the length": MAKE
    + """
    next:
      arcs:
        - {step: many, when: "{{ make.rows | length > 100 }}"}
        - {step: few}
  - {step: many, tool: {kind: noop, result: many}}
  - {step: few, tool: {kind: noop, result: few}}
""",
    "a guard that goes through `data`": MAKE
    + """
    next:
      arcs:
        - {step: there, when: "{{ make.data.rows[299].n == 299 }}"}
        - {step: gone}
  - {step: there, tool: {kind: noop, result: there}}
  - {step: gone, tool: {kind: noop, result: gone}}
""",
    "the context": MAKE
    + """
    set_ctx: {kept: "{{ make.rows }}", first: "{{ make.rows[0].n }}"}
    next: {arcs: [{step: use, when: "{{ ctx.kept | length == 300 }}"}]}
  - step: use
    tool:
      kind: noop
      result: ["{{ ctx.kept | length }}", "{{ ctx.first }}", "{{ ctx.kept[7].n }}"]
""",
    "args of an arc": MAKE
    + """
    next: {arcs: [{step: use, args: {rows: "{{ make.rows }}", n: 3}}]}
  - step: use
    set_ctx: {seen: "{{ args.rows | length }}"}
    tool: {kind: noop, result: ["{{ args.rows | length }}", "{{ args.n }}"]}
    next: {arcs: [{step: last, when: "{{ args.rows | length == 300 }}"}]}
  - {step: last, tool: {kind: noop, result: "{{ ctx.seen }}"}}
""",
    "reducers": MAKE
    + """
    set_ctx:
      table: "{{ make }}"
      list: "{{ make.rows }}"
    next: {arcs: [{step: more}]}
  - step: more
    tool: {kind: noop, result: {extra: 1, rows: []}}
    set_ctx:
      table: {reduce: merge, value: "{{ more }}"}
      list: {reduce: append, value: {n: 300}}
      fresh: {reduce: append, value: "{{ make.rows }}"}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: noop
      result:
        - "{{ ctx.table.count }}"
        - "{{ ctx.table.extra }}"
        - "{{ ctx.table.rows | length }}"
        - "{{ ctx.list | length }}"
        - "{{ ctx.list[-1].n }}"
        - "{{ ctx.fresh[0] | length }}"
""",
    "admission": MAKE
    + """
    next: {arcs: [{step: gated}]}
  - step: gated
    spec:
      policy:
        admit:
          rules:
            - {when: "{{ make.rows | length > 100 }}", then: {allow: true}}
            - {else: {then: {allow: false}}}
    tool: {kind: noop, result: admitted}
""",
    "a barrier": """
  - step: begin
    tool: {kind: noop}
    next:
      spec: {mode: inclusive}
      arcs: [{step: a}, {step: b}]
  - step: a
    tool: {kind: python, code: "result = ['x' * 50] * 100"}
    next: {arcs: [{step: meet, args: {a: "{{ a }}"}}]}
  - step: b
    tool: {kind: python, code: "result = ['y' * 50] * 200"}
    next: {arcs: [{step: meet, args: {b: "{{ b }}"}}]}
  - step: meet
    spec: {join: all}
    tool: {kind: noop, result: ["{{ args.a | length }}", "{{ args.b | length }}"]}
""",
    "the input of a run": """
  - step: use
    tool: {kind: noop, result: "{{ workload.rows | length }}"}
    next:
      arcs:
        - {step: yes_, when: "{{ workload.rows[99] == 99 }}"}
        - {step: no_}
  - {step: yes_, tool: {kind: noop, result: "{{ use }}"}}
  - {step: no_, tool: {kind: noop, result: wrong}}
""",
}


def definition(name: str) -> str:
    return f"{HEAD}workload: {{rows: []}}\nworkflow:{DEFINITIONS[name]}"


def run(text: str, store: str = ":memory:", **settings: Any) -> RunResult:
    given = {"rows": list(range(100))}
    return anabranch.run(text, given, store=store, settings=Settings(**settings))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_means_the_same_with_every_value_outside_the_log(name: str) -> None:
    inline = run(definition(name), inline_bytes_max=10_000_000)
    outside = run(definition(name), inline_bytes_max=1)
    assert inline.status == "completed", inline.problem
    assert outside.problem is None
    assert (outside.status, outside.result) == (inline.status, inline.result)
    assert {n: s["status"] for n, s in outside.steps.items()} == {
        n: s["status"] for n, s in inline.steps.items()
    }


@pytest.mark.parametrize("name", ["the context", "args of an arc", "reducers", "a barrier"])
def test_what_an_expression_makes_large_is_not_recorded_inline(name: str, tmp_path: Path) -> None:
    result = run(definition(name), file_of(tmp_path), inline_bytes_max=2000)
    assert result.status == "completed", result.problem
    store = SqliteStore(file_of(tmp_path), read_only=True)
    text = b"".join(row.events for row in store.read(result.run))
    store.close()
    assert b"xxxxxxxxxxxxxxxxxxxx" * 40 not in text
    assert text.count(b'"n":250') == 0
    assert len(text) < 40_000


@pytest.mark.soak
def test_a_list_that_a_loop_goes_over_is_kept_in_parts_and_not_in_the_log(tmp_path: Path) -> None:
    text = f"""{HEAD}workflow:
  - step: make
    tool: {{kind: python, code: "result = [{{'n': n}} for n in range(20000)]"}}
    next: {{arcs: [{{step: each}}]}}
  - step: each
    loop: {{in: "{{{{ make }}}}", iterator: row}}
    spec: {{result: {{inline_max_bytes: 100}}}}
    tool: {{kind: noop, result: "{{{{ iter.row.n }}}}"}}
    next: {{arcs: [{{step: sum}}]}}
  - step: sum
    tool: {{kind: noop, result: "{{{{ each.results | sum }}}}"}}
"""
    result = run(text, file_of(tmp_path))
    assert (result.status, result.result) == ("completed", 19_999 * 10_000)
    store = SqliteStore(file_of(tmp_path), read_only=True)
    assert all(len(row.events) < 100_000 for row in store.read(result.run))
    store.close()


def test_an_expression_that_reads_too_much_fails_the_step_and_names_the_limit() -> None:
    result = run(
        definition("a guard on the length"), inline_bytes_max=100, expression_bytes_max=5_000
    )
    assert result.status == "failed"
    assert result.problem is not None
    assert "ANABRANCH_EXPRESSION_BYTES_MAX" in result.problem["message"]


def test_a_context_patch_from_outside_may_be_large(tmp_path: Path) -> None:
    text = f"""{HEAD}workflow:
  - step: ask
    tool: {{kind: decision, ask: "?"}}
    next: {{arcs: [{{step: use, when: "{{{{ ctx.rows | length == 5000 }}}}"}}]}}
  - step: use
    tool: {{kind: noop, result: "{{{{ ctx.rows | sum }}}}"}}
"""

    async def scenario() -> RunResult:
        async with anabranch.Engine(file_of(tmp_path)) as engine:
            name = await engine.start(text)
            await engine.patch(name, {"rows": list(range(5000)) * 1})
            await engine.patch(name, {"text": "y" * 200_000})
            await engine.decide(name, "ask", "fulfil")
            return await engine.wait(name)

    result = asyncio.run(scenario())
    assert (result.status, result.result) == ("completed", 4999 * 2500)
    store = SqliteStore(file_of(tmp_path), read_only=True)
    assert all(len(row.events) < 100_000 for row in store.read(result.run))
    store.close()
