"""Pipes that close, locales that cannot write, colours nobody wants, results that bite."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from anabranch.surfaces.cli.output import render
from hangs import HANG_SECONDS

from ..support import HEAD, HELLO, Here, Terminal

LONG = f"""{HEAD}metadata: {{name: long}}
workflow:
  - step: once
    tool: {{kind: noop, result: "{{{{ (ctx.n or 0) + 1 }}}}"}}
    set_ctx: {{n: "{{{{ outcome.result }}}}"}}
    next: {{arcs: [{{step: once, when: "{{{{ ctx.n < 300 }}}}"}}]}}
"""

ODD = f"""{HEAD}metadata: {{name: odd}}
workflow:
  - step: größe
    tool: {{kind: noop, result: "Gdynia ✓ 東京 ∞"}}
"""

BITES = f"""{HEAD}metadata: {{name: "bites\\e[2J\\n  result: forged"}}
workload: {{"\\e]52;c;Y2FsYw==\\a\\nkey": 1}}
workflow:
  - step: bite
    tool: {{kind: python, code: "result = 'a\\\\x1b[2Jb\\\\x1b]0;title\\\\x07c\\\\rd\\\\x1b'"}}
    next: {{arcs: [{{step: fail}}]}}
  - step: fail
    tool: {{kind: python, code: "raise ValueError('x\\\\x1b[31my')"}}
"""


def pipe(terminal: Terminal, words: str, reader: str = "head -1") -> tuple[list[int], str, str]:
    """The exit codes of both sides, what was read, and what was complained of."""
    read, write = os.pipe()
    writer = terminal.begin(*words.split(), stdout=write)
    os.close(write)
    reading = subprocess.run(
        reader.split(),
        stdin=read,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    os.close(read)
    done = writer.end()
    return [done.code, reading.returncode], reading.stdout, done.err + reading.stderr


@pytest.mark.slow
def test_a_pipe_that_closes_early_is_no_error(terminal: Terminal) -> None:
    terminal.write("long.yaml", LONG)
    assert terminal.run("run", "long.yaml", "--run-id", "l").code == 0
    for words in ("events l", "events l --follow --json", "show l --json", "graph long.yaml"):
        codes, out, err = pipe(terminal, words)
        assert codes == [0, 0], words
        assert out.count("\n") <= 1
        assert err == "", words
    codes, _, err = pipe(terminal, "events l --json", "true")
    assert (codes, err) == ([0, 0], "")
    codes, _, err = pipe(terminal, "run long.yaml", "true")
    assert (codes, err) == ([0, 0], "")


LOCALES = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.slow
@pytest.mark.parametrize("locale", LOCALES.values(), ids=LOCALES)
def test_a_locale_that_cannot_write_our_signs_gets_plain_ones(
    terminal: Terminal, locale: dict[str, str]
) -> None:
    terminal.write("odd.yaml", ODD)
    text = terminal.run("run", "odd.yaml", "--run-id", "o", env=locale)
    assert text.code == 0, text
    assert text.out.isascii()
    assert r"  + gr\xf6\xdfe  done  Gdynia + \u6771\u4eac \u221e" in text.out
    told = terminal.run("show", "o", "--json", env=locale)
    assert told.out.isascii()
    assert told.json["result"] == "Gdynia ✓ 東京 ∞"


def test_with_utf8_the_text_is_what_it_is(here: Here) -> None:
    here.write("odd.yaml", ODD)
    done = here.ok("run", "odd.yaml", "--json")
    assert "Gdynia ✓ 東京 ∞" in done.out
    assert "größe" in done.out


def test_what_a_step_answers_cannot_reach_into_the_terminal(here: Here) -> None:
    """Nor a name, or the key of an input, which may come with the call of a hook."""
    here.write("bites.yaml", BITES)
    done = here.run("run", "bites.yaml", "--run-id", "b", "--label", "x=\x1b[31m")
    shown = [done, here.ok("show", "b"), here.ok("events", "b"), here.ok("runs")]
    for told in shown:
        assert not set(told.out + told.err) & {"\x1b", "\x07", "\r"}
    assert r"\x1b[2Jb" in done.out
    assert not any(
        line.startswith("  result: forged") for told in shown for line in told.out.splitlines()
    )
    assert here.ok("show", "b", "--json").json["steps"]["bite"]["result"].count("\x1b") == 3


def test_no_kind_or_code_of_a_failure_and_no_cell_reaches_into_the_terminal() -> None:
    """A worker and a participant say what they like."""
    bite = "\x1b]0;title\x07\n  result: forged"
    chain = [{}, {"step": "a", "code": bite, "message": "no"}]
    problem = {"code": bite, "message": bite, "chain": chain}
    shown = {
        **dict.fromkeys(("problems", "created_at", "finished_at"), 1),
        "run": "r",
        "name": bite,
        "status": "failed",
        "steps": {},
        "joins": [],
        "result": None,
        "problem": problem,
        "failures": [{"step": "a", "kind": bite, "message": "no"}],
    }
    lines = [*render.summary(shown, colour=False), *render.failure_lines(shown)]
    lines += render.table([(bite, "b")], ("A", "B"))
    assert "forged" in lines[0]
    for line in lines:
        assert not {"\x1b", "\x07"} & set(line)
    assert len(render.table([(bite, "b")])) == 1
    assert "\n" not in render.table([(bite, "b")])[0]


@pytest.mark.parametrize("letter", ["\x9b", "\x7f", "\u202e", "\u2066"])
def test_json_has_no_letter_that_a_terminal_obeys(letter: str) -> None:
    for text in (render.json_line({letter: letter}), render.json_text({letter: letter})):
        assert letter not in text
        assert json.loads(text) == {letter: letter}


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("a  b\n c", 10, "a b c"),
        ("x" * 11, 10, "x" * 9 + "…"),
        ("x" + " " * 1000 + "y", 10, "x…"),
        ({"a": [1, "ü"]}, 20, '{"a": [1, "ü"]}'),
        (None, 10, ""),
        ("\x1b[1m", 10, r"\x1b[1m"),
    ],
)
def test_values_are_shown_short(text: object, width: int, shown: str) -> None:
    assert render.short(text, width) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0004, "0 ms"), (0.5, "500 ms"), (12.34, "12.3 s"), (61, "1 min 1 s"),
     (120, "2 min"), (3600, "1 h"), (3660, "1 h 1 min"), (172_800, "2 d"), (200_000, "2 d 7 h")],
)  # fmt: skip
def test_durations_are_shown_in_words(seconds: float, shown: str) -> None:
    assert render.duration(seconds) == shown


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert render.wants_colour(Tty())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not render.wants_colour(Tty())
    assert render.paint("x", "failed", colour=True) == "\x1b[31mx\x1b[0m"
    assert render.paint("x", "failed", colour=False) == "x"


def test_json_stays_json_whatever_is_in_it(here: Here) -> None:
    here.write("hello.yaml", HELLO)
    done = here.ok("run", "hello.yaml", "--json", "--input", 'who="a\\n\\u0000\\"b\\ud83d\\ude00"')
    assert json.loads(done.out)["result"] == 'hello a\n\0"b😀'
    assert done.out.count("\n") == 1
