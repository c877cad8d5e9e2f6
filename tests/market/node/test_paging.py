"""Lists in pages: what a caller may ask for, and cursors that are none."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import LIMIT, page_of, paged
from anabranch.store.stream_ports import StreamCard


def card(created_at: int, name: str) -> StreamCard:
    return StreamCard(
        stream=name, family="x", seq=1, state=b"", created_at=created_at, updated_at=created_at
    )


def cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_the_next_page_begins_where_this_one_ends() -> None:
    page = page_of({"limit": "2", "open": "true"})
    assert (page.limit, page.is_open, page.before) == (2, True, None)
    body = paged([("a", card(7, "x")), ("b", card(5, "état"))], page).body
    assert body["items"] == ["a", "b"]
    assert page_of({"before": body["next"]}).before == (5, "état")


def test_the_last_page_has_no_next() -> None:
    assert paged([("a", card(7, "x"))], page_of({"limit": "2"})).body == {"items": ["a"]}
    assert page_of({}).limit == LIMIT


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "-1"},
        {"limit": "1e3"},
        {"limit": "²"},
        {"limit": ""},
        {"limit": "9" * 5000},
        {"open": "yes"},
        {"before": "?"},
        {"before": "é"},
        {"before": cursor("[1]")},
        {"before": cursor('["x", 1]')},
        {"before": cursor("[-1, 'x']")},
        {"before": cursor(f'[{2**63}, "x"]')},
        {"before": cursor("[" * 5000)},
        {"before": ""},
    ],
)
def test_what_is_no_page_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(NodeError) as caught:
        page_of(query)
    assert (caught.value.status, caught.value.code) == (400, "bad_query")
