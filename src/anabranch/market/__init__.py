"""The world that Arca workflows live in: identities, documents, passports, the directory.

It finds and vouches for participants; asking them is the work of `work/participants`.
`check` says what is wrong with a document of the market (`documents/`), `OfferCatalog` keeps offers
of others (`catalog/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.market.catalog.catalog import OfferCatalog
    from anabranch.market.documents.checking import At
    from anabranch.market.documents.problems import DocumentProblem

__all__ = ["OfferCatalog", "check"]


def __getattr__(name: str) -> Any:
    if name == "OfferCatalog":
        from anabranch.market.catalog.catalog import OfferCatalog  # with SQLite and many shapes

        return OfferCatalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check(
    document: Any, *, at: At | None = None, kind: str | None = None, draft: bool = False
) -> list[DocumentProblem]:
    """Every problem of a document of the market; an empty list means that it can be taken.

    `document` is a JSON value, or the bytes of a JSON text. `at` (milliseconds, an aware
    datetime or an RFC 3339 text) also asks what is expired or not valid yet. `kind` says which
    document it must be. A `draft` may come without what the host fills in.
    """
    from anabranch.market.documents import checking  # many shapes, which few need

    return checking.check(document, at=at, kind=kind, draft=draft)
