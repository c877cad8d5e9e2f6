"""Tables of bad documents: what is changed, and the problems that come of it, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from anabranch.market import check

from .examples import Document

Problems = set[tuple[str, str]]


def found(document: Any, **options: Any) -> Problems:
    """The path and the code of every problem."""
    return {(one.path, one.code) for one in check(document, **options)}


def rows(table: Iterable[tuple[str, Document, Mapping[str, str]]]) -> pytest.MarkDecorator:
    """Rows of (what is wrong, the document, {path: code})."""
    return pytest.mark.parametrize(
        ("document", "problems"),
        [
            pytest.param(document, set(problems.items()), id=name)
            for name, document, problems in table
        ],
    )
