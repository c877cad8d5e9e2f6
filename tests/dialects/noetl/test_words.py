"""Words of every spelling, from the text to the end of a run: in the engine and in a play alike."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import anabranch
from anabranch.dialects.noetl.respell.rewrite import canonical
from anabranch.dialects.registry import compile_source
from anabranch.testing import play

from ..support import HEAD, places, playbook, shape


def text_of(body: str) -> str:
    return HEAD + dedent(body)


def written(body: str) -> str:
    """In canonical v10: stable, without an old spelling, and the same net."""
    text = text_of(body)
    made = canonical(text)
    assert canonical(made) == made
    before, after = compile_source(text), compile_source(made)
    assert before.net is not None, before.problems
    assert shape(before.net) == shape(after.net)
    assert [problem for problem in after.problems if problem.code == "old-spelling"] == []
    return made


def result_of(body: str) -> Any:
    """What the playbook comes to, which is the same in a play as in an engine."""
    text = text_of(body)
    ran, played = anabranch.run(text), play(text)
    assert (ran.status, ran.result) == (played.status, played.result)
    assert ran.status == "completed", ran.problem
    again = anabranch.run(written(body))
    assert again.result == ran.result
    return ran.result


# -- values of a step run --------------------------------------------------------------------

OF_A_STEP = """
workflow:
  - step: count
    vars: {x: 1, y: "{{ workload.z | default(7) }}"}
    tool:
      - {name: a, kind: noop, result: 5, SET: {KEYx: "{{ vars.x + outcome.result }}"}}
    END: {KEYw: "{{ iter.x * 2 }}"}
    next:
      arcs:
        - {step: wrong, when: "{{ vars.x != 6 }}"}
        - {step: right, when: "{{ step.w == 12 }}", args: {q: "{{ vars.y }}/{{ x }}"}}
  - {step: wrong, tool: {kind: noop, result: wrong}}
  - {step: right, tool: {kind: noop, result: "{{ q }} {{ x is defined }} {{ ctx.x is defined }}"}}
"""


@pytest.mark.parametrize(
    ("set_", "end", "key", "old"),
    [
        ("set_iter", "set_iter", "", False),
        ("set_vars", "set_vars", "", True),
        ("set", "set", "iter.", False),
        ("set", "set", "step.", False),
    ],
)
def test_values_of_a_step_run_are_seen_by_its_arcs_and_gone_afterwards(
    set_: str, end: str, key: str, old: bool
) -> None:
    body = OF_A_STEP.replace("SET", set_).replace("END", end).replace("KEY", key)
    assert result_of(body) == "7/6 False False"
    warned = [p for p in playbook(body).problems if p.code == "old-spelling"]
    assert [problem.hint for problem in warned] == ["write `set_iter: {…}`"] * (2 if old else 0)
    if old:
        assert places(tuple(warned)) == [(9, 42, "old-spelling"), (10, 5, "old-spelling")]


def test_vars_without_work_are_there_for_the_arcs() -> None:
    body = """
    workflow:
      - step: s
        vars: {go: true}
        next: {arcs: [{step: t, when: "{{ vars.go }}", args: {n: "{{ go }}"}}]}
      - {step: t, tool: {kind: noop, result: "{{ n }}"}}
    """
    assert result_of(body) is True


def test_vars_of_a_loop_begin_anew_with_every_item() -> None:
    body = """
    workflow:
      - step: s
        vars: {seen: "{{ iter.n * 10 }}"}
        loop: {in: [1, 2], iterator: n}
        tool:
          - {name: a, kind: noop, set_iter: {seen: "{{ vars.seen + 1 }}"}}
          - {name: b, kind: noop, result: "{{ vars.seen }}"}
    """
    assert result_of(body)["results"] == [11, 21]


@pytest.mark.parametrize("scope", ["iter", "step"])
def test_what_an_arc_sets_in_iter_is_the_next_step_runs(scope: str) -> None:
    body = f"""
    workflow:
      - step: s
        tool: {{kind: noop, result: 3}}
        next: {{arcs: [{{step: t, set: {{{scope}.page: "{{{{ s }}}}", ctx.seen: true}}}}]}}
      - step: t
        tool: {{kind: noop, result: "{{{{ iter.page }}}}{{{{ page }}}}{{{{ step.page }}}}"}}
        next: {{arcs: [{{step: u}}]}}
      - step: u
        tool: {{kind: noop, result: "{{{{ iter.page | default('none') }}}} {{{{ seen }}}}"}}
    """
    assert result_of(body) == "none True"
    assert "args: {iter: {page: " in written(body)


# -- pipelines -------------------------------------------------------------------------------


def test_set_prev_skip_and_a_number_of_attempts_from_a_template() -> None:
    body = """
    workload: {tries: 2}
    workflow:
      - step: s
        tool:
          - name: a
            kind: noop
            result: 4
            spec: {policy: {rules: [{else: {then: {do: continue, set_prev: "{{ _prev + 1 }}"}}}]}}
          - {name: b, kind: noop, result: "{{ _prev }}", set_prev: {n: "{{ b * 2 }}"}}
          - {name: gone, kind: noop, spec: {policy: {rules: [{else: {then: {do: skip}}}]}}}
          - name: c
            kind: noop
            result: "{{ _attempt }} {{ _prev.n }} {{ gone is defined }}"
            spec:
              policy:
                rules:
                  - when: "{{ _attempt < 2 }}"
                    then: {do: retry, attempts: "{{ workload.tries }}", delay: "{{ 0 }}"}
    """
    assert result_of(body) == "2 10 False"


def test_hooks_in_a_playbook() -> None:
    body = """
    workflow:
      - step: s
        tool:
          - name: work
            kind: noop
            result: {n: 1}
            spec:
              policy:
                before: {kind: noop, set_ctx: {trace: {reduce: append, value: open}}}
                after:
                  - kind: noop
                    result: "{{ outcome.result.n }}"
                    set_ctx: {trace: {reduce: append, value: "{{ outcome.result }}"}}
                finally: [{close: {kind: noop, set_ctx: {trace: {reduce: append, value: close}}}}]
          - {name: show, kind: noop, result: "{{ ctx.trace }} {{ work.n }}"}
    """
    assert result_of(body) == "['open', 1, 'close'] 1"
    assert places(playbook(body).problems) == [(18, 24, "old-spelling")]


def test_accumulated_pages() -> None:
    body = """
    workflow:
      - step: s
        vars: {page: 1}
        tool:
          - name: fetch
            kind: noop
            result: {items: ["{{ iter.page }}"], more: "{{ iter.page < 3 }}"}
            spec:
              result: {accumulate: {strategy: concat, merge_path: $.items, max_items: 10}}
              policy:
                rules:
                  - when: "{{ outcome.result.more }}"
                    then: {do: jump, to: fetch, set_iter: {page: "{{ iter.page + 1 }}"}}
    """
    assert result_of(body) == [1, 2, 3]


# -- loops inside loops ----------------------------------------------------------------------


def test_a_task_with_a_loop_of_its_own_inside_a_loop() -> None:
    body = """
    workflow:
      - step: facilities
        loop: {in: [{id: a, pages: [1, 2]}, {id: b, pages: []}], iterator: facility}
        tool:
          - name: pages
            loop: {in: "{{ iter.facility.pages }}", iterator: page, spec: {mode: parallel}}
            tool:
              - {name: get, kind: noop, result: "{{ iter.parent.facility.id }}{{ page }}"}
              - {name: tag, kind: noop, result: "{{ facility.id }}:{{ get }}:{{ loop_index }}"}
          - {name: flat, kind: noop, result: "{{ pages.results | join(' ') }}"}
    """
    assert result_of(body)["results"] == ["a:a1:0 a:a2:1", ""]


def test_one_task_per_item_inside_a_pipeline() -> None:
    body = """
    workflow:
      - step: s
        tool:
          - {name: list, kind: noop, result: [3, 4]}
          - {name: each, kind: noop, loop: {in: "{{ list }}", iterator: n}, result: "{{ n * 2 }}"}
          - {name: sum, kind: noop, result: "{{ each.results | sum }} of {{ each.stats.total }}"}
    """
    assert result_of(body) == "14 of 2"


def test_what_inner_items_share_is_reduced_over_the_whole_loop() -> None:
    body = """
    workflow:
      - step: s
        spec: {fanout: {reducers: {total: sum}}}
        loop: {in: [[1, 2], [3]], iterator: row}
        tool:
          - name: each
            loop: {in: "{{ row }}", iterator: n}
            tool: {kind: noop, set_shared: {total: "{{ n }}"}}
        next: {arcs: [{step: t}]}
      - {step: t, tool: {kind: noop, result: "{{ ctx.total }}"}}
    """
    assert result_of(body) == 6


# -- cursors ---------------------------------------------------------------------------------

CURSOR = """
workflow:
  - step: s
    loop:
      cursor: {cursor}
      iterator: row
      spec: {spec}
    tool: {{kind: noop, result: "{result}"}}
"""


def database(tmp_path: Path) -> str:
    path = tmp_path / "jobs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, frame TEXT)")
        connection.executemany("INSERT INTO jobs (id) VALUES (?)", [(n,) for n in range(1, 8)])
    connection.close()
    return str(path)


def test_a_cursor_that_reads_is_a_query(tmp_path: Path) -> None:
    cursor = (
        f'{{kind: sqlite, claim: "SELECT id FROM jobs WHERE id > :least", '
        f"options: {{key: id, database: {database(tmp_path)}, params: {{least: 2}}}}}}"
    )
    spec = "{mode: cursor, frame: {max_rows: 2, process: row, max_attempts: 3, max_seconds: 9}}"
    body = CURSOR.format(cursor=cursor, spec=spec, result="{{ row.id }}")
    assert anabranch.run(text_of(body)).result["results"] == [3, 4, 5, 6, 7]
    made = written(body)
    for words in ("sql:", 'query: "SELECT id', "mode: parallel", "shard_size: 2"):
        assert words in made
    assert "max_job_retries: 2" in made
    assert [p.code for p in playbook(body).problems] == ["ignored-key"]


CLAIM = (
    "UPDATE jobs SET frame = :frame WHERE frame = :frame OR id IN "
    "(SELECT id FROM jobs WHERE frame IS NULL LIMIT :max_rows) RETURNING id"
)


@pytest.mark.parametrize("process", ["row", "frame"])
def test_a_cursor_that_writes_claims_frames_until_there_are_none(
    tmp_path: Path, process: str
) -> None:
    path = database(tmp_path)
    cursor = f'{{kind: sqlite, claim: "{CLAIM}", options: {{database: {path}}}}}'
    result = "{{ row.id }}" if process == "row" else "{{ row | map(attribute='id') | list }}"
    spec = f"{{mode: cursor, max_in_flight: 1, frame: {{max_rows: 3, process: {process}}}}}"
    body = CURSOR.format(cursor=cursor, spec=spec, result=result)
    assert "claim:" in written(body)
    ran = anabranch.run(text_of(body))
    found = ran.result["results"]
    rows = found if process == "row" else [row for frame in found for row in frame]
    assert sorted(rows) == list(range(1, 8))
    with sqlite3.connect(path) as connection:
        frames = connection.execute("SELECT DISTINCT frame FROM jobs").fetchall()
    connection.close()
    assert len(frames) == 3
    assert {frame.rpartition("/")[0] for (frame,) in frames} == {f"{ran.run}/l1"}


def test_a_cursor_over_http_is_a_paged_collection() -> None:
    cursor = '{kind: http, claim: "https://x.test/a", options: {items: $.rows, next: $.next}}'
    spec = "{mode: cursor, frame: {row_concurrency: 4}}"
    made = written(CURSOR.format(cursor=cursor, spec=spec, result="1"))
    assert "pages:" in made
    assert 'url: "https://x.test/a"' in made
    assert "max_in_flight: 32" in made
