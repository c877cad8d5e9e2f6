"""`anabranch logs`: at a store and at a server, chosen, followed, and safe to print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.store_suite.work_logs import a_log_row

from ..server_in_thread import served
from ..support import HEAD, HELLO, Here, Terminal

DOCS = Path(__file__).parents[4] / "docs" / "logs.md"

PRINTS = f"""{HEAD}metadata: {{name: prints}}
workflow:
  - step: first
    tool:
      kind: python
      code: |
        import logging, sys
        print("plain words")
        logging.error("went wrong")
    next: {{arcs: [{{step: second}}]}}
  - step: second
    loop: {{in: "{{{{ ['a', 'b'] }}}}", iterator: x}}
    tool: {{kind: shell, command: "echo item {{{{ iter.x }}}}"}}
"""


def texts(out: str) -> list[str]:
    """The lines without their times."""
    return [re.sub(r"^\d\d:\d\d:\d\d\.\d{3} ", "", line) for line in out.splitlines()]


@pytest.fixture
def shop(here: Here) -> Here:
    here.write("prints.yaml", PRINTS)
    here.ok("run", "prints.yaml", "--run-id", "prints-1")
    return here


def test_lines_are_shown_with_their_step_and_item(shop: Here) -> None:
    assert texts(shop.ok("logs", "prints-1").out) == [
        "first  plain words",
        "first  error: went wrong",
        "second[0]  item a",
        "second[1]  item b",
    ]
    assert texts(shop.ok("logs", "last", "second").out) == [
        "second[0]  item a",
        "second[1]  item b",
    ]
    assert texts(shop.ok("logs", "last", "--level", "error").out) == ["first  error: went wrong"]
    assert texts(shop.ok("logs", "last", "--search", "PLAIN").out) == ["first  plain words"]
    assert texts(shop.ok("logs", "last", "--attempt", "2").out) == ["nothing fits"]
    assert texts(shop.ok("logs", "last", "--follow").out)[-1] == "second[1]  item b"


def test_every_line_is_an_object_with_json(shop: Here) -> None:
    lines = [eval(line) for line in shop.ok("logs", "last", "--json").out.splitlines()]
    assert [line["text"] for line in lines][:2] == ["plain words", "went wrong"]
    assert lines[0] | {"at": 0} == {
        "at": 0,
        "step": "first",
        "job": "1.0",
        "attempt": 1,
        "stream": "stdout",
        "level": "info",
        "text": "plain words",
    }
    assert lines[-1]["item"] == 1
    assert shop.ok("logs", "last", "--search", "nowhere", "--json").out == ""


def test_what_is_wrong_is_said_and_changes_nothing(shop: Here) -> None:
    for words, said in (
        (("logs", "nobody"), "there is no run 'nobody'"),
        (("logs", "last", "frist"), "has no step 'frist'; did you mean 'first'?"),
        (("logs", "last", "--level", "loud"), "invalid choice: 'loud'"),
        (("logs", "last", "--attempt", "one"), "--attempt"),
    ):
        done = shop.run(*words)
        assert done.code == 2, done
        assert said in done.err


def test_a_run_that_printed_nothing_says_so(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    here.ok("run", "hello.yaml")
    assert here.ok("logs", "last").out == "nothing was printed\n"


def test_rows_of_other_hands_reach_no_terminal_with_an_escape(shop: Here) -> None:
    store = SqliteStore(shop.store)
    try:
        store.append_logs([a_log_row("prints-1", 99, "\x1b[2Jgone\x07\x9b31m", step="first")])
    finally:
        store.close()
    for more in ((), ("--json",)):
        out = shop.ok("logs", "prints-1", *more).out
        assert "gone" in out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
        assert "\\u001b" not in out


def test_logs_are_followed_beside_a_running_engine(terminal: Terminal) -> None:
    first, second = (terminal.folder / name for name in ("first", "second"))
    waits = "while [ ! -e {} ]; do sleep 0.05; done"
    command = f"echo begun; {waits.format(first)}; echo ended; {waits.format(second)}"
    terminal.write(
        "slow.yaml",
        f"{HEAD}metadata: {{name: slow}}\nworkflow:\n  - step: s\n    tool:\n      kind: shell\n"
        f'      command: "{command}"\n',
    )
    running = terminal.begin("run", "slow.yaml", "--run-id", "slow-1", "--no-watch")
    while not terminal.store.exists() or "begun" not in terminal.run("logs", "slow-1").out:
        assert running.poll() is None
    following = terminal.begin("logs", "slow-1", "--follow")
    assert following.stdout is not None
    assert texts(following.stdout.readline()) == ["s  begun"]
    first.touch()
    assert texts(following.stdout.readline()) == ["s  ended"]
    second.touch()
    assert running.end(None).code == 0
    followed = following.end(None)
    assert (followed.code, followed.out) == (0, "")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with served(tmp_path / "served.db") as server:
        yield server.url


def test_a_server_answers_like_a_store(shop: Here, url: str) -> None:
    at = ("--server", url)
    shop.ok("run", "prints.yaml", "--run-id", "prints-1", *at)
    for words in (
        ("logs", "prints-1"),
        ("logs", "prints-1", "second"),
        ("logs", "prints-1", "--level", "error"),
        ("logs", "prints-1", "--search", "ITEM"),
        ("logs", "prints-1", "--follow"),
        ("logs", "prints-1", "--search", "nowhere"),
    ):
        assert texts(shop.ok(*words, *at).out) == texts(shop.ok(*words).out), words
    here, there = (shop.run("logs", "prints-1", "frist", *more) for more in ((), at))
    assert (here.code, here.err) == (there.code, there.err)


def test_the_commands_of_the_page_do_what_it_says(here: Here) -> None:
    text = DOCS.read_text(encoding="utf-8")
    definition, commands, shown = re.findall(r"^```(?:yaml|sh|)\n(.*?)^```$", text, re.M | re.S)[:3]
    here.write("shop.yaml", definition)
    said = [here.ok(*command.split()[1:]).out for command in commands.splitlines()]
    assert texts(said[1]) == texts(shown)
    assert texts(said[2]) == [line for line in texts(shown) if line.startswith("pack")]
    assert texts(said[3]) == ["fetch  warning: slow today"]
    assert '"text": "asking the supplier"' in said[4]
