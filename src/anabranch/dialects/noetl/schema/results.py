"""Result policies: what becomes of a result before anything reads it."""

from __future__ import annotations

from anabranch.dialects.noetl.tasks.outputs import BYTES_MAX
from anabranch.dialects.result_policy import (
    COMPRESSIONS,
    SCOPES,
    STORE_PLACES,
    STORES,
    STRATEGIES,
)
from anabranch.dialects.schema import (
    ANYTHING,
    Docs,
    Properties,
    Schema,
    choice,
    duration,
    either,
    flag,
    listed,
    ref,
    section,
    string,
    text,
    whole,
)


def definitions(docs: Docs) -> Schema:
    """Every shape of this module, by name."""
    place: Properties = {
        "scope": choice(SCOPES),
        "ttl": duration(),
        "compression": choice(COMPRESSIONS),
    }
    store = section(
        "Where results are kept",
        {"kind": choice(STORES), **place, **dict.fromkeys(STORE_PLACES, ANYTHING)},
        docs=docs("result.store"),
    )
    chosen = {"path": text(), "as": string()}
    paths = listed(
        either(string(), section("A part of a result", chosen, required=("path",), free=True))
    )
    result = {
        "inline_max_bytes": whole(0, BYTES_MAX),
        "preview_max_bytes": whole(0, BYTES_MAX),
        "store": either(choice(STORES), store),
        **place,
        "select": ref("selection"),
        "output_select": ref("selection"),
        "accumulate": _accumulate(docs),
        "as": string("^[A-Za-z_][A-Za-z0-9_]*$"),
    }
    return {
        "result": section("What becomes of a result", result, docs=docs("result")),
        "selection": paths,
    }


def _accumulate(docs: Docs) -> Schema:
    fields = {
        "strategy": choice(STRATEGIES),
        "merge_path": text(),
        "manifest_as": text(),
        "max_items": whole(1, 10**12),
        **{key: flag() for key in ("enabled", "on_success", "on_error")},
    }
    title = "The results of several rounds together"
    return section(title, fields, docs=docs("result.accumulate"))
