"""The examples of docs/testing-kit.md run, in order, as they stand there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import anabranch.testing
from anabranch.testing import Faults

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing-kit.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text()
    (playbook,) = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (tmp_path / "order.yaml").write_text(playbook)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(examples) >= 7
    exec("\n".join(examples), {"__name__": "page"})
    assert "50 seeds" in capsys.readouterr().out


def test_every_public_name_and_every_fault_is_on_the_page() -> None:
    text = PAGE.read_text()
    shown_otherwise = {"Played", "PlayedEvent", "PlayedStep", "Simulation"}
    names = set(anabranch.testing.__all__) - shown_otherwise
    assert [name for name in sorted(names) if name not in text] == []
    assert [each.name for each in fields(Faults) if f"`{each.name}`" not in text] == []


def test_every_public_name_is_there() -> None:
    for name in anabranch.testing.__all__:
        assert getattr(anabranch.testing, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = anabranch.testing.nonsense
