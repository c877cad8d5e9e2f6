"""The documents of the market, each of which can be checked alone.

    check(document, at=…, kind=…) -> list[DocumentProblem]   everything that is wrong
    check_text(data, file, …) -> list[CheckedDocument]        a JSON or YAML text, maybe a list
    require(document, kind, at=…, draft=…) -> None            raises `InvalidDocument` (InputError)
    sign(kind, document, key) -> dict                         by the key that the document names
    digest_of(data) -> str                                    `sha256:…` as documents write it

A problem has a `path` (JSON pointer), a stable `code` (`problems.CODES`) and a `message` that says
what to change. One module holds one family of documents, as shapes with rules: `offers`, `orders`,
`procurement`, `delivery`, `deferred`, `capabilities`, `middleware`, `module_calls`, `workflows`,
`agora`. `KINDS` has all of them by name. Nothing here reads a clock, a file or the network: the
instant that a document is checked for is given. Keys are kept by `market/node/keys.py`.
"""

from __future__ import annotations

from anabranch.market.documents.checking import At, check, check_text, moment_of, require
from anabranch.market.documents.kinds import KINDS
from anabranch.market.documents.problems import CODES, DocumentProblem, InvalidDocument
from anabranch.market.documents.signing import buyer_fields, custodian_problem, sign
from anabranch.market.documents.values import digest_of

__all__ = [
    "CODES",
    "KINDS",
    "At",
    "DocumentProblem",
    "InvalidDocument",
    "buyer_fields",
    "check",
    "check_text",
    "custodian_problem",
    "digest_of",
    "moment_of",
    "require",
    "sign",
]
