"""Callables on the cluster: the module of the engine, or a word about what is different."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import InputError
from anabranch.pools.assignment import Tools
from anabranch.pools.entry.tools import ToolModules, ToolsUnfit, tools_to_send
from anabranch.work.kinds.callables import default_toolbox
from anabranch.work.values.payloads import hash_of

TOOL = """
import anabranch
IMPORTS = globals().get("IMPORTS", 0) + 1

@anabranch.tool(f"double_of_{__name__}")
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules; what was imported from it is gone afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    monkeypatch.setattr(default_toolbox, "_tools", dict(default_toolbox._tools))
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def written(folder: Path, name: str, text: str) -> Tools:
    folder.joinpath(f"{name}.py").write_text(text)
    return Tools(module=name, sha256=hash_of(text.encode()))


def refusal(tools: Tools) -> str:
    with pytest.raises(ToolsUnfit) as refused:
        ToolModules("w1").require([tools])
    return str(refused.value)


def test_the_engine_sends_names_and_hashes(modules: Path) -> None:
    tools = written(modules, "shop_sent", TOOL)
    assert tools_to_send(["shop_sent", "shop_sent"]) == [tools]
    (modules / "shop_package").mkdir()
    inside = written(modules / "shop_package", "__init__", "")
    assert tools_to_send(["shop_package"]) == [Tools(module="shop_package", sha256=inside.sha256)]


def test_the_engine_refuses_a_module_that_it_has_not_itself() -> None:
    with pytest.raises(InputError, match="no_such_shop"):
        tools_to_send(["no_such_shop"])


def test_a_module_is_imported_once(modules: Path) -> None:
    tools = written(modules, "shop_once", TOOL)
    here = ToolModules("w1")
    for _ in range(3):
        here.require([tools, tools])
    assert sys.modules["shop_once"].IMPORTS == 1


def test_a_module_that_is_missing_is_named_with_what_to_do() -> None:
    assert refusal(Tools(module="no_such_shop")) == (
        "worker w1 has no module no_such_shop: install it there or put its folder on PYTHONPATH"
    )
    assert "has no module no_such_shop.tools:" in refusal(Tools(module="no_such_shop.tools"))


def test_another_version_is_named_with_both_hashes_and_the_file(modules: Path) -> None:
    found = written(modules, "shop_other", TOOL)
    other = hash_of(b"another text")
    said = refusal(Tools(module="shop_other", sha256=other))
    assert found.sha256[:12] in said
    assert other[:12] in said
    assert str(modules / "shop_other.py") in said
    assert "shop_other" not in sys.modules, "it was not imported"


def test_a_module_that_was_changed_after_its_import_needs_a_new_process(modules: Path) -> None:
    before = written(modules, "shop_changed", TOOL)
    here = ToolModules("w1")
    here.require([before])
    after = written(modules, "shop_changed", TOOL + "# new\n")
    with pytest.raises(ToolsUnfit, match="restart the worker"):
        here.require([after])
    here.require([before])


def test_a_module_that_cannot_be_imported_says_why(modules: Path) -> None:
    broken = written(modules, "shop_broken", "raise RuntimeError('no licence')")
    assert "cannot import module shop_broken: RuntimeError: no licence" in refusal(broken)
    needs = written(modules, "shop_needs", "import no_such_library")
    assert "cannot import module shop_needs: ModuleNotFoundError" in refusal(needs)
    (modules / "shop_bad").mkdir()
    written(modules / "shop_bad", "__init__", "1 / 0")
    written(modules / "shop_bad", "tools", TOOL)
    assert "cannot import module shop_bad.tools: ZeroDivisionError" in refusal(
        Tools(module="shop_bad.tools")
    )


def test_a_module_without_a_file_is_not_compared() -> None:
    ToolModules("w1").require([Tools(module="sys")])
    assert tools_to_send(["sys"]) == [Tools(module="sys")]
