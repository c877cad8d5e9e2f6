"""A run that waits for its child: what it waits for is what the child waits for."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from seeds import seeds

from ..support import HEAD, Here, beginning, until

GATE = """metadata: {name: gate}
workflow:
  - step: ask
    tool: {kind: decision, ask: "Ship it?"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: shipped}
"""
CALLS = """metadata: {name: calls}
workflow:
  - step: call
    spec: {retry: {attempts: 3}}
    tool: {kind: playbook, path: CHILD, return_step: end}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, result: "{{ call.result }}"}
"""
FAILS_TWICE = """metadata: {name: fails_twice}
workflow:
  - step: end
    tool:
      kind: python
      input: {place: PLACE}
      code: |
        import pathlib
        file = pathlib.Path(place) / 'tries'
        tries = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(tries))
        if tries < 3:
            raise RuntimeError('not yet')
        return tries
"""


@pytest.fixture
def here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    made = Here(tmp_path, capsys, monkeypatch)
    made.write("gate.yaml", HEAD + GATE)
    made.write("middle.yaml", HEAD + CALLS.replace("CHILD", "./gate.yaml"))
    made.write("outer.yaml", HEAD + CALLS.replace("CHILD", "./middle.yaml"))
    made.write("tries.yaml", HEAD + FAILS_TWICE.replace("PLACE", str(tmp_path)))
    made.write("patient.yaml", HEAD + CALLS.replace("CHILD", "./tries.yaml"))
    return made


def test_a_parent_whose_grandchild_waits_for_a_person_is_left_and_says_for_whom(here: Here) -> None:
    left = here.run("run", "outer.yaml", "--run-id", "outer")
    assert left.code == 4, left
    assert "ask waits for a decision: Ship it?" in left.err
    (line,) = [line for line in left.err.splitlines() if line.endswith("--fulfil")]
    told = here.ok("explain", "outer", "--json").json["waiting"]
    assert [one["movers"][0] for one in told] == [line.partition(": ")[2].strip()]
    here.ok(*told[0]["movers"][0].split()[1:])
    ended = here.run("resume")
    assert ended.code == 0, ended
    assert here.show("outer")["result"] == "shipped"
    assert here.show("last")["run"] == "outer"


def test_a_child_that_failed_is_tried_again_as_a_run_of_its_own(here: Here) -> None:
    done = here.ok("run", "patient.yaml", "--json")
    assert done.json["result"] == 3
    runs = here.ok("runs", "--json").json
    assert sorted(one["status"] for one in runs) == ["completed", "completed", "failed", "failed"]


BEGINS = """metadata: {name: begins}
workflow:
  - step: begin
    tool: {kind: playbook, path: CHILD}
    next: {arcs: [{step: begun}]}
  - step: begun
    tool: {kind: noop, result: "{{ begin.status }}"}
"""
SLOW = """metadata: {name: slow}
workflow:
  - step: sleep
    tool: {kind: shell, command: "sleep 0.3; exit CODE"}
    next: {arcs: [{step: end, when: "{{ event.name == 'step.done' }}"}]}
  - step: end
    tool: {kind: noop}
"""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (SLOW.replace("CODE", "0"), 0, ""),
        (SLOW.replace("CODE", "7"), 1, "(slow) ended failed: sleep: "),
        (GATE, 4, "(gate) is left waiting: ask waits for a decision: Ship it?"),
        (BEGINS.replace("CHILD", "./gate.yaml"), 4, "(gate) is left waiting"),
    ],
    ids=["well", "failed", "left", "of a child"],
)
def test_runs_that_are_only_begun_are_followed_to_their_end(
    here: Here, text: str, code: int, said: str
) -> None:
    here.write("child.yaml", HEAD + text)
    here.write("begins.yaml", HEAD + BEGINS.replace("CHILD", "./child.yaml"))
    done = here.run("run", "begins.yaml", "--json")
    assert done.code == code, done
    assert done.json["result"] == "started"
    assert said in done.err
    assert [one["finished"] for one in done.json.get("children", [])] == [code == 1] * (code > 0)
    statuses = {one["status"] for one in here.ok("runs", "--json").json}
    assert "running" not in statuses


def test_who_does_not_want_to_wait_for_them_says_so(here: Here) -> None:
    here.write("begins.yaml", HEAD + BEGINS.replace("CHILD", "./gate.yaml"))
    done = here.run("run", "begins.yaml", "--no-children", "--run-id", "alone")
    assert (done.code, "child run" in done.err) == (0, False)
    (left,) = here.ok("explain", "alone", "--json").json["children"]
    assert here.show("last")["run"] == "alone"
    assert (left["name"], left["finished"]) == ("gate", False)


def test_a_run_whose_id_only_looks_like_a_childs_is_none(here: Here) -> None:
    assert here.run("run", "gate.yaml", "--run-id", "one-two").code == 4
    done = here.run("run", "gate.yaml", "--run-id", "one")
    assert "one-two" not in "".join(line for line in done.err.splitlines() if "child" in line)
    assert here.ok("explain", "one", "--json").json["children"] == []


#: Every child works until the file `go` is there; those that lead to another wait for it.
WORKS = """metadata: {name: works}
workflow:
  - step: work
    tool:
      kind: shell
      command: "echo >> begun; while [ ! -e go ]; do sleep 0.01; done; echo done"
"""
WAITS = """metadata: {name: waits}
workflow:
  - {step: wait, tool: {kind: playbook, path: ./works.yaml, wait: true}}
"""
FAMILY = """metadata: {name: family}
workload: {items: [1, 2]}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: deep}, {step: each}, {step: begin}]}
  - {step: deep, tool: {kind: playbook, path: ./waits.yaml, wait: true}}
  - step: each
    loop: {in: "{{ workload.items }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: playbook, path: ./works.yaml, wait: true}
  - {step: begin, tool: {kind: playbook, path: ./waits.yaml}}
"""
WORKING = 4  # one deep, one for each item, one of the child that is only begun


def test_a_killed_run_goes_on_with_all_that_it_has_begun_when_it_is_named(here: Here) -> None:
    for name, text in (("works", WORKS), ("waits", WAITS), ("family", FAMILY)):
        here.write(f"{name}.yaml", HEAD + text)
    with beginning(here, "run", "family.yaml", "--run-id", "family") as running:
        until(lambda: _lines(here.folder / "begun") == WORKING)
        running.kill()
        running.wait()
    here.write("go", "")
    done = here.begin("resume", "family", "--json").end()
    assert done.code == 0, done
    assert done.json["status"] == "completed"
    assert {one["status"] for one in here.ok("runs", "--json").json} == {"completed"}


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


KEYED = """metadata: {name: keyed}
keychain: [{name: pw, kind: env, variable: CHILDREN_TEST_SECRET}]
workflow:
  - {step: ask, tool: {kind: decision, ask: "Go on?"}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: python, args: {pw: "{{ keychain.pw }}"}, code: "result = len(pw)"}}
"""


def test_a_run_is_left_as_it_is_where_a_child_that_it_waits_for_lacks_something(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("keyed.yaml", HEAD + KEYED)
    here.write("calls.yaml", HEAD + CALLS.replace("CHILD", "./keyed.yaml"))
    monkeypatch.setenv("CHILDREN_TEST_SECRET", "a word")
    assert here.run("run", "calls.yaml", "--run-id", "calls").code == 4
    monkeypatch.delenv("CHILDREN_TEST_SECRET")
    left = here.run("resume", "calls")
    assert left.code == 4, left
    assert "is left as it is" in left.err
    assert "CHILDREN_TEST_SECRET" in left.err


class Tree:
    """A random tree of runs: some are waited for, as a task or as the items of a loop, and some
    are only begun. All of its leaves ask."""

    def __init__(self, seed: int) -> None:
        self._dice = Random(f"tree {seed}")
        self.texts: dict[str, str] = {}
        self.root = self._grow(3)

    def _grow(self, most: int) -> str:
        """The name of a definition that has children for so many generations at most."""
        name = f"tree{len(self.texts)}"
        self.texts[name] = ""  # taken
        if most == 0 or (most < 3 and self._dice.random() < 0.4):
            self.texts[name] = GATE.replace("name: gate", f"name: {name}")
            return name
        steps = [self._step(f"s{n}", self._grow(most - 1)) for n in range(self._dice.randint(1, 2))]
        arcs = ", ".join(f"{{step: s{n}}}" for n in range(len(steps)))
        start = f"next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}"
        self.texts[name] = "\n".join([
            f"metadata: {{name: {name}}}",
            "workload: {items: [1, 2]}",
            "workflow:",
            f"  - {{step: start, tool: {{kind: noop}}, {start}}}",
            *steps,
        ]) + "\n"  # fmt: skip
        return name

    def _step(self, step: str, child: str) -> str:
        is_first = step == "s0"  # each waits for one at least, and so the root for a leaf
        waits = ", wait: true" if is_first or self._dice.random() < 0.4 else ""
        over = '{in: "{{ workload.items }}", iterator: n, spec: {mode: parallel}}'
        loop = f", loop: {over}" if waits and self._dice.random() < 0.4 else ""
        tool = f"{{kind: playbook, path: ./{child}.yaml{waits}}}"
        return f"  - {{step: {step}{loop}, tool: {tool}}}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40))
def test_a_random_tree_of_runs_ends_when_its_root_is_named(here: Here, seed: int) -> None:
    """Every leaf is decided while no engine is there, and goes on with nothing else to move it."""
    tree = Tree(seed)
    for name, text in tree.texts.items():
        here.write(f"{name}.yaml", HEAD + text)
    assert here.run("run", f"{tree.root}.yaml", "--run-id", "root").code == 4
    waiting = here.ok("runs", "--status", "waiting", "--limit", "500", "--json").json
    asking = [one["run"] for one in waiting if "waits for a decision" in one["reason"]]
    for run in asking:
        here.ok("decide", run, "ask", "--fulfil")
    done = here.begin("resume", "root", "--json").end()
    assert done.code == 0, done
    after = here.ok("runs", "--limit", "500", "--json").json
    assert {one["status"] for one in after} == {"completed"}
    assert len(after) >= len(asking) > 0
