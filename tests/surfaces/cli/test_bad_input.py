"""The list of bad input of the issue, from the command line to the log: a clear error each time,
and nothing changed. What each part refuses by itself is tested where that part is."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from ..tables import wrong_rows
from .support import GATE, HEAD, HELLO, Here

DEFINITIONS: dict[str, tuple[str | bytes, str]] = {
    "malformed yaml": ("a: [1, {b: 2\n", "syntax"),
    "malformed json": ('{"workflow": [', "syntax"),
    "a tab for indentation": (f"{HEAD}workflow:\n\t- step: a\n", "syntax"),
    "not utf-8": (b"\xff\xfe\x00a", "not-utf8"),
    "empty": ("", "empty"),
    "a list": ("- 1\n- 2\n", "unknown-dialect"),
    "a number": ("7\n", "unknown-dialect"),
    "some other document": ("name: x\n", "unknown-dialect"),
    "no steps": (f"{HEAD}metadata: {{name: x}}\nworkflow: []\n", "no-steps"),
    "wrong types": (f"{HEAD}metadata: 7\nworkflow: {{a: 1}}\n", "wrong-type"),
    "unknown keys": (HELLO + "surprise: 1\n", "unknown-key"),
    "a template that cannot be read": (HELLO.replace("workload.who", "workload."), "bad-template"),
    "a bad duration": (
        HELLO.replace("    tool:", "    spec: {timeout: soon}\n    tool:"),
        "bad-duration",
    ),
    "deep nesting": ("[" * 5000 + "]" * 5000, "too-deep"),
    "exploding anchors": (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n"
            for n in range(10)
        ),
        "too-many-values",
    ),
}  # fmt: skip


def test_a_bad_definition_is_refused_with_its_place(here: Here) -> None:
    def check(name: str) -> None:
        text, code = DEFINITIONS[name]
        file = here.folder / "bad.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        begun = time.process_time()
        for verb in ("run", "check", "graph", "simulate"):
            done = here.run(verb, "bad.yaml")
            assert done.code == 2, (verb, done)
            told = [line for line in (done.err + done.out).splitlines() if f": {code}: " in line]
            assert told, (verb, done)
            assert told[0].startswith("bad.yaml:"), verb
            assert "Traceback" not in done.err
        assert time.process_time() - begun < 5
        assert not here.store.exists()

    assert wrong_rows(DEFINITIONS, check) == []


def test_fifty_megabytes_are_refused_before_they_cost_anything(here: Here) -> None:
    with (here.folder / "huge.yaml").open("w") as file:
        file.write(HELLO)
        for _ in range(50):
            file.write("# " + "x" * 1_048_574 + "\n")
    begun = time.process_time()
    for verb in ("run", "check"):
        done = here.run(verb, "huge.yaml")
        assert done.code == 2
        assert "too-large: the document is 52," in done.err + done.out
        assert "bytes_max" in done.err + done.out
    assert time.process_time() - begun < 3
    assert not here.store.exists()


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ workload.__class__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ workload.who.format.__self__ }}",
    "{{ (workload|list).__len__() }}",
    "{% for x in range(10**9) %}x{% endfor %}",
    "{{ 'x' * 10**10 }}",
    "{{ 10 ** 10000000000 }}",
]


def test_a_template_cannot_escape_wherever_it_stands(here: Here) -> None:
    """Refused when it is checked, or the step fails when it is evaluated; never carried out."""
    rows = [(escape, place) for escape in ESCAPES for place in ("input", "guard", "context")]
    assert wrong_rows(rows, partial(require_no_escape, here)) == []


def require_no_escape(here: Here, escape: str, place: str) -> None:
    quoted = escape.replace("'", "''")
    arcs = f"{{arcs: [{{step: b, when: '{quoted}'}}]}}"
    step = {
        "input": f"{{step: a, tool: {{kind: noop, result: '{quoted}'}}}}",
        "guard": f"{{step: a, tool: {{kind: noop}}, next: {arcs}}}",
        "context": f"{{step: a, tool: {{kind: noop}}, set_ctx: {{x: '{quoted}'}}}}",
    }[place]
    head = f"{HEAD}metadata: {{name: x}}\nworkload: {{who: you}}\nworkflow:\n"
    here.write("bad.yaml", f"{head}  - {step}\n  - {{step: b, tool: {{kind: noop}}}}\n")
    begun = time.process_time()
    done = here.run("run", "bad.yaml", "--json")
    assert time.process_time() - begun < 5
    assert done.code in (1, 2), done
    assert done.json["problem"]["message"]
    assert "Traceback" not in done.err
    for word in ("<class", "uid=", "subprocess", "<built-in"):
        assert word not in done.out


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("result = {1, object()}", "not JSON"),
        ("result = float('inf')", "not JSON"),
        ("result = {'a': [object()]}", "result.a[0]"),
        ("x = []\nx.append(x)\nresult = x", "not JSON"),
        ("result = {1: 2, '1': 3}", "the same as text"),
        ("result = {(1, 2): 3}", "keys must be text"),
    ],
)
def test_a_step_result_that_is_not_json_fails_the_step(here: Here, code: str, words: str) -> None:
    lines = "".join(f"        {line}\n" for line in code.splitlines())
    here.write(
        "odd.yaml",
        f"{HEAD}metadata: {{name: odd}}\nworkflow:\n  - step: a\n    tool:\n"
        f"      kind: python\n      code: |\n{lines}",
    )
    done = here.run("run", "odd.yaml", "--json")
    assert done.code == 1
    assert done.json["problem"]["code"] == "result"
    assert words in done.json["problem"]["message"]
    assert done.json["steps"]["a"]["result"] is None


def test_decisions_that_do_not_fit_change_nothing(here: Here) -> None:
    here.write("gate.yaml", GATE)
    here.run("run", "gate.yaml", "--run-id", "g")
    before = here.show("g")["events"]
    refusals = {
        ("decide", "g", "ship", "--fulfil"): "no gate 'ship' is open; open: gate-1 (ask)",
        ("decide", "g", "gate-2", "--fulfil"): "no gate 'gate-2' is open",
        ("decide", "g", "ask", "--fulfil", "--actor", "eve"): "may be decided by ann, bob",
        ("decide", "g", "ask", "--reject", "--evidence", "NaN"): "the evidence is not JSON",
        ("patch", "g", "a=1", "b"): "'b' is not K=V",
        ("resume", "nobody"): "there is no run 'nobody'",
    }
    for words, told in refusals.items():
        done = here.run(*words)
        assert (done.code, done.out) == (2, ""), words
        assert told in done.err
    assert here.show("g")["events"] == before
    here.ok("decide", "g", "ask", "--fulfil")
    for name in ("ask", "gate-1"):
        again = here.run("decide", "g", name, "--reject", "--actor", "bob").err
        assert again.startswith(f"anabranch: no gate '{name}' is open; ann answered fulfil at 20")


def test_a_definition_that_changes_after_its_run_began_does_not_change_the_run(here: Here) -> None:
    file = Path(here.write("gate.yaml", GATE))
    here.run("run", "gate.yaml", "--run-id", "g")
    (here.folder / file).write_text("broken: [\n")
    here.ok("decide", "g", "ask", "--fulfil")
    assert here.ok("resume", "g", "--json").json["result"] == "shipped"


def test_whoever_is_not_named_is_told_how_to_name_himself(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("gate.yaml", GATE)
    here.run("run", "gate.yaml", "--run-id", "g")
    for name in ("USER", "LOGNAME"):
        monkeypatch.setenv(name, "eve")
    assert here.run("decide", "g", "ask", "--fulfil").err == (
        "anabranch: gate gate-1 may be decided by ann, bob, not by eve; "
        "--actor NAME says who you are\n"
    )
