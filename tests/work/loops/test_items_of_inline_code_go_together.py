"""Items of inline Python that a process is given many of come to what each comes to by itself.

The oracle is the same shard with one request an item, as it was before there were batches: the same
results, failures, shared values and lines of the log, and the same items executed, once each and in
order. Items misbehave in every way that a process can, in random orders.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch
from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer
from anabranch.net.program import Iteration, Program, TaskSpec
from anabranch.runtime.jobs.executor import carry_out
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.python.processes import Processes
from anabranch.work.logs.attempt_logs import AttemptLogs
from anabranch.work.logs.limits import LogLimits
from anabranch.work.loops import shards
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline import item_batches as batching
from anabranch.work.pipeline.pipeline import Services
from hangs import PATIENCE
from seeds import SHARE, seeds

from ..pipeline.pipelines import rule, shard_task, spec
from ..support import gone, run

#: What an item may do, by its name. `note` says that it has begun.
FORGERY = "writes to the channel"
DEEDS = {
    "number": "return n",
    "text": "return f'item {n} zażółć'",
    "mapping": "return {'n': n, 'list': [n, None, True, 0.5]}",
    "tuple": "return (n, {1, 2})",
    "nothing": "pass",
    "prints": "print('out of', n)\nreturn n",
    "prints half a line": "print('half of', n, end='')\nreturn n",
    "prints to both": "print('out of', n)\nprint('err of', n, file=sys.stderr)\nreturn n",
    "writes bytes": "os.write(1, b'raw out\\n')\nos.write(2, b'raw err\\n')\nreturn n",
    "a command prints": "os.system(f'echo command of {n}; echo and {n} >&2')\nreturn n",
    "prints a lot": "for k in range(9000): print('line', k, 'of item', n, '.' * 40)\nreturn n",
    "prints and fails": "print('before the end of', n)\nraise ValueError(n)",
    "logs": "logging.getLogger('shop').warning('warned by %s', n)\nreturn n",
    "logs and prints": "logging.info('told by %s', n)\nprint('and printed by', n)\nreturn n",
    "prints and is killed": "print('last words of', n)\nos.kill(os.getpid(), 9)",
    "raises": "raise RuntimeError(f'no {n}')",
    "says it failed": "return {'status': 'error', 'message': f'sold out {n}', 'retryable': False}",
    "is no JSON": "return object()",
    "is nan": "return float('nan')",
    "is too large": "return 'x' * 200_000",
    "leaves with sys.exit": "sys.exit(n)",
    "leaves with os._exit": "os._exit(3)",
    "is ended by a signal": "os.kill(os.getpid(), 15)",
    "closes the channel": "os.closerange(3, 256)",
    FORGERY: (
        "for k in range(3, 64):\n"
        "    try: os.write(k, b'x' * 99)\n"
        "    except OSError: pass\n"
        "return n"
    ),
    "closes its streams": "sys.stdout.close()\nreturn n",
    "replaces its streams": "sys.stdout = None\nsys.stderr = 5\nreturn n",
    "leaves a thread": "threading.Thread(target=time.sleep, args=(60,)).start()\nreturn n",
    "leaves a process": "subprocess.Popen(['sleep', '60'])\nreturn n",
    "forks": "pid = os.fork()\nif pid: os.waitpid(pid, 0)\nreturn n if pid else 'the other half'",
    "soils": (
        "os.environ['SOILED'] = 'yes'\nos.chdir('/')\nsys.path.insert(0, '/nowhere')\n"
        "global leftover\nleftover = 1\nreturn n"
    ),
    "looks for soil": (
        "return ['SOILED' in os.environ, os.getcwd() == '/', '/nowhere' in sys.path,"
        " 'leftover' in globals(), sys.stdout is None]"
    ),
    "changes what it sees": (
        "workload['list'].append(n)\nctx['mine'] = n\nargs['list'].append(n)\ncontext.clear()\n"
        "return [workload, args['list']]"
    ),
    "looks around": (
        "return [workload['list'], sorted(ctx), context['iter']['index'], context['loop_index'],"
        " context['args']['iter_key'], context['_task'], args['list']]"
    ),
    "arms an alarm": "signal.alarm(600)\nreturn n",
}
CODE = """
import logging, os, signal, subprocess, sys, threading, time
with open(place, 'a') as beginnings:
    print(n, file=beginnings)

def _do():
    {deeds}

result = _do()
"""
_INDENT = "\n        "
DISPATCH = CODE.format(
    deeds="\n    ".join(
        f"if deed == {name!r}:{_INDENT}{text.replace(chr(10), _INDENT)}"
        for name, text in DEEDS.items()
    )
)
SHARES = {"a": ("{{ local.outcome.result | string }}", "append")}
FAULT = "{{ local.outcome.error.kind }}: {{ local.outcome.error.message }}"
TOLD = {"told": (FAULT, "append"), "by": ("{{ local.outcome.error.details }}", "append")}
RULES: dict[str, tuple[Any, ...]] = {
    "none": (),
    "shares": (rule(None, "continue", set_shared=SHARES),),
    "goes on": (rule("local.outcome.error", "continue", set_shared=TOLD), rule(None, "continue")),
    "fails some": (rule("local.outcome.result == 3", "fail"), rule(None, "continue")),
}


class Items:
    def __init__(self, deeds: list[Any]) -> None:
        self._items = [(index, f"k{index}", deed) for index, deed in enumerate(deeds)]

    async def items(self, _source: Any, _shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        return self._items


def task_spec(place: Path, *rules: Any, code: str = DISPATCH, **more: Any) -> TaskSpec:
    args = {
        "n": "{{ local.iter.index }}",
        "deed": "{{ local.iter.d }}",
        "place": str(place),
        "list": [1],
    }
    return spec("t", *rules, kind="python", inputs={"code": code, "args": args, **more})


class Seen(msgspec.Struct):
    """What became of a shard, as far as anybody can tell."""

    answer: Any
    begun: list[str]
    log: Mapping[tuple[int, str], str]
    requests: int


def crossed(
    made: TaskSpec,
    deeds: list[Any],
    place: Path,
    *,
    stops: bool = False,
    item: tuple[str, ...] = (),
    **options: Any,
) -> Seen:
    iteration = Iteration(Program((made,)), "d", stops=stops, item=item)
    logs = AttemptLogs(LogLimits(attempt_bytes=4 << 20), now=lambda: 1000)
    asked: list[int] = []

    async def scenario() -> Answer:
        limits = {"limit": 1, "grace_seconds": 0.3, "result_bytes": 100_000, **options}
        python = Python(ProcessOptions(**limits))
        services = Services(performers={"python": python})
        task = shard_task(iteration, Shard(0, 0, len(deeds)))
        names = {"ctx": {"region": "eu"}, "workload": {"list": ["a"]}, "run": "r"}
        task = msgspec.structs.replace(task, names=names)
        with pytest.MonkeyPatch.context() as patch:
            count_requests(patch, asked)
            answer = await carry_out(Shards(services, Items(deeds)), task, logs)
        pids = python.pids
        await python.close()
        assert gone(*pids)
        assert isinstance(answer, Answer)
        return answer

    place.write_text("")
    answer = run(scenario())
    report = answer.shard
    assert report is not None
    told = (report.succeeded, report.failed, report.shared, report.unbegun, report.ways)
    return Seen(
        (answer.status, answer.result, answer.patches, told, report.keys),
        place.read_text().split(),
        printed(logs),
        len(asked),
    )


def count_requests(patch: pytest.MonkeyPatch, asked: list[int]) -> None:
    for name in ("run", "run_each"):
        real = getattr(Processes, name)

        async def counted(*given: Any, real: Any = real) -> Any:
            asked.append(1)
            return await real(*given)

        patch.setattr(Processes, name, counted)


def printed(logs: AttemptLogs) -> dict[tuple[int, str], str]:
    found: dict[tuple[int, str], str] = {}
    for log in logs.waiting():
        for batch in log.take():
            for piece in batch.pieces:
                place = (piece.item, piece.stream)
                found[place] = found.get(place, "") + piece.text + "\n"
    return found


def seen_both_ways(
    made: TaskSpec, deeds: list[Any], place: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> tuple[Seen, Seen]:
    together = crossed(made, deeds, place, **more)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "item_batches", lambda *_given: None)
        alone = crossed(made, deeds, place, **more)
    return together, alone


def both_ways(
    made: TaskSpec,
    deeds: list[Any],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    **more: Any,
) -> Seen:
    together, alone = seen_both_ways(made, deeds, place, monkeypatch, **more)
    if FORGERY in deeds:  # items behind it may have begun when it is noticed, and begin once more
        assert together.answer[:2] == alone.answer[:2]
        assert set(together.begun) == set(alone.begun)
    else:
        assert together.answer == alone.answer
        assert together.begun == alone.begun
        assert together.log == alone.log
    return together


@pytest.mark.parametrize("seed", seeds(80 if SHARE >= 1 else 30, least=2))
def test_whatever_items_do_they_come_to_the_same_as_each_by_itself(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    names = list(DEEDS)
    dice.shuffle(names)
    deeds = names[: dice.randint(6, 18)]
    for _ in range(dice.randint(4, 24)):  # most items are everyday ones
        deed = dice.choice(["number", "text", "mapping", "prints", "looks for soil"])
        deeds.insert(dice.randint(0, len(deeds)), deed)
    rules = dice.choice(list(RULES))
    stops, recycle = dice.random() < 0.3, dice.choice([2, 7, 10_000])
    monkeypatch.setattr(batching, "_FIRST", dice.choice([2, 8, 64]))
    made = task_spec(tmp_path / "begun", *RULES[rules])
    both_ways(made, deeds, tmp_path / "begun", monkeypatch, stops=stops, recycle_after=recycle)


def groups_of_deeds() -> Iterator[tuple[str, ...]]:
    """All of them, some at a time: every shard begins a process of its own."""
    yield (FORGERY,)
    others = [name for name in DEEDS if name != FORGERY]
    for first in range(0, len(others), 7):
        yield tuple(others[first : first + 7])


@pytest.mark.parametrize("group", list(groups_of_deeds()), ids=lambda group: group[0])
def test_everything_that_an_item_can_do_is_its_own_affair(
    group: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = (["number", "prints", deed, "prints", deed, "looks for soil"] for deed in group)
    deeds = [one for some in each for one in some]
    made = task_spec(tmp_path / "begun", *RULES["goes on"])
    seen = both_ways(made, deeds, tmp_path / "begun", monkeypatch)
    for at in range(0, len(deeds), 6):
        assert seen.begun.count(str(at)) == 1
        for printing in (at + 1, at + 3):
            assert seen.log[printing, "stdout"].startswith(f"out of {printing}\n"), deeds[at + 2]


def test_an_item_that_takes_too_long_is_ended_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its code does not listen to the signal that asks it to end."""
    deaf = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600 if n == 2 else 0)"
    )
    begun = "with open(place, 'a') as file: print(n, file=file)\n"

    def ended(limit: float) -> bool:
        made = task_spec(tmp_path / "begun", code=f"{begun}{deaf}\nreturn n", timeout=limit)
        seen, alone = seen_both_ways(made, ["wait"] * 5, tmp_path / "begun", monkeypatch)
        _, result, _, (succeeded, failed, *_), _ = seen.answer
        if succeeded != 4 or alone.answer[3][0] != 4:
            return False  # the machine was too busy for that limit
        assert seen == msgspec.structs.replace(alone, requests=seen.requests)
        assert result == [0, 1, None, 3, 4]
        assert [(one.index, one.kind) for one in failed] == [(2, "timeout")]
        assert seen.begun == ["0", "1", "2", "3", "4"]
        return True

    assert any(ended(limit) for limit in PATIENCE)


#: Items of every kind that a template may give, or refuse to give.
VALUES: tuple[Any, ...] = (
    *(0, -7, 2**53, 2**80, True, None, "", "zażółć", "{{ 1 }}", "__name__", 0.5, 1e300),
    *([1, [2]], {"a": {"b": None}}, (1, 2), "half \ud800", float("nan"), {1: 2}, {1, 2}),
)
PLAIN_CODE = """
import sys
with open(place, 'a') as beginnings:
    print(len(str(v)), file=beginnings)
if v == "":
    raise ValueError("empty")
if v is None:
    print("nothing here")
if v == -7:
    import os
    os._exit(3)
result = [v, twice, sorted(input_data), limit]
"""


@pytest.mark.parametrize("seed", seeds(20, least=2))
@pytest.mark.parametrize("rules", ["none", "shares", "goes on"])
def test_arguments_that_are_made_of_the_item_alone_come_to_the_same(
    seed: int, rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task is made for such items; whatever the items are, nobody can tell."""
    dice, place = random.Random(seed), tmp_path / "begun"
    deeds = [dice.choice(VALUES) for _ in range(dice.randint(4, 30))]
    look = "{{ local.iter.d }}"
    args = {"v": look, "twice": look, "place": str(place), "limit": 5}
    inputs = {"code": PLAIN_CODE, "args": args, "timeout": 600}
    made = spec("t", *RULES[rules], kind="python", inputs=inputs)
    item = ("local", "iter", "d")
    assert Python().request_of_item(getattr(made.inputs, "structure", None), item, "t") is not None
    both_ways(made, deeds, place, monkeypatch, stops=dice.random() < 0.3, item=item)


def test_items_go_in_few_requests(tmp_path: Path) -> None:
    seen = crossed(task_spec(tmp_path / "begun"), ["number"] * 600, tmp_path / "begun")
    assert seen.answer[1] == list(range(600))
    assert seen.requests < 200, "a busy machine ends requests early, but not after each item"


def test_items_that_print_go_together_as_well(tmp_path: Path) -> None:
    seen = crossed(task_spec(tmp_path / "begun"), ["prints"] * 60, tmp_path / "begun")
    assert seen.log == {(n, "stdout"): f"out of {n}\n" for n in range(60)}
    assert seen.requests < 60, "not after each item, though each waits until it was read"


def test_an_item_behind_one_that_ended_the_loop_does_not_begin(tmp_path: Path) -> None:
    deeds = ["number", "raises", "number", "number"]
    made = task_spec(tmp_path / "begun", code=DISPATCH.replace("RuntimeError", "ValueError"))
    seen = crossed(made, deeds, tmp_path / "begun", stops=True)
    assert seen.begun == ["0", "1"]
    assert seen.answer[3][3] == (2, 3)


@pytest.mark.parametrize(
    "made",
    [
        spec("t", kind="python", inputs={"code": "return 1"}, timeout_ms=60_000),
        spec("t", kind="python", inputs={"code": "return 1"}, set_ctx={"a": "1"}),
        spec("t", kind="python", inputs={"code": "return 1"}, output={"scope": "step"}),
        spec("t", rule("local.outcome.error", "retry"), kind="python", inputs={"code": "return 1"}),
        spec("t", kind="python", inputs={"code": "return 1", "script": "x.py"}),
        spec("t", kind="python", inputs={"script": "return 1"}),
    ],
)
def test_items_of_which_more_is_said_are_asked_one_by_one(made: TaskSpec, tmp_path: Path) -> None:
    seen = crossed(made, ["number"] * 4, tmp_path / "begun")
    assert seen.requests in (0, 4)


def test_code_that_may_use_secrets_is_asked_one_by_one() -> None:
    made = spec("t", kind="python", inputs={"code": "return 1"})
    task = shard_task(Iteration(Program((made,)), "d"), Shard(0, 0, 4))
    services = Services(performers={"python": Python()})
    assert batching.item_batches(task.program, services, task) is not None
    secret = msgspec.structs.replace(task, names={**task.names, "keychain": {}})
    assert batching.item_batches(task.program, services, secret) is None


def test_code_that_differs_from_item_to_item_is_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"code": "return {{ 1 if local.iter.index < 3 else 2 }}", "args": {}}
    made = spec("t", kind="python", inputs=inputs)
    seen = both_ways(made, ["number"] * 6, tmp_path / "begun", monkeypatch)
    assert seen.answer[1] == [1, 1, 1, 2, 2, 2]


def test_an_engine_hands_items_of_inline_code_on_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its performers are made with their first task, and batches find them all the same."""
    together: list[int] = []
    run_each = Processes.run_each

    async def counted(self: Processes, given: Any, take: Any, step: str) -> None:
        together.append(len(given.jobs))
        await run_each(self, given, take, step)

    monkeypatch.setattr(Processes, "run_each", counted)
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": {"shard_size": 20}},
        "loop": {"in": {"range": 20}, "iterator": "n"},
        "tool": {"kind": "python", "code": "return n + 1", "args": {"n": "{{ iter.n }}"}},
    }
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "inline"}}

    async def scenario() -> None:
        async with anabranch.Engine(":memory:") as engine:
            ended = await engine.wait(await engine.start({**head, "workflow": [step]}))
        assert ended.steps["each"]["result"]["succeeded"] == 20

    asyncio.run(scenario())
    assert max(together) > 1
