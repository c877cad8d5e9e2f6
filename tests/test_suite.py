"""The runner of the suite: what it tells of tests that fail, hang, die, or leave processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.suite import tested, unstable
from tools.suite.kinds import KINDS, is_pure, kind_of
from tools.suite.parts import Part, cut, find_files
from tools.suite.runner import Failure, Running
from tools.suite.times import table

from hangs import HANG_SECONDS

ROOT = Path(__file__).parent.parent

#: A part of each kind of trouble; the runner is told to take three seconds for a hang.
TROUBLE = {
    "fine": "def test_fine(): pass\ndef test_too(tmp_path): assert tmp_path.exists()\n",
    "fails": "def test_fails():\n    print('before')\n    assert 1 == 2\n",
    "hangs": (
        "import threading\ndef test_hangs(): threading.Event().wait()\ndef test_next(): pass\n"
    ),
    "dies": "import os\ndef test_dies(): os.abort()\ndef test_next(): pass\n",
    "leaves": (
        "import subprocess\n"
        "def test_leaves(): subprocess.Popen(['sh', '-c', 'sleep 1000 & wait'])\n"
    ),
    "orphans": "import os\ndef test_orphans(): os.system('setsid sleep 1000 &')\n",
    "broken": "import nothing_of_this_name\n",
}
PROGRAM = """
import json, sys
from pathlib import Path
from tools.suite import part_process, plugin
from tools.suite.part_process import Options
from tools.suite.parts import Part
from tools.suite.runner import Runner
from tools.suite.process_table import below, processes
import os

plugin.HANG_SECONDS = 9
ended = []
runner = Runner(Path(sys.argv[1]), Options(), ended.append)
runner.run([Part(Path(file).stem, (file,)) for file in sys.argv[2:]], 4)
left = [processes()[pid].command for pid in below([os.getpid()], processes())]
print(json.dumps({
    "parts": [
        {
            "name": one.part.name,
            "outcomes": list(one.outcomes.values()),
            "texts": [failure.text for failure in one.failures],
            "printed": one.output.read_text(),
            "files": one.files,
        }
        for one in ended
    ],
    "left": left,
}))
"""


@pytest.mark.slow
def test_every_trouble_is_told_and_stops_nobody_else(tmp_path: Path) -> None:
    for name, text in TROUBLE.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = tmp_path / "run"
    run.mkdir()
    files = sorted(path.name for path in tmp_path.glob("test_*.py"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, run, *files],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    parts = {one["name"].removeprefix("test_"): one for one in report["parts"]}
    outcomes = {name: one["outcomes"] for name, one in parts.items()}
    assert outcomes == {
        "fine": ["passed", "passed"],
        "fails": ["failed"],
        "hangs": ["failed", "passed"],
        "dies": ["failed"],
        "dies (the rest)": ["passed"],
        "leaves": ["failed"],
        "orphans": ["failed"],
        "broken": ["failed"],
    }
    texts = {name: "\n".join(one["texts"]) for name, one in parts.items()}
    assert "before" in texts["fails"]
    assert "it took more than 9 s" in texts["hangs"]
    assert "test_hangs" in parts["hangs"]["printed"]  # where every thread is
    assert "signal 6" in texts["dies"]
    assert "left a process behind" in texts["leaves"]
    assert "left a process behind: sleep 1000" in texts["orphans"]
    assert "nothing_of_this_name" in texts["broken"]
    assert parts["fine"]["files"].popitem()[1]["tests"] == 2
    assert report["left"] == []


def running(outcome: str) -> Running:
    one = Running(Part("again", ("t",)), 1, 0, 0, Path(), Path(__file__), 0.0)
    one.outcomes["t"] = outcome
    if outcome == "failed":
        one.failures.append(Failure("t", "again", Path(__file__)))
    return one


def test_what_passes_alone_is_unstable_and_pure_tests_get_no_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unstable, "KEPT", tmp_path / "unstable")
    names = [f"tests/surfaces/ui/test_x.py::test_{number}" for number in range(4)]
    pure = "tests/kernel/test_x.py::test_y"
    tried: list[str] = []

    def judge(*failed: str, again: str = "passed") -> unstable.Verdict:
        def once_more(test: str) -> Running:
            tried.append(test)
            return running(again)

        return unstable.judge([Failure(one, "first", Path(__file__)) for one in failed], once_more)

    verdict = judge(*names[:3])
    assert (verdict.is_green, verdict.unstable, verdict.failed) == (True, names[:3], [])
    verdict.tell()
    assert "unstable:" in capsys.readouterr().out
    kept = [file.name for folder in (tmp_path / "unstable").iterdir() for file in folder.iterdir()]
    assert sorted(set(kept)) == ["first-printed.txt", "first.txt", "second.txt"]
    assert not judge(*names).is_green, "more than three"
    assert judge(names[0], again="failed").failed == [names[0]]
    assert judge(pure) == ([pure], [])
    assert pure not in tried


def test_every_file_has_a_kind_and_stands_in_one_part() -> None:
    files = find_files(ROOT)
    parts = cut(files)
    assert sorted(file for part in parts for file in part.tests) == files
    assert len({(part.kind, part.name) for part in parts}) == len(parts)
    kinds = [KINDS.index(part.kind) for part in parts]
    assert kinds == sorted(kinds), "the pure ones come first"
    assert {kind_of(file) for file in files} == set(KINDS)


def test_what_depends_on_no_machine_is_pure() -> None:
    pure = ["kernel/a.py", "xrc/a.py::b", "store/test_store_suite.py::test_x[memory-1]"]
    others = ["store/test_store_suite.py::test_x[sqlite]", "pools/a.py", "test_docs.py"]
    found = [is_pure(f"tests/{one}") for one in [*pure, *others]]
    assert found == [True] * 3 + [False] * 3


def test_a_tree_that_differs_from_what_git_has_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tested, "FILE", tmp_path / "build" / "tested")
    git("init", "-q")
    (tmp_path / ".gitignore").write_text("build/\n")
    git("add", ".")
    git("commit", "-qm", "first")
    tree = tested.clean_tree()
    tested.note(tree, {"passed": 3, "failed": 0}, 12.3)
    assert f"{tree} " in (tmp_path / "build" / "tested").read_text()
    (tmp_path / "new.txt").write_text("changed while the tests ran")
    assert tested.clean_tree() == ""
    tested.note(tree, {"passed": 3, "failed": 0}, 12.3)
    assert len((tmp_path / "build" / "tested").read_text().splitlines()) == 1


def test_the_table_of_times_adds_up_by_kind() -> None:
    row = {"seconds": 2.0, "wall": 3.0, "tests": 4}
    files = {"tests/kernel/test_a.py": row, "tests/surfaces/ui/test_b.py": row}
    text = table({"files": files, "processor": 5, "seconds": 6, "peak": 7})
    assert "2.0 s     3 s      4  kernel/test_a.py" in text
    assert "2.0 s     3 s      4  browser" in text
    assert "4.0 s     6 s      8  all of them" in text
