"""The modules of a page become one script, which does what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch.surfaces.ui
from anabranch.surfaces.ui.scripts import bundle

from .plain import PlainPage

STATIC = Path(anabranch.surfaces.ui.__file__).parent / "static"


def test_a_module_comes_once_and_before_those_that_import_it() -> None:
    made = bundle(
        {
            "entry": 'import { a } from "./left.js";\nimport { b } from "./right.js";\na(b);\n',
            "left": 'import { c } from "./deep.js";\nexport function a() { c(); }\n',
            "right": 'import { c } from "./deep.js";\nexport const b = c;\n',
            "deep": "export async function c() {}\n",
            "alone": "start();\n",
        }
    )
    assert list(made) == ["entry", "alone"]
    scopes = [made["entry"].index(f"const ${name} =") for name in ("deep", "left", "right")]
    assert scopes == sorted(scopes)
    assert made["entry"].count("function c()") == 1
    assert "import" not in made["entry"]
    assert "export" not in made["entry"]


@pytest.mark.parametrize(
    "line", ['import "./other.js";', 'import all from "./other.js";', "export default 1;"]
)
def test_what_cannot_become_part_of_one_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="one script"):
        bundle({"entry": line, "other": ""})


def test_a_page_asks_for_what_it_names_and_for_no_module_of_those(plain: PlainPage) -> None:
    """A module that is part of another script is not there by itself."""
    plain.goto("/overview")
    ways = plain.rows("script[src]", "src")
    texts = {way.rpartition("/")[2]: plain.request.get(way).text() for way in ways}
    assert sorted(texts) == ["overview.js", "page.js", "theme.js"]
    assert "followRun" in texts["page.js"]
    assert not any(line.startswith(("import", "export")) for text in texts.values() for line in text.splitlines())  # fmt: skip  # noqa: E501
    folder = ways[0].rpartition("/")[0]
    assert plain.request.get(f"{folder}/words.js").status == 404
    assert (STATIC / "words.js").exists()
