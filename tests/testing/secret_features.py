"""Random playbooks with secrets that are words of their data, and what must come of them.

The playbook with the keychain and its plain twin are written side by side: in the twin the words
stand where the other looks them up, and whatever a step that was given some of them answers is
cleaned by the rule of the documentation, written here a second time and from scratch. Steps that
are given none are the same in both, and nothing cleans what they say.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from anabranch.kernel.values import Answer
from anabranch.net.net import Net
from anabranch.runtime.effects import Execute
from anabranch.runtime.jobs.executor import Executor, SecretScope
from anabranch.testing import error, ok
from anabranch.testing.scripted.answers import Planned
from anabranch.testing.scripted.backstage import (
    COMPOSED,
    EveryKind,
    Inside,
    _at_once,
    _with_collections,
    backstage,
    perform_composed,
    timed,
)
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.performing import perform_inside
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.virtual.world import JobKey
from anabranch.work.loops.results import LoopResults
from anabranch.work.pipeline.pipeline import Services
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.keyring import keyring_of
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.values.payloads import StoredPayloads

from .features import Text, Writer
from .support import DyingTheatre

#: Words of the data, and of its keys; any of them may be a secret.
WORDS = [
    *("a", "on", "the", "test", "rest", "true", "null", "1234", "latest", "contest", "harvest"),
    *("password", "interesting", "north-west", "2026-11-15"),
]
SHORTEST, INSIDE, STARS = 4, 8, "***"
LETTERS = "abcdefghijkmnopqrstuvwxyz0123456789-_"


# -- the rule ----------------------------------------------------------------------------------


class Rule:
    """What is cleaned, by the page about the keychain."""

    def __init__(self, secrets: list[str]) -> None:
        self._whole = {secret for secret in secrets if len(secret) >= SHORTEST}
        long = sorted((each for each in self._whole if len(each) >= INSIDE), key=len, reverse=True)
        any_of = "|".join(map(re.escape, long))  # those that meet are one place
        self._inside = re.compile(f"(?:{any_of})+", re.IGNORECASE) if long else None
        self.found = 0

    def clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            if self._inside is not None and any(map(self._inside.search, value)):
                self.found += 1
                return STARS
            return {key: self.clean(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.clean(each) for each in value]
        if isinstance(value, int) and not isinstance(value, bool) and str(value) in self._whole:
            self.found += 1
            return STARS
        return value

    def _text(self, text: str) -> str:
        if text in self._whole:
            self.found += 1
            return STARS
        if self._inside is None:
            return text
        cleaned, places = self._inside.subn(STARS, text)
        self.found += places
        return cleaned


# -- playbooks ---------------------------------------------------------------------------------


@dataclass
class Guarded:
    """A playbook with a keychain, and its twin without one."""

    text: Text
    plain: Text
    secrets: dict[str, str]  # by the name of their entry
    given: dict[str, list[str]]  # step → the secrets that it looks up
    environment: dict[str, str]
    shard_size: Any = None
    input: dict[str, str] = field(default_factory=dict)  # secrets that its runs are given

    @cached_property
    def net(self) -> Net:
        return compiled(self.text.source(self.shard_size), tools=["call"])

    @cached_property
    def plain_net(self) -> Net:
        return compiled(self.plain.source(1), tools=["call"])

    @property
    def unheard(self) -> list[str]:
        """Secrets that nothing may show: they are no words of the data."""
        return [each for each in self.secrets.values() if len(each) >= INSIDE and each not in WORDS]


def guarded(seed: int) -> Guarded:
    """The playbook of a seed, and its twin."""
    return SecretWriter(Random(f"secrets {seed}")).made(seed)


_LOOKED_UP = re.compile(r"\{\{ (?:keychain|workload)\.(k\d)[.\w]* \}\}")


@dataclass
class SecretWriter(Writer):
    secrets: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)  # entry → how it is looked up
    given: dict[str, list[str]] = field(default_factory=dict)
    input: dict[str, str] = field(default_factory=dict)
    #: Expressions that give a list of words.
    words: list[str] = field(default_factory=lambda: ["workload.words"])

    def made(self, seed: int) -> Guarded:
        keychain, environment = self._keychain(seed)
        text = self.text(seed)
        words = self.dice.sample(WORDS, self.dice.randint(3, len(WORDS)))
        book = {word: f"the word {word} is in the book" for word in words}
        more = {"words": words, "book": book, "first": words[0], "number": 1234}
        text.definition["workload"] |= more
        self._follow(words[0])
        plain = json.loads(self._spelled_out(json.dumps(text.definition)))
        text.definition["keychain"] = keychain
        text.definition["inputs"] = {name: {"secret": True} for name in self.input}
        twin = Text(plain, text.brittle, text.decisions, text.flaky)
        shard_size = self.dice.choice((None, 2, 1000))
        return Guarded(text, twin, self.secrets, self.given, environment, shard_size, self.input)

    def _keychain(self, seed: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
        entries: list[dict[str, Any]] = []
        environment: dict[str, str] = {}
        for number in range(self.dice.randint(1, 3)):
            name, value = f"k{number}", self._secret()
            self.secrets[name], self.paths[name] = value, f"keychain.{name}"
            kind = self.dice.choice(("static", "env", "workload", "before", "input"))
            if kind == "input":
                self.input[name], self.paths[name] = value, f"workload.{name}"
            elif kind == "env":
                variable = environment_name(seed, number)
                environment[variable] = value
                entries.append({"name": name, "kind": "env", "map": {"v": variable}})
                self.paths[name] += ".v"
            elif kind == "workload":
                value = "{{ workload.first }}"
                entries.append({"name": name, "kind": "static", "value": value})
                self.secrets[name] = ""  # known once the data is there
            elif kind == "before" and number:
                inner = f"{{{{ {self.paths['k0']} }}}}"
                entries.append({"name": name, "kind": "static", "value": f"{inner}-{value}"})
                self.secrets[name] = f"\0-{value}"
            else:
                entries.append({"name": name, "kind": "static", "value": value})
        return entries, environment

    def _secret(self) -> str:
        if self.dice.random() < 0.7:
            return self.dice.choice(WORDS)
        return "".join(self.dice.choices(LETTERS, k=self.dice.randint(8, 30)))

    def _follow(self, first: str) -> None:
        """Secrets that are made of the data, or of others."""
        for name, value in self.secrets.items():
            self.secrets[name] = value or first
        for name, value in self.secrets.items():
            self.secrets[name] = value.replace("\0", self.secrets["k0"])
        self.given = {
            step: [self.secrets[name] for name in names] for step, names in self.given.items()
        }

    def _spelled_out(self, text: str) -> str:
        return _LOOKED_UP.sub(lambda found: self.secrets[found[1]], text)

    # -- sections ----------------------------------------------------------------------------

    def _section(self) -> None:
        if self.dice.random() < 0.35:
            super()._section()
            return
        make = self.dice.choice(
            (
                self._say_words,
                self._given_noop,
                self._given_noop,
                self._given_call,
                self._word_guard,
                self._word_loop,
                self._given_loop,
                self._words_in_context,
            )
        )
        make()

    def _word_list(self) -> str:
        return self.dice.choice(self.words)

    def _said(self) -> dict[str, Any]:
        source = self._word_list()
        word = self.dice.choice(WORDS)
        return {
            "words": f"{{{{ {source} }}}}",
            "text": f"{{{{ {source} | join(' ') }}}}",
            "book": "{{ workload.book }}",
            "own": {word: f"{word} itself", "deep": [{"word": word}, word.upper(), 1234, True]},
            "number": "{{ workload.number }}",
        }

    def _looks_up(self, name: str) -> str:
        """A template that gives a secret to this step."""
        entry = self.dice.choice(list(self.secrets))
        self.given.setdefault(name, []).append(entry)
        return f"{{{{ {self.paths[entry]} }}}}"

    def _say_words(self) -> None:
        name = self._add({"tool": {"kind": "noop", "result": self._said()}})
        self.words.append(f"{name}.words")

    def _given_noop(self) -> None:
        name = self._name()
        said = self._said()
        for field_name in self.dice.sample(("whole", "inside", "listed"), 2):
            secret = self._looks_up(name)
            said[field_name] = {
                "whole": secret,
                "inside": f"see {secret}, as it is",
                "listed": [{"it": secret}, f"{secret}{secret}", "on"],
            }[field_name]
        self._add({"tool": {"kind": "noop", "result": said}})
        self.words.append(f"{name}.words")

    def _given_call(self) -> None:
        name = self._name()
        words, key = f"{{{{ {self._word_list()} }}}}", self._looks_up(name)
        rows = f"{{{{ {self._list()} }}}}"
        self._add({"tool": {"kind": "call", "rows": rows, "words": words, "key": key}})
        self.brittle.append(name)
        self.words.append(f"{name}.words")
        self.lists.append(f"{name}.rows")

    def _words_in_context(self) -> None:
        key = f"w{len(self.steps)}"
        writes: dict[str, Any] = {
            key: f"{{{{ {self._word_list()} }}}}",
            f"{key}_all": {"reduce": "append", "value": f"{{{{ {self._word_list()} }}}}"},
        }
        self._add({"tool": {"kind": "noop"}, "set_ctx": writes})
        self.words.append(f"ctx.{key}")

    def _word_guard(self) -> None:
        """One of two ways, by a word."""
        source, word = self._word_list(), self.dice.choice([*WORDS, STARS])
        name = self._add({"tool": {"kind": "noop", "result": {"x": 1}}})
        yes, no, meet = f"{name}y", f"{name}n", f"{name}w"
        when = self.dice.choice(
            (
                f"{{{{ '{word}' in {source} }}}}",
                f"{{{{ '{word}' in ({source} | join(' ')) }}}}",
                f"{{{{ {source}[0] == '{word}' }}}}",
                f"{{{{ workload.book['{word}'] is defined }}}}",
            )
        )
        given = {"args": {"words": f"{{{{ {source} }}}}"}}
        self.steps[-1]["next"] = {
            "arcs": [{"step": yes, "when": when, **given}, {"step": no, **given}]
        }
        for way in (yes, no):
            result = {"way": way, "words": "{{ args.words }}"}
            arcs = {"arcs": [{"step": meet, "args": {"words": "{{ args.words }}", "way": way}}]}
            self._add({"tool": {"kind": "noop", "result": result}, "next": arcs}, way)
        result = {"words": "{{ args.words }}", "way": "{{ args.way }}"}
        self._add({"tool": {"kind": "noop", "result": result}}, meet)
        self.words.append(f"{meet}.words")

    def _word_loop(self) -> None:
        name = self._add(self._loop({"word": "{{ iter.word }}", "rest": "the rest"}))
        self.words.append(f"({name}.results | map(attribute='word') | list)")

    def _given_loop(self) -> None:
        name = self._name()
        secret = self._looks_up(name)
        said = {"word": "{{ iter.word }}", "told": secret, "text": f"{{{{ iter.word }}}} {secret}"}
        self._add(self._loop(said))
        self.words.append(f"({name}.results | map(attribute='text') | list)")

    def _loop(self, result: dict[str, Any]) -> dict[str, Any]:
        spec = {"mode": "parallel", "max_in_flight": 5} if self.dice.random() < 0.5 else {}
        return {
            "loop": {
                "in": f"{{{{ {self._word_list()} }}}}",
                "iterator": "word",
                **({"spec": spec} if spec else {}),
            },
            "tool": {"kind": "noop", "result": result},
        }

    def _everything(self) -> dict[str, Any]:
        made = super()._everything()
        for number, each in enumerate(dict.fromkeys(self.words)):
            made[f"w{number}"] = f"{{{{ {each} | join('+') }}}}"
        return made


def environment_name(seed: int, number: int) -> str:
    return f"FEATURES_{seed}_{number}"


# -- running them ------------------------------------------------------------------------------


def answer(task: Task) -> Answer:
    """Work that says what it was given, in several places."""
    rows, words = task.inputs.get("rows", []), task.inputs.get("words", [])
    said = {"rows": [row + 7 for row in rows], "count": len(rows), "words": words}
    if "key" not in task.inputs:
        return ok(said)
    key = task.inputs["key"]
    more = {"key": key, "inside": f"<{key}>", "capitals": f"-{key.upper()}-", "by": {key: 1}}
    return ok({**said, **more, "rest": [f"{key} {key}", {"on": key}]})


class PlainStage(DyingTheatre):
    """The oracle: the words are there, and what those who were given some of them say is cleaned
    by the rule."""

    inline_bytes_max = 10_000_000

    def __init__(self, made: Guarded) -> None:
        net = made.plain_net
        script = Script(net, made.plain.script(answer))
        verdicts = Script(net, dict.fromkeys(made.plain.decisions, ok("yes")), "decisions")
        super().__init__(net, Scripts(script, verdicts))
        self.given = made.given
        self.redacted: set[str] = set()

    def plan(self, key: JobKey, task: Task, label: str) -> Planned:
        if task.step not in self.given or task.kind == "loop.cut":
            return super().plan(key, task, label)
        if task.kind in COMPOSED:
            said = perform_composed(
                task, self.store, lambda item: self._cleaned(task, inside(item))
            )
            assert isinstance(said, Answer)
            return Planned(timed(said, 0))
        plan = super().plan(key, task, label)
        assert plan.answer is not None
        return plan._replace(answer=self._cleaned(task, plan.answer))

    def _cleaned(self, task: Task, said: Answer) -> Answer:
        rule = Rule(self.given[task.step])
        result = rule.clean(said.result)
        if rule.found:
            self.redacted.add(task.step)
        return ok(result)


def inside(task: Task) -> Answer:
    said = perform_inside(task)
    assert isinstance(said, Answer), f"{task.kind} reaches outside"
    return said


class SecretStage(DyingTheatre):
    """A play in which jobs of a run with a keychain are carried out as the engine does it."""

    inline_bytes_max = 10_000_000
    fails = ""  # a step that does not succeed yet

    def __init__(self, made: Guarded) -> None:
        net = made.net
        verdicts = Script(net, dict.fromkeys(made.text.decisions, ok("yes")), "decisions")
        super().__init__(net, Scripts(Script(net, {}), verdicts))
        keychain = Keychain(Redactor(), environment=made.environment)

        async def keyring(net: Any, workload: Any, run: str) -> Any:
            return await keyring_of(keychain, net, workload, run)

        safe = SecretScope(keyring, lambda _run: None)
        self._executor = Executor(EveryKind(_Performer(self)), _offers_nothing, self._fetch, safe)

    def _fetch(self, _run: str, content: str) -> bytes | None:
        return self.store.payload(content)

    def execute(self, effect: Execute) -> None:
        live = self.core.live.get(effect.run)
        job = live.state.jobs.get(effect.job) if live is not None else None
        if live is None or job is None or job.phase != "running" or job.attempt != effect.attempt:
            return
        said = backstage(self._executor._with_secrets(live, effect))
        assert isinstance(said, Answer)
        key = (effect.run, effect.job, effect.attempt)
        self.at_work[key] = Planned(said)
        self.report(key, timed(said, 0))

    def perform_one(self, task: Task) -> Answer:
        if task.kind != "call":
            return inside(task)
        if task.step == self.fails:
            return error("call", f"not yet, said {task.inputs.get('key')} and so on")
        return answer(task)


class _Performer:
    def __init__(self, stage: SecretStage) -> None:
        self._stage = stage

    async def perform(self, task: Task) -> Answer | Parked:
        perform = self._stage.perform_one
        if task.kind not in COMPOSED:
            return perform(task)
        payloads = StoredPayloads(self._stage.store)
        means = Services(performers=EveryKind(Inside(perform)), payloads=payloads, sleep=_at_once)
        loops = LoopResults(self._stage.store, payloads)
        return await _with_collections(task, means, payloads, loops)


def _offers_nothing(*_: Any) -> None:
    raise AssertionError("the stage reports for the crew")


def recorded(stage: DyingTheatre) -> bytes:
    """Everything that the store has of a run."""
    rows = b"".join(record.events for record in stage.store.read("play"))
    return rows + b"".join(stage.store._payloads.values())
