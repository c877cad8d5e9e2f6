"""Every word of the language is used by an acceptance playbook, so none can break unnoticed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from anabranch.dialects.noetl.names import LOOP, RESERVED
from anabranch.dialects.noetl.outcomes import EVENT, TASK_OUTCOME
from anabranch.dialects.noetl.patches import REDUCERS
from anabranch.dialects.noetl.sources import DESCRIPTORS
from anabranch.dialects.noetl.tasks.credentials import ENTRIES, PROVIDERS, SCOPES
from anabranch.dialects.noetl.tasks.keys import KINDS
from anabranch.expressions.jinja.filters import filters
from anabranch.expressions.jinja.limits import TemplateLimits
from anabranch.expressions.jinja.meter import Meter
from anabranch.work.loops.collections import all as collections
from anabranch.work.loops.collections import claims, pages, queries
from corpus.cases import Case as CorpusCase
from corpus.cases import playbooks_that_run

from .cases import Case, all_cases
from .spellings import SPELLINGS, spellings_in
from .vocabulary import Vocabulary, pairs, recorded, texts

CASES: list[Case | CorpusCase] = [*all_cases(), *playbooks_that_run()]
TEXTS = "\n".join(text for case in CASES for text in texts(case.document))
#: Fields of an entry that its kind does not ask for by name.
ENTRY = ("name", "kind", "scope", "ttl", "provider", "format", "root", "method", "headers")
FANIN = (
    *("status", "succeeded", "done", "failed", "total", "retries", "refs", "loop_id", "shared"),
)
ERROR = ("kind", "message", "code", "retryable", "http_status", "status", "retry_after")


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return recorded(CASES, ["acceptance_price"])


def test_every_place_of_a_document_is_known_by_name(vocabulary: Vocabulary) -> None:
    assert [place for place in vocabulary.known if place.startswith("?")] == []
    assert len(list(vocabulary.every())) > 150


def test_every_key_is_used(vocabulary: Vocabulary) -> None:
    assert vocabulary.unused_keys() == []


def test_every_choice_is_made(vocabulary: Vocabulary) -> None:
    assert vocabulary.unused_choices() == []


def test_every_kind_of_task_is_used(vocabulary: Vocabulary) -> None:
    used = {value for case in CASES for key, value in pairs(case.document) if key == "kind"}
    assert KINDS.keys() - used == set()


def test_every_older_and_later_spelling_is_used() -> None:
    used = {word for case in CASES for word in spellings_in(case.document)}
    assert SPELLINGS - used == set()


def missing(words: Iterable[str], pattern: str) -> list[str]:
    """Words that stand nowhere in the place of WORD in the pattern."""
    return [word for word in words if not re.search(pattern.replace("WORD", word), TEXTS)]


def test_every_filter_is_used() -> None:
    assert missing(filters(Meter(TemplateLimits())), r"\|\s*WORD\b") == []


def test_every_name_is_used() -> None:
    assert missing([*RESERVED, "env", "range", "dict"], r"\{\{[^}]*\bWORD\b|in WORD\(") == []


def test_every_field_of_a_name_is_used() -> None:
    assert missing(EVENT, r"\bevent\.WORD\b") == []
    assert missing(TASK_OUTCOME, r"\b(outcome|output)\.WORD\b") == []
    assert missing(FANIN, r"\bfanin\.WORD\b") == []
    assert missing(LOOP, r"\bloop\.WORD\b") == []
    assert missing(ERROR, r"\berror\.WORD\b") == []


def test_every_kind_and_field_of_a_secret_is_used() -> None:
    entries = [entry for case in CASES for entry in case.document.get("keychain", ())]
    assert {entry["kind"] for entry in entries} == set(ENTRIES)
    assert {entry.get("scope", "local") for entry in entries} == set(SCOPES)
    assert {entry["provider"] for entry in entries if "provider" in entry} == set(PROVIDERS)
    for kind, fields in ENTRIES.items():
        used = {key for entry in entries if entry["kind"] == kind for key in entry}
        assert set(fields) <= used, kind
    assert {*ENTRY, "data", "auto_renew"} <= {key for entry in entries for key in entry}


def test_every_collection_and_its_options_are_used() -> None:
    found: dict[str, set[str]] = {kind: set() for kind in DESCRIPTORS}
    for case in CASES:
        for key, value in pairs(case.document):
            if key == "in" and isinstance(value, dict):
                kind = next((kind for kind in DESCRIPTORS if kind in value), None)
                if kind is not None:
                    inside = value[kind] if kind in ("sql", "pages", "claim") else {}
                    found[kind] |= {*value, *inside}
    for kind, options in collections._OPTIONS.items():
        assert {kind, *options} <= found[kind], kind
    assert found["pages"] >= pages._KNOWN
    assert found["sql"] >= queries._OWN
    assert found["claim"] >= claims._OWN - {"owner"}  # which the engine writes


def test_every_reducer_is_used_on_steps_and_in_loops() -> None:
    on_steps = {value for case in CASES for key, value in pairs(case.document) if key == "reduce"}
    shared = {
        word
        for case in CASES
        for key, value in pairs(case.document)
        if key == "reducers"
        for word in value.values()
    }
    assert on_steps == set(REDUCERS)
    assert shared == set(REDUCERS) - {"set"}
