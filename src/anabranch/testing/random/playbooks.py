"""Random playbooks, each fixed by its seed: texts in the canonical spelling, for the real dialect.

Where random nets reach into every corner of the kernel, random playbooks take the whole way: YAML,
compiler, pipelines and their policies, loops local and fanned out, shards and reducers. Every arc
leads forward, so that every playbook can come to its end; what goes in circles is a jump in a
pipeline, which counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from anabranch.net.net import Net
from anabranch.testing.scripted.definitions import compiled

_DONE = "{{ event.name == 'step.done' }}"
_CODE = (
    "result = 1",
    "result = {'n': 3}",
    "result = [1, 2, 3]",
    "result = 1 // 0",
    "result = None",
)
Fields = dict[str, Any]


def random_playbook(seed: int) -> str:
    """The text with that seed; the same seed gives the same text."""
    return _Writer(seed).text()


def random_playbook_net(seed: int) -> Net:
    """The same, compiled; for `simulate` and the soak."""
    return compiled(random_playbook(seed))


@dataclass(slots=True)
class _Writer:
    seed: int
    dice: Random = field(init=False)
    waits: Random = field(init=False)  # apart, so that a seed gives what it gave before, and waits
    durations: Random = field(init=False)  # apart for the same reason
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.dice = Random(f"playbook {self.seed}")
        self.waits = Random(f"waits {self.seed}")
        self.durations = Random(f"durations {self.seed}")
        self.count = self.dice.choice((1, 2, 3, 4, 5, 7))

    def text(self) -> str:
        steps = [self._step(number) for number in range(1, self.count + 1)]
        root: Fields = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": f"random-{self.seed}"},
            "executor": {"spec": self._policies()},
            "workload": {"items": list(range(self.dice.choice((0, 1, 3, 6)))), "seed": self.seed},
        }
        lines = [f"{key}: {_flow(value)}" for key, value in root.items()]
        lines.append("workflow:")
        for step in steps:
            name, *rest = (f"{key}: {_flow(value)}" for key, value in step.items())
            lines += [f"  - {name}", *(f"    {line}" for line in rest)]
        return "\n".join(lines) + "\n"

    def _chance(self, probability: float) -> bool:
        return self.dice.random() < probability

    def _policies(self) -> Fields:
        spec: Fields = {"on_failure": self.dice.choice(("fail", "handled", "partial"))}
        if self._chance(0.15):
            spec["deadline"] = self.dice.choice(("30s", "5m", "1h"))
        if self._chance(0.1):
            spec["fail_fast"] = True
        if self._chance(0.2):
            spec["held"] = "discard"
        if self._chance(0.2):
            spec["final_step"] = f"s{self.count}"
        if self._chance(0.2):
            spec["loop_mode"] = "fanout"
        if self._chance(0.2):
            spec["fanout"] = {"allow_partial": True}
        if self._chance(0.1):
            spec["no_next_is_error"] = True
        return spec

    # -- steps -------------------------------------------------------------------------------

    def _step(self, number: int) -> Fields:
        step: Fields = {"step": f"s{number}"}
        spec = self._spec()
        loops = self._chance(0.5)
        reducers: Fields = {}
        if loops:
            step["loop"], fanout = self._loop()
            reducers = fanout.get("reducers", {})
            if fanout:
                spec["fanout"] = fanout
            if self._chance(0.6):
                spec["loop_mode"] = self.dice.choice(("local", "fanout", "fanout"))
        if spec:
            step["spec"] = spec
        step["tool"] = self._tool(loops, reducers)
        if self._chance(0.2):
            step["set_ctx"] = {"seen": {"reduce": "sum", "value": 1}}
        later = [f"s{other}" for other in range(number + 1, self.count + 1)]
        if later:
            step["next"] = self._next(later)
        return step

    def _spec(self) -> Fields:
        spec: Fields = {}
        if self._chance(0.2):
            spec["timeout"] = self.dice.choice(("2s", "20s", "2m"))
            spec["on_timeout"] = self.dice.choice(("fail", "skip", "abort_run"))
        if self._chance(0.25):
            attempts, delay = self.dice.randint(1, 3), self.dice.choice(("0s", "1s", "10s"))
            spec["retry"] = {"attempts": attempts, "delay": delay}
        if self._chance(0.3):
            spec["join"] = "all"
        policy: Fields = {}
        if self._chance(0.12):
            policy["admit"] = self._admission()
        if self._chance(0.2):
            policy["failure"] = {"mode": "best_effort"}
        return {**spec, "policy": policy} if policy else spec

    def _admission(self) -> Fields:
        when = f"{{{{ ctx.open | default(0) >= {self.dice.randint(1, 2)} }}}}"
        rules: list[Fields] = [{"when": when, "then": {"allow": True}}]
        if self._chance(0.4):
            rules.append({"else": {"then": {"allow": self._chance(0.5)}}})
        return {"on_deny": self.dice.choice(("pending", "discard", "skip")), "rules": rules}

    def _next(self, later: list[str]) -> Fields:
        mode = self.dice.choice(("exclusive", "inclusive"))
        targets = self.dice.sample(later, min(len(later), self.dice.choice((1, 1, 2, 3))))
        arcs = [self._arc(target) for target in targets]
        return {"spec": {"mode": mode}, "arcs": arcs}

    def _arc(self, target: str) -> Fields:
        arc: Fields = {"step": target}
        if self._chance(0.4):
            arc["when"] = self.dice.choice(
                (_DONE, "{{ workload.seed % 2 == 0 }}", "{{ fanin.failed | default(0) == 0 }}")
            )
        if self._chance(0.3):
            arc["args"] = {"from": "{{ event.step }}", "n": 1}
        return arc

    # -- loops -------------------------------------------------------------------------------

    def _loop(self) -> tuple[Fields, Fields]:
        """The loop, and its policies."""
        size = self.dice.choice((0, 1, 2, 5, 9, 17))
        over: Any = self.dice.choice(
            (
                {"range": size},
                {"range": [2, 2 + size]},
                list(range(size)),
                "{{ workload['items'] }}",
            )
        )
        loop: Fields = {"in": over, "iterator": "x"}
        if self._chance(0.5):
            loop["spec"] = {"mode": "parallel", "max_in_flight": self.dice.choice((1, 2, 6, 12))}
        fanout: Fields = {}
        options: tuple[tuple[str, tuple[Any, ...]], ...] = (
            ("fail_fast", (True, False)),
            ("allow_partial", (True, False)),
            ("max_job_retries", (0, 1, 2)),
            ("max_concurrent", (1, 2, 5)),
            ("shard_size", ("auto", 1, 2, 4)),
            ("tolerated_failures", (0, 1, 3)),
            ("tolerated_failure_percentage", (10, 50)),
            ("queue_ttl_s", (1, 30)),
            ("max_shards", (3, 100)),
            ("keep_results", (True, False)),
            ("iter_key", ("k-{{ iter.index }}",)),
            ("reducers", ({"total": "sum", "all": "append"},)),
        )
        for name, values in options:
            if self._chance(0.3):
                fanout[name] = self.dice.choice(values)
        return loop, fanout

    # -- tasks -------------------------------------------------------------------------------

    def _tool(self, loops: bool, reducers: Fields) -> Any:
        if self._chance(0.5):
            return self._task("t1", [], loops, reducers)
        labels = [f"t{number}" for number in range(1, self.dice.randint(1, 3) + 1)]
        return [{"name": label, **self._task(label, labels, loops, reducers)} for label in labels]

    def _task(self, label: str, labels: list[str], loops: bool, reducers: Fields) -> Fields:
        kind = self.dice.choice(("noop", "noop", "python", "http", "shell"))
        task: Fields = {"kind": kind}
        if kind == "noop" and self.waits.random() < 0.3:
            task |= self._wait(loops)
        match kind:
            case "python":
                task["code"] = self.dice.choice(_CODE)
            case "http":
                task["url"] = "https://example.org/{{ iter.x }}" if loops else "https://example.org"
            case "shell":
                task["command"] = "work"
        if task["kind"] != "wait" and self.durations.random() < 0.1:
            task["timeout"] = self._duration("20s")
        if self._chance(0.2):
            task["set_iter"] = {"last": "{{ _prev }}"}
        rules = self._rules(label, labels, reducers)
        if rules:
            task["spec"] = {"policy": {"rules": rules}}
        return task

    def _wait(self, loops: bool) -> Fields:
        dice = self.waits
        time: Fields = {"kind": "wait", "for": dice.choice(("0s", "1s", "1m"))}
        if dice.random() < 0.3:
            return time
        fits = ["{{ signal.payload.n % 2 == 0 }}", "{{ signal.payload.n >= 0 }}"]
        fits += ["{{ signal.payload.n == iter.x }}"] * 2 if loops else []
        wait: Fields = {"kind": "wait", "event": dice.choice(("e1", "e2"))}
        if dice.random() < 0.6:
            wait["filter"] = dice.choice(fits)
        if dice.random() < 0.5:
            wait["timeout"] = self._duration(dice.choice(("1s", "30s")))
        return wait

    def _duration(self, plain: str) -> str:
        """As it is, or what a template gives."""
        return f"{{{{ '{plain}' }}}}" if self.durations.random() < 0.4 else plain

    def _rules(self, label: str, labels: list[str], reducers: Fields) -> list[Fields]:
        rules: list[Fields] = []
        if self._chance(0.3):
            attempts, delay = self.dice.randint(2, 3), self._duration("1s")
            retry: Fields = {"do": "retry", "attempts": attempts, "delay": delay}
            do = self.dice.choice((retry, retry, {"do": "continue"}, {"do": "fail"}))
            rules.append({"when": "{{ outcome.status == 'error' }}", "then": do})
        if labels and self._chance(0.15):
            jump = {
                "do": "jump",
                "to": label,
                "set_iter": {"page": "{{ iter.page | default(0) + 1 }}"},
            }
            rules.append({"when": "{{ iter.page | default(0) < 2 }}", "then": jump})
        if self._chance(0.1):
            rules.append({"when": "{{ outcome.status == 'ok' }}", "then": {"do": "break"}})
        if reducers and self._chance(0.8):
            shared = {"total": "{{ iter.index }}", "all": "{{ iter.index }}"}
            ok = "{{ outcome.status == 'ok' }}"
            rules.append({"when": ok, "then": {"do": "continue", "set_shared": shared}})
        return rules


def _flow(value: Any) -> str:
    """One line of YAML; JSON is that."""
    return value if isinstance(value, str) else json.dumps(value)
