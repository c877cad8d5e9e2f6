"""What a step sends: its input with the references put in, and what came from upstream.

Upstream outputs lie below, merged in the order of `input_from` (later ones win), with a copy by
step id under `upstream`, because two steps may use the same keys; the step's own input lies on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from anabranch.dialects.arca.orders import OfferRef, OrderTerms
from anabranch.errors import ExpressionError
from anabranch.expressions.port import NOTHING, Paths
from anabranch.expressions.references import References, compile_references, document_of


class StepInput(msgspec.Struct, frozen=True):
    """The input of a step."""

    given: References
    upstream: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.given.text

    @property
    def reads(self) -> Paths:
        return self.given.reads | {("steps", step) for step in self.upstream}

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        given = self.given.render(document_of(names))
        if not self.upstream:
            return given
        outputs = {step: names["results"].get(step) for step in self.upstream}
        merged: dict[str, Any] = {}
        for output in outputs.values():
            merged.update(output if isinstance(output, Mapping) else {})
        return {**merged, "upstream": outputs, **(given or {})}


class Inputs(msgspec.Struct, frozen=True):
    """The inputs of a job: fixed facts of the definition beside what is worked out."""

    input: StepInput
    facts: Mapping[str, Any] = {}
    slot: str = ""  # the key under which the job of a fan gets its slot
    own: str = ""  # the step whose output is at hand and not yet recorded as its result
    filter: References | None = None
    terms: OrderTerms | None = None  # of the order, where one provider is asked

    @property
    def text(self) -> str:
        return self.input.text

    @property
    def reads(self) -> Paths:
        given = (self.filter, self.terms)
        return self.input.reads.union(*(one.reads for one in given if one is not None))

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        asked = {self.slot: names["slot"]} if self.slot else {}
        if self.own:
            names = {**names, "results": {**names["results"], self.own: names["answer"]}}
        facts = _with_filter(self.facts, self.filter, names)
        terms = {} if self.terms is None else self.terms.evaluate(names)
        return {**facts, **asked, **terms, "input": self.input.evaluate(names)}


def _with_filter(
    facts: Mapping[str, Any], filter_: References | None, names: Mapping[str, Any]
) -> Mapping[str, Any]:
    return facts if filter_ is None else {**facts, "filter": filter_.render(document_of(names))}


class Facts(msgspec.Struct, frozen=True):
    """Inputs that are the same for every run, beside a filter that may read it."""

    facts: Mapping[str, Any]
    filter: References | None = None
    named: References | None = None  # the participants among the facts, which may be references
    offer: OfferRef | None = None  # the offer that is ordered

    @property
    def reads(self) -> Paths:
        given = (self.filter, self.named, self.offer)
        return NOTHING.union(*(one.reads for one in given if one is not None))

    @property
    def text(self) -> str:
        return repr(dict(self.facts))

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        facts = dict(_with_filter(self.facts, self.filter, names))
        if self.named is not None:
            facts["participants"] = self.named.render(document_of(names))
        if self.offer is not None:
            facts["offer"] = self.offer.offer(names)
        return facts


class Listed(msgspec.Struct, frozen=True):
    """The participants that the definition names, at most `limit` of them.

    A name may be a reference, such as to the provider of an offer that was chosen before.
    """

    participants: tuple[str, ...]
    limit: int | None = None

    @property
    def text(self) -> str:
        return ", ".join(self.participants[: self.limit])

    @property
    def reads(self) -> Paths:
        return compile_references(list(self.participants)).reads

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        named = list(self.participants[: self.limit])
        if not any("{{" in name for name in named):
            return named
        found = compile_references(named).render(document_of(names))
        if not all(isinstance(name, str) and name for name in found):
            raise ExpressionError(f"{self.text} does not come to the name of a participant")
        return list(dict.fromkeys(found))


class FoundTargets(msgspec.Struct, frozen=True):
    """The participants that the search for targets came to, each once and at most `limit`."""

    limit: int | None = None
    text: str = "the targets found"
    reads: ClassVar[Paths] = NOTHING

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        targets = names["found"]
        found = targets.get("targets", []) if isinstance(targets, Mapping) else targets
        return list(dict.fromkeys(found))[: self.limit]


class Positive(msgspec.Struct, frozen=True):
    """Whether an answer may be used: it is not a no."""

    text: str = "a usable answer"
    reads: ClassVar[Paths] = NOTHING

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return names["outcome"] != "negative"
