"""Recognising a dialect, reading files, and all problems at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.dialects.registry import DIALECTS, compile_source, load
from anabranch.dialects.source import SourceLimits
from anabranch.errors import DefinitionError, InputError
from anabranch.net.fingerprint import fingerprint

from .support import HEAD, codes, places

ONE_STEP = "workflow:\n- step: a\n  tool: {kind: noop}\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ONE_STEP,
        "apiVersion: noetl.io/v10\n" + ONE_STEP,
        "kind: Playbook\n" + ONE_STEP,
        ONE_STEP,
        '{"workflow": [{"step": "a", "tool": {"kind": "noop"}}]}',
    ],
)
def test_playbooks_are_recognised(text: str) -> None:
    compiled = compile_source(text)
    assert compiled.dialect == "noetl"
    assert compiled.net is not None
    assert list(compiled.net.steps) == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        '{"plan": {"steps": []}}',
        '{"plan": {"steps": {}}}',
        '{"workflow_id": "w", "plan": {}}',
        '{"definition_id": "w"}',
        '{"steps": []}',
    ],
)
def test_workflow_definitions_are_recognised(text: str) -> None:
    assert compile_source(text).dialect == "arca"


@pytest.mark.parametrize("text", ["a: 1", "- a", "hello", "42", '{"plan": []}', "kind: Agent"])
def test_other_documents_are_no_definition(text: str) -> None:
    compiled = compile_source(text)
    assert compiled.net is None
    assert compiled.dialect == ""
    assert codes(compiled) == ["unknown-dialect"]
    assert "`workflow` list" in compiled.problems[0].hint


def test_every_dialect_has_a_name_of_its_own() -> None:
    names = [dialect.name for dialect in DIALECTS]
    assert len(set(names)) == len(names)


def test_problems_of_text_dialect_and_net_come_together_in_order() -> None:
    compiled = compile_source(
        HEAD
        + "workflow:\n"
        + "- step: a\n  tool: {kind: noop}\n  tool: {kind: noop}\n"
        + "- step: b\n  spec: {timeout: soon}\n  tool: {kind: noop}\n"
    )
    assert places(compiled.problems) == [
        (7, 3, "duplicate-key"),
        (8, 3, "unreachable-step"),
        (9, 19, "bad-duration"),
    ]
    assert compiled.net is None
    assert [problem.code for problem in compiled.errors] == ["duplicate-key", "bad-duration"]


def test_warnings_alone_do_not_stop_a_net() -> None:
    compiled = compile_source(HEAD + ONE_STEP + "- step: b\n  tool: {kind: noop}\n")
    assert codes(compiled) == ["unreachable-step"]
    assert compiled.net is not None


def test_an_error_of_a_definition_prints_every_problem() -> None:
    text = "workflow:\n- step: a\n- step: a\n- stp: b\n"
    error = DefinitionError(compile_source(text, file="x.yaml").errors)
    assert [problem.code for problem in error.problems] == [
        "empty-step",
        "duplicate-step",
        "missing-key",
    ]
    lines = str(error).splitlines()
    assert lines[0].startswith("x.yaml:2:3: empty-step: step 'a' has neither")


def test_compiling_twice_gives_the_same_net_in_all_that_is_plain() -> None:
    first, second = compile_source(HEAD + ONE_STEP).net, compile_source(HEAD + ONE_STEP).net
    assert first is not None
    assert first == second
    assert first.fingerprint == fingerprint("noetl", HEAD + ONE_STEP)


# -- files -----------------------------------------------------------------------------------


def test_load_names_the_file_in_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "play.yaml"
    path.write_text(ONE_STEP + "- step: b\n")
    compiled = load(path)
    assert str(compiled.errors[0]).startswith(f"{path}:4:3: empty-step")
    path.write_text(ONE_STEP)
    net = load(path).net
    assert net is not None
    assert net.name == "play"  # after the file, while the playbook has no name


def test_missing_files_and_directories_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        load("nul\x00byte")


def test_unreadable_files_are_input_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"secret\.yaml cannot be read: Permission denied"):
        load("secret.yaml")


def test_large_files_are_refused_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    compiled = load(path)
    assert codes(compiled) == ["too-large"]
    assert "50,000,000" in compiled.problems[0].message
    assert load(path, limits=SourceLimits(bytes_max=10)).net is None


def test_a_file_that_is_not_text_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert codes(load(path)) == ["not-utf8"]
