"""Inline work under a user of its own reaches neither the engine's files nor its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS

from .support import Done, Here, alive, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can switch"),
]
NOBODY = 65534
SOURCE = Path(__file__).parents[3] / "src"


def _python() -> str:
    """A Python like this one that everybody may run: this one may be in a home of somebody."""
    same = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    for one in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run(
                [one, "-c", same], user=NOBODY, group=NOBODY, cwd="/", check=False
            )
        except OSError:
            continue
        if done.returncode == 0:
            return one
    pytest.skip("nobody can run no Python like this one")


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PYTEST_"))}
    paths = [str(SOURCE), sysconfig.get_path("purelib"), *filter(None, sys.path)]
    stdlib = sysconfig.get_path("stdlib")
    wanted = [path for path in paths if not path.startswith(stdlib) or "site-packages" in path]
    return {**kept, "PYTHONPATH": os.pathsep.join(wanted), "ANABRANCH_TOKEN": "anb_secret"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the engine keeps its things; `open` is a folder for everybody, below /tmp."""
    (tmp_path / "private").mkdir(mode=0o700)
    return tmp_path / "private"


LOOK = """
id -u; id -G; echo "home $HOME $USER"
cat {store} 2>&1 >/dev/null && echo read the store
tr '\\0' '\\n' < /proc/{engine}/environ 2>/dev/null | grep TOKEN && echo read the environment
echo to the terminal > /dev/stderr
exit 0
"""
PYTHON = """
import os, pathlib
def tried(path):
    try:
        return len(pathlib.Path(path).read_bytes())
    except OSError as error:
        return type(error).__name__
engine = os.getppid()
return {"uid": os.getuid(), "groups": os.getgroups(), "store": tried(store),
        "environ": tried(f"/proc/{engine}/environ"), "token": os.environ.get("ANABRANCH_TOKEN")}
"""


def playbook(*steps: dict[str, Any]) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "who"}}
    return json.dumps({**head, "workflow": list(steps)})


def run(folder: Path, env: dict[str, str], text: str, *words: str, python: str) -> Done:
    (folder / "who.json").write_text(text)
    made = subprocess.run(
        [python, "-m", "anabranch", "run", "who.json", "--json", "--store", "kept.db", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    return Done(made.returncode, made.stdout, made.stderr)


def test_a_shell_step_runs_as_the_user_and_reads_nothing_of_the_engine(
    folder: Path, environment: dict[str, str]
) -> None:
    look = LOOK.format(store=folder / "kept.db", engine="$PPID")
    steps = {"step": "look", "tool": {"kind": "shell", "command": look}}
    words = ("--inline-user", "nobody", "--no-inline", "python")
    done = run(folder, environment, playbook(steps), *words, python=sys.executable)
    assert done.code == 0, done
    result = done.json["steps"]["look"]["result"]
    lines = result["stdout"].splitlines()
    assert lines[0] == str(NOBODY)
    assert "0" not in lines[1].split()
    assert "read the" not in result["stdout"]
    assert "anb_secret" not in done.out
    assert "to the terminal" in result["stderr"]


def test_python_code_runs_as_the_user_and_reads_nothing_of_the_engine(
    folder: Path, environment: dict[str, str]
) -> None:
    tool = {"kind": "python", "code": PYTHON, "args": {"store": str(folder / "kept.db")}}
    text = playbook({"step": "look", "tool": tool})
    done = run(folder, environment, text, "--inline-user", "nobody", python=_python())
    assert done.code == 0, done
    result = done.json["steps"]["look"]["result"]
    assert result["uid"] == NOBODY
    assert 0 not in result["groups"]
    assert (result["store"], result["environ"]) == ("PermissionError", "PermissionError")
    assert result["token"] is None


def test_work_of_the_user_is_stopped_like_any_other(
    folder: Path, environment: dict[str, str]
) -> None:
    pids = Path("/tmp") / f"anabranch-{os.getpid()}-{folder.parent.name}"
    command = f"trap '' TERM; setsid sleep 300 & echo $$ $! > {pids}; sleep 300"
    tool = {"kind": "shell", "command": command, "timeout": "4s"}
    words = ("--inline-user", "nobody", "--no-inline", "python")
    try:
        text = playbook({"step": "long", "tool": tool})
        done = run(folder, environment, text, *words, python=sys.executable)
        assert done.code == 1, done
        assert done.json["problem"]["code"] == "timeout"
        started = [int(word) for word in pids.read_text().split()]
        until(lambda: not any(alive(pid) for pid in started))
    finally:
        pids.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "why"),
    [("nobody-like-that", "there is no user"), ("root", "fewer rights"), ("0", "fewer rights")],
)
def test_a_user_that_cannot_be_had_is_refused_at_the_start(name: str, why: str, here: Here) -> None:
    here.write("who.json", playbook({"step": "a", "tool": {"kind": "noop"}}))
    done = here.run("run", "who.json", "--inline-user", name)
    assert done.code == 2
    assert why in done.err
    assert "inline_user" in done.err


def test_a_process_that_may_not_switch_says_so_and_does_not_start() -> None:
    code = (
        "from anabranch.errors import InputError\n"
        "from anabranch.work.kinds.commands.os_user import OsUser\n"
        "import os\nos.setgid(1); os.setuid(1)\n"
        "try:\n    OsUser.named('nobody', python=False)\n"
        "except InputError as error:\n    print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "may not become nobody" in done.stdout
    assert "start it as root" in done.stdout
