"""Problems of a definition, each with its place and the one change that mends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note"]


class Position(msgspec.Struct, frozen=True, order=True):
    """Where something stands in a source file; lines and columns count from 1."""

    line: int
    column: int
    file: str = "<text>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong (or worth a look) in a definition."""

    position: Position
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        kind = "" if self.severity == "error" else f"{self.severity}: "
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.position}: {self.code}: {kind}{self.message}{hint}"


#: Each misspelt name is compared with so many others at most, and only as far as it is a word:
#: a definition with thousands of both would take the square of them.
HINTS_MAX = 500
WORD_MAX = 80


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """By position, each once: an alias brings the mistakes of its anchor again."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.position))


def closest(word: str, known: Iterable[str]) -> str:
    """A hint naming the closest known word; "" where none comes close."""
    options = list(islice(known, HINTS_MAX))
    close = [option for option in options if option.lower() == word.lower()]
    if not close and len(word) <= WORD_MAX:
        near = [option for option in options if len(option) <= WORD_MAX]
        close = get_close_matches(word, near, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The same, or else the known words when they are few."""
    options = list(islice(known, HINTS_MAX))
    few = 0 < len(options) <= 12
    return closest(word, options) or ("known here: " + ", ".join(sorted(options)) if few else "")


#: Every code a problem can have. They are stable: scripts and editors may rely on them.
CODES: Mapping[str, str] = {
    # the text
    "too-large": "the document is longer than the size limit",
    "not-utf8": "the file is not UTF-8",
    "bad-character": "a character that YAML does not allow",
    "syntax": "the text is not YAML or JSON",
    "empty": "there is nothing in the document",
    "several-documents": "a second YAML document in the same file",
    "too-deep": "more nesting than the depth limit",
    "too-many-values": "more values than the limit, aliases written out",
    "bad-alias": "a YAML alias that is not defined, or contains itself",
    "bad-merge": "`<<` with something other than mappings",
    "bad-key": "a key that is not text",
    "duplicate-key": "a key that stands twice in one mapping",
    "unknown-tag": "a YAML tag other than those of plain values",
    "bad-value": "a value that is not what it says, or that JSON cannot hold",
    # the dialect
    "unknown-dialect": "no dialect recognises the document",
    "not-yet": "known, but it cannot be run so far",
    "wrong-type": "a value of another type than the key takes",
    "missing-key": "a key that must be there",
    "unknown-key": "a key that does not exist at this place",
    "ignored-key": "a key that has no effect here",
    "conflicting-keys": "two keys of which only one may be there",
    "bad-choice": "a word that is not one of the choices",
    "bad-number": "a number outside its range",
    "secret-default": "an input that is a secret has a default",
    "secret-read": "a default reads an input that is a secret",
    "bad-schedule": "a `schedule` that cannot be read or never comes: a cron of 31 February",
    "bad-duration": "not a duration, or zero where time is needed",
    "bad-name": "a name that cannot be used",
    "no-name": "the definition has no name",
    "no-steps": "a workflow without steps",
    "empty-step": "a step that does nothing and leads nowhere",
    "duplicate-step": "two steps of the same name",
    "unknown-step": "a step that does not exist is named",
    "unknown-kind": "a task kind that does not exist",
    "unknown-name": "a template reads a name that nothing sets, or a step that does not exist",
    "unknown-input": "a template reads an input that is not there, close to one that is",
    "unknown-field": "a template reads a field that the result of a step does not have",
    "unknown-error-kind": "a guard compares the kind of an error with one that does not exist",
    "unreachable-error-kind": "a guard asks for a kind of error that no task before it gives",
    "unknown-function": "a template calls a function that does not exist",
    "bad-code": "Python code that cannot be compiled",
    "tool-arguments": "arguments that a registered tool does not take, or lacks",
    "missing-child": "a child definition that is neither a file nor in the catalog",
    "child-cycle": "a definition that starts itself through its children",
    "hidden-name": "a step or a task whose result another name hides",
    "bad-template": "a template that cannot be compiled",
    "text-condition": "a condition that is text with templates in it",
    "unquoted-template": "data that becomes part of a command, a query or code",
    "quoted-twice": "quotes around a value that is quoted already",
    "dead-rule": "a rule after `else`",
    "old-spelling": "an older way to write something",
    "root-extension": "a mapping at the root that is not part of the language",
    "duplicate-label": "two tasks of a pipeline, or two secrets, of the same name",
    "unknown-label": "a jump to a task that is not in the pipeline",
    "unknown-task": "a task that is not in the workbook",
    "unknown-credential": "a credential that no store has",
    "credential-by-name": "a credential that the engine looks up by its name when the step runs",
    "credential-instead": "a secret of another store, for which a credential of this store stands",
    "short-secret": "a secret that is too short to be found inside a text",
    "misplaced-task": "a task that cannot stand at this place",
    "shared-write": "items that run at once write the same context key",
    "failure-goes-on": "a step that can fail, whose failure is followed like its success",
    "decision-arc": "an arc of a decision that does not say which way it means",
    "no-reducer": "`set_shared` without a reducer for it",
    "rate-at-workers": "a rate of a kind or a host, and a pool whose workers do not know it",
    "lost-order": "a sequential loop that is run as a fan-out",
    # books of participants
    "bad-book": "an entry of a book of participants that cannot be used",
    "bad-passport": "a passport or a revocation that does not count",
    "missing-variable": "an environment variable that a book needs and that is not set",
    "unknown-participant": "a participant that is not in the book",
    "unknown-capability": "a decision source that is not in the book",
    "nobody-to-ask": "a step for which the book has no participant",
    # rules
    "bad-expression": "an expression that cannot be read",
    "bad-pattern": "a pattern of `matches` that cannot be used",
    "text-candidate": "a text that looks like an expression, or the other way round",
    "encrypted-rule": "a rule that is encrypted",
    "closed-rule": "a rule of a bundle that is encrypted, and runs only where its key is",
    # orchestrations
    "too-many": "more entries than the limit",
    "empty-list": "a list that must have an entry",
    "unresolved-rule": "a rule that is no address and that no bundle or folder has",
    "no-rule": "a rule that is needed to start and cannot be had",
    "kind-off": "a task of a kind that is switched off where it is to run",
    "file-not-allowed": "a file that the work may not open where it is to run",
    "missing-extra": "packages that the work needs and that are not installed where it is to run",
    "unused-rule": "a rule that no step names",
    "several-starts": "no step stands out as the start",
    "self-spawn": "a step that spawns itself",
    "join-target-spawned": "the target of a join is also one of its spawns",
    "duplicate-slot": "the same producer twice in `from`",
    "payload-gap": "a rule needs an input that nothing before it gives",
    "other-id": "the id of the document differs from the one it is stored under",
    "wrong-hash": "a text that does not match its hash",
    "incomplete-bundle": "a bundle without a part that strict importers require",
    "one-orchestration": "a bundle that has no orchestration, or more than one",
    "several-orchestrations": "a file with several orchestrations, of which one has to be chosen",
    "cannot-load": "an orchestration that its registry does not give out as it should",
    "nothing-saved": "a read of a contract whose answer is not stored",
    "unresolved-address": "an address that something else has to fill in",
    # definitions of workflows
    "removed-key": "a key that is no longer read, with what replaced it",
    "dependency-cycle": "steps that depend on one another",
    "unknown-reference": "a reference to something that cannot be there",
    "unmeetable-policy": "a policy that cannot get what it asks for",
    # the net
    "unreachable-step": "a step no route leads to",
    "several-tokens": "a step that runs once for each of several tokens of a fork",
    "forks-partly-examined": "a net too large to look for all tokens that meet",
    "final-step-routed": "the final step also runs as an ordinary step",
    "final-step-routes": "arcs of the final step, which are never followed",
    "dead-arc": "an arc behind one that is always taken",
    "endless-cycle": "a cycle nothing leads out of",
    "idle-cycle": "a cycle in which nothing works or waits",
    "join-impossible": "a join that can never close",
    "slot-unreachable": "a slot of a join that can never be filled",
    "join-needs-outcome": "a join that closes only if a step before its producers ends one way",
    "merge-overlap": "producers of one join write the same keys",
    "join-reading": "whether steps where branches meet wait, read from how a playbook is written",
    "at-once": "several steps of a `case` that begin at once, and not one after the other",
    "begun-only": "a child run that is started, and that its step does not wait for",
    "numeric-id": "`execution_id` is a number, and is compared with text",
}
