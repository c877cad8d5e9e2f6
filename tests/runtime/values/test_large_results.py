"""A large result travels as a ref: small in the log, whole for whoever works with it."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Engine, RunResult, Settings, Toolbox
from anabranch.runtime.values.payloads import lighten, resolve
from anabranch.runtime.values.sealing import sealed_keys
from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.values.payloads import holds_ref, is_ref

from ..support import file_of, playbook, run, step

BIG = 200_000


class Unwalked(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("a large input is walked where it has no secrets")


@pytest.fixture
def box() -> Toolbox:
    made = Toolbox()

    @made.tool("make", blocking=False)
    def make(size: int) -> dict[str, Any]:
        return {"count": size, "note": "small", "text": "ä" * size}

    @made.tool("measure", blocking=False)
    def measure(given: Any) -> dict[str, Any]:
        text = json.dumps(given, ensure_ascii=False, sort_keys=True)
        return {"size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}

    return made


def measured(value: Any) -> dict[str, Any]:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return {"size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}


WHOLE = {"count": BIG, "note": "small", "text": "ä" * BIG}


def play(text: str, box: Toolbox, store: str = ":memory:", **settings: Any) -> RunResult:
    return anabranch.run(text, store=store, toolbox=box, settings=Settings(**settings))


def test_the_log_holds_a_ref_and_the_payload_is_kept_once(box: Toolbox, tmp_path: Path) -> None:
    text = playbook(
        step("a", "make", "b", args={"size": BIG}), step("b", "make", args={"size": BIG})
    )
    result = play(text, box, file_of(tmp_path))
    store = SqliteStore(file_of(tmp_path), read_only=True)
    rows = store.read(result.run)
    assert sum(len(row.events) for row in rows) < 10_000
    assert store.statistics()["payloads"] == 1
    store.close()


def test_the_next_job_gets_the_whole_value_from_wherever_it_was_put(box: Toolbox) -> None:
    """As a step's result, as an argument of the arc, in the context, and deep inside either."""
    arc = {
        "step": "by_args",
        "args": {"plain": "{{ outcome.result }}", "deep": {"list": ["{{ outcome.result }}"]}},
    }
    text = playbook(
        step(
            "make",
            "make",
            args={"size": BIG},
            set_ctx={"kept": "{{ outcome.result }}", "inside": {"x": "{{ outcome.result }}"}},
            next={"arcs": [arc]},
        ),
        step("by_args", "measure", "by_deep_args", args={"given": "{{ args.plain }}"})
        | {"next": {"arcs": [{"step": "by_deep_args", "args": {"deep": "{{ args.deep }}"}}]}},
        step("by_deep_args", "measure", "by_result", args={"given": "{{ args.deep.list[0] }}"}),
        step("by_result", "measure", "by_context", args={"given": "{{ steps.make }}"}),
        step("by_context", "measure", "by_deep_context", args={"given": "{{ ctx.kept }}"}),
        step("by_deep_context", "measure", "by_part", args={"given": "{{ ctx.inside.x }}"}),
        step("by_part", "measure", args={"given": "{{ make.text }}"}),
    )
    steps = play(text, box).steps
    whole = measured(WHOLE)
    for name in ("by_args", "by_deep_args", "by_result", "by_context", "by_deep_context"):
        assert steps[name]["result"] == whole, name
    assert steps["by_part"]["result"] == measured(WHOLE["text"])


def test_guards_see_the_small_fields(box: Toolbox) -> None:
    arcs = [
        {"step": "many", "when": "{{ outcome.result.count > 1000 }}"},
        {"step": "few"},
    ]
    text = playbook(
        step("make", "make", args={"size": BIG}, next={"arcs": arcs}),
        step("many", "noop", result="many"),
        step("few", "noop", result="few"),
    )
    assert play(text, box).result == "many"


def test_the_summary_shows_it_whole(box: Toolbox, tmp_path: Path) -> None:
    text = playbook(
        step("fork", "noop")
        | {"next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "x"}, {"step": "y"}]}},
        step("x", "make", args={"size": BIG}),
        step("y", "make", args={"size": 1}),
    )
    result = play(text, box, file_of(tmp_path))
    assert result.result == {"x": WHOLE, "y": {"count": 1, "note": "small", "text": "ä"}}
    assert result.steps["x"]["result"] == WHOLE

    async def read_again() -> RunResult:
        async with Engine(file_of(tmp_path), toolbox=box) as engine:
            return await engine.wait(result.run)

    assert run(read_again()) == result


def test_inline_code_and_commands_give_and_take_large_values() -> None:
    text = playbook(
        step("py", "python", "sh", code=f"result = {{'text': 'x' * {BIG}}}"),
        step("sh", "shell", "back", command="printf '%s' {{ steps.py.text | length }}"),
        step("back", "python", code="result = len(given)", args={"given": "{{ py.text }}"}),
    )
    result = play(text, Toolbox())
    assert result.status == "completed"
    assert result.steps["sh"]["result"]["stdout"] == str(BIG)
    assert result.result == BIG


@pytest.mark.parametrize("kind", ["make", "python"])
def test_a_result_over_the_limit_fails_the_step_and_names_the_setting(
    kind: str, box: Toolbox
) -> None:
    more = {"args": {"size": BIG}} if kind == "make" else {"code": f"result = 'x' * {BIG}"}
    result = play(playbook(step("make", kind, **more)), box, result_bytes_max=100_000)
    assert result.status == "failed"
    assert result.problem is not None
    assert result.problem["code"] == "result"
    assert "100,000" in result.problem["message"]
    if kind == "make":
        assert "ANABRANCH_RESULT_BYTES_MAX" in result.problem["message"]


def test_exactly_the_limit_travels_inline() -> None:
    text = "x" * 98
    assert lighten(text, 100).result == text
    assert is_ref(lighten(text, 99).result)


def test_a_redriven_run_finds_the_payloads_of_its_origin(box: Toolbox) -> None:
    times: list[int] = []

    @box.tool("once", blocking=False)
    def once(given: dict[str, Any]) -> Any:
        times.append(len(given["text"]))
        if len(times) == 1:
            raise ValueError("for once")
        return measured(given)

    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=box) as engine:
            text = playbook(
                step("make", "make", "once", args={"size": BIG}),
                step("once", "once", args={"given": "{{ steps.make }}"}),
            )
            first = await engine.start(text)
            assert (await engine.wait(first)).status == "failed"
            return await engine.wait(await engine.redrive(first))

    assert run(scenario()).result == measured(WHOLE)
    assert times == [BIG, BIG]


# -- what only looks like a ref --------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"_ref": {"ref": "somewhere"}},
        {"_ref": "anabranch:sha256:00"},
        {"_ref": {"kind": "result_ref", "ref": 7}},
        [{"_ref": None}],
        {"a": {"_ref": {"kind": "other", "ref": "anabranch:sha256:00"}}},
    ],
)
def test_what_only_looks_like_a_ref_is_left_alone(value: Any) -> None:
    assert not holds_ref(value)
    assert not is_ref(value)
    assert resolve(value, lambda _: None) is value


def test_a_ref_to_a_payload_that_is_gone_fails_the_step_that_needs_it() -> None:
    light = lighten("x" * 1000, 10)
    waits = playbook(
        step("held", "decision", "use", ask="?"), step("use", "noop", result="{{ ctx.x }}")
    )

    async def scenario() -> RunResult:
        async with Engine(":memory:", toolbox=Toolbox()) as engine:
            name = await engine.start(waits)
            await engine.patch(name, {"x": light.result})
            await engine.decide(name, "held", "fulfil")
            return await engine.wait(name)

    result = run(scenario())
    assert result.status == "failed"
    assert result.problem is not None
    assert "is not in the store" in result.problem["message"]


LARGE_LOOP = """
metadata: {name: x}
workflow:
  - step: load
    loop: {in: {range: 6}, iterator: n}
    tool: {kind: make, size: "{{ 20000 + iter.n }}"}
    next: {arcs: [{step: use}]}
  - step: use
    tool: {kind: noop, result: "{{ load.results | map(attribute='count') | list }}"}
"""


def test_large_results_of_a_loop_are_read_like_small_ones(box: Toolbox) -> None:
    result = play(LARGE_LOOP, box)
    assert result.result == [20000, 20001, 20002, 20003, 20004, 20005]
    loop = result.steps["load"]["result"]
    assert [each["count"] for each in loop["results"]] == result.result
    assert loop["stats"] == {"total": 6, "success": 6, "failed": 0}


def test_a_guard_reads_the_large_results_of_a_loop(box: Toolbox) -> None:
    arc = '[{step: use, when: "{{ load.results | length == 6 }}"}]'
    result = play(LARGE_LOOP.replace("[{step: use}]", arc), box)
    assert result.result == [20000, 20001, 20002, 20003, 20004, 20005]


def test_a_later_step_can_hand_on_the_ref_of_a_large_result(box: Toolbox) -> None:
    text = """
metadata: {name: x}
workflow:
  - step: big
    tool: {kind: make, size: 200000}
    next: {arcs: [{step: fetch}]}
  - step: fetch
    tool:
      - {name: again, kind: artifact, action: get, result_ref: "{{ big._ref }}"}
      - kind: noop
        result:
          same: "{{ again == big }}"
          preview: "{{ big._preview | length > 500 }}"
          other: "{{ big.nothing | default('not there') }}"
"""
    assert play(text, box).result == {"same": True, "preview": True, "other": "not there"}


def test_a_large_input_without_secrets_is_not_walked_when_its_run_starts() -> None:
    assert sealed_keys({"large": Unwalked()}, {}) == ()


@pytest.mark.parametrize(
    "kept",
    [
        {"kind": "artifact", "action": "put", "data": "{{ workload.large }}"},
        {
            "kind": "noop",
            "result": "{{ workload.large }}",
            "spec": {"result": {"scope": "execution"}},
        },
    ],
)
def test_what_is_kept_beside_the_log_is_not_written_on_the_event_loop(
    kept: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second for what an artifact may have; whoever put one after the other held all."""
    threads = list[threading.Thread]()
    put = SqliteStore.put_payload

    def note_and_put(store: SqliteStore, *given: Any) -> None:
        threads.append(threading.current_thread())
        put(store, *given)

    monkeypatch.setattr(SqliteStore, "put_payload", note_and_put)
    text = playbook({"step": "a", "tool": kept})
    given = {"large": "x" * 1_000_000}
    result = anabranch.run(text, given, store=str(tmp_path / "runs.db"))
    assert result.status == "completed", result.problem
    assert [thread is threading.main_thread() for thread in threads] == [False]


def test_what_is_kept_packed_is_not_packed_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = list[threading.Thread]()
    compress = gzip.compress

    def note_and_compress(*given: Any, **more: Any) -> bytes:
        threads.append(threading.current_thread())
        return compress(*given, **more)

    monkeypatch.setattr(gzip, "compress", note_and_compress)
    policy = {"result": {"compression": "gzip"}}
    tool = {"kind": "noop", "result": "{{ workload.large }}", "spec": policy}
    text = playbook({"step": "a", "tool": tool})
    result = anabranch.run(text, {"large": "x" * 1_000_000}, store=":memory:")
    assert result.status == "completed", result.problem
    assert [thread is threading.main_thread() for thread in threads] == [False]
