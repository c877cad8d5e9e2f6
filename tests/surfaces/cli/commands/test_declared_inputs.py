"""What a playbook declares of its input is asked of everybody who starts a run of it: at a store
and at a server, by a schedule, a trigger, a form, a parent, in a play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.errors import InputError
from anabranch.operations.definitions.inputs import inputs_of
from anabranch.operations.definitions.prepare import prepare
from anabranch.surfaces.ui.views.forms import fields_of, given_of
from anabranch.testing import play, simulate

from ..server_in_thread import served
from ..support import HEAD, Done, Here

PACK = f"""{HEAD}metadata: {{name: pack, path: pack}}
executor: {{spec: {{on_failure: stop}}}}
inputs:
  order: {{type: string, required: true, description: its number}}
  size: {{enum: [small, large, 3], default: small}}
  count: integer
  token: {{secret: true}}
workload: {{count: 2, boxes: [a], title: box}}
workflow:
  - step: pack
    tool:
      kind: python
      args: {{all: "{{{{ [workload.order, workload.size, workload.count, workload.boxes] }}}}"}}
      code: result = all
"""
#: Words of a command, and what they come to: the result, or words of the error.
SAID: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("order=0042",), ["0042", "small", 2, ["a"]]),
    (("order=42", "size=3", "count=7", 'boxes=["b"]'), ["42", 3, 7, ["b"]]),
    (("order=true", "count=2.0"), ["true", "small", 2, ["a"]]),
    ((), "the input 'order' (its number) is needed: a text"),
    (("order=1", "count=two"), "the input 'count' is a whole number, not \"two\""),
    (("order=1", "count=2.5"), "the input 'count' is a whole number, not 2.5"),
    (("order=1", "count=null"), "the input 'count' is a whole number, not null"),
    (("order=1", "size=huge"), "the input 'size' is one of \"small\", \"large\", 3, not \"huge\""),
    (("order=1", "size=true"), "not true"),
    (("order=1", "boxes=7"), "the default of the input 'boxes' is [\"a\"], so it is a list, not 7"),
    (("order=1", 'title={"a": 1}'), "so it is a text, not {\"a\": 1}"),
    (("order=1", "token="), "the secret 'token' must be a text of 1 to 65,536 characters"),
    (("order=1", "ordr=1"), "'ordr'; did you mean 'order'?"),
    (("count=two", "size=9"), "is needed: a text; the input 'size' is one of"),  # all at once
)  # fmt: skip


def test_words_of_a_command_are_read_by_the_types_and_refused_at_a_store_and_at_a_server(
    here: Here,
) -> None:
    here.write("pack.yaml", PACK)
    with served(here.folder / "server.db") as server:
        here.ok("register", "pack.yaml", "--server", server.url)
        for at in ((), ("--server", server.url)):
            for words, wanted in SAID:
                compare(here, ("pack.yaml", *at), words, wanted)
        compare(here, ("catalog://pack", "--server", server.url), *SAID[0])
        assert len(here.ok("runs", "--server", server.url, "--json").json) == 4
    assert len(here.ok("runs", "--json").json) == 3  # what was refused left nothing


OPEN = f"""{HEAD}metadata: {{name: open}}
executor: {{spec: {{on_failure: stop}}}}
inputs: {{token: {{secret: true, required: true}}, pin: {{secret: true}}}}
workflow:
  - step: open
    tool:
      kind: python
      args: {{token: "{{{{ workload.token }}}}", pin: "{{{{ workload.pin }}}}"}}
      code: |
        open('given', 'a').write(f'{{token}} {{pin}} ')
        if token == 'wrong': raise RuntimeError('no')
"""


def test_a_redrive_is_given_secrets_by_a_file_and_by_words_at_a_store_and_at_a_server(
    here: Here,
) -> None:
    here.write("open.yaml", OPEN)
    here.write("wrong.yaml", "{token: wrong, pin: none}")
    here.write("right.json", '{"token": "first-key", "pin": "0042"}')
    with served(here.folder / "server.db") as server:
        for at in ((), ("--server", server.url)):
            begun = here.run("run", "open.yaml", *at, "--input-file", "wrong.yaml", "--json")
            again = ("redrive", begun.json["run"], *at, "--json")
            assert "needs the secrets 'pin', 'token'" in here.run(*again).err
            assert (
                "nowhere.json cannot be read"
                in here.run(*again, "--input-file", "nowhere.json").err
            )
            by_file = here.ok(*again, "--input-file", "right.json")
            over_it = ("--input-file", "right.json", "--input", "pin=0077", "--from", "open")
            both = here.ok("redrive", by_file.json["run"], *at, "--json", *over_it)
            assert both.json["status"] == "completed"
            assert (here.folder / "given").read_text().split() == [
                "wrong", "none", "first-key", "0042", "first-key", "0077"
            ]  # fmt: skip
            (here.folder / "given").unlink()


def compare(here: Here, of: tuple[str, ...], words: tuple[str, ...], wanted: Any) -> None:
    given = [word for pair in words for word in ("--input", pair)]
    done: Done = here.run("run", *of, *given, "--json")
    if isinstance(wanted, str):
        assert done.code == 2, (words, done)
        assert wanted in done.err, (words, done.err)
    else:
        assert done.code == 0, (words, done)
        assert done.json["result"] == wanted, words


def test_a_schedule_and_a_trigger_are_refused_when_they_are_added(here: Here) -> None:
    here.write("pack.yaml", PACK)
    here.ok("register", "pack.yaml")
    schedule = ("schedule", "add", "s", "pack", "--every", "1h", "--input")
    trigger = ("trigger", "add", "t", "pack", "--hook", "--credential", "shop", "--input")
    for add in (schedule, trigger):
        for words, said in (
            ("count=1", "'order' (its number) is needed"),
            ("order=1", "the input 'order' (its number) is a text, not 1"),
            ('order="1"', ""),
        ):
            done = here.run(*add, words)
            assert (done.code == 0) == (not said), (add, words, done)
            assert said in done.err, (add, words)
        done = here.run(*add, 'order="1"', "--input", "token=geheim", "--replace")
        assert "the input 'token' is a secret, and would be kept in plain here" in done.err
    later = ("order={{ body.order }}", "--input", "token={{ body.key }}", "--replace")
    here.ok(*trigger, *later)  # known when it fires
    call = ("trigger", "test", "t", "--body")
    assert here.ok(*call, '{"order": "7", "key": "k"}', "--json").json["fires"]
    assert "is a text, not 7" in here.run(*call, '{"order": 7, "key": "k"}').err


def test_a_form_asks_for_what_is_declared() -> None:
    wanted = inputs_of(prepare(PACK).net)
    kinds = {one.name: (one.kind, one.required, one.hint) for one in fields_of(wanted)}
    assert kinds == {
        "order": ("text", True, "its number"),
        "size": ("choice", False, ""),
        "count": ("number", False, ""),
        "token": ("secret", False, ""),
        "boxes": ("json", False, "a JSON list"),
        "title": ("text", False, ""),
    }
    size = next(one for one in fields_of(wanted) if one.name == "size")
    assert size.choices == (('"small"', "small"), ('"large"', "large"), ("3", "3"))
    typed = {"order": "0042", "size": "3", "count": "7", "token": "", "boxes": '["a"]'}
    form = {f"value:{name}": text for name, text in typed.items()}
    form |= {f"was:{name}": "\0" for name in typed}
    given = given_of(wanted, form)
    assert (given.errors, given.values) == (
        {},
        {"order": "0042", "size": 3, "count": 7, "boxes": ["a"], "title": "box"},
    )
    odd = given_of(wanted, {**form, "value:size": '"huge"', "value:order": ""})
    assert odd.errors == {"order": "this is needed", "size": "this is none of the choices"}


def test_a_play_and_a_simulation_are_given_it_like_a_run() -> None:
    assert play(PACK, {"order": "1"}).result == ["1", "small", 2, ["a"]]
    for begin in (play, anabranch.run, lambda text: simulate(text, seeds=1)):
        with pytest.raises(InputError, match=r"'order' .its number. is needed"):
            begin(PACK)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"order": "0042", "boxes": "anything"}, "completed"),  # a default binds people alone
        ({"order": 42}, "'order' (its number) is a text, not 42"),
        ({}, "'order' (its number) is needed"),
    ],
)
def test_a_parent_hands_on_what_its_child_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], outcome: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack.yaml").write_text(PACK)
    tool = {"kind": "playbook", "path": "pack.yaml", "wait": True, "args": given}
    parent = {"workflow": [{"step": "child", "tool": tool}], "metadata": {"name": "parent"}}
    done = anabranch.run(json.dumps(parent) + "\n")
    if outcome == "completed":
        assert done.status == outcome, done
    else:
        assert done.status == "failed"
        assert outcome in done.failures[0]["message"]
        assert done.failures[0]["kind"] == "config"
