"""Every word of the language, as the dialect itself knows it, and which words the playbooks use.

The keys of a place (a step, the spec of a loop …) are those its reader asks for, so they are
recorded while the acceptance playbooks are compiled: `Section.finish` knows all of them, and
`Section.choice` the words a key may have. A key that is added to the dialect is in the vocabulary
at once. What never passes a section (secrets, collections, names, filters, older spellings) comes
from the tables of the modules that read it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Scalar
from anabranch.dialects.noetl.tasks.keys import KINDS
from anabranch.dialects.registry import compile_source
from corpus.cases import Case as CorpusCase

from .cases import Case
from .spellings import spellings_in

#: Left how a reader calls a part of the document, right the place it belongs to.
PLACES: tuple[tuple[str, str], ...] = (
    (r"the playbook", "playbook"),
    (r"`metadata` of the playbook", "metadata"),
    (r"`executor` of the playbook", "executor"),
    (r"`concurrency`", "concurrency"),
    (r"`spec` of `executor` of .*", "executor.spec"),
    (r"`policy` of `spec` of `executor` of .*", "executor.spec.policy"),
    (r"`defaults` of .*", "executor.spec.policy.defaults"),
    (r"`http` of .*", "executor.spec.http"),
    (r"step \S+", "step"),
    (r"`spec` of step \S+", "step.spec"),
    (r"`retry` of (the task|task) .*", "task.retry"),
    (r"an entry of `retry` of .*", "task.retry.entry"),
    (r"`then` of an entry of `retry` of .*", "task.retry"),
    (r"`assert` of .*", "task.assert"),
    (r"`retry` of .*", "step.spec.retry"),
    (r"`policy` of `spec` of step \S+", "step.spec.policy"),
    (r"`lifecycle` of .*", "step.spec.policy.lifecycle"),
    (r"`failure` of .*", "step.spec.policy.failure"),
    (r"`admit` of .*", "admit"),
    (r"rule \d+ of `admit` of .*", "admit.rule"),
    (r"`else` of rule \d+ of `admit` of .*", "admit.rule.else"),
    (r"`then` of (`else` of )?rule \d+ of `admit` of .*", "admit.rule.then"),
    (r"`loop` of (step|task) .*", "loop"),
    (r"`spec` of `loop` of .*", "loop.spec"),
    (r"`policy` of `spec` of `loop` of .*", "loop.spec.policy"),
    (r"`fanout`", "fanout"),
    (r"`next` of .*", "next"),
    (r"`spec` of `next` of .*", "next.spec"),
    (r"arc \d+ in .*", "arc"),
    (r"(the task|task \S+|workbook task \S+)( of .*)?", "task"),
    (r"`spec` of (the task|task) .*", "task.spec"),
    (r"`timeout` of (`spec` of )?(the task|task) .*", "task.timeout"),
    (r"`policy` of (the task|task) .*", "task.policy"),
    (r"rule \d+ of (the task|task) .*", "rule"),
    (r"`else` of rule \d+ of (the task|task) .*", "rule.else"),
    (r"`then` of (`else` of )?rule \d+ of (the task|task) .*", "then"),
    (r"`result` of (the task|task) .*", "result"),
    (r"`store` of `result` of .*", "result.store"),
    (r"`accumulate` of `result` of .*", "result.accumulate"),
    (r"input .*", "input"),
    (r"keychain entry \d+", "keychain entry"),
    (r"`workbook`", "workbook"),
    (r"the spec", "loop.spec"),
)
#: Keys that are asked for only to say what to write instead.
MISTAKES = {("playbook", "vars")}
OF_A_KIND = {kind: frozenset(keys) for kind, keys in KINDS.items()}


def place_of(what: str) -> str:
    for pattern, place in PLACES:
        if re.fullmatch(pattern, what, re.DOTALL):
            return place
    return f"? {what}"


@dataclass
class Vocabulary:
    """What was asked for and what was there, place by place."""

    known: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    choices: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    chosen: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    refused: set[tuple[str, str]] = field(default_factory=set)

    def unused_keys(self) -> list[str]:
        return sorted(
            f"{place}: {key}"
            for place, keys in self.known.items()
            for key in keys - self.used[place]
            if (place, key) not in self.refused | MISTAKES
        )

    def unused_choices(self) -> list[str]:
        return sorted(
            f"{place}.{key}: {word}"
            for (place, key), words in self.choices.items()
            for word in words - self.chosen[place, key]
        )

    def every(self) -> Iterator[tuple[str, str]]:
        """Every place with every key it takes."""
        for place in sorted(self.known):
            for key in sorted(self.known[place]):
                if (place, key) not in self.refused:
                    yield place, key


def recorded(cases: Iterable[Case | CorpusCase], tools: Sequence[str]) -> Vocabulary:
    """Compile the playbooks and write down what the readers asked."""
    found = Vocabulary()
    finish, choice, not_yet = Section.finish, Section.choice, Section.not_yet

    def finishing(
        self: Section, also: Iterable[str] = (), *, free: Collection[str] | None = None
    ) -> None:
        known = {*self._asked, *also}
        place = place_of(self.what)
        there = {key for key in self.node.fields if key in self}
        if place == "task":
            kind = _word(self, "kind")
            own = OF_A_KIND.get(kind, frozenset())
            found.known[f"kind {kind}"] |= own & known
            found.used[f"kind {kind}"] |= there & own
            common = {key for key in known if all(key not in keys for keys in KINDS.values())}
            found.known[place] |= common if kind in KINDS else set()
        else:
            found.known[place] |= known
        found.used[place] |= there
        finish(self, also, free=free)

    def choosing(self: Section, key: str, words: Sequence[Any], default: Any) -> Any:
        place = place_of(self.what)
        if place == "task":
            place = f"kind {_word(self, 'kind')}"
        found.choices[place, key] |= set(words)
        if key in self:
            found.chosen[place, key].add(_word(self, key))
        return choice(self, key, words, default)

    def refusing(self: Section, *keys: str, hint: str = "") -> None:
        found.refused |= {(place_of(self.what), key) for key in keys}
        not_yet(self, *keys, hint=hint)

    with (
        mock.patch.object(Section, "finish", finishing),
        mock.patch.object(Section, "choice", choosing),
        mock.patch.object(Section, "not_yet", refusing),
    ):
        for case in cases:
            compile_source(case.text, file=str(case.path), tools=tools)
            for word in spellings_in(case.document):  # words the readers do not see any more
                place, _, key = word.replace("loop_spec", "loop~spec").partition(".")
                found.used[place.replace("~", ".")].add(key)
    return found


def _word(section: Section, key: str) -> str:
    node = section.node.get(key)
    return str(node.value) if isinstance(node, Scalar) else ""


# -- what never passes a section -------------------------------------------------------------


def pairs(document: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a document with its value, at any depth."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield str(key), value
            yield from pairs(value)
    elif isinstance(document, list):
        for value in document:
            yield from pairs(value)


def texts(document: Any) -> Iterator[str]:
    """Every text of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts(value)
