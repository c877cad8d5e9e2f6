"""What the README and the list of examples promise to a reader who types it in."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch
from anabranch.surfaces.cli import parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
LIST = (EXAMPLES / "README.md").read_text(encoding="utf-8")
(QUOTES,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def test_the_first_playbook_takes_the_cheaper_offer(tmp_path: Path) -> None:
    patient = QUOTES.replace("timeout: 5s", "timeout: 1h")  # for a busy machine
    done = anabranch.run(patient, {"item": "anchor"}, store=tmp_path / "runs.db")
    assert (done.status, done.result) == ("completed", {"shop": "south", "price": 11})
    assert f"result: {json.dumps(done.result)}" in README


def test_the_first_playbook_chooses_among_those_who_came_in_time(tmp_path: Path) -> None:
    late = QUOTES.replace("echo 11", "sleep 9; echo 11").replace("timeout: 5s", "timeout: 100ms")
    assert late != QUOTES
    done = anabranch.run(late, {"item": "anchor"}, store=tmp_path / "runs.db")
    assert done.steps["south"]["status"] == "skipped"
    assert (done.status, done.result) == ("completed", {"shop": "north", "price": 12})


def test_the_definitions_it_shows_are_those_it_runs() -> None:
    asked, joined = (
        json.loads(text) for text in re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    )
    assert joined == json.loads((EXAMPLES / "orchestration/second_opinion.json").read_text())
    example = json.loads((EXAMPLES / "arca/best_of.json").read_text())
    assert asked == {key: example[key] for key in asked}
    assert example.keys() - asked.keys() == {"description", "deadline"}


def commands(text: str) -> list[str]:
    text = text.replace("\\\n", " ")
    shown = re.findall(r"^\$ (anabranch .*?)(?:  +#.*)?$", text, re.MULTILINE)
    return [*shown, *re.findall(r"`(anabranch (?!VERB)[^`]*)`", LIST)]


@pytest.mark.parametrize("line", commands(README))
def test_every_command_is_in_the_grammar_and_names_files_that_are_there(line: str) -> None:
    words = shlex.split(line)[1:]
    parser.build(words[0]).parse_args(words)
    named = [word for word in words if word.startswith("examples/")]
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_every_example_is_in_the_list() -> None:
    files = [path for path in EXAMPLES.rglob("*.*") if path.suffix in (".yaml", ".json", ".py")]
    own = [path for path in files if path.parent.name != "rules"]
    assert [path.name for path in own if path.name not in LIST] == []
    assert [path.name for path in files if re.search(r"example\.(org|com)", path.read_text())] == []


def test_pages_are_fetched_from_the_endpoint_beside_them(tmp_path: Path) -> None:
    words = [sys.executable, str(EXAMPLES / "pages_server.py"), "0"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as at:
        try:
            assert at.stdout is not None
            url = at.stdout.readline().strip()
            done = anabranch.run(EXAMPLES / "pages.yaml", {"url": url}, store=tmp_path / "runs.db")
        finally:
            at.kill()
    assert (done.status, done.result) == ("completed", 25)


@pytest.mark.parametrize(
    ("name", "result"),
    [("parallel_loop", "3 cities, 1 without an answer"), ("distributed_loop", 328_350)],
)
def test_loops_need_no_network(tmp_path: Path, name: str, result: object) -> None:
    given = {"count": 100} if name == "distributed_loop" else {}
    done = anabranch.run(EXAMPLES / f"{name}.yaml", given, store=tmp_path / "runs.db")
    assert (done.status, done.result) == ("completed", result)
