"""`target` and `fan_in`: whom a step asks, and when it has heard enough.

Without `fan_in` a target is only the candidates among whom one provider is chosen; its presence,
and only that, makes a step ask many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from anabranch.dialects.arca.orders import OfferRef
from anabranch.dialects.arca.requests import Facts, FoundTargets, Listed, Positive
from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Items, Scalar, kind_of, plain
from anabranch.errors import ExpressionError
from anabranch.expressions.pointer import Path, parse_path
from anabranch.expressions.port import NOTHING, Paths
from anabranch.expressions.references import (
    Reference,
    References,
    compile_references,
    document_of,
    is_reference,
)
from anabranch.kernel.values import is_number
from anabranch.net.net import Fan, GatherRule, Retry, Work
from anabranch.net.problems import Position

Policy = Literal["any_one", "all", "quorum", "best_of"]
POLICIES: tuple[Policy, ...] = ("any_one", "all", "quorum", "best_of")
RESOLVE: tuple[Literal["capability", "static", "task_type"], ...] = (
    "capability",
    "static",
    "task_type",
)
LIMIT_MAX = 100_000
#: A search is our own affair: a directory that could not be read is tried again before it counts.
SEARCH_MS = 60_000
SEARCH_RETRY = Retry(attempts=3, delay_ms=1_000, backoff="exponential")
#: Of a step that asks one provider.
_ONE = GatherRule(mode="any", combine="one", losers="kill", exclude_lost=True)
ORDERS: tuple[Literal["asc", "desc"], ...] = ("asc", "desc")
TARGET_ORDERS: tuple[Literal["fixed", "least_recently_asked"], ...] = (
    "fixed",
    "least_recently_asked",
)
BOUNDS = ("min_score", "max_score")
_NO_SCORE = "no score"
#: Which key each way to resolve needs.
NEEDS = {"capability": "capability_id", "static": "participants", "task_type": "task_type"}


class Target(msgspec.Struct, frozen=True):
    """Whom to ask, as the definition says."""

    resolve: Literal["capability", "static", "task_type"]
    position: Position
    capability_id: str = ""
    task_type: str = ""
    participants: tuple[str, ...] = ()
    filter: References | None = None
    limit: int | None = None
    order: Literal["fixed", "least_recently_asked"] = "fixed"

    @property
    def is_searched(self) -> bool:
        """Whom it asks is found out by a job, not read from the definition."""
        return self.resolve != "static" or self.order != "fixed"

    @property
    def described(self) -> dict[str, Any]:
        """For the job that looks for them; its filter is worked out when it does."""
        facts: dict[str, Any] = {
            "resolve": self.resolve,
            "capability_id": self.capability_id,
            "task_type": self.task_type,
            "participants": list(self.participants),
            "limit": self.limit,
            "order": "" if self.order == "fixed" else self.order,
        }
        return {key: value for key, value in facts.items() if value not in ("", None, [])}

    def references(self) -> Iterator[Reference]:
        """Those of its filter, and of the participants it names."""
        if self.filter is not None:
            yield from self.filter.references()
        if self.resolve == "static":
            yield from compile_references(list(self.participants)).references()


class Bounds(msgspec.Struct, frozen=True):
    """`min_score` and `max_score`: why an answer cannot be used, or an empty text.

    A bound is a number, or a reference to one (`"{{input.budget}}"`), looked up when an answer is
    judged. What was decided is recorded with the answer, so nothing is looked up twice.
    """

    score: Path
    given: References  # a mapping of one or both keys

    @property
    def text(self) -> str:
        return f"{self.score.text} within {self.given.text}"

    @property
    def reads(self) -> Paths:
        return self.given.reads

    def references(self) -> Iterator[Reference]:
        yield from self.given.references()

    def evaluate(self, names: Mapping[str, Any]) -> str:
        score = self.score.find(names["answer"])
        if not is_number(score):
            return _NO_SCORE
        bounds = self.given.render(document_of(names))
        for key, bound in bounds.items():
            if not is_number(bound):
                raise ExpressionError(f"`{key}` comes to {bound!r:.40}, which is no number")
        least, most = (bounds.get(key) for key in BOUNDS)
        if least is not None and score < least:
            return f"score {score:g} is below min_score {least:g}"
        if most is not None and score > most:
            return f"score {score:g} is above max_score {most:g}"
        return ""


class FanIn(msgspec.Struct, frozen=True):
    policy: Policy
    position: Position
    min_responses: int = 1
    score: Path | None = None
    order: Literal["asc", "desc"] = "desc"
    bounds: Bounds | None = None

    @property
    def is_scored(self) -> bool:
        """Its answers are looked into for a number."""
        return self.policy == "best_of" or self.bounds is not None


class Score(msgspec.Struct, frozen=True):
    """The number at a path of the answer; nothing, where there is none."""

    path: Path
    reads: ClassVar[Paths] = NOTHING

    @property
    def text(self) -> str:
        return self.path.text

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return self.path.find(names["answer"])


def read_target(section: Section | None) -> Target | None:
    if section is None:
        return None
    if "resolve" not in section:
        section.require("resolve", "choose one of capability, static, task_type")
        return None
    resolve = section.choice("resolve", RESOLVE, "static")
    target = Target(
        resolve,
        section.position,
        section.string("capability_id"),
        section.string("task_type"),
        _participants(section),
        read_references(section, "filter"),
        section.whole("limit", 0, least=1, most=LIMIT_MAX) or None,
        section.choice("order", TARGET_ORDERS, "fixed"),
    )
    if "resolve" in section and resolve != plain(section.node.fields["resolve"]):
        section.finish()
        return None  # what it needs depends on a word that nobody can read
    needed = NEEDS[resolve]
    section.require(needed, f"a target that is resolved by {resolve!r} needs it")
    for other in set(NEEDS.values()) - {needed}:
        if other in section:
            message = f"`{other}` has no effect where targets are resolved by {resolve!r}"
            section.warn(other, "ignored-key", message, "remove it")
    section.finish()
    return target


def _participants(section: Section) -> tuple[str, ...]:
    items = section.items("participants")
    if items is None:
        return ()
    found = [_participant(item, section.findings) for item in items]
    names = [name for name in found if name]
    if not items.items:
        message = f"`participants` of {section.what} is empty"
        section.findings.add(items.position, "missing-key", message, "name at least one")
    return tuple(_each_once(names, items, section.findings))


def _participant(node: Any, findings: Findings) -> str:
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
        try:
            compile_references(node.value)
        except ExpressionError as error:
            findings.add(node.position, "bad-template", str(error))
            return ""
        return node.value
    message = f"a participant is {kind_of(node)}"
    findings.add(node.position, "wrong-type", message, "write its id as text")
    return ""


def _each_once(names: list[str], items: Items, findings: Findings) -> list[str]:
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        message = f"participant {twice!r} is named twice and asked once"
        findings.warn(items.position, "ignored-key", message, "name each once")
    return list(dict.fromkeys(names))


def read_references(section: Section, key: str) -> References | None:
    """A mapping whose values may be references."""
    found = section.section(key)
    if found is None:
        return None
    try:
        return compile_references(plain(found.node))
    except ExpressionError as error:
        section.findings.add(found.position, "bad-template", str(error))
        return None


def read_fan_in(section: Section | None) -> FanIn | None:
    """`fan_in`, which an empty mapping is enough for."""
    if section is None:
        return None
    policy = section.choice("policy", POLICIES, "any_one")
    asked = section.whole("min_responses", 1, least=1, most=LIMIT_MAX)
    score = _score(section)
    order = section.choice("score_order", ORDERS, "desc")
    bounded = _read_bounds(section, score)
    if section.sound:
        _check_fan_in(section, policy, asked)
    section.finish()
    bounded = None if policy == "all" else bounded
    return FanIn(policy, section.position, asked, score, order, bounded)


def _check_fan_in(section: Section, policy: Policy, asked: int) -> None:
    """What the keys say together."""
    if policy == "quorum":
        section.require("min_responses", "say how many answers are enough")
    if policy == "best_of":
        section.require("score_field", "name the number to choose by, such as /price")
    has_bounds = any(key in section for key in BOUNDS)
    if has_bounds and policy not in ("all", "best_of"):
        section.require("score_field", "name the number that is bounded, such as /price")
    for key in _without_effect(policy, has_bounds):
        if key in section:
            message = f"`{key}` has no effect with the policy {policy!r}"
            section.warn(key, "ignored-key", message, "remove it")
    if policy == "all" and asked > 1:
        message = f"`min_responses` has no effect with the policy {policy!r}"
        section.warn("min_responses", "ignored-key", message, "remove it, or choose quorum")
    if policy == "any_one" and asked > 1:
        message = f"any_one goes on with one answer, and `min_responses` requires {asked}"
        section.report("min_responses", "conflicting-keys", message, "choose the policy quorum")


def _without_effect(policy: Policy, has_bounds: bool) -> tuple[str, ...]:
    if policy == "best_of":
        return ()
    if policy == "all":
        return "score_field", "score_order", *BOUNDS
    return ("score_order",) if has_bounds else ("score_field", "score_order")


def _score(section: Section) -> Path | None:
    node = section.text("score_field")
    if node is None:
        return None
    try:
        return parse_path(str(node.value))
    except ExpressionError as error:
        section.findings.add(node.position, "bad-template", str(error), "write /a/b or $.a.b")
        return None


def _read_bounds(section: Section, score: Path | None) -> Bounds | None:
    given = {key: plain(node) for key in BOUNDS if (node := section.ask(key)) is not None}
    for key, value in given.items():
        if not is_number(value) and not is_reference(value):
            expected = 'a number or a reference such as "{{input.budget}}"'
            section.findings.wrong_type(
                section.node.fields[key], f"`{key}` of {section.what}", expected
            )
            return None
    least, most = (given[key] if is_number(given.get(key)) else None for key in BOUNDS)
    if least is not None and most is not None and least > most:
        message = f"`min_score` {least:g} is above `max_score` {most:g}: no answer can be used"
        section.report("min_score", "conflicting-keys", message, "exchange them")
        return None
    if not given or score is None:
        return None
    return Bounds(score, compile_references(given))


def fan_of(target: Target, fan_in: FanIn, service_type: str, rounds: Retry) -> Fan:
    """The fan that asks those targets under that policy."""
    searched = target.is_searched
    return Fan(
        over=FoundTargets(target.limit) if searched else Listed(target.participants, target.limit),
        rule=_rule(fan_in),
        score=Score(fan_in.score) if fan_in.policy == "best_of" and fan_in.score else None,
        usable=None if fan_in.policy == "all" else Positive(),
        bounds=fan_in.bounds,
        targets=_search(target, service_type) if searched else None,
        rounds=rounds,
    )


def choice_of(target: Target | None, service_type: str, search_again: Retry) -> Fan:
    """A fan over the one provider that an ordinary step asks, and keeps asking."""
    if target is not None and not target.is_searched:
        return Fan(Listed(target.participants, 1), _ONE, keeps_targets=True)
    search = _search(target, service_type, one=True)
    return Fan(FoundTargets(1), _ONE, targets=search, rounds=search_again, keeps_targets=True)


def order_of(offer: OfferRef, service_type: str, search_again: Retry) -> Fan:
    """A fan over the provider of the offer that an ordinary step orders."""
    facts = {"resolve": "offer", "service_type": service_type, "one": True}
    search = Work(
        kind="targets",
        inputs=Facts(facts, offer=offer),
        timeout_ms=SEARCH_MS,
        retry=SEARCH_RETRY,
    )
    return Fan(FoundTargets(1), _ONE, targets=search, rounds=search_again, keeps_targets=True)


def _search(target: Target | None, service_type: str, *, one: bool = False) -> Work:
    described = target.described if target is not None else {"resolve": "service_type"}
    facts = {**described, "service_type": service_type, **({"one": True} if one else {})}
    named = compile_references(facts["participants"]) if "participants" in facts else None
    inputs = Facts(facts, target.filter if target is not None else None, named)
    return Work(kind="targets", inputs=inputs, timeout_ms=SEARCH_MS, retry=SEARCH_RETRY)


def _rule(fan_in: FanIn) -> GatherRule:
    match fan_in.policy:
        case "any_one":
            return GatherRule(
                mode="any", select="arrival", combine="one", losers="kill", exclude_lost=True
            )
        case "all":
            return GatherRule(mode="all", combine="list", losers="kill", exclude_lost=True)
        case "quorum":
            return GatherRule(
                mode="quorum",
                k=fan_in.min_responses,
                combine="list",
                losers="kill",
                exclude_lost=True,
            )
        case "best_of":
            return GatherRule(
                mode="best_of",
                k=fan_in.min_responses,
                select="score",
                order=fan_in.order,
                combine="one",
                losers="kill",
                exclude_lost=True,
                partial_on_expiry=True,
            )
