"""`anabranch story`: the two stories and all their variants with real processes, killed at arrows,
interrupted, and left running. Every one ends with its laws, and leaves no process behind.

The suite plays story 006 with one provider; `make soak` plays both stories as a whole and all
variants, which `tests/surfaces/stories` has in one process each, as it has some of the kills, and
kills at every place.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces.stories.kills import all_points
from hangs import HANG_SECONDS
from seeds import seeds
from surfaces.cli.support import Here

pytestmark = pytest.mark.slow

#: Every arrow of story 006, in the words of the trail.
ARROWS_006 = {
    "started", "offers", "passports", "submitted", "run", "asked", "answered", "chosen", "ordered",
    "held", "contract", "sent", "taken", "worked", "admitted", "accepted", "released", "receipt",
    "hold", "step", "artifact", "notified", "completed",
}  # fmt: skip
#: A provider while it starts, the editor right before a commit, a module of a provider.
KILLS_009 = ["before:offer", "before:ordered", "worked@press/dator"]
PYTHON = Path(sys.executable)
STEPS_009 = ("research", "illustrate", "review", "publish", "announce")


def start(python: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", "anabranch", "story", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "QUICK_PYTHON": str(python)},
        text=True,
    )


def played(folder: Path, *words: str, python: Path = PYTHON) -> dict[str, Any]:
    """The verdict of a story, which is a good one. Where it kills, and exactly at an arrow, it has
    the real Python, also where nodes outlive it: a quick one stands for a process with another
    number, which is killed an instant later."""
    runs = 1 + sum(word.count(",") for word in words)  # one for each place to kill
    with start(python, *words, "--json", "--dir", str(folder)) as story:
        out, said = story.communicate(timeout=runs * HANG_SECONDS)
    assert story.returncode == 0, f"{out}\n{said}"
    verdict: dict[str, Any] = json.loads(out)
    assert verdict["ok"]
    assert all(law["holds"] for law in verdict["laws"])
    assert processes_in(folder) == [], "it leaves no process behind"
    return verdict


def processes_in(folder: Path) -> list[int]:
    """Processes that were started with this folder, nodes and modules alike."""
    found = []
    for one in Path("/proc").iterdir():
        try:
            said = (one / "cmdline").read_bytes() + (one / "environ").read_bytes()
        except OSError:
            continue
        if one.name.isdigit() and str(folder).encode() in said and int(one.name) != os.getpid():
            found.append(int(one.name))
    return found


def wait_until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not is_so():
        assert time.monotonic() < end, f"in vain for {what}"
        time.sleep(0.05)


# -- as they should go -----------------------------------------------------------------------------


def require_whole_006(verdict: dict[str, Any], providers: int) -> None:
    """It shows every arrow from the offers to the notification."""
    assert {one["arrow"] for one in verdict["told"]} == ARROWS_006
    (run,) = verdict["runs"]
    assert run["status"] == "completed"
    assert list(run["orders"].values()) == ["released"]
    asked = [one for one in verdict["told"] if one["arrow"] == "asked"]
    assert len(asked) == providers


@pytest.mark.soak
def test_story_006_asks_three_providers(tmp_path: Path, quick_python: Path) -> None:
    verdict = played(tmp_path / "006", "006", python=quick_python)
    require_whole_006(verdict, 3)
    assert [node["name"] for node in verdict["nodes"]] == ["buyer", "north", "south", "east"]


def require_whole_009(verdict: dict[str, Any]) -> None:
    """Every run carries out its five orders."""
    for run in verdict["runs"]:
        assert run["status"] == "completed"
        steps = [f"order:{run['run']}-{step}-a1" for step in STEPS_009]
        assert sorted(run["orders"]) == sorted(steps)
        assert set(run["orders"].values()) == {"released"}
    assert [node["name"] for node in verdict["nodes"]] == ["editor", "studio", "press"]
    arrows = {one["arrow"] for one in verdict["told"]}
    assert {"template", "catalog"} <= arrows
    assert not {"held", "hold"} & arrows, "nothing is paid for"


@pytest.mark.soak
def test_story_009_carries_out_five_orders(tmp_path: Path, quick_python: Path) -> None:
    verdict = played(tmp_path / "009", "009", python=quick_python)
    assert len(verdict["runs"]) == 1
    require_whole_009(verdict)


@pytest.mark.soak
def test_story_009_carries_out_five_orders_whatever_is_killed_meanwhile(tmp_path: Path) -> None:
    """One run for each place but the first, which comes while the nodes start."""
    verdict = played(tmp_path / "009", "009", "--kill", ",".join(KILLS_009))
    assert (verdict["kills"], verdict["missed"]) == (KILLS_009, [])
    assert len(verdict["runs"]) == len(KILLS_009) - 1
    require_whole_009(verdict)


# -- as they should not ----------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "variant", "status", "orders"),
    [
        ("006", "silent", "step_timeout", []),
        ("006", "budget", "failed", []),
        ("006", "conflict", "completed", ["released"]),
        ("006", "stalled", "step_timeout", ["expired"]),
        ("009", "rejects", "paused", ["released"] * 3),
        ("009", "stalled", "step_timeout", ["expired", "released", "released"]),
    ],
)
def test_a_variant_ends_as_it_must_and_breaks_no_law(
    tmp_path: Path, number: str, variant: str, status: str, orders: list[str]
) -> None:
    verdict = played(tmp_path / variant, number, "--variant", variant)
    (run,) = verdict["runs"]
    assert (run["status"], sorted(run["orders"].values())) == (status, orders)


# -- killed ----------------------------------------------------------------------------------------

POINTS = {
    "006": [point.text for point in all_points("buyer", "south")],
    "009": [point.text for point in all_points("editor", "press")
            if point.arrow.name not in ("asked", "released")],
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("number", POINTS)
def test_whatever_is_killed_between_two_arrows_the_story_ends_well(
    tmp_path: Path, number: str
) -> None:
    every = POINTS[number]
    chosen = [every[seed * 7 % len(every)] for seed in seeds(len(every), least=4)]  # far apart
    verdict = played(tmp_path / number, number, "--kill", ",".join(dict.fromkeys(chosen)))
    assert {run["status"] for run in verdict["runs"]} == {"completed"}
    assert len(verdict["kills"]) + len(verdict["missed"]) == len(set(chosen))
    assert len(verdict["kills"]) >= len(set(chosen)) // 2, "runs came to few of the places"


@pytest.mark.soak
@pytest.mark.parametrize("arrow", ["before:offer", "after:passport"])
def test_a_provider_that_is_killed_while_it_starts_publishes_once(
    tmp_path: Path, arrow: str
) -> None:
    verdict = played(tmp_path / "006", "006", "--providers", "1", "--kill", arrow)
    assert (verdict["kills"], verdict["missed"]) == ([arrow.removeprefix("after:")], [])
    assert verdict["runs"][0]["status"] == "completed"


# -- interrupted, and left running -----------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.soak)]
)
def test_a_story_that_is_interrupted_leaves_no_process_behind(
    tmp_path: Path, quick_python: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "006"
    with start(quick_python, "006", "--providers", "1", "--dir", str(folder)) as story:
        assert story.stdout is not None
        for line in story.stdout:
            if "publishes" in line:
                break
        assert len(processes_in(folder)) > 2  # the story, and nodes with their modules
        story.send_signal(number)
        story.communicate(timeout=HANG_SECONDS)
    assert story.returncode == (130 if number == signal.SIGINT else -9)
    wait_until(lambda: not processes_in(folder), "every process to end")


def test_story_006_with_one_provider_whose_nodes_are_kept_until_they_are_stopped(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "006"
    words = ("006", "--providers", "1", "--keep", "--json", "--dir", str(folder))
    with start(PYTHON, *words) as story:
        out, said = story.communicate(timeout=HANG_SECONDS)
    try:
        assert story.returncode == 0, f"{out}\n{said}"
        verdict = json.loads(out)
        assert verdict["kept"]
        require_whole_006(verdict, 1)
        assert [node["name"] for node in verdict["nodes"]] == ["buyer", "north"]
        for node in verdict["nodes"]:
            headers = {"X-Orbiplex-Authtok": Path(node["token"]).read_text()}
            request = urllib.request.Request(f"{node['url']}/v1/status", headers=headers)
            with urllib.request.urlopen(request, timeout=HANG_SECONDS) as answer:
                assert json.load(answer)["name"] == node["name"]
    finally:
        with start(PYTHON, "stop", str(folder), "--json") as stop:
            out, said = stop.communicate(timeout=HANG_SECONDS)
    assert (stop.returncode, json.loads(out)) == (0, {"stopped": ["buyer", "north"]}), said
    wait_until(lambda: not processes_in(folder), "every process to end")
    with start(PYTHON, "stop", str(folder)) as again:
        _, said = again.communicate(timeout=HANG_SECONDS)
    assert again.returncode == 2
    assert "no story has left nodes" in said


# -- bad input -------------------------------------------------------------------------------------


@pytest.fixture
def here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Here:
    return Here(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["006", "--kill", "orderd"], "there is no arrow 'orderd'"),
        (["006", "--kill", "ordered@west"], "there is no node 'west'"),
        (["006", "--kill", "ordered@buyer/dator"], "buyer has no module 'dator'"),
        (["006", "--kill", "offer,passport"], "one can be chosen"),
        (["006", "--variant", "rejects"], "invalid choice"),
        (["009", "--providers", "2"], "unrecognized arguments"),
        (["006", "--providers", "0"], "invalid number"),
        (["007"], "invalid choice"),
    ],
)
def test_bad_input_is_named_before_anything_is_started(
    here: Here, words: list[str], said: str
) -> None:
    done = here.run("story", *words)
    assert done.code == 2
    assert said in done.err


def test_a_folder_with_something_in_it_is_left_alone(here: Here) -> None:
    (here.folder / "mine").write_text("something")
    done = here.run("story", "006", "--dir", str(here.folder))
    assert done.code == 2
    assert "there is something in" in done.err
    assert [one.name for one in here.folder.iterdir()] == ["mine"]
