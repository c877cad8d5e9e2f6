"""The part of a relational store that lists runs and counts them: over time, by status and by
definition.

A list of runs with a label begins at the table of labels. Where several labels, or a label and a
name, are asked for, it begins with what the fewest runs have; the other conditions are asked of
each run that is found. To count, each database does what it can best: PostgreSQL aggregates, SQLite
hands over lists.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from anabranch.store.ports import DefinitionRuns, Head, HeadFilter, RunHistory
from anabranch.store.relational.connection import RelationalPart, Row
from anabranch.store.relational.rows import conditions_of, head_of, label_number, like_word

_COUNTED = 2_000  # what more runs have than that is common
_EVER = 2**62  # no instant is later


class RelationalHistory(RelationalPart):
    #: For a word with other letters than A to Z, which `LIKE` compares as they are written.
    pattern_of_letters: Callable[[str], str]

    def heads(self, wanted: HeadFilter) -> list[Head]:
        label = self._rarest_label(wanted)
        name, given = ("list", {}) if label is None else ("labelled", _from(label, wanted))
        statement, asked = self._narrowed(name, wanted, paged=True)
        rows = self._rows(statement, {**asked, **given, "limit": max(wanted.limit, 0)})
        return [head_of(row) for row in rows]

    def _rarest_label(self, wanted: HeadFilter) -> int | None:
        """None where there is none, or where the id, the parent or the name of runs say more."""
        if not wanted.labels or wanted.run_prefix or wanted.parent is not None:
            return None
        labels = [label_number(*each) for each in wanted.labels.items()]
        if len(labels) == 1 and wanted.name is None:
            return labels[0]
        counts = [(self._count("count_labelled", label=each), each) for each in labels]
        fewest, label = min(counts)
        named = wanted.name is not None and self._count("count_named", name=wanted.name) <= fewest
        return None if named else label

    def _count(self, statement: str, **given: Any) -> int:
        count: int = self._rows(self.sql[statement], {**given, "limit": _COUNTED})[0][0]
        return count

    def run_slots(self, wanted: HeadFilter, width: int) -> Mapping[tuple[int, str], int]:
        statement, given = self._narrowed("slots", wanted, paged=False)
        rows = self._rows(statement, {**given, "width": width})
        return {(slot, status): count for slot, status, count in rows}

    def run_history(self, since: int, width: int) -> RunHistory:
        """Slot by slot, so that others who read need not wait for all of it. A run stays in its
        slot, so none is counted twice."""
        folded = FoldedHistory()
        while (begun := self._rows(self.sql["next_begun"], {"since": since})[0][0]) is not None:
            slot = begun // width
            span = {"since": since, "until": (slot + 1) * width}
            folded.add(slot, *self._rows(self.sql["history"], span)[0])
            since = span["until"]
        return folded.history()

    def unfinished_counts(self) -> Mapping[str, int]:
        return dict(self._rows(self.sql["unfinished_counts"], {}))

    def waiting_longest(self, limit: int) -> list[Head]:
        rows = self._rows(self.sql["waiting_longest"], {"limit": max(limit, 0)})
        return [head_of(row) for row in rows]

    def _narrowed(
        self, name: str, wanted: HeadFilter, *, paged: bool
    ) -> tuple[str, dict[str, Any]]:
        """A statement with the conditions that the filter really states, and their parameters."""
        conditions = conditions_of(wanted)
        if not paged:
            conditions.pop("before", None)
        parts = [self.sql[name], *(self.sql[f"list_{each}"] for each in conditions)]
        parameters: dict[str, Any] = {}
        for values in conditions.values():
            parameters |= values
        for number, word in enumerate(wanted.search.split()):
            plain = word.isascii()
            condition = self.sql["list_word" if plain else "list_letters"]
            parts.append(condition.replace("searched", f"searched_{number}"))
            pattern = like_word(word) if plain else self.pattern_of_letters(word)
            parameters[f"searched_{number}"] = pattern
        return "\n".join([*parts, self.sql[f"{name}_order"]]), parameters


def _from(label: int, wanted: HeadFilter) -> dict[str, Any]:
    """Where the list begins and ends in the table of labels."""
    ends = [(_EVER, "")]
    if wanted.before is not None:
        ends.append(wanted.before)
    if wanted.created_before is not None:
        ends.append((wanted.created_before, ""))
    before, run = min(ends)
    after = -_EVER if wanted.created_after is None else wanted.created_after
    return {
        "label": label,
        "labelled_after": after,
        "labelled_before": before,
        "labelled_before_run": run,
    }


class FoldedHistory:
    """Adds up the runs of slots: their names, statuses and durations as lists in JSON."""

    def __init__(self) -> None:
        self._counts: list[Row] = []
        self._took: dict[str, list[int]] = defaultdict(list)

    def add(self, slot: int, names: str, statuses: str, spans: str) -> None:
        """A run that has not ended has no duration."""
        named, ends = _texts(names), _numbers(spans)
        for (name, status), count in Counter(zip(named, _texts(statuses), strict=True)).items():
            self._counts.append((slot, name, status, count))
        took = self._took
        for name, span in zip(named, ends, strict=True):
            if span is not None:
                took[name].append(span)

    def history(self) -> RunHistory:
        ended = ((name, sorted(spans)) for name, spans in self._took.items())
        took = [(name, _nearest(each, 50), _nearest(each, 95)) for name, each in ended]
        return history_of(self._counts, took)


_texts = msgspec.json.Decoder(list[str]).decode
_numbers = msgspec.json.Decoder(list[int | None]).decode


def history_of(counts: Iterable[Row], took: Iterable[Row]) -> RunHistory:
    """Rows of slot, name, status and how many; and rows of name and the two durations."""
    slots: Counter[tuple[int, str]] = Counter()
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    spans = {name: (half, most) for name, half, most in took}
    for slot, name, status, count in counts:
        slots[slot, status] += count
        statuses[name][status] += count
    found = []
    for name in sorted(statuses):
        half, most = spans.get(name, (None, None))
        found.append(
            DefinitionRuns(name=name, statuses=dict(statuses[name]), p50_ms=half, p95_ms=most)
        )
    return RunHistory(slots=dict(slots), definitions=found)


def _nearest(spans: list[int], percent: int) -> int:
    """By nearest rank: the first that so many of a hundred do not exceed."""
    return spans[-(-len(spans) * percent // 100) - 1]
